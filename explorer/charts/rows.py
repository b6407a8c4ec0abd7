"""Charts with a row for each name: bars, spans of time, and shares over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .axis import Tick, equal_steps, time_ticks
from .chart import BOTTOM, LEFT, RIGHT, TOP, WIDTHS, Chart
from .labels import brief
from .scale import DURATIONS, FLOOR, Scale, linear, round_up
from .series import Shape, bar, cells

ROW = 22.0  # height
CHARACTER = 6.4  # approximate width of one of a name
LONGEST_NAME = {"wide": 40, "narrow": 15}  # in characters
SHARES = (1, 2, 2.5, 5, 10)  # between labels of shares, times powers of ten


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A share, with its band and beside that of others, if there are such."""

    name: str
    share: float
    title: str
    band: tuple[float, float] | None = None
    others: float | None = None


def gantt(rows: Sequence[tuple[str, Sequence[tuple[str, timedelta, timedelta, str]]]], variant: str) -> Chart:
    """A row for each name with bars: (CSS name, from, to, title), on an axis from 0."""
    frame = _Rows([name for name, _ in rows], variant)
    last = max((until for _, bars in rows for _, _, until, _ in bars), default=FLOOR) or FLOOR
    x = frame.x(last)
    shapes = [
        Shape(name, bar(x(since), max(x(until), x(since) + 1.5), *frame.sides(i, 4)), title)
        for i, (_, bars) in enumerate(rows)
        for name, since, until, title in bars
    ]
    step = next((duration for duration in DURATIONS if last / duration <= frame.steps(6)), DURATIONS[-1])
    return frame.chart(shapes, equal_steps(last, step, x, lambda at: brief(at) if at else "0"))


def share_rows(rows: Sequence[ShareRow], variant: str) -> Chart:
    """A row for each share: a bar, with its band and a mark where the others are."""
    frame = _Rows([row.name for row in rows], variant)
    top = max((max(row.share, row.others or 0, *(row.band or ())) for row in rows), default=0.0) or 1.0
    x = frame.x(top)
    shapes = []
    for i, row in enumerate(rows):
        shapes.append(Shape("share", bar(frame.left, x(row.share), *frame.sides(i, 5)), row.title))
        if row.band:
            shapes.append(Shape("whisker", f"M{x(row.band[0])} {frame.middle(i):.0f}H{x(row.band[1])}", row.title))
        if row.others is not None:
            shapes.append(Shape("rest", bar(x(row.others) - 1.5, x(row.others) + 1.5, *frame.sides(i, 2)), row.title))
    step = round_up(top / frame.steps(5), SHARES)
    return frame.chart(shapes, equal_steps(top, step, x, lambda share: f"{100 * share:g} %"))


def named_heat_map(starts: Sequence[datetime], rows: Sequence[tuple[str, Sequence[float]]], variant: str) -> Chart:
    """Shares from 0 to 1 by row and interval. rows: each with its name, which may be that of another one, too."""
    frame = _Rows([name for name, _ in rows], variant)
    by_cell = {(i, row): share for row, (_, shares) in enumerate(rows) for i, share in enumerate(shares) if share > 0}
    x_ticks = time_ticks(starts, frame.x(max(1, len(starts))))
    slot = round((frame.right - frame.left) / max(1, len(starts)), 4)
    return frame.chart([], x_ticks, cells=cells(by_cell, is_linear=True), down=ROW, slot=slot, buckets=len(starts))


class _Rows:
    """The frame of such a chart. left: of its plot, beside the longest name."""

    def __init__(self, names: Sequence[str], variant: str):
        shortened_names = [shortened(name, LONGEST_NAME[variant]) for name in names]
        self.left = float(max(LEFT, round(max(map(len, shortened_names), default=0) * CHARACTER + 10)))
        self.right = WIDTHS[variant] - RIGHT
        self._names = [Tick(self.middle(i), name) for i, name in enumerate(shortened_names)]
        self._variant = variant

    def x(self, last: Any) -> Scale:
        """From zero to the last value."""
        return linear(0 * last, last, self.left, self.right)

    def steps(self, most: int) -> int:
        """How many there are at most along the x axis."""
        return 3 if self._variant == "narrow" else most

    def middle(self, row: int) -> float:
        return TOP + (row + 0.5) * ROW

    def sides(self, row: int, gap: float) -> tuple[float, float]:
        """The upper and lower side of a bar."""
        return TOP + row * ROW + gap, TOP + (row + 1) * ROW - gap

    def chart(self, shapes: Sequence[Shape], x_ticks: Sequence[Tick], **heat: Any) -> Chart:
        bottom = TOP + ROW * len(self._names)
        sides = (self.left, self.right, TOP, bottom)
        return Chart(
            self._variant, WIDTHS[self._variant], round(bottom + BOTTOM), *sides, shapes, x_ticks, self._names, **heat
        )  # fmt: skip


def shortened(text: str, most: int) -> str:
    """A name in at most so many characters: its end tells more than its beginning."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
