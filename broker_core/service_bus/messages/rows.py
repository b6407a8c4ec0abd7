"""Converts rows to the values of `common.types`."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar

from broker_core.common.types import BodyKind, EntityAddress, MessageState
from broker_core.service_bus.rules.amqp.properties import decode_properties
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.amqp.types import MessageId
from broker_core.service_bus.rules.values import JSON_PROPERTIES, LockedMessage, Message, StoredMessage

M = TypeVar("M", bound=StoredMessage)
_SEQUENCE_NUMBER = attrgetter("sequence_number")
_STATES = {state.value: state for state in MessageState}  # ten times as fast as calling the enum
_BODY_KINDS = {kind.value: kind for kind in BodyKind}


def stored_message(row: Any) -> StoredMessage:
    """The message of a row that also has its entity's default time-to-live."""
    return _build(StoredMessage, _fields(row))


def locked_message(row: Any, address: EntityAddress) -> LockedMessage:
    fields = _fields(row)
    fields["lock_token"] = row.lock_token
    fields["locked_until"] = row.locked_until
    fields["lock_duration"] = row.locked_until - row.last_received_at
    fields["address"] = address
    return _build(LockedMessage, fields)


def by_number(rows: list) -> list:
    """The rows in the order of their sequence numbers: an UPDATE or DELETE returns them in no order."""
    return sorted(rows, key=_SEQUENCE_NUMBER) if len(rows) > 1 else rows


def _build(kind: type[M], fields: dict[str, Any]) -> M:
    """A message with all fields set at once: twice as fast as the constructor of a frozen dataclass."""
    message = object.__new__(kind)
    message.__dict__.update(fields)
    return message


def _fields(row: Any) -> dict[str, Any]:
    ends_at = row.expires_at
    if ends_at is None and row.default_message_time_to_live is not None and row.subqueue == 0 and row.state != 2:
        ends_at = row.enqueued_at + row.default_message_time_to_live
    return {
        "sequence_number": row.sequence_number,
        "state": _STATES[row.state],
        "delivery_count": row.delivery_count,
        "enqueued_at": row.enqueued_at,
        "expires_at": ends_at,
        "time_to_live": row.time_to_live,
        "scheduled_enqueue_at": row.scheduled_enqueue_at,
        "message_id": row.message_id if row.encoded is None else _typed_id(row),
        "session_id": row.session_id,
        "body": row.body,
        "body_kind": _BODY_KINDS[row.body_kind],
        "broker_properties": row.properties or {},
        "raw_application_properties": row.application_properties or {},
        "dead_letter_reason": row.dead_letter_reason,
        "dead_letter_description": row.dead_letter_description,
        "dead_letter_source": row.dead_letter_source,
        "enqueued_sequence_number": row.enqueued_sequence_number,
        "encoded": row.encoded,
    }


def _typed_id(row: Any) -> MessageId | None:
    return AmqpSections.stored(row.encoded).typed_id("message-id", row.message_id)


def sent_message(row: Any) -> Message:
    """The message as it was sent, its properties with their types, its ids as text."""
    broker = row.properties or {}
    known = {name: broker[name] for name in JSON_PROPERTIES if name in broker}
    return Message(
        body=row.body,
        message_id=row.message_id,
        session_id=row.session_id,
        time_to_live=row.time_to_live,
        scheduled_enqueue_at=row.scheduled_enqueue_at,
        properties=decode_properties(row.application_properties or {}),
        body_kind=BodyKind(row.body_kind),
        amqp=None if row.encoded is None else AmqpSections.stored(row.encoded),
        **known,
    )
