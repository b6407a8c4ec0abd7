"""Charts whose plot is divided into equal columns: intervals of time, categories, or steps of a duration. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from .axis import Tick, counts, decade_ticks, durations, shares, time_ticks
from .chart import BOTTOM, COLUMN_WIDTHS, HEIGHT, LEFT, RIGHT, TOP, WIDTHS, Chart, Span, placed_marks
from .scale import FLOOR, Scale, decades, linear, logarithmic
from .series import Point, Shape, area, bar, cells, line

BASE = HEIGHT - BOTTOM  # the lower edge of the plot
NARROWEST_SPOT = 2.5  # a narrower one is hard to point at
ROWS_A_DECADE = 4  # of a heat map
Marks = Sequence[tuple[float, str, str]]  # (place in columns, letter, text) of vertical lines
T = TypeVar("T")


def stacked_bars(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[int]],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Marks = (),
) -> Chart:
    """Counts as stacked bars, one per interval, the series in their order from the bottom. partial: which ones are hatched."""
    columns = _Columns(len(starts), variant)
    y, y_ticks = counts(max((sum(values) for values in zip(*series.values(), strict=True)), default=0), BASE, TOP)
    stacked, shapes = [0] * len(starts), []
    for name, values in series.items():
        above = [below + value for below, value in zip(stacked, values, strict=True)]
        path = "".join(columns.bar(i, y(stacked[i]), y(above[i])) for i, value in enumerate(values) if value)
        stacked = above
        shapes.append(Shape(name, path))
    return columns.chart(shapes, time_ticks(starts, columns.x), y_ticks, partial=partial, marks=marks)


def duration_lines(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[timedelta | None]],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Marks = (),
    drawn: Sequence[timedelta] = (),
) -> Chart:
    """Durations as lines on a logarithmic axis, which also includes those that are drawn otherwise. An interval without a value
    interrupts its line. partial: as in bars."""
    columns = _Columns(len(starts), variant)
    y, y_ticks = durations([*drawn, *_present(series)], BASE, TOP)
    shapes = [columns.line(name, values, y) for name, values in series.items()]
    return columns.chart(shapes, time_ticks(starts, columns.x), y_ticks, partial=partial, marks=marks)


def count_lines(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[float | None]],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Marks = (),
) -> Chart:
    """Numbers as lines on an axis from zero, the first above an area. An interval without a value interrupts its line."""
    columns = _Columns(len(starts), variant)
    y, y_ticks = counts(max(_present(series), default=0), BASE, TOP)
    areas = [columns.area(name, values, y) for name, values in list(series.items())[:1]]
    lines = [columns.line(name, values, y) for name, values in reversed(list(series.items()))]
    return columns.chart([*areas, *lines], time_ticks(starts, columns.x), y_ticks, partial=partial, marks=marks)


def share_curve(times: Sequence[timedelta], series: Mapping[str, Sequence[float]], tips: Sequence[str], variant: str) -> Chart:
    """Shares from 0 to 1 by duration, the first above an area. times: evenly spaced on a logarithmic axis."""
    columns = _Columns(len(times), variant)
    y, y_ticks = shares(BASE, TOP)
    first = next(iter(series))
    shapes = [columns.area(first, series[first], y), *(columns.line(name, values, y) for name, values in series.items())]
    x = logarithmic(times[0], times[-1], columns.x(0.5), columns.x(len(times) - 0.5))
    return columns.chart(shapes, decade_ticks(times, x), y_ticks, tips=tips)


def share_bars(
    labels: Sequence[str], values: Sequence[float], bands: Sequence[tuple[float, float]], tips: Sequence[str], variant: str
) -> Chart:
    """Shares from 0 to 1 by category, with the band of each."""
    columns = _Columns(len(labels), variant)
    y, y_ticks = shares(BASE, TOP)
    bars = "".join(bar(columns.x(i + 0.2), columns.x(i + 0.8), y(0), y(share)) for i, share in enumerate(values))
    whiskers = "".join(line([(columns.x(i + 0.5), y(end)) for end in band]) for i, band in enumerate(bands))
    x_ticks = [Tick(columns.x(i + 0.5), label) for i, label in enumerate(labels)]
    return columns.chart([Shape("share", bars), Shape("whisker", whiskers)], x_ticks, y_ticks, tips=tips)


def duration_heat_map(
    starts: Sequence[datetime],
    counted: Mapping[tuple[int, float], int],
    lines: Mapping[str, Sequence[timedelta | None]],
    variant: str,
    partial: Sequence[bool],
) -> Chart:
    """Counts by interval (its place) and duration (seconds) on a logarithmic axis, under lines of durations."""
    drawn = [timedelta(seconds=seconds) for _, seconds in counted] or [FLOOR]
    chart = duration_lines(starts, lines, variant, partial=partial, drawn=drawn)
    everything = [*drawn, *_present(lines)]
    low, *_, high = (decade.total_seconds() for decade in decades(min(everything), max(everything)))
    rows = math.log10(high / low) * ROWS_A_DECADE
    by_row: dict[tuple[int, int], int] = {}
    for (place, seconds), count in counted.items():
        row = int(math.log10(high / max(seconds, FLOOR.total_seconds())) * ROWS_A_DECADE)
        key = (place, min(max(row, 0), math.ceil(rows) - 1))
        by_row[key] = by_row.get(key, 0) + count
    return replace(chart, cells=cells(by_row), down=round(chart.plot_height / rows, 3))


def _present(series: Mapping[str, Sequence[T | None]]) -> list[T]:
    return [value for values in series.values() for value in values if value is not None]


class _Columns:
    """The frame of such a chart."""

    def __init__(self, count: int, variant: str):
        self.count, self.variant, self.width = count, variant, {**WIDTHS, **COLUMN_WIDTHS}[variant]
        self.x = linear(0, max(1, count), LEFT, self.width - RIGHT)
        self.slot = (self.width - LEFT - RIGHT) / max(1, count)

    def line(self, name: str, values: Sequence, y: Scale) -> Shape:
        """Through the middles of the columns; a lone value is a short dash."""
        return Shape(name, line(self._points(values, y), dash=self.slot * 0.3))

    def area(self, name: str, values: Sequence, y: Scale) -> Shape:
        """Below such a line."""
        return Shape(f"{name} area", area(self._points(values, y), BASE))

    def bar(self, index: int, low: float, high: float) -> str:
        gap = min(2.0, self.slot * 0.15) / 2
        return bar(self.x(index) + gap, self.x(index + 1) - gap, low, high)

    def _points(self, values: Sequence, y: Scale) -> list[Point | None]:
        return [None if value is None else (self.x(i + 0.5), y(value)) for i, value in enumerate(values)]

    def chart(
        self,
        shapes: Sequence[Shape],
        x_ticks: Sequence[Tick],
        y_ticks: Sequence[Tick],
        *,
        partial: Sequence[bool] = (),
        marks: Marks = (),
        tips: Sequence[str] = (),
    ) -> Chart:
        sides = (LEFT, self.width - RIGHT, TOP, BASE)
        width = round(self.slot, 2)
        return Chart(
            self.variant, self.width, HEIGHT, *sides, shapes, x_ticks, y_ticks,
            spots=[Span(self.x(i), width, tip) for i, tip in enumerate(tips if self.slot >= NARROWEST_SPOT else ())],
            bands=[Span(self.x(i), width) for i, is_partial in enumerate(partial) if is_partial],
            marks=placed_marks((self.x(at), letter, text) for at, letter, text in marks),
            slot=round(self.slot, 4), buckets=self.count,
        )  # fmt: skip
