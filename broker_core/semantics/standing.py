"""What a stored message is at an instant: the state a person reads, and why a receive would not hand it out.

A row holds instants (D5); what they amount to is decided here, for the page, the live patch and the API alike. The SQL that
receives must agree with `is_deliverable`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from .durations import human
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
    if message.locked_until is not None and message.locked_until > now:
        return Standing.LOCKED
    in_main = message.subqueue == SubQueue.MAIN
    expired = in_main and _passed(message.expires_at, now)
    if message.state == MessageState.DEFERRED:
        return Standing.DEFERRED_EXPIRED if expired else Standing.DEFERRED
    if expired:
        return Standing.EXPIRED
    lock_ended = message.locked_until is not None
    if in_main and message.delivery_count + lock_ended >= message.max_delivery_count:
        return Standing.SPENT
    return Standing.LOCK_ENDED if lock_ended else Standing.AVAILABLE


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


def why_not_deliverable(message: Facts, now: datetime, *, locked_by: str | None = None) -> str | None:
    """One sentence on why a receive at `now` would pass the message over; None where it would not."""
    match standing(message, now):
        case Standing.AVAILABLE | Standing.LOCK_ENDED:
            return None
        case Standing.LOCKED:
            holder = f" by {locked_by}" if locked_by else ""
            return f"It is locked{holder} for another {human(message.locked_until - now)}."
        case Standing.SCHEDULED:
            return f"It is scheduled: due in {human(message.scheduled_enqueue_at - now)}."
        case Standing.DUE:
            return "It is due: the next receive or sweep activates it, under a new sequence number."
        case Standing.DEFERRED:
            return "It is deferred: only a receive by its sequence number returns it."
        case Standing.DEFERRED_EXPIRED:
            return "It is deferred and has expired: a receive by its sequence number finds it no more."
        case Standing.EXPIRED:
            return f"It expired {human(now - message.expires_at)} ago and waits for the next receive or sweep to take it away."
        case Standing.SPENT:
            return (
                f"All {message.max_delivery_count} deliveries allowed have failed: "
                "the next receive or sweep moves it to the dead-letter queue."
            )


def _passed(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now
