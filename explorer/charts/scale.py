"""Scales: where the values of an axis lie, and the round values at which it ends or is divided. Pure.

Positions are in units of a view box, rounded to a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

COUNTS = (1, 2, 4, 5, 6, 8, 10)  # ends of an axis, times powers of ten
STEPS = (1, 2, 5, 10)  # between labels, times powers of ten
DURATIONS = tuple(
    timedelta(seconds=unit * count)
    for unit, counts in (
        (0.001, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1, (1, 2, 5, 10, 30)),
        (60, (1, 2, 5, 10, 15, 30)),
        (3600, (1, 2, 3, 4, 6, 12)),
        (86_400, (1, 2, 4, 7, 14, 28, 56, 112)),
    )
    for count in counts
)
DECADES = tuple(
    timedelta(seconds=unit * count)
    for unit, counts in ((0.001, (0.1, 1, 10, 100)), (1, (1, 10)), (60, (1, 10)), (3600, (1, 10)), (86_400, (1, 10, 100)))
    for count in counts
)  # of a logarithmic axis
FLOOR = DECADES[0]  # shorter durations are drawn here: a logarithmic axis has no zero


@dataclass(frozen=True, slots=True)
class Scale:
    """Places values between two positions. share: how far a value is on the way from one to the other."""

    share: Callable[[Any], float]
    begin: float
    end: float

    def __call__(self, value: Any) -> float:
        return round(self.begin + self.share(value) * (self.end - self.begin), 1)


def linear(low: Any, high: Any, begin: float, end: float) -> Scale:
    """Of numbers, durations or instants. Of a domain of one value, it is at the end."""
    return Scale(lambda value: (value - low) / (high - low) if high > low else 1.0, begin, end)


def logarithmic(low: timedelta, high: timedelta, begin: float, end: float) -> Scale:
    """Of durations."""
    decades = math.log10(high / low)
    return Scale(lambda value: math.log10(max(value, FLOOR) / low) / decades, begin, end)


def round_up(value: float, multiples: Sequence[float] = STEPS) -> float:
    """The next of these multiples of a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in multiples if step * power >= value)


def count_end(highest: float) -> int:
    """The end of an axis of counts: at least 4, so that its labels are whole numbers."""
    return round(round_up(max(4, math.ceil(highest)), COUNTS))


def decades(least: timedelta, most: timedelta) -> tuple[timedelta, ...]:
    """From the last one at or below `least` to the first at or above `most`; at least two."""
    first = min(max(i for i, decade in enumerate(DECADES) if decade <= max(least, FLOOR)), len(DECADES) - 2)
    last = next((i for i, decade in enumerate(DECADES) if decade >= most), len(DECADES) - 1)
    return DECADES[first : max(last, first + 1) + 1]
