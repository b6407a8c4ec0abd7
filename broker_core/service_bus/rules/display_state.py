"""What a stored message is at an instant: the state a person reads, and whether a receive may hand it out.

A row holds instants (docs/design.md D5); the state that follows is decided here, for pages and API alike. The SQL that
receives must agree: what it returns is AVAILABLE, or LOCK_ENDED.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from broker_core.common.types import MessageState, SubQueue


class DisplayState(StrEnum):
    """What a person calls the message's state. "pending": its instant has passed and no sweep or receive has acted yet."""

    AVAILABLE = "available"
    LOCK_ENDED = "lock ended"
    LOCKED = "locked"
    DEFERRED = "deferred"
    DEFERRED_EXPIRED = "expired, deferred"
    SCHEDULED = "scheduled"
    DUE = "due, pending"
    EXPIRED = "expired, pending"
    SPENT = "spent, pending"

    @property
    def is_pending(self) -> bool:
        """Whether the broker will act on it by itself as soon as it looks."""
        return self in (DisplayState.LOCK_ENDED, DisplayState.DUE, DisplayState.EXPIRED, DisplayState.SPENT)


class LockFacts(Protocol):
    """The columns that a lock, and what has failed, follow from."""

    @property
    def subqueue(self) -> SubQueue: ...
    @property
    def delivery_count(self) -> int: ...
    @property
    def locked_until(self) -> datetime | None: ...


class StateFacts(LockFacts, Protocol):
    """The columns a standing follows from. expires_at: effective, from the message's own time-to-live or its entity's default."""

    @property
    def state(self) -> MessageState: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def scheduled_enqueue_at(self) -> datetime | None: ...


def display_state(message: StateFacts, now: datetime) -> DisplayState:
    """The message's standing at `now` of its namespace's clock.

    A lock protects from expiry while it lasts (SB-038); an ended lock no one has touched counts as one failed delivery
    (SB-090); expiry is decided before the delivery limit (SB-920); in a dead-letter queue neither applies (SB-035, SB-089).
    """
    if message.state == MessageState.SCHEDULED:
        return DisplayState.DUE if _passed(message.scheduled_enqueue_at, now) else DisplayState.SCHEDULED
    if is_locked(message, now):
        return DisplayState.LOCKED
    expired = is_over(message, now)
    if message.state == MessageState.DEFERRED:
        return DisplayState.DEFERRED_EXPIRED if expired else DisplayState.DEFERRED
    if expired:
        return DisplayState.EXPIRED
    if message.subqueue == SubQueue.MAIN and failures(message, now) >= message.max_delivery_count:
        return DisplayState.SPENT
    return DisplayState.LOCK_ENDED if message.locked_until is not None else DisplayState.AVAILABLE


def next_change_at(message: StateFacts, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing: the end of a lock, of a wait, of a life. None: never."""
    found = display_state(message, now)
    if found == DisplayState.LOCKED:
        return message.locked_until
    if found == DisplayState.SCHEDULED:
        return message.scheduled_enqueue_at
    may_expire = found in (DisplayState.AVAILABLE, DisplayState.LOCK_ENDED, DisplayState.DEFERRED)
    return message.expires_at if may_expire and message.subqueue == SubQueue.MAIN else None


def is_locked(message: LockFacts, now: datetime) -> bool:
    """A lock is valid before the instant it ends (SB-070)."""
    return lock_ends_at(message, now) is not None


def lock_ends_at(message: LockFacts, now: datetime) -> datetime | None:
    """When the lock that holds it at `now` ends; None: none does."""
    until = message.locked_until
    return until if until is not None and now < until else None


def is_over(message: StateFacts, now: datetime) -> bool:
    """Whether its life has ended, locked or not; nothing expires outside the main list (SB-035), nor while scheduled (SB-024)."""
    return life_ended_at(message, now) is not None


def life_ended_at(message: StateFacts, now: datetime) -> datetime | None:
    """When its life ended; None: it has not (see `is_over`)."""
    if message.subqueue != SubQueue.MAIN or message.state == MessageState.SCHEDULED:
        return None
    end = message.expires_at
    return end if end is not None and end <= now else None


def failures(message: LockFacts, now: datetime) -> int:
    """Failed deliveries so far; a lock that ended and that nobody has touched yet counts as one (SB-090), but not in the
    dead-letter queue (SB-089)."""
    ended = message.locked_until is not None and not is_locked(message, now)
    return message.delivery_count + (ended and message.subqueue == SubQueue.MAIN)


def _passed(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now
