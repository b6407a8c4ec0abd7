"""Converts kombu payloads to broker messages and back, losslessly.

The body is stored as the serializer wrote it, so that a JSON task is readable in the explorer. The other parts of the payload
are stored as JSON in one application property. Pure: no Celery, no database, no clock.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kombu.utils.encoding import str_to_bytes
from kombu.utils.json import dumps, loads

from broker_core.service_bus.rules.limits import STRICT
from broker_core.service_bus.rules.values import LockedMessage, Message

ENVELOPE = "kombu"  # the application property: headers and properties as JSON
ENVELOPE_TYPE = "application/vnd.kombu+json"  # content type of a message whose body is the whole payload
LARGEST_ENVELOPE = STRICT.one_property - 1024  # ASCII characters; a larger envelope is stored in the body
_OWN_PROPERTIES = ("body_encoding", "delivery_tag")  # set at each delivery


def to_broker(payload: Mapping[str, Any], decode_body: Callable[[Any, str | None], Any]) -> Message:
    """The broker message for a payload of kombu's virtual transports.

    decode_body: reverses kombu's body encoding (base64 by default): (body, encoding) -> str or bytes.
    The message id is the task's, so that a repeated send has the same; an ETA becomes the schedule.
    """
    headers, properties = payload.get("headers") or {}, payload["properties"]
    body = str_to_bytes(decode_body(payload.get("body") or b"", properties.get("body_encoding")))
    envelope = {
        "headers": headers,
        "properties": {name: value for name, value in properties.items() if name not in _OWN_PROPERTIES},
    }
    content_type, content_encoding = payload.get("content-type"), payload.get("content-encoding")
    if content_encoding is not None:
        envelope["content-encoding"] = content_encoding
    text = dumps(envelope)
    if len(text) > LARGEST_ENVELOPE:
        whole = {**envelope, "content-type": content_type, "body": base64.b64encode(body).decode()}
        body, content_type, carried = dumps(whole).encode(), ENVELOPE_TYPE, {}
    else:
        carried = {ENVELOPE: text}
    return Message(
        body=body,
        message_id=_short(headers.get("id") or properties.get("message_id") or properties.get("delivery_tag")),
        correlation_id=_short(properties.get("correlation_id")),
        reply_to=_short(properties.get("reply_to")),
        subject=_short(headers.get("task")),
        content_type=content_type,
        scheduled_enqueue_at=_instant(headers.get("eta")),
        properties=carried,
    )


def from_broker(message: LockedMessage, delivery_tag: str) -> dict[str, Any]:
    """The kombu payload of a received message. For a message not sent by kombu it has only the body and content type.

    Raises ValueError if the envelope cannot be read.
    """
    try:
        return _payload(message, delivery_tag)
    except (TypeError, AttributeError, KeyError) as exc:
        raise ValueError(f"its envelope {ENVELOPE!r} does not contain headers and properties ({exc!r})") from exc


def _payload(message: LockedMessage, delivery_tag: str) -> dict[str, Any]:
    body, content_type = message.body, message.content_type
    if content_type == ENVELOPE_TYPE:
        envelope = loads(body)
        body, content_type = base64.b64decode(envelope["body"]), envelope["content-type"]
    else:
        envelope = loads(message.properties.get(ENVELOPE) or "{}")
    properties = {**envelope.get("properties", {}), "body_encoding": None, "delivery_tag": delivery_tag}
    delivery_info = {"exchange": "", "routing_key": "", **(properties.get("delivery_info") or {})}
    properties["delivery_info"] = {**delivery_info, "redelivered": message.delivery_count > 0}
    return {
        "body": body,
        "content-type": content_type,
        "content-encoding": envelope.get("content-encoding"),
        "headers": dict(envelope.get("headers", {})),
        "properties": properties,
    }


def _short(text: Any) -> str | None:
    """The text, or None if it is too long for a broker property. It is only for display and search; the envelope has it too."""
    return text if isinstance(text, str) and 0 < len(text) <= STRICT.message_id and "\x00" not in text else None


def _instant(eta: Any) -> datetime | None:
    """When a task is due; None for an ETA without a time zone, which Celery handles itself."""
    try:
        due = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    except ValueError:
        return None
    return due if isinstance(due, datetime) and due.tzinfo is not None else None
