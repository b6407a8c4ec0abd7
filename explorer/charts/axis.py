"""Axes: scales, and labels at round values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .labels import brief, round_duration
from .scale import DECADES, DURATIONS, FLOOR, Scale, count_end, decades, linear, logarithmic

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LINE = 11.0  # height of a label
CHARACTER = 7.0  # approximate width of a digit in a label
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a position along its axis."""

    at: float
    text: str


def labelled(values: Iterable[Any], at: Callable[[Any], float], text: Callable[[Any], str]) -> list[Tick]:
    """A label at each of these values."""
    return [Tick(at(value), text(value)) for value in values]


def counts(highest: float, begin: float, end: float) -> tuple[Scale, list[Tick]]:
    """An axis of counts from zero, with labels at whole numbers."""
    top = count_end(highest)
    scale = linear(0, top, begin, end)
    return scale, labelled(count_ticks(top), scale, "{:,}".format)


def count_ticks(top: int) -> list[int]:
    """Zero, `top`, and equal whole steps between."""
    parts = next(parts for parts in (4, 5, 3, 2) if top % parts == 0)
    return [top * i // parts for i in range(parts + 1)]


def shares(begin: float, end: float) -> tuple[Scale, list[Tick]]:
    """An axis of shares from 0 to 1."""
    scale = linear(0, 1, begin, end)
    return scale, labelled((0, 0.25, 0.5, 0.75, 1), scale, lambda share: f"{100 * share:g} %")


def durations(drawn: Sequence[timedelta], begin: float, end: float) -> tuple[Scale, list[Tick]]:
    """A logarithmic axis, from the bottom to the top, that includes these durations."""
    values = decades(min(drawn, default=FLOOR), max(drawn, default=FLOOR))
    scale = logarithmic(values[0], values[-1], begin, end)
    return scale, _apart(labelled(values, scale, round_duration))


def _apart(ticks: Sequence[Tick]) -> list[Tick]:
    """Those, from the bottom to the top, whose texts have room: the top, and each that is not too near to it or to one below."""
    spaced: list[Tick] = []
    for tick in ticks[:-1]:
        if tick.at - ticks[-1].at >= LINE and (not spaced or spaced[-1].at - tick.at >= LINE):
            spaced.append(tick)
    return [*spaced, ticks[-1]]


def decade_ticks(times: Sequence[timedelta], x: Scale) -> list[Tick]:
    """Along a logarithmic axis: as many decades as have room; if that is none or one, the ends and the middle of `times`."""
    ticks: list[Tick] = []
    for tick in labelled((decade for decade in DECADES if times[0] <= decade <= times[-1]), x, round_duration):
        if not ticks or tick.at - ticks[-1].at >= CHARACTER * 9:
            ticks.append(tick)
    return ticks if len(ticks) > 1 else labelled((times[0], times[(len(times) - 1) // 2], times[-1]), x, brief)


def equal_steps(last: Any, step: Any, x: Scale, text: Callable[[Any], str]) -> list[Tick]:
    """From zero to the last value in equal steps."""
    return labelled((i * step for i in range(int(last / step + 1e-9) + 1)), x, text)


def time_ticks(starts: Sequence[datetime], x: Scale) -> list[Tick]:
    """As many labels as fit, at round times, each at the start of its interval. A new day is labelled with its date.

    x: of places among the intervals.
    """
    length = starts[1] - starts[0] if len(starts) > 1 else timedelta(hours=1)
    slot = abs(x.end - x.begin) / max(1, len(starts))
    steps = [duration for duration in DURATIONS if duration >= length and duration % length == timedelta(0)] or [length]
    step = next((duration for duration in steps if duration / length * slot >= _room(duration)), steps[-1])
    round_times = [(i, at) for i, at in enumerate(starts) if (at - EPOCH) // length % (step // length) == 0]
    ticks, last_date = [], None
    is_daily, clock = step >= DAY, "%H:%M" if step % MINUTE == timedelta(0) else "%H:%M:%S"
    for i, at in round_times or list(enumerate(starts))[:1]:
        if i and (len(starts) - i) * slot < _room(step) / 2:
            break
        is_new_day = last_date is not None and at.date() != last_date
        ticks.append(Tick(x(i), f"{at:%d %b}" if is_new_day or is_daily else f"{at:{clock}}"))
        last_date = at.date()
    return ticks


def _room(step: timedelta) -> float:
    """The width of a label at such steps: seconds are part of it if they are not zero."""
    return CHARACTER * (8 if step % MINUTE == timedelta(0) else 10)
