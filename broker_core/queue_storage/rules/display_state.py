"""What a storage queue's message is at an instant, and why it is invisible (reference, section 5.1)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from broker_core.common.types import HoldKind


class DisplayState(StrEnum):
    """What a person calls the message's state."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    RESCHEDULED = "rescheduled"
    LEASED = "leased"
    EXTENDED = "lease extended"
    EXPIRED = "expired, pending"

    @property
    def is_pending(self) -> bool:
        """Whether the broker will act on it by itself as soon as it looks."""
        return self is DisplayState.EXPIRED


_OF_HOLD = {
    HoldKind.PUT: DisplayState.DELAYED,
    HoldKind.UPDATE_BEFORE_GET: DisplayState.RESCHEDULED,
    HoldKind.GET: DisplayState.LEASED,
    HoldKind.UPDATE: DisplayState.EXTENDED,
}


class StorageMessageFacts(Protocol):
    """The columns a standing follows from. expires_at None: never. visible_at None: nothing ever hid it."""

    @property
    def visible_at(self) -> datetime | None: ...
    @property
    def hold_kind(self) -> int | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


def display_state(message: StorageMessageFacts, now: datetime) -> DisplayState:
    """The message's standing at `now` of its account's clock: expiry first, at its very instant (QS-073, QS-078)."""
    if has_expired(message, now):
        return DisplayState.EXPIRED
    if hidden_until(message, now) is not None:
        return _OF_HOLD[HoldKind(message.hold_kind or HoldKind.GET)]
    return DisplayState.VISIBLE


def next_change_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing: it becomes visible, or it expires, whichever comes first.

    None: never; what has expired stays so.
    """
    if has_expired(message, now):
        return None
    instants = (message.visible_at, message.expires_at)
    return min((at for at in instants if at is not None and at > now), default=None)


def hidden_until(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """The instant at which its invisibility ends; None: it is not invisible."""
    return message.visible_at if message.visible_at is not None and message.visible_at > now else None


def has_expired(message: StorageMessageFacts, now: datetime) -> bool:
    """Whether it is as if it were gone (QS-073, QS-078)."""
    return expired_at(message, now) is not None


def expired_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """When its life ended; None: it has not."""
    return message.expires_at if message.expires_at is not None and message.expires_at <= now else None


def expires_unseen_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """When its life ends, if that is while it is invisible, or as it becomes visible: then it is never visible again (QS-024,
    QS-903). None: it will be, or its life has ended."""
    end, hidden = message.expires_at, hidden_until(message, now)
    return end if end is not None and hidden is not None and now < end <= hidden else None


def is_spent(dequeue_count: int, max_dequeue_count: int | None) -> bool:
    """Whether it was handed out as often as its queue allows (QS-105, QS-106)."""
    return max_dequeue_count is not None and dequeue_count >= max_dequeue_count
