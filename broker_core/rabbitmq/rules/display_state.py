"""The display state of a message in a RabbitMQ queue. It does not depend on the message's position."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol

DEFAULT_TIMEOUT = 1_800_000  # default acknowledgement timeout in ms: 30 minutes (RMQ-924)


class DisplayState(StrEnum):
    """The state of a message as shown to users."""

    READY = "ready"
    UNACKED = "unacked"
    EXPIRED = "expired, waits for the head"  # counted, but never delivered (RMQ-013)

    @property
    def is_pending(self) -> bool:
        """Whether the broker removes the message as soon as it is at the head."""
        return self is DisplayState.EXPIRED


class RabbitMessageFacts(Protocol):
    """The columns that determine the display state. owner_id: the connection that holds the message. expires_at None: never."""

    @property
    def owner_id(self) -> int | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


def display_state(message: RabbitMessageFacts, now: datetime) -> DisplayState:
    """The message's state at `now` of its virtual host's clock: an unacknowledged message does not expire (RMQ-019)."""
    if message.owner_id is not None:
        return DisplayState.UNACKED
    return DisplayState.READY if expired_at(message, now) is None else DisplayState.EXPIRED


def expired_at(message: RabbitMessageFacts, now: datetime) -> datetime | None:
    """When a ready message expired; None if it has not, or is unacknowledged."""
    is_over = message.owner_id is None and message.expires_at is not None and message.expires_at <= now
    return message.expires_at if is_over else None


def next_change_at(message: RabbitMessageFacts, now: datetime) -> datetime | None:
    """When the state changes by time alone: the expiry of a ready message."""
    return message.expires_at if display_state(message, now) is DisplayState.READY else None
