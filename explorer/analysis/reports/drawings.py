"""Computes the geometry of the charts that only reports have: heat maps, Gantt charts, bars by category.

Pure. Lengths and widths are those of explorer.charts.series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from explorer.charts.series import (
    BOTTOM,
    FLOOR,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTHS,
    Chart,
    Shape,
    Spot,
    Tick,
    brief,
    duration_lines,
    duration_ticks,
    time_ticks,
)

LEVELS = 5  # of a heat map
ROWS_A_DECADE = 4
ROW = 22.0  # of a Gantt chart, or of a heat map by name
CHARACTER = 6.4
LONGEST_NAME = {"wide": 40, "narrow": 15}  # characters of the name of a row
STEPS = tuple(
    timedelta(seconds=s)
    for s in (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)
)

SHARE_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A chart above cells. cells: by level, paths in units of an interval and a row from the plot's upper left corner; across,
    down: the size of such a unit."""

    chart: Chart
    cells: tuple[Shape, ...]
    across: float
    down: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a Gantt chart. name: CSS name of the series."""

    name: str
    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Gantt:
    """chart: the axes."""

    chart: Chart
    bars: tuple[Bar, ...]


def duration_heat_map(
    starts: Sequence[datetime],
    counts: Mapping[tuple[int, float], int],
    lines: Mapping[str, Sequence[timedelta | None]],
    variant: str,
    partial: Sequence[bool],
) -> HeatMap:
    """Counts by interval (its place) and duration (seconds) on a logarithmic axis, under lines of durations."""
    durations = [timedelta(seconds=seconds) for _, seconds in counts] or [FLOOR]
    span = (min(durations), max(durations))
    chart = duration_lines(starts, lines, (), variant, partial=partial, span=span)
    drawn = [*span, *(value for values in lines.values() for value in values if value is not None)]
    ticks = duration_ticks(min(drawn), max(drawn))
    low, high = math.log10(ticks[0].total_seconds()), math.log10(ticks[-1].total_seconds())
    rows = (high - low) * ROWS_A_DECADE
    cells: dict[tuple[int, int], int] = {}
    for (place, seconds), count in counts.items():
        row = int((high - math.log10(max(seconds, FLOOR.total_seconds()))) * ROWS_A_DECADE)
        key = (place, min(max(row, 0), math.ceil(rows) - 1))
        cells[key] = cells.get(key, 0) + count
    return HeatMap(chart, levels(cells), chart.slot, round((HEIGHT - TOP - BOTTOM) / rows, 3))


def named_heat_map(
    starts: Sequence[datetime], rows: Sequence[tuple[str, Sequence[float]]], variant: str, partial: Sequence[bool]
) -> HeatMap:
    """Shares from 0 to 1 by row and interval. rows: each with its name, which may be that of another one, too."""
    frame = _Rows([name for name, _ in rows], variant)
    slot = (frame.right - frame.left) / max(1, len(starts))
    ticks = [replace(tick, at=round(tick.at - LEFT + frame.left, 2)) for tick in time_ticks(starts, slot)]
    cells = {(i, row): share for row, (_, shares) in enumerate(rows) for i, share in enumerate(shares) if share > 0}
    return HeatMap(frame.chart(ticks, round(slot, 4), len(starts)), levels(cells, linear=True), round(slot, 4), ROW)


def levels(cells: Mapping[tuple[int, int], float], *, linear: bool = False) -> tuple[Shape, ...]:
    """The cells by level, from few to many on a logarithmic scale (or by share): runs of equal neighbours are one line."""
    most = max(cells.values(), default=1)

    def level(value: float) -> int:
        share = value if linear else math.log(value) / math.log(most) if most > 1 else 1.0
        return min(LEVELS - 1, int(share * LEVELS))

    paths = [""] * LEVELS
    by_row = sorted(((row, place, level(value)) for (place, row), value in cells.items()))
    i = 0
    while i < len(by_row):
        row, place, at = by_row[i]
        length = 1
        while i + length < len(by_row) and by_row[i + length] == (row, place + length, at):
            length += 1
        paths[at] += f"M{place} {row + 0.5}h{length}"
        i += length
    return tuple(Shape(f"heat-{i}", path) for i, path in enumerate(paths) if path)


def gantt(rows: Sequence[tuple[str, Sequence[tuple[str, timedelta, timedelta, str]]]], variant: str) -> Gantt:
    """A row for each name with bars: (CSS name, from, to, title), on an axis from 0."""
    frame = _Rows([name for name, _ in rows], variant)
    last = max((until for _, bars in rows for _, _, until, _ in bars), default=FLOOR) or FLOOR
    step = next((one for one in STEPS if last / one <= (3 if variant == "narrow" else 6)), STEPS[-1])
    drawn = []
    for i, (_, bars) in enumerate(rows):
        for name, since, until, title in bars:
            x0 = frame.x(since / last)
            x1 = max(frame.x(until / last), x0 + 1.5)
            drawn.append(Bar(name, f"M{x0:.1f} {TOP + i * ROW + 4:.0f}H{x1:.1f}v{ROW - 8:.0f}H{x0:.1f}z", title))
    ticks = [Tick(round(frame.x(i * step / last), 1), brief(i * step) if i else "0") for i in range(int(last / step) + 1)]
    return Gantt(frame.chart(ticks), tuple(drawn))


def share_bars(
    labels: Sequence[str], shares: Sequence[float], bands: Sequence[tuple[float, float]], tips: Sequence[str], variant: str
) -> Chart:
    """Shares from 0 to 1 by category, with the band of each."""
    width, bottom = WIDTHS[variant], HEIGHT - BOTTOM
    slot = (width - LEFT - RIGHT) / max(1, len(labels))

    def y(share: float) -> float:
        return round(bottom - share * (bottom - TOP), 1)

    bars, whiskers, spots, ticks = "", "", [], []
    for i, (share, (low, high)) in enumerate(zip(shares, bands, strict=True)):
        x, middle = LEFT + i * slot, LEFT + (i + 0.5) * slot
        bars += f"M{x + slot * 0.2:.1f} {y(0)}V{y(share)}H{x + slot * 0.8:.1f}V{y(0)}z"
        whiskers += f"M{middle:.1f} {y(low)}V{y(high)}"
        spots.append(Spot(round(x, 1), round(slot, 1), tips[i]))
        ticks.append(Tick(round(middle, 1), labels[i]))
    y_ticks = tuple(Tick(y(share / 100), f"{share} %") for share in (0, 25, 50, 75, 100))
    shapes = (Shape("share", bars), Shape("whisker", whiskers))
    return Chart(variant, width, HEIGHT, LEFT, width - RIGHT, TOP, bottom, shapes, tuple(spots), (), tuple(ticks), y_ticks)


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A share, with its band and beside that of others, if there are such."""

    name: str
    share: float
    title: str
    band: tuple[float, float] | None = None
    others: float | None = None


def share_rows(rows: Sequence[ShareRow], variant: str) -> Gantt:
    """A row for each share: a bar, with its band and a mark where the others are."""
    frame = _Rows([row.name for row in rows], variant)
    top = max((max(row.share, row.others or 0, *(row.band or ())) for row in rows), default=0.0) or 1.0
    step = next((one for one in SHARE_STEPS if top / one <= (3 if variant == "narrow" else 5)), SHARE_STEPS[-1])

    def x(share: float) -> float:
        return round(frame.x(share / top), 1)

    drawn = []
    for i, row in enumerate(rows):
        y = TOP + i * ROW
        drawn.append(Bar("share", f"M{frame.left} {y + 5:.0f}H{x(row.share)}v{ROW - 10:.0f}H{frame.left}z", row.title))
        if row.band:
            drawn.append(Bar("whisker", f"M{x(row.band[0])} {y + ROW / 2:.0f}H{x(row.band[1])}", row.title))
        if row.others is not None:
            drawn.append(Bar("rest", f"M{x(row.others) - 1.5:.1f} {y + 2:.0f}h3v{ROW - 4:.0f}h-3z", row.title))
    ticks = [Tick(x(i * step), f"{100 * i * step:g} %") for i in range(int(top / step + 1e-9) + 1)]
    return Gantt(frame.chart(ticks), tuple(drawn))


class _Rows:
    """The frame of a chart with a row for each name. left: of its plot, beside the longest name."""

    def __init__(self, names: Sequence[str], variant: str):
        shown = [shortened(name, LONGEST_NAME[variant]) for name in names]
        self.left = float(max(LEFT, round(max(map(len, shown), default=0) * CHARACTER + 10)))
        self.right = WIDTHS[variant] - RIGHT
        self._names = tuple(Tick(round(TOP + (i + 0.5) * ROW, 1), name) for i, name in enumerate(shown))
        self._variant = variant

    def x(self, share: float) -> float:
        """Where a share of the plot's width is."""
        return self.left + share * (self.right - self.left)

    def chart(self, x_ticks: Sequence[Tick], slot: float = 0.0, buckets: int = 0) -> Chart:
        width, bottom = WIDTHS[self._variant], TOP + ROW * len(self._names)
        sides = (self.left, self.right, TOP, bottom)
        height = round(bottom + BOTTOM)
        return Chart(self._variant, width, height, *sides, (), (), (), tuple(x_ticks), self._names, slot, buckets)


def shortened(text: str, most: int) -> str:
    """A name in at most so many characters: its end tells more than its beginning."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
