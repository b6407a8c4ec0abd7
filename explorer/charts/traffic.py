"""The charts of traffic over time, with the same numbers as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core.common.durations import human
from broker_core.reads import Times, TrafficPoint

from .chart import COLUMN_WIDTHS, Chart
from .columns import count_lines, duration_lines, stacked_bars
from .labels import brief

EARLY = 0.25  # the share of an interval after which a rate of it is drawn
MOST_MARKS = 20
_UNITS = ((1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day"))
_PER = {"second": "/s", "minute": "/min", "hour": "/h", "day": "/d"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. chart: the heading of the chart that draws it."""

    name: str
    title: str
    chart: str


COLUMNS = (
    Column("sent", "In", "Messages"),
    Column("received", "Received", "Messages"),
    Column("completed", "Out", "Messages"),
    Column("active", "Backlog", "Backlog"),
    Column("oldest", "Oldest", "Backlog"),
    Column("waiting_p50", "p50", "Waiting"),
    Column("waiting_p95", "p95", "Waiting"),
    Column("waiting_max", "Max", "Waiting"),
    Column("processing_p50", "p50", "Processing"),
    Column("processing_p95", "p95", "Processing"),
    Column("processing_max", "Max", "Processing"),
    Column("dead_lettered", "Dead-lettered", "Failures"),
    Column("expired", "Expired", "Failures"),
    Column("abandoned", "Abandoned", "Failures"),
    Column("dead", "In dead letters", "Failures"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of a chart's legend. name: its CSS class. value: what the head of the chart says of it."""

    name: str
    word: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart with its head. kind: lines or bars. columns: of the table, with the same numbers. note: why it has no values."""

    name: str
    title: str
    kind: str
    charts: list[Chart]
    lines: tuple[Line, ...]
    columns: str
    sentence: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """When what the charts show began. words: what began. note: about what is shown from before."""

    at: datetime
    words: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Marked:
    """A change, or a beginning, which nobody did. letter: as in the charts. text: what was done, where, in a word or two."""

    at: datetime
    letter: str
    text: str
    where: str = ""
    actor: str = ""

    @property
    def action(self) -> str:
        return self.text.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Row:
    """An interval as a line of the table: the numbers in the order of COLUMNS, and as texts."""

    at: datetime
    name: str
    values: tuple[Any, ...]
    texts: tuple[str, ...]
    partial: bool


def panels(
    points: Sequence[TrafficPoint],
    marks: Sequence[Marked] = (),
    *,
    now: datetime | None = None,
    holds_messages: bool = True,
    since: datetime | None = None,
) -> list[Panel]:
    """The charts of these points. holds_messages: False for a topic, which has no backlog and no receivers. since: when what they
    show began: the time before is shaded, and has no lines at zero."""
    drawing = _Drawing(points, marks, now or datetime.now(UTC), since)
    if not holds_messages:
        return [drawing.rates(completes=False)]
    return [
        drawing.rates(),
        drawing.backlog(),
        *([drawing.oldest()] if any(point.oldest is not None for point in points) else ()),
        drawing.times("waiting", "Waiting time", "From arrival to the first receive"),
        drawing.times("processing", "Processing time", "From the last receive to completion"),
        drawing.failures(),
        drawing.dead(),
    ]


def marked(records: Iterable[Any], beginning: Beginning | None = None) -> list[Marked]:
    """The marks of audit records and of a beginning, oldest first; only the last MOST_MARKS."""
    marks = [
        Marked(record.at, "", f"{record.action.removeprefix('mark ')}: {_where(record)}", _where(record), record.actor)
        for record in records
    ]
    if beginning:
        marks.append(Marked(beginning.at, "", beginning.words, beginning.note))
    latest = sorted(marks, key=lambda mark: mark.at)[-MOST_MARKS:]
    return [replace(mark, letter=chr(ord("A") + i)) for i, mark in enumerate(latest)]


def _where(record: Any) -> str:
    return f"{record.namespace}/{record.path}" if record.path else record.target


def rows(points: Sequence[TrafficPoint]) -> list[Row]:
    """The table, newest first."""
    table_rows = []
    for point in reversed(points):
        values = tuple(_value(point, column.name) for column in COLUMNS)
        table_rows.append(Row(point.at, interval(point), values, tuple(_text(value) for value in values), point.partial))
    return table_rows


def interval(point: TrafficPoint) -> str:
    """The name of an interval by its start, as exact as its length needs."""
    if point.seconds < 60:
        return f"{point.at:%H:%M:%S}"
    return f"{point.at:%H:%M}" if point.seconds < 600 else f"{point.at:%d %b %H:%M}"


def csv_rows(points: Sequence[TrafficPoint]) -> Iterable[Sequence[Any]]:
    """The table for a file, oldest first: instants in ISO 8601, durations in seconds."""
    yield ["at", "seconds", *(column.name for column in COLUMNS)]
    for row, point in zip(reversed(rows(points)), points, strict=True):
        numbers = (value.total_seconds() if isinstance(value, timedelta) else value for value in row.values)
        yield [point.at.isoformat(), point.seconds, *("" if value is None else value for value in numbers)]


def rate_unit(points: Iterable[TrafficPoint]) -> tuple[int, str]:
    """The seconds and the name of the unit in which the highest rate is a number of at least 5 if possible, and at most 600."""
    highest = max((max(p.sent, p.received, p.completed) / p.seconds for p in points), default=0)
    return next(((size, word) for size, word in _UNITS if highest * size >= 5), _UNITS[-1] if highest else _UNITS[1])


def _value(point: TrafficPoint, name: str) -> Any:
    times, _, which = name.partition("_")
    if times not in ("waiting", "processing"):
        return getattr(point, name)
    return _duration(getattr(point, times), which)


def _duration(times: Times, which: str) -> timedelta | None:
    return times.maximum if which == "max" else times.percentile(int(which[1:]) / 100)


def _text(value: Any) -> str:
    return brief(value) if value is None or isinstance(value, timedelta) else f"{value:,}"


def _latest(rates: Sequence[float | None]) -> str:
    """The last rate that is drawn, as a number to read."""
    latest = next((rate for rate in reversed(rates) if rate is not None), 0)
    return f"{latest:,.0f}" if latest >= 10 or not latest else f"{latest:.1f}"


def _has_values(point: TrafficPoint) -> bool:
    """Whether anything happened or was there."""
    return any((point.sent, point.received, point.completed, point.active, point.dead, point.dead_lettered, point.expired))


class _Drawing:
    """The charts of a list of points, which have the same time axis."""

    def __init__(self, points: Sequence[TrafficPoint], marks: Sequence[Marked], now: datetime, since: datetime | None):
        self.points, self.starts = points, [point.at for point in points]
        self.partial = [point.partial for point in points]
        length = timedelta(seconds=points[0].seconds)
        self.marks = [
            (max(0.0, (mark.at - self.starts[0]) / length), mark.letter, f"{mark.at:%H:%M} {mark.text}") for mark in marks
        ]
        self.elapsed = max(1.0, min(length, now - self.starts[-1]).total_seconds())
        self.span = human(length * len(points))
        self.before = max(0.0, (since - self.starts[0]) / length) if since else 0.0  # in intervals
        self.unknown = next((i for i, point in enumerate(points) if i >= int(self.before) or _has_values(point)), 0)

    def rates(self, *, completes: bool = True) -> Panel:
        size, unit = rate_unit(self.points)
        names = {"sent": "in", "completed": "out"} if completes else {"sent": "published"}
        totals = {name: sum(getattr(point, name) for point in self.points) for name in names}
        rates = {name: [self._rate(point, name, size) for point in self.points] for name in names}
        lines = tuple(Line(name, word, f"{_latest(rates[name])}{_PER[unit]}") for name, word in names.items())
        sentence = " and ".join(f"{totals[name]:,} {word}" for name, word in names.items()) + f" in {self.span}"
        return Panel("rates", f"Messages per {unit}", "lines", self._drawn(count_lines, rates), lines, " ".join(names), sentence)

    def backlog(self) -> Panel:
        active = [point.active for point in self.points]
        now, most = active[-1], max(active)
        sentence = f"{now:,} now, at most {most:,} in {self.span}"
        return self._counts("backlog", "Backlog", {"active": "messages now"}, sentence)

    def oldest(self) -> Panel:
        ages = [point.oldest or None for point in self.points]  # none, where there was no message
        now, most = brief(ages[-1]), brief(max(filter(None, ages), default=None))
        charts = self._drawn(duration_lines, {"p50": ages})
        sentence = f"The oldest message: {now} now, at most {most} in {self.span}"
        note = "" if any(ages) else f"No messages in {self.span}."
        return Panel("oldest", "Oldest message", "lines", charts, (Line("p50", "now", now),), "oldest", sentence, note)

    def dead(self) -> Panel:
        dead = [point.dead for point in self.points]
        change = dead[-1] - dead[0]
        sentence = f"{dead[-1]:,} now, {change:+,} in {self.span}" if change else f"{dead[-1]:,} now, unchanged in {self.span}"
        note = "" if any(dead) else "No messages in dead-letter queues."
        return self._counts("dead", "In dead-letter queues", {"dead": "messages now"}, sentence, note)

    def failures(self) -> Panel:
        names = {"dead_lettered": "dead-lettered", "expired": "expired", "abandoned": "abandoned"}
        counts = {name: [getattr(point, name) for point in self.points] for name in names}
        totals = {name: sum(values) for name, values in counts.items()}
        lines = tuple(Line(name, word, f"{totals[name]:,}") for name, word in names.items())
        charts = self._drawn(stacked_bars, counts)
        sentence = ", ".join(f"{totals[name]:,} {word}" for name, word in names.items()) + f" in {self.span}"
        note = "" if any(totals.values()) else f"No failures in {self.span}."
        length = human(timedelta(seconds=self.points[0].seconds))
        return Panel("failures", f"Failures per {length}", "bars", charts, lines, " ".join(names), sentence, note)

    def times(self, kind: str, title: str, hint: str) -> Panel:
        every = sum((getattr(point, kind) for point in self.points), Times())
        words = {"p50": "median", "p95": "95th percentile", "max": "longest"}
        lines = tuple(Line(which, word, brief(_duration(every, which))) for which, word in words.items())
        series = {which: [_duration(getattr(point, kind), which) for point in self.points] for which in words}
        charts = self._drawn(duration_lines, series)
        columns = " ".join(f"{kind}_{which}" for which in words)
        if not every.count:
            return Panel(kind, title, "lines", charts, lines, columns, hint, f"No completed messages in {self.span}.")
        sentence = f"{hint}: half within {lines[0].value}, 95 % within {lines[1].value}, at most {lines[2].value}"
        return Panel(kind, title, "lines", charts, lines, columns, sentence)

    def _counts(self, name: str, title: str, series: dict[str, str], sentence: str, note: str = "") -> Panel:
        values = {key: [getattr(point, key) for point in self.points] for key in series}
        charts = self._drawn(count_lines, values)
        lines = tuple(Line(key, word, f"{values[key][-1]:,}") for key, word in series.items())
        return Panel(name, title, "lines", charts, lines, " ".join(series), sentence, note)

    def _drawn(self, draw: Callable[..., Chart], series: dict[str, Any]) -> list[Chart]:
        if draw is not stacked_bars:
            series = {name: [None] * self.unknown + list(values[self.unknown :]) for name, values in series.items()}
        charts = (draw(self.starts, series, variant, partial=self.partial, marks=self.marks) for variant in COLUMN_WIDTHS)
        return [replace(chart, before=round(self.before * chart.slot, 1)) for chart in charts]

    def _rate(self, point: TrafficPoint, name: str, size: int) -> float | None:
        """Messages per `size` seconds; of the interval that has not ended, as soon as enough of it has passed."""
        count: int = getattr(point, name)
        if not point.partial:
            return count / point.seconds * size
        return count / self.elapsed * size if self.elapsed >= EARLY * point.seconds else None
