"""Computes the geometry of charts. Pure, no markup: templates draw it as SVG, and the style sheet sets the colours.

Lengths are in view box units. Each chart is made in two widths: for a card or a column, and for phones.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WIDTHS = {"wide": 1060, "narrow": 340}  # of a chart that fills a card
COLUMN_WIDTHS = {"column": 520, "narrow": 340}  # of one that stands beside another
HEIGHT = 210
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 26
LINE = 11.0  # height of a label
CHARACTER = 7.0  # approximate width of a digit in a label

_STEPS = [  # in seconds, of an axis from zero
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100)),
]
DURATION_TICKS = {
    timedelta(milliseconds=0.1): "0.1 ms",
    timedelta(milliseconds=1): "1 ms",
    timedelta(milliseconds=10): "10 ms",
    timedelta(milliseconds=100): "100 ms",
    timedelta(seconds=1): "1 s",
    timedelta(seconds=10): "10 s",
    timedelta(minutes=1): "1 min",
    timedelta(minutes=10): "10 min",
    timedelta(hours=1): "1 h",
    timedelta(hours=10): "10 h",
    timedelta(days=1): "1 day",
    timedelta(days=10): "10 days",
    timedelta(days=100): "100 days",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_STEPS = {
    timedelta(minutes=1): (1, 2, 5, 10, 15, 30, 60, 120, 240),
    timedelta(hours=1): (1, 2, 3, 4, 6, 12, 24, 48, 96),
    timedelta(days=1): (1, 2, 4, 7, 14, 28, 56, 112),
}
OTHER_STEPS = (10, 30, 60, 300, 600, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_419_200)
NARROWEST_SPOT = 2.5  # a narrower one is hard to point at
FLOOR = timedelta(milliseconds=0.1)  # shorter durations are drawn here: a logarithmic axis has no zero


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a position along its axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Shape:
    """One series as an SVG path. name: its CSS class."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Spot:
    """An invisible column over one bucket, with its tooltip."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A hatched column: a bucket of which the range covers only a part."""

    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at an instant. letter: its name in the legend, in a circle at y below the top."""

    x: float
    letter: str
    text: str
    y: float = 0.0


def placed_marks(marks: Iterable[tuple[float, str, str]], size: float = 17) -> tuple[Mark, ...]:
    """Marks from their positions; the circle of one that is close to the one before is below it."""
    made: list[Mark] = []
    for x, letter, text in marks:
        is_close = bool(made) and x - made[-1].x < size
        made.append(Mark(x, letter, text, made[-1].y + size if is_close else 0.0))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Chart:
    """slot: the width of a bucket, of which there are `buckets`."""

    variant: str
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    shapes: tuple[Shape, ...]
    spots: tuple[Spot, ...]
    bands: tuple[Band, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    slot: float = 0.0
    buckets: int = 0
    marks: tuple[Mark, ...] = ()

    @property
    def plot_height(self) -> float:
        return self.bottom - self.top


def stacked_bars(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[int]],
    tips: Sequence[str],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Sequence[tuple[float, str, str]] = (),
) -> Chart:
    """Counts as stacked bars, one per bucket, the series in their order from the bottom.

    partial: which buckets are hatched. marks: (place in buckets, letter, text) of vertical lines.
    """
    plot = _Plot(starts, variant, marks)
    top = nice_ceiling(max((sum(values) for values in zip(*series.values(), strict=True)), default=0))
    stacked = [0] * len(starts)
    shapes = []
    for name, values in series.items():
        path = "".join(plot.bar(i, stacked[i] / top, (stacked[i] + value) / top) for i, value in enumerate(values) if value)
        stacked = [below + value for below, value in zip(stacked, values, strict=True)]
        shapes.append(Shape(name, path))
    steps = count_ticks(top)
    return plot.chart(shapes, tips, [Tick(plot.y(step / top), f"{step:,}") for step in steps], partial)


def duration_lines(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[timedelta | None]],
    tips: Sequence[str],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Sequence[tuple[float, str, str]] = (),
    span: Sequence[timedelta] = (),
) -> Chart:
    """Durations as lines on a logarithmic axis. A bucket without a value interrupts its line. partial, marks: as in bars. span:
    durations that the axis includes, too."""
    plot = _Plot(starts, variant, marks)
    present = [*span, *(value for values in series.values() for value in values if value is not None)]
    ticks = duration_ticks(min(present, default=FLOOR), max(present, default=FLOOR))
    low, high = math.log10(ticks[0].total_seconds()), math.log10(ticks[-1].total_seconds())

    def share(value: timedelta) -> float:
        return (math.log10(max(value, FLOOR).total_seconds()) - low) / (high - low)

    shapes = [
        Shape(name, plot.line([None if value is None else share(value) for value in values])) for name, values in series.items()
    ]
    labels = [Tick(plot.y(share(tick)), DURATION_TICKS[tick]) for tick in ticks]
    return plot.chart(shapes, tips, _apart(labels), partial)


def count_lines(
    starts: Sequence[datetime],
    series: Mapping[str, Sequence[float | None]],
    variant: str,
    *,
    partial: Sequence[bool] = (),
    marks: Sequence[tuple[float, str, str]] = (),
) -> Chart:
    """Numbers as lines on an axis from zero, the first above an area. A bucket without a value interrupts its line."""
    plot = _Plot(starts, variant, marks)
    top = nice_ceiling(math.ceil(max((value for values in series.values() for value in values if value is not None), default=0)))
    shares = {name: [None if value is None else value / top for value in values] for name, values in series.items()}
    areas = [Shape(f"{name} area", plot.area(values)) for name, values in list(shares.items())[:1]]
    lines = [Shape(name, plot.line(values)) for name, values in reversed(shares.items())]
    return plot.chart([*areas, *lines], (), [Tick(plot.y(step / top), f"{step:,}") for step in count_ticks(top)], partial)


def share_curve(
    times: Sequence[timedelta],
    series: Mapping[str, Sequence[float]],
    tips: Sequence[str],
    variant: str,
    chosen: timedelta | None,
    now: timedelta | None = None,
) -> Chart:
    """Shares from 0 to 1 by duration, the first above an area. times: evenly spaced on a logarithmic axis. chosen and now are
    marked."""
    plot = _Plot(times, variant)
    plot.marks = _marks_among(times, {"X": chosen, "N": now})
    first = next(iter(series))
    shapes = [
        Shape(f"{first} area", plot.area(series[first])),
        *(Shape(name, plot.line(values)) for name, values in series.items()),
    ]
    y_ticks = [Tick(plot.y(share / 100), f"{share} %") for share in (0, 25, 50, 75, 100)]
    return plot.chart(shapes, tips, y_ticks, (), _logarithmic_ticks(plot, times))


def _place(times: Sequence[timedelta], duration: timedelta) -> float:
    """Of a duration on a logarithmic axis, in buckets."""
    low, high = (math.log10(times[i].total_seconds()) for i in (0, -1))
    return (math.log10(duration.total_seconds()) - low) / (high - low) * (len(times) - 1) + 0.5


def _marks_among(times: Sequence[timedelta], marks: Mapping[str, timedelta | None]) -> list[tuple[float, str, str]]:
    found = [(at, name) for name, at in marks.items() if at is not None and times[0] <= at <= times[-1]]
    return [(_place(times, at), name, brief(at)) for at, name in sorted(found)]


def _apart(ticks: Sequence[Tick]) -> list[Tick]:
    """Those, from the bottom to the top, whose texts have room: the top, and each that is not too near to it or to one below."""
    kept: list[Tick] = []
    for tick in ticks[:-1]:
        if tick.at - ticks[-1].at >= LINE and (not kept or kept[-1].at - tick.at >= LINE):
            kept.append(tick)
    return [*kept, ticks[-1]]


def _logarithmic_ticks(plot: "_Plot", times: Sequence[timedelta]) -> list[Tick]:
    ticks, free = [], 0.0
    for tick, text in DURATION_TICKS.items():
        at = plot.x(_place(times, tick))
        if times[0] <= tick <= times[-1] and at >= free:
            ticks.append(Tick(at, text))
            free = at + CHARACTER * 9
    if len(ticks) < 2:
        ticks = [Tick(plot.x(place + 0.5), brief(times[place])) for place in (0, (len(times) - 1) // 2, len(times) - 1)]
    return ticks


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


def nice_ceiling(value: int) -> int:
    """The end of the axis: the next of 1, 2, 4, 5, 6, 8 times a power of ten, at least 4, so that ticks are whole numbers."""
    if value <= 4:
        return 4
    power = 10 ** int(math.log10(value))
    return next(int(step * power) for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value)


def count_ticks(top: int) -> list[int]:
    """Zero, `top`, and equal whole steps between."""
    parts = next(parts for parts in (4, 5, 3, 2) if top % parts == 0)
    return [top * i // parts for i in range(parts + 1)]


def duration_ticks(least: timedelta, most: timedelta) -> list[timedelta]:
    """The ticks from the last at or below `least` to the first at or above `most`; at least two."""
    ticks = list(DURATION_TICKS)
    first = min(max(i for i, tick in enumerate(ticks) if tick <= max(least, FLOOR)), len(ticks) - 2)
    last = next((i for i, tick in enumerate(ticks) if tick >= most), len(ticks) - 1)
    return ticks[first : max(last, first + 1) + 1]


class _Plot:
    """Positions inside one chart: buckets share the width evenly, values rise from the bottom."""

    def __init__(self, starts: Sequence, variant: str, marks: Sequence[tuple[float, str, str]] = ()):
        self.marks = marks
        self.starts, self.variant, self.width = starts, variant, {**WIDTHS, **COLUMN_WIDTHS}[variant]
        self.slot = (self.width - LEFT - RIGHT) / max(1, len(starts))

    def y(self, share: float) -> float:
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def x(self, index: float) -> float:
        return round(LEFT + index * self.slot, 2)

    def bar(self, index: int, low: float, high: float) -> str:
        gap = min(2.0, self.slot * 0.15)
        left, right = self.x(index) + gap / 2, self.x(index + 1) - gap / 2
        return f"M{left:.1f} {self.y(low)}V{self.y(high)}H{right:.1f}V{self.y(low)}z"

    def line(self, shares: Sequence[float | None]) -> str:
        """Through the middles of the buckets; a lone value is a short dash."""
        path, pen_down = [], False
        for i, share in enumerate(shares):
            if share is None:
                pen_down = False
                continue
            alone = not pen_down and (i + 1 == len(shares) or shares[i + 1] is None)
            start = f"M{self.x(i + 0.2)} {self.y(share)}H{self.x(i + 0.8)}" if alone else f"M{self.x(i + 0.5)} {self.y(share)}"
            path.append(f"L{self.x(i + 0.5)} {self.y(share)}" if pen_down else start)
            pen_down = not alone
        return "".join(path)

    def area(self, shares: Sequence[float | None]) -> str:
        """From the bottom to the values, for each run of buckets that have one."""
        path, run = [], []
        for i, share in enumerate([*shares, None]):
            if share is not None:
                run.append(f"L{self.x(i + 0.5)} {self.y(share)}")
            elif run:
                path.append(f"M{self.x(i - len(run) + 0.5)} {self.y(0)}{''.join(run)}V{self.y(0)}z")
                run = []
        return "".join(path)

    def chart(
        self,
        shapes: list[Shape],
        tips: Sequence[str],
        y_ticks: list[Tick],
        partial: Sequence[bool],
        x_ticks: Sequence[Tick] | None = None,
    ) -> Chart:
        """x_ticks: those of an axis that is not of time."""
        shown = tips if self.slot >= NARROWEST_SPOT else ()
        spots = tuple(Spot(self.x(i), round(self.slot, 2), tip) for i, tip in enumerate(shown))
        bands = tuple(Band(self.x(i), round(self.slot, 2)) for i, is_partial in enumerate(partial) if is_partial)
        right, bottom = self.width - RIGHT, HEIGHT - BOTTOM
        x_ticks = tuple(time_ticks(self.starts, self.slot) if x_ticks is None else x_ticks)
        positions = (self.variant, self.width, HEIGHT, LEFT, right, TOP, bottom)
        return Chart(
            *positions,
            tuple(shapes),
            spots,
            bands,
            x_ticks,
            tuple(y_ticks),
            round(self.slot, 4),
            len(self.starts),
            placed_marks((self.x(at), letter, text) for at, letter, text in self.marks),
        )


def time_ticks(starts: Sequence[datetime], slot: float) -> list[Tick]:
    """As many labels as fit, at round times, each at the start of its bucket. A new day is labelled with its date."""
    length = starts[1] - starts[0] if len(starts) > 1 else timedelta(hours=1)
    steps = TIME_STEPS.get(length) or [s // length.seconds for s in OTHER_STEPS if length.days == 0 and s % length.seconds == 0]
    step = next((step for step in steps if step * slot >= _room(step * length)), steps[-1])
    room = _room(step * length)
    round_times = [(i, at) for i, at in enumerate(starts) if int((at - EPOCH) / length) % step == 0]
    ticks, last_date = [], None
    is_daily = step * length >= timedelta(days=1)
    clock = "%H:%M" if step * length % timedelta(minutes=1) == timedelta(0) else "%H:%M:%S"
    for i, at in round_times or list(enumerate(starts))[:1]:
        if i and (len(starts) - i) * slot < room / 2:
            break
        new_day = last_date is not None and at.date() != last_date
        ticks.append(Tick(round(LEFT + i * slot, 2), f"{at:%d %b}" if new_day or is_daily else f"{at:{clock}}"))
        last_date = at.date()
    return ticks


def _room(step: timedelta) -> float:
    """The width of a label at such steps: seconds are part of it if they are not zero."""
    return CHARACTER * (8 if step % timedelta(minutes=1) == timedelta(0) else 10)
