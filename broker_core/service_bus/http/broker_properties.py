"""Read and write the BrokerProperties JSON object of a message (docs/http.md). Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core.common.durations import FOREVER, of_seconds, parse_timespan
from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.amqp.sections import text_of_id
from broker_core.service_bus.rules.values import LockedMessage, StoredMessage
from broker_core.wire.http.dates import read_rfc1123, write_rfc1123
from broker_core.wire.http.json_text import describe, read_json, require_object, require_text

HEADER = "BrokerProperties"

# JSON key -> field of Message. ContentType has its own header, except in a batch.
_TEXTS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "session_id",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "To": "to",
    "PartitionKey": "partition_key",
    "ViaPartitionKey": "via_partition_key",
    "ContentType": "content_type",
}
_ELSEWHERE = ("message_id", "session_id", "content_type")
_FOREVER_SECONDS = 922337203685.47754  # what the service shows for "never": the largest .NET TimeSpan


def read_header(text: str) -> dict[str, Any]:
    """Read the header as fields of Message. Raises InvalidArgument with the key."""
    return read(read_json(text, f"header {HEADER}"), HEADER)


def read(properties: Any, where: str) -> dict[str, Any]:
    """Read the JSON object as fields of Message. Unknown and response-only keys are ignored; null means absent.

    where: the object's JSON path, for errors.
    """
    properties = {key: value for key, value in require_object(properties, where).items() if value is not None}
    fields: dict[str, Any] = {
        name: require_text(properties[key], f"{where}.{key}") for key, name in _TEXTS.items() if key in properties
    }
    if "ScheduledEnqueueTimeUtc" in properties:
        fields["scheduled_enqueue_at"] = _instant(properties["ScheduledEnqueueTimeUtc"], f"{where}.ScheduledEnqueueTimeUtc")
    if "TimeToLive" in properties:
        fields["time_to_live"] = _seconds(properties["TimeToLive"], f"{where}.TimeToLive")
    elif "TimeToLiveTimeSpan" in properties:
        fields["time_to_live"] = _time_span(properties["TimeToLiveTimeSpan"], f"{where}.TimeToLiveTimeSpan")
    return fields


def write(message: StoredMessage) -> dict[str, Any]:
    """The properties of a received message. TimeToLive is the effective one (SB-029); DeliveryCount includes this delivery."""
    stored = message.broker_properties
    answer: dict[str, Any] = {key: stored.get(name) for key, name in _TEXTS.items() if name not in _ELSEWHERE}
    answer |= {
        "MessageId": None if message.message_id is None else text_of_id(message.message_id),
        "SessionId": message.session_id,
        "DeliveryCount": message.delivery_count + 1,
        "SequenceNumber": message.sequence_number,
        "EnqueuedSequenceNumber": message.enqueued_sequence_number,
        "EnqueuedTimeUtc": write_rfc1123(message.enqueued_at),
        "ScheduledEnqueueTimeUtc": _written(message.scheduled_enqueue_at),
        "State": message.state.name.capitalize(),
        "TimeToLive": _effective_seconds(message),
        "DeadLetterSource": message.dead_letter_source,
    }
    if isinstance(message, LockedMessage):
        answer |= {"LockToken": str(message.lock_token), "LockedUntilUtc": write_rfc1123(message.locked_until)}
    return {key: value for key, value in sorted(answer.items()) if value is not None}


def _instant(value: Any, where: str) -> datetime:
    text = require_text(value, where).strip()
    if instant := read_rfc1123(text):
        return instant
    try:
        instant = datetime.fromisoformat(text)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidArgument(where, f"{text[:40]!r} must be an RFC 1123 date such as 'Sun, 06 Nov 1994 08:49:37 GMT'") from exc


def _seconds(value: Any, where: str) -> timedelta | None:
    """A time-to-live in seconds; None (the entity's default) for zero and for the largest values (SB-039)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(where, f"must be a number of seconds, not {describe(value)}")
    if value < 0:
        raise InvalidArgument(where, f"must be a positive number of seconds, not {value}")
    return of_seconds(value) or None if value < FOREVER.total_seconds() else None


def _time_span(value: Any, where: str) -> timedelta | None:
    duration = parse_timespan(require_text(value, where), where)
    if duration is not None and duration < timedelta(0):
        raise InvalidArgument(where, f"must be positive, not {value}")
    return duration or None


def _effective_seconds(message: StoredMessage) -> float:
    if message.expires_at is None:
        return message.time_to_live.total_seconds() if message.time_to_live else _FOREVER_SECONDS
    return (message.expires_at - message.enqueued_at).total_seconds()


def _written(instant: datetime | None) -> str | None:
    return write_rfc1123(instant) if instant else None
