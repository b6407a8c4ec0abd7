"""Small charts of the last half hour: four figures by minute with their axes, and the trend beside an entry of a list. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from broker_core.reads import Times, TrafficPoint

from .series import Mark, Tick, brief, count_ticks, nice_ceiling, placed_marks
from .traffic import Marked

WIDTH, HEIGHT = 280, 128
LEFT, RIGHT, TOP, BOTTOM = 32.0, 272.0, 8.0, 106.0
TREND_WIDTH, TREND_HEIGHT = 120.0, 24.0
TICK_MINUTES = 10
_DURATIONS = (0.004, 0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 1, 2, 4, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 18_000, 86_400)


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
    series: tuple[Series, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    legend: tuple[Legend, ...]
    words: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    path: str
    area: str
    x: float
    y: float
    words: str


def minutes(points: Sequence[TrafficPoint]) -> list[Minute]:
    """The points by minute, oldest first, without a minute that began before the first point."""
    found: list[Minute] = []
    for at, group in groupby(points, key=lambda point: point.at.replace(second=0, microsecond=0)):
        inside = list(group)
        if not found and inside[0].at != at:
            continue
        last = inside[-1]
        is_over = not last.partial and last.at + timedelta(seconds=last.seconds) >= at + timedelta(minutes=1)
        found.append(
            Minute(
                at, sum(p.sent for p in inside), sum(p.completed for p in inside), last.active, last.dead,
                sum((p.waiting for p in inside), Times()), is_over,
            )
        )  # fmt: skip
    return found


def four(points: Sequence[TrafficPoint], marks: Sequence[Marked] = ()) -> list[SmallChart]:
    """Messages per minute, backlog, waiting time, dead letters. A minute that is not over has no rate yet."""
    known = minutes(points)
    if not known:
        return []
    over = [one for one in known if one.is_over] or known
    begin, end = known[0].at, known[-1].at
    last, dead_before = known[-1], known[max(0, len(known) - 6)].dead
    waits = [(one.at, wait.total_seconds()) for one in over if (wait := one.waited.percentile(0.95)) is not None]
    wait = sum((one.waited for one in over[-5:]), Times()).percentile(0.95)
    new = last.dead - dead_before
    span = f"from {begin:%H:%M} to {end:%H:%M} UTC"
    charts = [
        _chart(
            "rates", "Per minute", begin, end, {"in": [(m.at, m.sent) for m in over], "out": [(m.at, m.completed) for m in over]},
            (Legend("in", f"{over[-1].sent:,}", "in"), Legend("out", f"{over[-1].completed:,}", "out")),
            f"Messages per minute {span}: {sum(m.sent for m in over):,} came in, {sum(m.completed for m in over):,} went out",
        ),
        _chart(
            "backlog", "Backlog", begin, end, {"in": [(m.at, m.active) for m in known]},
            (Legend("", f"{last.active:,}", "message" if last.active == 1 else "messages"),),
            f"Messages in the queues {span}: now {last.active:,}, at most {max(m.active for m in known):,}",
        ),
        _chart(
            "wait", "Wait, 95th percentile", begin, end, {"in": waits}, (Legend("", brief(wait), ""),),
            f"95 of 100 messages waited at most so long, {span}: {brief(wait)} in the last five minutes", in_seconds=True,
        ),
        _chart(
            "dead", "Dead-lettered", begin, end, {"dead": [(m.at, m.dead) for m in known]},
            (Legend("dead" if last.dead else "", f"{last.dead:,}", f"{new:+,} in 5 min" if new else ""),),
            f"Dead letters {span}: now {last.dead:,}, at the beginning {known[0].dead:,}", is_stepped=True,
        ),
    ]  # fmt: skip
    placed = placed_marks((_x(one.at, begin, end), one.letter, one.text) for one in marks if begin <= one.at)
    return [replace(chart, marks=placed) for chart in charts]


def trend(numbers: Sequence[int], what: str) -> Trend | None:
    """A line in TREND_WIDTH by TREND_HEIGHT of numbers by minute; None: they are all 0. what: the noun of the numbers."""
    top = max(numbers, default=0)
    if not top:
        return None
    step = TREND_WIDTH / max(1, len(numbers) - 1)
    points = [(i * step, TREND_HEIGHT - 2 - (TREND_HEIGHT - 4) * value / top) for i, value in enumerate(numbers)]
    path = _stepped(points)
    (x, y), words = points[-1], f"{what} in the last {len(numbers)} minutes: from {numbers[0]:,} to {numbers[-1]:,}"
    return Trend(path, f"{path}V{TREND_HEIGHT:.0f}H0Z", x, round(y, 1), words)


def _chart(
    name: str, title: str, begin: datetime, end: datetime, lines: Mapping[str, Sequence[tuple[datetime, float]]],
    legend: tuple[Legend, ...], words: str, *, in_seconds: bool = False, is_stepped: bool = False,
) -> SmallChart:  # fmt: skip
    highest = max((value for points in lines.values() for _, value in points), default=0)
    if in_seconds:
        top = next((one for one in _DURATIONS if one >= highest), highest)
        labels = [(part * top, _seconds(part * top)) for part in (0, 0.5, 1)]
    else:
        top = nice_ceiling(int(highest))
        steps = count_ticks(top)
        labels = [(value, _short(value)) for value in ([0, top // 2, top] if top % 2 == 0 else steps)]

    def y(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * value / top, 1)

    drawn = []
    for css, points in reversed(list(lines.items())):
        if placed := [(_x(at, begin, end), y(value)) for at, value in points]:
            path = _stepped(placed) if is_stepped else _straight(placed)
            drawn.append(Series(css, path, f"{path}V{BOTTOM:.0f}H{placed[0][0]}Z", *placed[-1]))
    first = begin.replace(minute=begin.minute // TICK_MINUTES * TICK_MINUTES)
    hours = [first + timedelta(minutes=TICK_MINUTES * i) for i in range(6)]
    x_ticks = tuple(Tick(_x(at, begin, end), f"{at:%H:%M}") for at in hours if begin <= at <= end)
    return SmallChart(
        name, title, tuple(drawn), x_ticks, tuple(Tick(y(value), text) for value, text in labels), legend, words
    )  # fmt: skip


def _x(at: datetime, begin: datetime, end: datetime) -> float:
    return round(LEFT + (RIGHT - LEFT) * (min(1.0, (at - begin) / (end - begin)) if end > begin else 1.0), 1)


def _short(value: int) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if value >= 10 * size or (value >= size and value % size == 0):
            return f"{value / size:g} {unit}"
    return f"{value:,}"


def _seconds(value: float) -> str:
    for size, unit in ((3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return "0"


def _straight(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _stepped(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *others = points
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)
