"""Whole requests of Queue Storage.

In an input, SIGNATURE is replaced by a valid one (of the header, or of the shared access signature), DATE by the current date,
MESSAGE and RECEIPT by those of a message: so changed requests come past the signature.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import UUID

from broker_core import queue_storage
from broker_core.common.errors import EntityExists
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts
from broker_core.queue_storage.http import answers, application
from broker_core.queue_storage.http.errors import TABLE
from broker_core.queue_storage.rules import sas, shared_key
from broker_core.queue_storage.rules.errors import StorageRefusal
from broker_core.queue_storage.rules.shared_key import Credential, SignedParts
from broker_core.wire.http.dates import read_rfc1123, write_rfc1123

from ..requests import HTTP_REFUSALS, Response, Scope, require, well_formed
from .targets import fake_request

ACCOUNT, QUEUE = "fuzzed", "orders"
KEY = "QUJD" * 21 + "QQ=="
MOST_MESSAGES = 200  # then the queue is emptied
_CODES = {(row.status, row.code) for row in TABLE.values() if row.status < 500}


class QueueStorage:
    """Creates the account ACCOUNT with the primary key KEY."""

    def __init__(self) -> None:
        with suppress(EntityExists):
            queue_storage.create_account(ACCOUNT)
        accounts.set_keys(ACCOUNT, primary=KEY)
        self.application, self._put = application, 0

    async def fill(self, data: bytes) -> bytes:
        return _filled(data, await self._message())

    def check(self, scope: Scope | None, response: Response) -> None:
        """As documented (QS, sections 3.2 and 3.5)."""
        _check(scope["method"] if scope else "", response)

    async def _message(self) -> queue_storage.PutMessage:
        """A message in the queue, which exists."""
        address = EntityAddress(ACCOUNT, QUEUE)
        self._put += 1
        try:
            if self._put % MOST_MESSAGES == 0:
                await queue_storage.clear.aio(address)
            return await queue_storage.put.aio(address, "x")
        except StorageRefusal:
            await queue_storage.create_queue.aio(address)
            return await queue_storage.put.aio(address, "x")


def _filled(data: bytes, message: queue_storage.PutMessage) -> bytes:
    receipt = quote(answers.receipt_text(message.pop_receipt), safe="")
    data = data.replace(b"MESSAGE", message.message_id.encode()).replace(b"RECEIPT", receipt.encode())
    data = data.replace(b"DATE", write_rfc1123(datetime.now(UTC)).encode())
    if b"SIGNATURE" not in data:
        return data
    try:
        return data.replace(b"SIGNATURE", _signature(data).encode(), 1)
    except StorageRefusal:
        return data


def _signature(data: bytes) -> str:
    """The signature that makes a request valid, as far as the request can be read."""
    head, _, _ = data.partition(b"\r\n\r\n")
    line, *rest = head.split(b"\r\n")
    method, _, target = line.partition(b" ")
    path, _, query = target.rpartition(b" ")[0].partition(b"?")
    headers = [(name.lower(), value.strip()) for name, _, value in (part.partition(b":") for part in rest)]
    request = fake_request(query, headers)
    if b"SIGNATURE" in query:
        is_for_account = b"ss=" in query or b"srt=" in query
        signature = sas.signed(sas.parse(request.query_pairs), KEY, account=ACCOUNT, queue=None if is_for_account else QUEUE)
        return quote(signature.signature, safe="")
    scheme = shared_key.SHARED_KEY_LITE if b"SharedKeyLite" in head else shared_key.SHARED_KEY
    parts = SignedParts(method.decode("latin-1").upper(), path.decode("latin-1"), request.query_pairs, request.headers)
    [text, *_] = shared_key.texts_to_sign(Credential(scheme, ACCOUNT, ""), parts)
    return shared_key.sign(text, KEY)


def _check(method: str, response: Response) -> None:
    status, headers = response.status, response.headers
    if "x-ms-request-id" not in headers:
        require(status in HTTP_REFUSALS and headers.get("connection") == "close", response)
        return
    UUID(headers["x-ms-request-id"])
    require(200 <= status < 500, response)
    require(re.fullmatch(r"\d{4}-\d\d-\d\d", headers["x-ms-version"], re.ASCII), response)
    require(read_rfc1123(headers["date"]), response)
    require(status != 204 or "content-length" not in headers, response)
    require(method != "HEAD" or not response.body, response)
    if response.body:
        require(headers["content-type"] == "application/xml", response)
        well_formed(response)
    if status >= 400:
        _check_error(method, response)


def _check_error(method: str, response: Response) -> None:
    code = response.headers["x-ms-error-code"]
    refusals = {(cls.status, getattr(cls, "code", "")) for cls in _subclasses(StorageRefusal)}
    require((response.status, code) in _CODES | refusals, response)
    if method == "HEAD":
        return
    texts = well_formed(response)
    require(texts[:2] == ["Error", "Code"], response)
    require(f"<Code>{code}</Code>".encode() in response.body, response)
    require(f"RequestId:{response.headers['x-ms-request-id']}\nTime:".encode() in response.body, response)


def _subclasses(cls: type[StorageRefusal]) -> list[type[StorageRefusal]]:
    return [cls, *(deeper for direct in cls.__subclasses__() for deeper in _subclasses(direct))]
