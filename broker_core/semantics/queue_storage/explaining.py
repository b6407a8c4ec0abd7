"""Why a storage queue's message cannot be had now, and when that ends (reference, section 5.1)."""

from __future__ import annotations

from datetime import datetime

from .standing import Facts, Standing, standing

_WHY = {
    Standing.EXPIRED: "Its time-to-live has ended; it is as if it were gone, and is removed soon (QS-073).",
    Standing.DELAYED: "It was put with a visibility timeout that has not ended (QS-001).",
    Standing.RESCHEDULED: "Its producer updated it with a visibility timeout that has not ended (QS-045).",
    Standing.LEASED: "A get made it invisible (QS-021).",
    Standing.EXTENDED: "An update made it invisible for longer (QS-045).",
}


def why_not(message: Facts, now: datetime) -> str | None:
    """One sentence on why a get would pass the message over; None where it would not."""
    return _WHY.get(standing(message, now))
