"""What Service Bus decides about a message: when its life ends, who may have it, what a settlement or a failed delivery does
to it.

Pure: facts and the time go in, a decision comes out. The statements in `store/sql` carry the same rules for whole sets; a test
compares the two on generated cases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind, require_storable
from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.limits import STRICT
from broker_core.common.types import JSON_PROPERTIES, BodyKind, Message, MessageState, QueueSettings, SubQueue
from broker_core.common.values import encode_properties

from . import standing
from .standing import failures, is_locked  # noqa: F401 -- failures is one of the rules told here

TTL_EXPIRED = "TTLExpiredException"
MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"
TTL_EXPIRED_DESCRIPTION = "The message expired and was dead lettered."


class Settlement(StrEnum):
    """How a locked message ends its lock."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    RELEASE = "release"
    DEFER = "defer"
    DEAD_LETTER = "dead_letter"
    RENEW = "renew"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know of a stored message. expires_at comes from its own time-to-live; see ends_at."""

    subqueue: SubQueue
    state: MessageState
    delivery_count: int
    enqueued_at: datetime
    expires_at: datetime | None = None
    scheduled_enqueue_at: datetime | None = None
    locked_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class InForce:
    """Facts with what the entity adds: the end of life in force, and the deliveries it allows. What `standing` judges."""

    subqueue: SubQueue
    state: MessageState
    delivery_count: int
    max_delivery_count: int
    expires_at: datetime | None
    scheduled_enqueue_at: datetime | None
    locked_until: datetime | None


@dataclass(frozen=True, slots=True)
class Remove:
    """The message is gone."""


@dataclass(frozen=True, slots=True)
class MakeAvailable:
    """Unlocked at its place, in the state it has (SB-063, SB-084). delivery_count: failed deliveries from now on."""

    delivery_count: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Deferred: received by number alone."""


@dataclass(frozen=True, slots=True)
class MoveToDeadLetter:
    reason: str | None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class KeepLocked:
    until: datetime


@dataclass(frozen=True, slots=True)
class Refuse:
    """The lock is lost: nothing changes (SB-070)."""


Outcome = Remove | MakeAvailable | SetAside | MoveToDeadLetter | KeepLocked | Refuse


def ends_at(message: Facts, settings: QueueSettings) -> datetime | None:
    """The instant its life ends: by its own time-to-live as capped when it was sent, else by the entity's default of now
    (SB-020, SB-921).

    None: never; also while it is scheduled, for a life begins when it is due (SB-024).
    """
    if message.state is MessageState.SCHEDULED:
        return None
    if message.expires_at is not None:
        return message.expires_at
    default = settings.default_message_time_to_live
    return None if default is None else message.enqueued_at + default


def own_time_to_live(asked: timedelta | None, settings: QueueSettings) -> timedelta | None:
    """The time-to-live stored with a message: what was asked, lowered to the entity's default (SB-020); None if none was
    asked."""
    if asked is None or settings.default_message_time_to_live is None:
        return asked
    return min(asked, settings.default_message_time_to_live)


def in_force(message: Facts, settings: QueueSettings) -> InForce:
    """The message as its standing is judged, with what its entity adds."""
    return InForce(
        message.subqueue,
        message.state,
        message.delivery_count,
        settings.max_delivery_count,
        ends_at(message, settings),
        message.scheduled_enqueue_at,
        message.locked_until,
    )


def has_expired(message: Facts, now: datetime, settings: QueueSettings) -> bool:
    """Whether its life is over, locked or not; a dead-lettered message has none (SB-035)."""
    return standing.is_over(in_force(message, settings), now)


def is_available(message: Facts, now: datetime, settings: QueueSettings) -> bool:
    """Whether a receive may return it now (SB-025, SB-061, SB-091). The entity's status is not looked at here."""
    return standing.is_deliverable(in_force(message, settings), now)


def after_failed_delivery(message: Facts, count: int, now: datetime, settings: QueueSettings) -> Outcome:
    """What a failed delivery leads to: expiry first (SB-027, SB-920), then the last allowed failure (SB-091), else it is
    available again.

    count: failed deliveries including this one. A deferred message expires only when it is asked for (SB-036), so not here.
    """
    if message.subqueue is not SubQueue.MAIN:
        return MakeAvailable(0)
    if message.state is MessageState.ACTIVE and has_expired(message, now, settings):
        if settings.requires_session and settings.expires_whole_sessions:
            return MakeAvailable(count)  # not for long: its whole session goes (SB-037)
        return expire(settings)
    if count >= settings.max_delivery_count:
        return MoveToDeadLetter(
            MAX_DELIVERY_COUNT_EXCEEDED,
            f"Message could not be consumed after {settings.max_delivery_count} delivery attempts.",
        )
    return MakeAvailable(count)


def expire(settings: QueueSettings) -> Outcome:
    """What happens to an expired message that nobody holds (SB-033, SB-034)."""
    if settings.dead_lettering_on_message_expiration:
        return MoveToDeadLetter(TTL_EXPIRED, TTL_EXPIRED_DESCRIPTION)
    return Remove()


def settle(message: Facts, how: Settlement, *, now: datetime, settings: QueueSettings) -> Outcome:
    """Decide what settling a peek-locked message does to it.

    message: as stored, with the lock whose token was shown.
    Returns Refuse at or after `locked_until`. Raises NotAllowed for dead-lettering a dead letter (SB-089).
    Source: Service Bus documentation, "Message transfers, locks, and settlement".
    """
    if how is Settlement.DEAD_LETTER:
        check_may_dead_letter(message.subqueue)
    if not is_locked(message, now):
        return Refuse()
    match how:
        case Settlement.COMPLETE:
            return Remove()
        case Settlement.DEFER:
            return SetAside()
        case Settlement.DEAD_LETTER:
            return MoveToDeadLetter(None)
        case Settlement.RELEASE:
            return MakeAvailable(message.delivery_count)
        case Settlement.RENEW:
            return KeepLocked(now + settings.lock_duration)
        case Settlement.ABANDON:
            return after_failed_delivery(message, message.delivery_count + 1, now, settings)
    raise AssertionError(how)


def check_may_dead_letter(subqueue: SubQueue) -> None:
    """Raise NotAllowed in a dead-letter queue (SB-089)."""
    if subqueue is not SubQueue.MAIN:
        raise NotAllowed("A message in a dead-letter queue cannot be dead-lettered again. Complete or resubmit it.")


# Sending


class Prepared(NamedTuple):  # it is made for each message sent, and a tuple is made fastest
    """A message checked and ready to be stored. size: bytes of body and properties; the texts are JSON, None where empty."""

    message: Message
    time_to_live: timedelta | None
    size: int
    properties: str | None
    application_properties: str | None


_TEXTS = ("message_id", "session_id", *JSON_PROPERTIES)
_SHORT = ("message_id", "session_id", "partition_key", "via_partition_key", "reply_to_session_id")
_texts_of = attrgetter(*_TEXTS)  # all at once: it runs for each message sent


def prepare(message: Message) -> Prepared:
    """Check a message on its own and turn its properties into what is stored.

    Raises InvalidArgument naming the property (SB-009, 1.2, 2.1) and MessageTooLarge for properties over their limits (2.4);
    the size of the whole depends on the entity and is checked where it is stored.
    """
    if type(message) is not Message:
        require_kind("messages", message, Message)
    check_body(message.body)
    if type(message.properties) is not dict or type(message.extra) is not dict or type(message.body_kind) is not BodyKind:
        _check_kinds(message)
    texts = _texts_of(message)
    if any(texts):
        _check_texts(message)
    if message.scheduled_enqueue_at is not None:
        require_kind("scheduled_enqueue_at", message.scheduled_enqueue_at, datetime)
        if message.scheduled_enqueue_at.tzinfo is None:
            raise InvalidArgument("scheduled_enqueue_at", "needs a time zone")
    broker = {name: text for name, text in zip(_TEXTS[2:], texts[2:], strict=True) if text is not None} if any(texts) else {}
    if message.extra:
        broker |= _checked_extra(message.extra)
    broker_json = json.dumps(broker) if broker else None
    application_json = properties_json(message.properties)
    size = len(message.body) + len(message.message_id or "") + len(message.session_id or "")
    size += len(broker_json or "") + len(application_json or "")
    return Prepared(message, _time_to_live(message.time_to_live), size, broker_json, application_json)


def check_body(body: Any) -> None:
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidArgument("body", f"must be bytes, not {type(body).__name__}; encode text first")


def properties_json(properties: Mapping[str, Any] | None) -> str | None:
    """Application properties as stored, None if there are none. Raises InvalidArgument and MessageTooLarge (2.4)."""
    if not properties:
        return None
    encoded = encode_properties(properties)
    for name, (_, text) in encoded.items():
        if len(name) + len(text or "") > STRICT.one_property:
            raise MessageTooLarge(f"application property {name[:40]!r}", len(name) + len(text or ""), STRICT.one_property)
    return check_properties_fit(encoded)


def check_properties_fit(encoded: Mapping[str, list]) -> str:
    """Application properties as JSON. Raises MessageTooLarge for more than a message may have (2.4)."""
    stored = json.dumps(encoded)
    if len(stored) > STRICT.all_properties:
        raise MessageTooLarge("set of application properties", len(stored), STRICT.all_properties)
    return stored


def _check_kinds(message: Message) -> None:
    """Of what is nearly always of the very class that Message names."""
    require_kind("properties", message.properties, Mapping)
    require_kind("extra", message.extra, Mapping)
    if message.body_kind not in tuple(BodyKind):
        raise InvalidArgument("body_kind", f"must be one of BodyKind, not {repr(message.body_kind)[:80]}")


def _checked_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in extra.items():
        require_kind("extra", name, str)
        require_storable("extra", name)
        if isinstance(value, str):
            require_storable("extra", value)
        elif not isinstance(value, int | float | None):
            raise InvalidArgument("extra", f"{name!r} must be a string or a number, not {repr(value)[:80]}")
    return dict(extra)


def _check_texts(message: Message) -> None:
    for name, value in zip(_TEXTS, _texts_of(message), strict=True):
        if value is None:
            continue
        if not isinstance(value, str):
            raise InvalidArgument(name, f"must be a string, not {type(value).__name__}")
        require_storable(name, value)
        if name in _SHORT and len(value) > STRICT.message_id:
            raise InvalidArgument(name, f"has {len(value)} characters; at most {STRICT.message_id} are allowed")
    if message.session_id and message.partition_key and message.session_id != message.partition_key:
        raise InvalidArgument("partition_key", "must equal session_id where both are set (SB-009)")


def _time_to_live(asked: timedelta | None) -> timedelta | None:
    """SB-021, SB-039: unset, zero and what is longer than anybody waits mean no limit of its own."""
    if asked is None:
        return None
    require_kind("time_to_live", asked, timedelta)
    if asked >= FOREVER or asked == timedelta(0):
        return None
    if asked < timedelta(0):
        raise InvalidArgument("time_to_live", f"{asked} is negative; use a positive duration or none (SB-039)")
    return asked
