"""The display state of a storage queue's message, and when it changes (QS-020, QS-073, QS-078)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from broker_core.common.types import HoldKind


class DisplayState(StrEnum):
    """A message's state as shown to users."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    RESCHEDULED = "rescheduled"
    LEASED = "leased"
    EXTENDED = "lease extended"
    EXPIRED = "expired, pending"

    @property
    def is_pending(self) -> bool:
        """Whether the next get or sweep will act on the message."""
        return self is DisplayState.EXPIRED


_OF_HOLD = {
    HoldKind.PUT: DisplayState.DELAYED,
    HoldKind.UPDATE_BEFORE_GET: DisplayState.RESCHEDULED,
    HoldKind.GET: DisplayState.LEASED,
    HoldKind.UPDATE: DisplayState.EXTENDED,
}


class StorageMessageFacts(Protocol):
    """The columns that determine a display state. expires_at None: never expires. visible_at None: never hidden."""

    @property
    def visible_at(self) -> datetime | None: ...
    @property
    def hold_kind(self) -> int | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


def display_state(message: StorageMessageFacts, now: datetime) -> DisplayState:
    """The message's state at `now` by its account's clock. It is expired from the instant expires_at on (QS-073, QS-078)."""
    if has_expired(message, now):
        return DisplayState.EXPIRED
    if hidden_until(message, now) is not None:
        return _OF_HOLD[HoldKind(message.hold_kind or HoldKind.GET)]
    return DisplayState.VISIBLE


def next_change_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """The next instant at which time alone changes the state: the message becomes visible or expires, whichever comes first.

    None: never, or it has expired.
    """
    if has_expired(message, now):
        return None
    instants = (message.visible_at, message.expires_at)
    return min((at for at in instants if at is not None and at > now), default=None)


def hidden_until(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """When the message becomes visible; None: it is visible."""
    return message.visible_at if message.visible_at is not None and message.visible_at > now else None


def has_expired(message: StorageMessageFacts, now: datetime) -> bool:
    """Whether the message has expired, and so does not exist for clients (QS-073, QS-078)."""
    return expired_at(message, now) is not None


def expired_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """When the message expired; None: it has not."""
    return message.expires_at if message.expires_at is not None and message.expires_at <= now else None


def expires_unseen_at(message: StorageMessageFacts, now: datetime) -> datetime | None:
    """When the message expires, if it will not become visible before (QS-024, QS-903). None: it will, or it has expired."""
    end, hidden = message.expires_at, hidden_until(message, now)
    return end if end is not None and hidden is not None and now < end <= hidden else None


def is_spent(dequeue_count: int, max_dequeue_count: int | None) -> bool:
    """Whether the message has reached the queue's maximum number of dequeues (QS-105, QS-106)."""
    return max_dequeue_count is not None and dequeue_count >= max_dequeue_count
