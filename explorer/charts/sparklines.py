"""Small charts of the last half hour: four figures by minute with their axes, the traffic at the top of an entity's page, and the
trend beside an entry of a list. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from broker_core.reads import Times, TrafficPoint

from .axis import Tick, count_ticks, labelled
from .chart import Mark, placed_marks
from .labels import brief, round_count, round_duration
from .scale import DURATIONS, Scale, count_end, linear, round_up
from .series import area, line
from .traffic import Marked

WIDTH, HEIGHT = 280, 128
LEFT, RIGHT, TOP, BOTTOM = 32.0, 272.0, 8.0, 106.0
TREND_WIDTH, TREND_HEIGHT = 120.0, 24.0
TICK_MINUTES = 10
SPARK_WIDTH, SPARK_HEIGHT, SPARK_MINUTES = 220, 38, 30


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute. active, dead: at its end. waited: of the messages completed in it."""

    at: datetime
    sent: int
    completed: int
    active: int
    dead: int
    waited: Times
    is_over: bool


@dataclass(frozen=True, slots=True)
class Series:
    """A line. css: its class. area: the space below it. x, y: its end."""

    css: str
    path: str
    area: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Legend:
    css: str
    value: str
    word: str


@dataclass(frozen=True, slots=True)
class SmallChart:
    """name: suffix of its element's id. words: what it shows, in a sentence. marks: of changes, the same in all charts."""

    name: str
    title: str
    series: Sequence[Series]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    legend: tuple[Legend, ...]
    words: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    path: str
    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True)
class Spark:
    """Messages per minute: points of two SVG polylines in a plot of `SPARK_WIDTH` by `SPARK_HEIGHT` units.

    top: the value at the upper edge of the plot. words: a description. both: whether there are outgoing messages. deploys: the
    place of each, and its name.
    """

    sent: str
    completed: str
    top: int
    words: str
    both: bool
    deploys: tuple[tuple[float, str], ...] = ()


def minutes(points: Sequence[TrafficPoint]) -> list[Minute]:
    """The points by minute, oldest first, without a minute that began before the first point."""
    minute_rows: list[Minute] = []
    for at, group in groupby(points, key=lambda point: point.at.replace(second=0, microsecond=0)):
        inside = list(group)
        if not minute_rows and inside[0].at != at:
            continue
        last = inside[-1]
        is_over = not last.partial and last.at + timedelta(seconds=last.seconds) >= at + timedelta(minutes=1)
        minute_rows.append(
            Minute(
                at, sum(p.sent for p in inside), sum(p.completed for p in inside), last.active, last.dead,
                sum((p.waiting for p in inside), Times()), is_over,
            )
        )  # fmt: skip
    return minute_rows


def _count_axis(values: Sequence[int]) -> tuple[Scale, list[Tick]]:
    top = count_end(max(values, default=0))
    scale = linear(0, top, BOTTOM, TOP)
    return scale, labelled((0, top // 2, top) if top % 2 == 0 else count_ticks(top), scale, round_count)


def _duration_axis(values: Sequence[timedelta]) -> tuple[Scale, list[Tick]]:
    highest = max(values, default=timedelta(0))
    top = next((duration for duration in DURATIONS if duration >= highest), highest)
    scale = linear(timedelta(0), top, BOTTOM, TOP)
    return scale, labelled((timedelta(0), top / 2, top), scale, round_duration)


def four(points: Sequence[TrafficPoint], marks: Sequence[Marked] = ()) -> list[SmallChart]:
    """Messages per minute, backlog, waiting time, dead letters. A minute that is not over has no rate yet."""
    known = minutes(points)
    if not known:
        return []
    whole = [minute for minute in known if minute.is_over] or known
    begin, end = known[0].at, known[-1].at
    x = linear(begin, end, LEFT, RIGHT)
    last, dead_before = known[-1], known[max(0, len(known) - 6)].dead
    waits = [(minute.at, wait) for minute in whole if (wait := minute.waited.percentile(0.95)) is not None]
    wait = sum((minute.waited for minute in whole[-5:]), Times()).percentile(0.95)
    new = last.dead - dead_before
    span = f"from {begin:%H:%M} to {end:%H:%M} UTC"
    charts = [
        _chart(
            "rates", "Per minute", x, {"in": [(m.at, m.sent) for m in whole], "out": [(m.at, m.completed) for m in whole]},
            (Legend("in", f"{whole[-1].sent:,}", "in"), Legend("out", f"{whole[-1].completed:,}", "out")),
            f"Messages per minute {span}: {sum(m.sent for m in whole):,} came in, {sum(m.completed for m in whole):,} went out",
        ),
        _chart(
            "backlog", "Backlog", x, {"in": [(m.at, m.active) for m in known]},
            (Legend("", f"{last.active:,}", "message" if last.active == 1 else "messages"),),
            f"Messages in the queues {span}: now {last.active:,}, at most {max(m.active for m in known):,}",
        ),
        _chart(
            "wait", "Wait, 95th percentile", x, {"in": waits}, (Legend("", brief(wait), ""),),
            f"95 of 100 messages waited at most so long, {span}: {brief(wait)} in the last five minutes", axis=_duration_axis,
        ),
        _chart(
            "dead", "Dead-lettered", x, {"dead": [(m.at, m.dead) for m in known]},
            (Legend("dead" if last.dead else "", f"{last.dead:,}", f"{new:+,} in 5 min" if new else ""),),
            f"Dead letters {span}: now {last.dead:,}, at the beginning {known[0].dead:,}", is_stepped=True,
        ),
    ]  # fmt: skip
    first = begin.replace(minute=begin.minute // TICK_MINUTES * TICK_MINUTES)
    hours = [at for i in range(6) if begin <= (at := first + timedelta(minutes=TICK_MINUTES * i)) <= end]
    x_ticks = labelled(hours, x, "{:%H:%M}".format)
    placed = placed_marks((x(min(mark.at, end)), mark.letter, mark.text) for mark in marks if begin <= mark.at)
    return [replace(chart, x_ticks=x_ticks, marks=placed) for chart in charts]


def _chart(
    name: str, title: str, x: Scale, lines: Mapping[str, Sequence[tuple[datetime, Any]]], legend: tuple[Legend, ...], words: str,
    *, axis: Callable[[Sequence[Any]], tuple[Scale, list[Tick]]] = _count_axis, is_stepped: bool = False,
) -> SmallChart:  # fmt: skip
    y, y_ticks = axis([value for points in lines.values() for _, value in points])
    series = []
    for css, values in reversed(list(lines.items())):
        if points := [(x(at), y(value)) for at, value in values]:
            path, below = line(points, is_stepped=is_stepped), area(points, BOTTOM, is_stepped=is_stepped)
            series.append(Series(css, path, below, *points[-1]))
    return SmallChart(name, title, tuple(series), (), y_ticks, legend, words)


def trend(numbers: Sequence[int], noun: str) -> Trend | None:
    """A line in TREND_WIDTH by TREND_HEIGHT of numbers by minute; None: they are all 0. noun: of the numbers."""
    top = max(numbers, default=0)
    if not top:
        return None
    x, y = linear(0, max(1, len(numbers) - 1), 0, TREND_WIDTH), linear(0, top, TREND_HEIGHT - 2, 2)
    points = [(x(i), y(value)) for i, value in enumerate(numbers)]
    words = f"{noun} in the last {len(numbers)} minutes: from {numbers[0]:,} to {numbers[-1]:,}"
    return Trend(line(points, is_stepped=True), *points[-1], words)


def spark(
    points: Sequence[TrafficPoint],
    *,
    completes: bool = True,
    words: tuple[str, str] = ("sent", "completed"),
    deploys: Sequence[tuple[datetime, str]] = (),
) -> Spark | None:
    """The traffic as two lines with a common scale; None without traffic.

    completes: False for an entity that completes no messages. words: the verbs for incoming and outgoing messages. deploys: when
    each was, and its name.
    """
    sent, completed = by_minute(points, lambda point: point.sent), by_minute(points, lambda point: point.completed)
    highest = max([*sent, *completed], default=0)
    if not highest:
        return None
    top = round(round_up(highest))
    x, y = linear(0, max(1, len(sent) - 1), 0, SPARK_WIDTH), linear(0, top, SPARK_HEIGHT, 0)
    drawn = {
        name: " ".join(f"{x(i):.0f},{y(value)}" for i, value in enumerate(values))
        for name, values in (("sent", sent), ("completed", completed))
    }
    described = f"{sum(sent):,} {words[0]} and {sum(completed):,} {words[1]}" if completes else f"{sum(sent):,} published"
    described += f" in the last {SPARK_MINUTES} minutes"
    time = linear(points[0].at, points[-1].at + timedelta(seconds=points[-1].seconds), 0, SPARK_WIDTH)
    marks = tuple((time(at), name) for at, name in deploys if points[0].at <= at)
    described += "".join(f"; deploy {name} at {at:%H:%M} UTC" for at, name in deploys if points[0].at <= at)
    return Spark(**drawn, top=top, words=described, both=completes, deploys=marks)


def by_minute(points: Sequence[TrafficPoint], count: Callable[[TrafficPoint], int]) -> list[int]:
    """The counts added up by minute, oldest first. The last minute ends with the last point."""
    if not points:
        return []
    size = max(1, 60 // points[0].seconds)
    counts = [count(point) for point in points]
    first = len(counts) % size
    starts = [0, *range(first, len(counts), size)] if first else [*range(0, len(counts), size)]
    return [sum(counts[begin:end]) for begin, end in zip(starts, [*starts[1:], len(counts)], strict=True)]
