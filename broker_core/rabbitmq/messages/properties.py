"""Message properties (class basic) as published, as stored and as delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules import messages, table, wire_table

MAX_SHORT = 255  # bytes of a short string
SHORT = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id", "app_id"),
    "cluster_id",
)


@dataclass(frozen=True, slots=True)
class Properties:
    """Basic properties; None: not set. headers: a field table, see rabbitmq.rules.table.

    header_table: instead of headers, the table as a client encoded it (rules.wire_table); empty bytes are an empty table.
    expiration: the TTL in milliseconds as a string of digits (RMQ-005). delivery_mode: 1, or 2 for persistent. timestamp:
    whole seconds; their number since 1970 for one after the year 9999.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    header_table: bytes | None = None


NONE = Properties()
_STORED = tuple(f.name for f in fields(Properties) if f.name not in ("message_id", "timestamp", "headers", "header_table"))


class Checked(NamedTuple):
    """Validated properties as stored, without exchange and routing key. expiration: milliseconds. headers: decoded."""

    message_id: str | None
    stored: dict[str, Any]
    expiration: int | None
    headers: Mapping[str, Any]


def check(properties: Properties) -> Checked:
    """Raises AmqpError for properties that RabbitMQ refuses (RMQ-006, RMQ-361), InvalidArgument for those that AMQP cannot
    encode."""
    if properties is NONE:
        return Checked(None, {}, None, NONE.headers)
    require_kind("properties", properties, Properties)
    require_kind("headers", properties.headers, Mapping)
    for name in SHORT:
        _check_short(name, getattr(properties, name))
    if properties.priority is not None and (type(properties.priority) is not int or not 0 <= properties.priority <= 255):
        raise InvalidArgument("priority", f"{properties.priority!r} must be a whole number from 0 to 255")
    stored = {name: value for name in _STORED if (value := getattr(properties, name)) is not None}
    life = messages.check_properties(stored)
    if properties.timestamp is not None:
        stored["timestamp"] = _seconds(properties.timestamp)
    if properties.header_table is None:
        return Checked(properties.message_id, stored, life, properties.headers)
    require_kind("header_table", properties.header_table, bytes)
    if properties.headers:
        raise InvalidArgument("header_table", "cannot be given together with headers")
    return Checked(properties.message_id, stored, life, wire_table.decode(properties.header_table))


def read(stored: Mapping[str, Any], message_id: str | None, headers: Mapping[str, list] | None) -> Properties:
    """Properties as delivered, from stored ones."""
    values = {name: stored[name] for name in _STORED if name in stored}
    if "timestamp" in stored:
        values["timestamp"] = _instant(stored["timestamp"])
    return Properties(**values, message_id=message_id, headers=table.decode(headers or {}))


def _check_short(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidArgument(name, f"must be a string, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as exc:
        raise InvalidArgument(name, f"{value!r} is not valid UTF-8") from exc
    if size > MAX_SHORT or "\x00" in value:
        raise InvalidArgument(name, f"must have at most {MAX_SHORT} bytes and no NUL character")


def _instant(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # some clients send milliseconds
        return seconds


def _seconds(timestamp: Any) -> int:
    if type(timestamp) is int and 0 <= timestamp < 2**64:
        return timestamp
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None or timestamp.microsecond or timestamp.timestamp() < 0:
        raise InvalidArgument("timestamp", f"{timestamp!r} must be a datetime with a time zone, in whole seconds since 1970")
    return int(timestamp.timestamp())


def check_routing_key(routing_key: Any) -> None:
    check_short("routing_key", routing_key)


def check_short(name: str, value: Any) -> None:
    """Raises InvalidArgument for a value that is not a short string."""
    _check_short(name, value)
    if value is None:
        raise InvalidArgument(name, "must be a string; it may be empty")
