"""What a RabbitMQ queue's message is at an instant. Where it stands in the queue is not its own to know."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Standing(StrEnum):
    """What a person calls the message's state."""

    READY = "ready"
    UNACKED = "unacked"
    EXPIRED = "expired, waits for the head"  # RMQ-013: it is counted, and never delivered

    @property
    def is_pending(self) -> bool:
        """Whether the broker will act on it by itself as soon as it is at the head."""
        return self is Standing.EXPIRED


class Facts(Protocol):
    """The columns a standing follows from. owner_id: the connection that holds it. expires_at None: never."""

    owner_id: int | None
    expires_at: datetime | None


def standing(message: Facts, now: datetime) -> Standing:
    """The message's standing at `now` of its virtual host's clock: while unacked it does not expire (RMQ-019)."""
    if message.owner_id is not None:
        return Standing.UNACKED
    return Standing.EXPIRED if message.expires_at is not None and message.expires_at <= now else Standing.READY


def next_change_at(message: Facts, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing: the end of a ready message's life."""
    return message.expires_at if standing(message, now) is Standing.READY else None
