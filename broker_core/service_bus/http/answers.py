"""Responses of the REST API: those with a message, and error responses."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from broker_core.common.errors import BrokerError
from broker_core.service_bus.rules.amqp_messages import payload
from broker_core.service_bus.rules.sas import SCHEME
from broker_core.service_bus.rules.values import StoredMessage
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.errors import BodyTooLarge, MethodNotAllowed
from broker_core.wire.http.json_text import write_json

from . import broker_properties, custom_headers
from .errors import wire_error

RETRY_AFTER_SECONDS = 2
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")


def with_message(status: int, message: StoredMessage, *, headers: list[tuple[str, str]], undo=None) -> Answer:
    """A response with the content of the message's body, unchanged, and its properties in headers."""
    own = [(broker_properties.HEADER, write_json(broker_properties.write(message)))]
    if message.content_type is not None:
        own.append(("content-type", _CONTROL.sub("", message.content_type)))
    return Answer(
        status, [*headers, *own, *custom_headers.write(message.properties)], payload(message.body_kind, message.body), undo
    )


def error_answer(exc: BrokerError, path: str) -> Answer:
    """The Error document: Code, and a Detail with sub code, text, whether to retry, tracking id, path and time."""
    wire = wire_error(exc)
    retry = "You can retry." if exc.retryable else "Retrying the same request does not help."
    text = str(exc).removesuffix(".")
    detail = (
        f"SubCode={wire.sub_code}. {text}. {retry} TrackingId:{exc.tracking_id}, SystemTracker:{path}, "
        f"Timestamp:{datetime.now(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    )
    body = f"<Error><Code>{wire.status}</Code><Detail>{escape(_NO_XML.sub('?', detail))}</Detail></Error>"
    headers = [
        ("content-type", "application/xml; charset=utf-8"),
        ("vitrine-tracking-id", exc.tracking_id),
        ("vitrine-retryable", "true" if exc.retryable else "false"),
    ]
    return Answer(wire.status, headers + _particular_headers(exc, wire.status), body.encode())


def _particular_headers(exc: BrokerError, status: int) -> list[tuple[str, str]]:
    if status == 401:
        return [("www-authenticate", SCHEME)]
    if status == 503:
        return [("retry-after", str(RETRY_AFTER_SECONDS))]
    if isinstance(exc, TooManyFailedAuthentications):
        return [("retry-after", str(exc.retry_after))]
    if isinstance(exc, MethodNotAllowed):
        return [("allow", ", ".join(exc.allowed))]
    return [("connection", "close")] if isinstance(exc, BodyTooLarge) else []
