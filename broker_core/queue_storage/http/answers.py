"""Answers with the headers that each has, and the bodies of messages and errors. Old clients depend on the order of elements."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from uuid import UUID

from broker_core.common.errors import BrokerError
from broker_core.queue_storage.values import GotMessage, PeekedMessage, PutMessage
from broker_core.wire import xml
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.dates import write_rfc1123
from broker_core.wire.http.errors import MethodNotAllowed

from .errors import wire_error
from .request import CLIENT_REQUEST_ID, DEFAULT_VERSION, VERSION, Request

ERROR_CODE = "x-ms-error-code"
NEVER = "Fri, 31 Dec 9999 23:59:59 GMT"
_XML = ("content-type", "application/xml")


def answer(request: Request, status: int, root: str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """root: the element of the body; None: there is none."""
    body = xml.document(root) if root is not None else b""
    given = [*(headers or {}).items(), *([_XML] if body else [])]
    return Answer(status, [*given, *_of_all(request)], b"" if request.method == "HEAD" else body)


def error(request: Request, exc: BrokerError) -> Answer:
    """The answer to a request that was refused."""
    wire = wire_error(exc)
    text = f"{exc}\nRequestId:{request.id}\nTime:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}0Z"
    details = [xml.element(name, value) for name, value in wire.details.items()]
    root = xml.element("Error", [xml.element("Code", wire.code), xml.element("Message", text), *details])
    return answer(request, wire.status, root, {ERROR_CODE: wire.code, **_what_helps(exc)})


def _what_helps(exc: BrokerError) -> dict[str, str]:
    """The header that says when, or with which method, a request may succeed."""
    if isinstance(exc, TooManyFailedAuthentications):
        return {"retry-after": str(exc.retry_after)}
    if isinstance(exc, MethodNotAllowed):
        return {"allow": ", ".join(exc.allowed)}
    return {}


def put_list(message: PutMessage) -> str:
    return _list([f"{_times(message)}{_receipt(message)}"])


def got_list(messages: Iterable[GotMessage]) -> str:
    return _list(f"{_times(message)}{_receipt(message)}{_count_and_text(message)}" for message in messages)


def peeked_list(messages: Iterable[PeekedMessage]) -> str:
    return _list(f"{_times(message)}{_count_and_text(message)}" for message in messages)


def receipt_text(receipt: UUID) -> str:
    """A pop receipt as clients get it, which is opaque to them."""
    return base64.b64encode(receipt.bytes).decode()


def read_receipt(text: str) -> UUID | str:
    """The receipt of such a text. Another text is returned as it is, and is found to be that of no message later (QS-061)."""
    try:
        return UUID(bytes=base64.b64decode(text, validate=True))
    except ValueError:
        return text


def date(at: datetime | None) -> str:
    return NEVER if at is None else write_rfc1123(at)


# The elements of messages


def _list(messages: Iterable[str]) -> str:
    return xml.element("QueueMessagesList", [f"<QueueMessage>{message}</QueueMessage>" for message in messages])


def _times(message: PutMessage | GotMessage | PeekedMessage) -> str:
    inserted, expires = date(message.inserted_at), date(message.expires_at)
    return (
        f"{xml.element('MessageId', message.message_id)}"
        f"<InsertionTime>{inserted}</InsertionTime><ExpirationTime>{expires}</ExpirationTime>"
    )


def _receipt(message: PutMessage | GotMessage) -> str:
    return (
        f"<PopReceipt>{receipt_text(message.pop_receipt)}</PopReceipt>"
        f"<TimeNextVisible>{date(message.visible_at)}</TimeNextVisible>"
    )


def _count_and_text(message: GotMessage | PeekedMessage) -> str:
    """The text may have characters that XML cannot hold: other front ends store any bytes (QS-912, QS-913)."""
    return f"<DequeueCount>{message.dequeue_count}</DequeueCount>{xml.element('MessageText', message.text)}"


def _of_all(request: Request) -> list[tuple[str, str]]:
    """The headers of each answer. A version that cannot be read is not echoed."""
    try:
        version = request.version
    except BrokerError:
        version = DEFAULT_VERSION
    given = [
        ("server", "Vitrine"),
        ("x-ms-request-id", request.id),
        (VERSION, version),
        ("date", write_rfc1123(datetime.now(UTC))),
    ]
    return [*given, *([(CLIENT_REQUEST_ID, request.client_request_id)] if request.client_request_id else [])]
