"""Parse the JSON body of a batch send (docs/http.md). Pure functions; all messages are valid, or an error is raised."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.values import Message
from broker_core.wire.http.json_text import describe, read_json, require_object

from . import broker_properties, custom_headers

MOST_MESSAGES = 5000  # parsing more at once would delay other requests of the process
CONTENT_TYPE = "application/vnd.microsoft.servicebus.json"


def is_batch(content_type: str | None) -> bool:
    """Whether a send is a batch. Raises InvalidArgument for a content type with parameters, which the service treats as one
    message."""
    kind, _, parameters = (content_type or "").partition(";")
    if kind.strip().lower() != CONTENT_TYPE:
        return False
    if parameters.strip():
        raise InvalidArgument(
            "header Content-Type", f"must be exactly {CONTENT_TYPE} for a batch, without {parameters.strip()!r}"
        )
    return True


def read(body: bytes) -> list[Message]:
    """The messages of a batch, in order. Raises InvalidArgument with the JSON path of the problem."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidArgument("body", f"is not valid UTF-8 at byte {exc.start}; send bytes with IsBodyBase64") from exc
    items = read_json(text, "body")
    if not isinstance(items, list) or not items:
        raise InvalidArgument("body", f"must be a JSON array with at least one message, not {describe(items)}")
    if len(items) > MOST_MESSAGES:
        raise InvalidArgument("body", f"has {len(items):,} messages; a batch has at most {MOST_MESSAGES:,}")
    return [_message(item, f"[{index}]") for index, item in enumerate(items)]


def _message(item: Any, where: str) -> Message:
    item = require_object(item, where)
    if "Body" not in item:
        raise InvalidArgument(f"{where}.Body", 'is missing; use "" for an empty body')
    fields = broker_properties.read(_object(item, "BrokerProperties"), f"{where}.BrokerProperties")
    properties = custom_headers.read_object(_object(item, "UserProperties"), f"{where}.UserProperties")
    return Message(body=_body(item, where), properties=properties, **fields)


def _object(item: Mapping[str, Any], key: str) -> Any:
    value = item.get(key)
    return {} if value is None else value


def _body(item: Mapping[str, Any], where: str) -> bytes:
    text, encoded = item["Body"], item.get("IsBodyBase64", False)
    if not isinstance(encoded, bool):
        raise InvalidArgument(f"{where}.IsBodyBase64", f"must be true or false, not {describe(encoded)}")
    if text is None:
        return b""
    if not isinstance(text, str):
        raise InvalidArgument(f"{where}.Body", f"must be a string, not {describe(text)}; send bytes as base64 with IsBodyBase64")
    try:
        return base64.b64decode(text, validate=True) if encoded else text.encode()
    except ValueError as exc:
        raise InvalidArgument(f"{where}.Body", "is not valid base64" if encoded else "contains an unpaired surrogate") from exc
