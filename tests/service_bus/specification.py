"""What Service Bus decides about a stored message and about a session, as plain functions: facts and the time go in, a decision
comes out.

The statements in service_bus/sql decide the same for whole sets. The models in test_model.py and test_session_model.py run random
operations and compare what the broker did with what these functions say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker_core.common.types import MessageState, SubQueue
from broker_core.service_bus.rules import display_state
from broker_core.service_bus.rules.display_state import DisplayState, failures, is_locked
from broker_core.service_bus.rules.messages import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED, check_may_dead_letter
from broker_core.service_bus.rules.values import QueueSettings

TTL_EXPIRED_DESCRIPTION = "The message expired and was dead lettered."
DELIVERABLE = (DisplayState.AVAILABLE, DisplayState.LOCK_ENDED)
__all__ = ["failures", "is_locked"]  # of production, and a part of what is specified


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
    """Facts with what the entity adds: the end of life in force, and the deliveries it allows. What `display_state` judges."""

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
    return display_state.is_expired(in_force(message, settings), now)


def is_available(message: Facts, now: datetime, settings: QueueSettings) -> bool:
    """Whether a receive may return it now (SB-025, SB-061, SB-091). The entity's status is not looked at here."""
    return display_state.display_state(in_force(message, settings), now) in DELIVERABLE


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


# Sessions


def session_is_held(locked_until: datetime | None, now: datetime) -> bool:
    """Whether somebody holds the session: its lock is valid before the instant it ends (SB-112)."""
    return locked_until is not None and now < locked_until


def session_is_over(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> bool:
    """Whether the life of a whole session has ended, where its entity wants it so (SB-037, SB-901).

    messages: the session's, in the order of their numbers. One active message decides that nobody holds and that has expired: any
    with a time-to-live of its own; of those that live by the entity's default the first, which is the oldest.
    """
    if not settings.expires_whole_sessions:
        return False
    free = [m for m in messages if _is_active(m) and not is_locked(m, now)]
    by_default = [m for m in free if m.expires_at is None][:1]
    return any(has_expired(m, now, settings) for m in [*by_default, *(m for m in free if m.expires_at is not None)])


def deliverable(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> list[Facts]:
    """What the session's holder may receive now, in order (SB-114): nothing once the session is over."""
    messages = list(messages)
    if session_is_over(messages, now, settings):
        return []
    return [m for m in messages if _is_active(m) and is_available(m, now, settings)]


def taken_by_expiry(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> list[Facts]:
    """What expiry takes of a session's active messages: all that nobody holds once it is over, and each expired one where the
    entity lets sessions live on (SB-033, SB-034, SB-037)."""
    free = [m for m in messages if _is_active(m) and not is_locked(m, now)]
    if settings.expires_whole_sessions:
        return free if session_is_over(free, now, settings) else []
    return [m for m in free if has_expired(m, now, settings)]


def _is_active(message: Facts) -> bool:
    return message.subqueue is SubQueue.MAIN and message.state is MessageState.ACTIVE
