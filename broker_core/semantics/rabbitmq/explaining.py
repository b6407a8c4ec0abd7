"""Why a RabbitMQ queue's message is not delivered now."""

from __future__ import annotations

from datetime import datetime

from .standing import Facts, Standing, standing

_WHY = {
    Standing.UNACKED: "It was delivered and not acknowledged yet; it comes back when its connection or channel ends (RMQ-123).",
    Standing.EXPIRED: "Its life has ended. It is never delivered, and goes once it is at the head (RMQ-002, RMQ-012).",
}


def why_not(message: Facts, now: datetime) -> str | None:
    """One sentence on why a consumer or a get would not be given the message; None where it would."""
    return _WHY.get(standing(message, now))
