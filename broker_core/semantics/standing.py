"""What a stored message is at an instant: the state a person reads, and whether a receive may hand it out.

A row holds instants (D5); what they amount to is decided here, for the page, the live patch and the API alike. The SQL that
receives must agree with `is_deliverable`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from .types import MessageState, SubQueue


class Standing(StrEnum):
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
        return self in (Standing.LOCK_ENDED, Standing.DUE, Standing.EXPIRED, Standing.SPENT)


class Facts(Protocol):
    """The columns a standing follows from. expires_at: effective, from the message's own time-to-live or its entity's default."""

    subqueue: SubQueue
    state: MessageState
    delivery_count: int
    max_delivery_count: int
    expires_at: datetime | None
    scheduled_enqueue_at: datetime | None
    locked_until: datetime | None


def standing(message: Facts, now: datetime) -> Standing:
    """The message's standing at `now` of its namespace's clock.

    A lock protects from expiry while it lasts (SB-038); an ended lock no one has touched counts as one failed delivery
    (SB-090); expiry is decided before the delivery limit (SB-920); in a dead-letter queue neither applies (SB-035, SB-089).
    """
    if message.state == MessageState.SCHEDULED:
        return Standing.DUE if _passed(message.scheduled_enqueue_at, now) else Standing.SCHEDULED
    if is_locked(message, now):
        return Standing.LOCKED
    expired = is_over(message, now)
    if message.state == MessageState.DEFERRED:
        return Standing.DEFERRED_EXPIRED if expired else Standing.DEFERRED
    if expired:
        return Standing.EXPIRED
    if message.subqueue == SubQueue.MAIN and failures(message, now) >= message.max_delivery_count:
        return Standing.SPENT
    return Standing.LOCK_ENDED if message.locked_until is not None else Standing.AVAILABLE


def next_change_at(message: Facts, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing: the end of a lock, of a wait, of a life. None: never."""
    found = standing(message, now)
    if found == Standing.LOCKED:
        return message.locked_until
    if found == Standing.SCHEDULED:
        return message.scheduled_enqueue_at
    may_expire = found in (Standing.AVAILABLE, Standing.LOCK_ENDED, Standing.DEFERRED)
    return message.expires_at if may_expire and message.subqueue == SubQueue.MAIN else None


def is_deliverable(message: Facts, now: datetime) -> bool:
    """Whether a receive at `now` may return it (invariant 4)."""
    return standing(message, now) in (Standing.AVAILABLE, Standing.LOCK_ENDED)


def is_locked(message: Facts, now: datetime) -> bool:
    """A lock is valid before the instant it ends (SB-070)."""
    return message.locked_until is not None and now < message.locked_until


def is_over(message: Facts, now: datetime) -> bool:
    """Whether its life has ended, locked or not; nothing expires outside the main list (SB-035), nor while scheduled (SB-024)."""
    return message.subqueue == SubQueue.MAIN and message.state != MessageState.SCHEDULED and _passed(message.expires_at, now)


def failures(message: Facts, now: datetime) -> int:
    """Failed deliveries so far; a lock that ended and that nobody has touched yet counts as one (SB-090), but not in the
    dead-letter queue (SB-089)."""
    ended = message.locked_until is not None and not is_locked(message, now)
    return message.delivery_count + (ended and message.subqueue == SubQueue.MAIN)


def _passed(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now
