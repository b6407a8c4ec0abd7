"""Whole requests in this process: bytes go through the HTTP parser, its limits, the application and the database, and the bytes
of the answers come back. Only the socket is missing.

In an input, SIGNATURE is replaced by a valid one (of the header, or of the shared access signature), DATE by the current date,
MESSAGE and RECEIPT by those of a message: so changed requests come past the signature.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID
from xml.parsers import expat

import uvicorn
from uvicorn.server import ServerState

from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage.http import answers, application
from broker_core.queue_storage.http.errors import TABLE
from broker_core.queue_storage.rules import sas, shared_key
from broker_core.queue_storage.rules.errors import StorageRefusal
from broker_core.queue_storage.rules.shared_key import Credential, SignedParts
from broker_core.wire.bounded_http import BoundedHttp
from broker_core.wire.http.dates import read_rfc1123, write_rfc1123

from .targets import fake_request

ACCOUNT, QUEUE = "fuzzed", "orders"
KEY = "QUJD" * 21 + "QQ=="
HTTP_REFUSALS = (400, 408, 429, 431)  # of what is no request of HTTP; these close the connection
MOST_MESSAGES = 200  # then the queue is emptied
_CODES = {(row.status, row.code) for row in TABLE.values() if row.status < 500}


class Finding(AssertionError):
    """The server has done what it must not."""


class Transport(asyncio.Transport):
    """The server's side of a connection without a socket."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 10_001)})
        self.written = bytearray()
        self.is_closed = False

    def write(self, data) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = write_eof = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@dataclass
class Response:
    """headers: by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Requests:
    """Sends requests to the application in one event loop. Needs an account ACCOUNT with the primary key KEY."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._errors = loop, _Errors()
        self._config = uvicorn.Config(
            self._noting_method,
            interface="asgi3",
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        self._config.load()
        self._methods: list[str] = []
        self._put = 0

    def __call__(self, data: bytes) -> list[Response]:
        """Send the bytes on a connection of their own; returns the answers. Raises Finding."""
        with self._errors:
            return self._loop.run_until_complete(self._exchange(data))

    async def _exchange(self, data: bytes) -> list[Response]:
        message = await self._message()
        data = _filled(data, message)
        state, transport = ServerState(), Transport()
        protocol = BoundedHttp(self._config, state, {}, self._loop)
        self._methods.clear()
        protocol.connection_made(transport)
        protocol.data_received(data)
        while state.tasks:
            if protocol._in_message:  # the end of the request is missing, and never comes
                protocol.connection_lost(None)
            await asyncio.wait(set(state.tasks))
        if protocol in state.connections:
            protocol.connection_lost(None)
        found = _read(bytes(transport.written), self._methods)
        for method, response in zip([*self._methods, *[""] * len(found)], found, strict=False):
            check(method, response)
        return found

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

    async def _noting_method(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self._methods.append(scope["method"])
        await application(scope, receive, send)


class _Errors(logging.Handler):
    """Turns what the server logs as an error into a finding."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)

    def __enter__(self) -> None:
        self.seen.clear()
        logging.getLogger().addHandler(self)

    def __exit__(self, *exc: object) -> None:
        logging.getLogger().removeHandler(self)
        if self.seen and exc[0] is None:
            record = self.seen[0]
            raise Finding(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)


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


def _read(data: bytes, methods: list[str]) -> list[Response]:
    """The responses in the bytes that were sent. methods: of their requests; what follows is not of the application."""
    found: list[Response] = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        if not separator:
            raise Finding(f"a response without an end: {head[:200]!r}")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in lines)}
        status = int(line.split()[1])
        if status == 100:
            continue
        method = methods[len(found)] if len(found) < len(methods) else ""
        length = 0 if method == "HEAD" or status == 204 else int(headers["content-length"])
        if length > len(data):
            raise Finding(f"a response of {length} bytes has {len(data)}")
        found.append(Response(status, headers, data[:length]))
        data = data[length:]
    return found


def check(method: str, response: Response) -> None:
    """Raise Finding for a response that is not as documented (QS, sections 3.2 and 3.5). method: ""; it is of no request."""
    status, headers = response.status, response.headers
    if "x-ms-request-id" not in headers:
        _require(status in HTTP_REFUSALS and headers.get("connection") == "close", response)
        return
    UUID(headers["x-ms-request-id"])
    _require(200 <= status < 500, response)
    _require(re.fullmatch(r"\d{4}-\d\d-\d\d", headers["x-ms-version"], re.ASCII), response)
    _require(read_rfc1123(headers["date"]), response)
    _require(status != 204 or "content-length" not in headers, response)
    _require(method != "HEAD" or not response.body, response)
    if response.body:
        _require(headers["content-type"] == "application/xml", response)
        _well_formed(response)
    if status >= 400:
        _check_error(method, response)


def _check_error(method: str, response: Response) -> None:
    code = response.headers["x-ms-error-code"]
    refusals = {(cls.status, getattr(cls, "code", "")) for cls in _subclasses(StorageRefusal)}
    _require((response.status, code) in _CODES | refusals, response)
    if method == "HEAD":
        return
    texts = _well_formed(response)
    _require(texts[:2] == ["Error", "Code"], response)
    _require(f"<Code>{code}</Code>".encode() in response.body, response)
    _require(f"RequestId:{response.headers['x-ms-request-id']}\nTime:".encode() in response.body, response)


def _subclasses(cls: type[StorageRefusal]) -> list[type[StorageRefusal]]:
    return [cls, *(deeper for direct in cls.__subclasses__() for deeper in _subclasses(direct))]


def _well_formed(response: Response) -> list[str]:
    """The names of the elements of a body, in their order."""
    names: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: names.append(name)
    try:
        parser.Parse(response.body, True)
    except expat.ExpatError as problem:
        raise Finding(f"{problem}: {response}") from problem
    return names


def _require(holds: object, response: Response) -> None:
    if not holds:
        raise Finding(str(response))
