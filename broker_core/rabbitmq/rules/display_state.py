"""What a RabbitMQ queue's message is at an instant. Where it stands in the queue is not its own to know."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

DEFAULT_TIMEOUT = 1_800_000  # ms that a delivery may be unacknowledged where its queue says nothing: 30 minutes (RMQ-924)


class DisplayState(StrEnum):
    """What a person calls the message's state."""

    READY = "ready"
    UNACKED = "unacked"
    EXPIRED = "expired, waits for the head"  # RMQ-013: it is counted, and never delivered

    @property
    def is_pending(self) -> bool:
        """Whether the broker will act on it by itself as soon as it is at the head."""
        return self is DisplayState.EXPIRED


class RabbitMessageFacts(Protocol):
    """The columns a standing follows from. owner_id: the connection that holds it. expires_at None: never."""

    @property
    def owner_id(self) -> int | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


def display_state(message: RabbitMessageFacts, now: datetime) -> DisplayState:
    """The message's standing at `now` of its virtual host's clock: while unacked it does not expire (RMQ-019)."""
    if message.owner_id is not None:
        return DisplayState.UNACKED
    return DisplayState.READY if expired_at(message, now) is None else DisplayState.EXPIRED


def expired_at(message: RabbitMessageFacts, now: datetime) -> datetime | None:
    """When the life of a ready message ended; None: it has not, or it is unacked."""
    is_over = message.owner_id is None and message.expires_at is not None and message.expires_at <= now
    return message.expires_at if is_over else None


def next_change_at(message: RabbitMessageFacts, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing: the end of a ready message's life."""
    return message.expires_at if display_state(message, now) is DisplayState.READY else None
