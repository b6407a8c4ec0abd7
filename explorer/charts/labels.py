"""Short texts of numbers and durations. Pure."""

from __future__ import annotations

import math
from datetime import timedelta


def brief(duration: timedelta | None) -> str:
    """A duration in one unit with about two significant digits: "0.4 ms", "12 s", "3.5 min", "2.0 h", "9 days". None: a dash."""
    if duration is None:
        return "–"
    seconds = duration.total_seconds()
    for unit, size, below in (
        ("ms", 0.001, 1),
        ("s", 1, 60),
        ("min", 60, 3600),
        ("h", 3600, 172_800),
        ("days", 86_400, math.inf),
    ):
        if seconds < below:
            amount = seconds / size
            return f"{amount:,.0f} {unit}" if amount >= 9.95 else f"{amount:.1f} {unit}"
    raise AssertionError("unreachable")


def round_duration(duration: timedelta) -> str:
    """A duration at a label of an axis, in the largest unit of which it has one: "0", "0.1 ms", "10 s", "1.5 h", "1 day"."""
    seconds = duration.total_seconds()
    if not seconds:
        return "0"
    units = ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((pair for pair in units if seconds >= pair[0]), (0.001, "ms"))
    return "1 day" if seconds == 86_400 else f"{seconds / size:.3g} {unit}"


def round_count(count: int) -> str:
    """A count at a label of a small chart: "9,500", "20 k", "2 M"."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= 10 * size or (count >= size and count % size == 0):
            return f"{count / size:g} {unit}"
    return f"{count:,}"
