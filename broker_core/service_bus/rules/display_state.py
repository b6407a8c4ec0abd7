"""The display state of a stored message, and when it changes.

A row holds instants (docs/design.md D5); the state is derived from them here, for pages and APIs alike. The SQL of receives must
agree: it returns only messages that are AVAILABLE or LOCK_ENDED.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from broker_core.common.types import MessageState, SubQueue


class DisplayState(StrEnum):
    """A message's state as shown to users. "pending": it is due, and no sweep or receive has acted on it yet."""

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
        """Whether the next receive or sweep will act on the message."""
        return self in (DisplayState.LOCK_ENDED, DisplayState.DUE, DisplayState.EXPIRED, DisplayState.SPENT)


class LockFacts(Protocol):
    """The columns that determine a lock and the number of failed deliveries."""

    @property
    def subqueue(self) -> SubQueue: ...
    @property
    def delivery_count(self) -> int: ...
    @property
    def locked_until(self) -> datetime | None: ...


class StateFacts(LockFacts, Protocol):
    """The columns that determine a display state. expires_at: effective, by the message's own time-to-live or the default."""

    @property
    def state(self) -> MessageState: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def scheduled_enqueue_at(self) -> datetime | None: ...


def display_state(message: StateFacts, now: datetime) -> DisplayState:
    """The message's state at `now` by its namespace's clock.

    A message does not expire while it is locked (SB-038). A lock that has ended counts as a failed delivery (SB-090). Expiry is
    decided before the delivery limit (SB-920); in a dead-letter queue neither applies (SB-035, SB-089).
    """
    if message.state == MessageState.SCHEDULED:
        return DisplayState.DUE if _passed(message.scheduled_enqueue_at, now) else DisplayState.SCHEDULED
    if is_locked(message, now):
        return DisplayState.LOCKED
    expired = is_expired(message, now)
    if message.state == MessageState.DEFERRED:
        return DisplayState.DEFERRED_EXPIRED if expired else DisplayState.DEFERRED
    if expired:
        return DisplayState.EXPIRED
    if message.subqueue == SubQueue.MAIN and failures(message, now) >= message.max_delivery_count:
        return DisplayState.SPENT
    return DisplayState.LOCK_ENDED if message.locked_until is not None else DisplayState.AVAILABLE


def next_change_at(message: StateFacts, now: datetime) -> datetime | None:
    """When time alone changes the state: the end of a lock, the scheduled time, or the expiry. None: never."""
    state = display_state(message, now)
    if state == DisplayState.LOCKED:
        return message.locked_until
    if state == DisplayState.SCHEDULED:
        return message.scheduled_enqueue_at
    may_expire = state in (DisplayState.AVAILABLE, DisplayState.LOCK_ENDED, DisplayState.DEFERRED)
    return message.expires_at if may_expire and message.subqueue == SubQueue.MAIN else None


def is_locked(message: LockFacts, now: datetime) -> bool:
    """Whether the message is locked; a lock is valid until just before locked_until (SB-070)."""
    return lock_ends_at(message, now) is not None


def lock_ends_at(message: LockFacts, now: datetime) -> datetime | None:
    """When the lock that is valid at `now` ends; None: the message is not locked."""
    until = message.locked_until
    return until if until is not None and now < until else None


def is_expired(message: StateFacts, now: datetime) -> bool:
    """Whether the message has expired, locked or not; only in the main list (SB-035), and not while scheduled (SB-024)."""
    return expired_at(message, now) is not None


def expired_at(message: StateFacts, now: datetime) -> datetime | None:
    """When the message expired; None: it has not (see `is_expired`)."""
    if message.subqueue != SubQueue.MAIN or message.state == MessageState.SCHEDULED:
        return None
    end = message.expires_at
    return end if end is not None and end <= now else None


def failures(message: LockFacts, now: datetime) -> int:
    """Failed deliveries so far; a lock that has ended counts as one (SB-090), except in a dead-letter queue (SB-089)."""
    ended = message.locked_until is not None and not is_locked(message, now)
    return message.delivery_count + (ended and message.subqueue == SubQueue.MAIN)


def _passed(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now
