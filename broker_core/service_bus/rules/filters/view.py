"""The view of a message that filters are evaluated on: system and application properties, never the body (SB-220)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

from broker_core.common.typed import Typed
from broker_core.common.types import MessageState
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties, plain
from broker_core.service_bus.rules.values import Message

_DIRECT = frozenset({str, int, float, bool, type(None), datetime, timedelta, UUID, bytes})
_INTEGERS = frozenset({"ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"})
_DECIMALS = frozenset({"decimal32", "decimal64", "decimal128"})


def comparable(name: str, value: Any) -> Any:
    """A value as filters compare it: str, int, float, bool, datetime, timedelta, UUID, bytes, or None.

    All integer types are one kind, all string types (symbol, uri, char) another; a decimal is treated as a double, a
    datetime-offset as its instant (SB-F04). name: for the InvalidArgument for an invalid value.
    """
    if value.__class__ in _DIRECT:
        return value
    if isinstance(value, Typed) and isinstance(value, int) and value.type in _INTEGERS:
        return value.value
    kind, text = encode_properties({name: value})[name]
    if text is not None and kind in _DECIMALS:
        return float(text) if "snan" not in text.lower() else float("nan")
    if kind == "datetime-offset":
        return _instant(text)
    return plain(decode_properties({name: [kind, text]})[name])


def _instant(text: str) -> datetime | str:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return at if at.tzinfo is not None else text


class MessageView:
    """One message, for all filters of a topic.

    user: application properties by their names in lower case; None is null. Of names that differ only in case, the first is used
    (SB-F03). Properties that are set later (lock, delivery count) have their values on arrival (SB-F15).
    """

    __slots__ = (
        *("dead_letter_source", "enqueued_at", "enqueued_sequence_number", "message", "new_id", "sequence_number", "size"),
        "user",
    )

    delivery_count = 0
    force_persistence = False
    state = int(MessageState.ACTIVE)
    locked_until = lock_token = None

    def __init__(
        self,
        message: Message,
        sequence_number: int | None,
        enqueued_at: datetime | None,
        size: int | None,
        enqueued_sequence_number: int | None,
        dead_letter_source: str | None,
        new_id: Callable[[], UUID] | None,
    ):
        self.message, self.sequence_number, self.enqueued_at, self.size = message, sequence_number, enqueued_at, size
        self.enqueued_sequence_number, self.dead_letter_source = enqueued_sequence_number, dead_letter_source
        self.new_id = new_id
        self.user: dict[str, Any] = {}
        for name, value in message.properties.items():
            self.user.setdefault(name.lower(), value if value.__class__ in _DIRECT else comparable(name, value))

    @classmethod
    def of(
        cls,
        message: Message,
        *,
        sequence_number: int | None = None,
        enqueued_at: datetime | None = None,
        size: int | None = None,
        enqueued_sequence_number: int | None = None,
        dead_letter_source: str | None = None,
        new_id: Callable[[], UUID] | None = None,
    ) -> MessageView:
        """size: in bytes. new_id: the function behind newid(). Values that are not given are Unknown to filters.

        Raises InvalidArgument for an invalid property.
        """
        return cls(message, sequence_number, enqueued_at, size, enqueued_sequence_number, dead_letter_source, new_id)

    @property
    def expires_at(self) -> datetime | None:
        """The expiry by the message's own time-to-live; the defaults of entities are not known here."""
        if self.enqueued_at is None or self.message.time_to_live is None:
            return None
        return self.enqueued_at + self.message.time_to_live


def split_scope(name: str) -> tuple[bool, str]:
    """Split a name given as a string, as in property('sys.Label'): whether it is a system property, and the name without
    scope."""
    scope, dot, rest = name.partition(".")
    if dot and scope.lower() in ("sys", "user"):
        return scope.lower() == "sys", rest
    return False, name


@dataclass(frozen=True, slots=True)
class System:
    """A system property (`sys.`). field: the field of Message that SET changes; None: read-only."""

    name: str
    read: Callable[[MessageView], Any]
    field: str | None = None


def _sent(name: str, field: str) -> System:
    return System(name, attrgetter(f"message.{field}"), field)


_PROPERTIES = (
    _sent("ContentType", "content_type"),
    _sent("CorrelationId", "correlation_id"),
    System("DeadLetterSource", attrgetter("dead_letter_source")),
    System("DeliveryCount", attrgetter("delivery_count")),
    System("EnqueuedSequenceNumber", attrgetter("enqueued_sequence_number")),
    System("EnqueuedTimeUtc", attrgetter("enqueued_at")),
    System("ExpiresAtUtc", attrgetter("expires_at")),
    System("ForcePersistence", attrgetter("force_persistence")),
    _sent("Label", "subject"),
    System("LockedUntilUtc", attrgetter("locked_until")),
    System("LockToken", attrgetter("lock_token")),
    _sent("MessageId", "message_id"),
    _sent("PartitionKey", "partition_key"),
    _sent("ReplyTo", "reply_to"),
    _sent("ReplyToSessionId", "reply_to_session_id"),
    _sent("ScheduledEnqueueTimeUtc", "scheduled_enqueue_at"),
    System("SequenceNumber", attrgetter("sequence_number")),
    _sent("SessionId", "session_id"),
    System("Size", attrgetter("size")),
    System("State", attrgetter("state")),
    _sent("TimeToLive", "time_to_live"),
    _sent("To", "to"),
    System("ViaPartitionKey", attrgetter("message.via_partition_key")),
)
SYSTEM = {system.name.lower(): system for system in _PROPERTIES}
SYSTEM["subject"] = SYSTEM["label"]
# The properties that SET and REMOVE may change (SB-263): property name -> field of Message.
SETTABLE = {name: system.field for name, system in SYSTEM.items() if system.field is not None}
