"""Where an instant is on the time bar: now in the middle, an hour at either end, near instants with more space. Pure."""

from __future__ import annotations

import math
from datetime import timedelta

REACH = timedelta(hours=1)  # to either side
NEAR = timedelta(seconds=5)  # about as far as the scale is even
STEPS = 1000  # of the slider on either side
MARKS = (
    (timedelta(seconds=10), "10 s"), (timedelta(minutes=1), "1 min"), (timedelta(minutes=10), "10 min"),
    (timedelta(minutes=50), "50 min"),
)  # fmt: skip
_WHOLE = math.log1p(REACH / NEAR)


def place(ahead: timedelta) -> float:
    """The place of an instant in percent of the bar. ahead: from now; negative: it is past."""
    share = min(1.0, math.log1p(abs(ahead) / NEAR) / _WHOLE)
    return round(50 + 50 * math.copysign(share, ahead.total_seconds()), 2)


def distance(step: int) -> timedelta:
    """How far from now a step of the slider is, in whole seconds, or tenths near now."""
    seconds = NEAR.total_seconds() * math.expm1(_WHOLE * step / STEPS)
    return timedelta(seconds=round(seconds, 1 if seconds < 10 else 0))


def step_of(text: str) -> int | None:
    """A step of the slider as a page sends it; None: it is none."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(STEPS))
    return int(text) if is_number and int(text) <= STEPS else None


def labels() -> list[tuple[float, str]]:
    """The marks of the scale, from left to right."""
    past = [(place(-by), f"−{text}") for by, text in reversed(MARKS)]
    return past + [(place(by), f"+{text}") for by, text in MARKS]
