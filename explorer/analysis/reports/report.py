"""What an analysis finds, as data: sentences, charts and tables. Pure. One template shows any report; files.py writes a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from broker_core.common.durations import human
from broker_core.common.types import Right
from explorer.charts.chart import WIDTHS
from explorer.charts.columns import stacked_bars
from explorer.charts.labels import brief

MOST_ROWS = 200  # of a table on the page; a file has all of them
NOTHING = "–"
PREVIEWED = "The link opens a preview of the changed setting. Opening it changes nothing."  # a note


def percent(share: float) -> str:
    """A share from 0 to 1 in per cent. Rounded to 0 % or 100 % only if exact."""
    if 0 < share < 0.0005:
        return "under 0.1\xa0%"
    if 0.9995 < share < 1:
        return "over 99.9\xa0%"
    return f"{100 * share:.1f}\xa0%"


def moment(at: datetime) -> str:
    """An instant in UTC, to the minute."""
    return f"{at:%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a column contains. text: a value on the page. plain: a value in files, whose type is `arrow`. css: class of its cells.
    unit: ends the column's name in files."""

    text: Callable[[Any], str]
    plain: Callable[[Any], Any]
    arrow: pa.DataType
    css: str = "num"
    unit: str = ""


KINDS = {
    "text": Kind(str, str, pa.string(), css=""),
    "figure": Kind(str, str, pa.string()),  # a number as text: in a column of several units
    "count": Kind("{:,}".format, int, pa.int64()),
    "number": Kind("{:,.1f}".format, float, pa.float64()),
    "share": Kind(percent, float, pa.float64()),
    "instant": Kind(moment, lambda at: at, pa.timestamp("us", tz="UTC"), css="nowrap"),
    "duration": Kind(brief, timedelta.total_seconds, pa.float64(), unit="_seconds"),
    "setting": Kind(human, timedelta.total_seconds, pa.float64(), unit="_seconds"),  # a duration that somebody chose
}


STATISTICS = {", median": "median", ", 95 %": "95th percentile"}  # what the titles of columns end with


@dataclass(frozen=True, slots=True)
class Column:
    """name: in files. title: on the page. kind: of KINDS. has_bar: whether its cells show the value as a bar, too. about: the
    term of the glossary that explains it."""

    name: str
    title: str
    kind: str = "text"
    has_bar: bool = False
    about: str = ""

    @property
    def term(self) -> str:
        """The term of the glossary that explains it; empty: it needs none."""
        return self.about or next((word for ending, word in STATISTICS.items() if self.title.endswith(ending)), "")

    @property
    def css(self) -> str:
        return KINDS[self.kind].css

    @property
    def file_name(self) -> str:
        return self.name + KINDS[self.kind].unit


@dataclass(frozen=True, slots=True)
class Link:
    """A value that leads to what it counts; 0 leads nowhere."""

    value: Any
    url: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as the page shows it. bar: its length from 0 to 100; None: it has none."""

    text: str
    url: str = ""
    css: str = ""
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """name: in the URLs of its files, unique in the report. rows: values in the order of the columns, or Links; None: unknown.

    is_axis: its rows are the points of the time axis of the report's charts, newest first; charts.js reads values from it. At
    most one table of a report is.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    is_axis: bool = False
    empty: str = ""  # instead of the table, if it has no rows

    @property
    def lines(self) -> list[tuple[Cell, list[Cell]]]:
        """The rows that the page lists: the first cell, which names the row, and the others."""
        longest = [
            max((float(KINDS[c.kind].plain(v)) for row in self.rows if (v := plain(row[i])) is not None), default=0) if c.has_bar
            else 0
            for i, c in enumerate(self.columns)
        ]  # fmt: skip
        page_rows = self.rows if self.is_axis else self.rows[:MOST_ROWS]
        cells = ([_cell(*each) for each in zip(self.columns, row, longest, strict=True)] for row in page_rows)
        return [(first, others) for first, *others in cells]

    @property
    def more(self) -> int:
        """How many rows the page does not list."""
        return 0 if self.is_axis else max(0, len(self.rows) - MOST_ROWS)


TEMPLATES = {
    "lines": "explorer/_chart.svg",
    "bars": "explorer/_chart.svg",
    "gantt": "explorer/analysis/_gantt.svg",  # also bars by name
    "heat": "explorer/_chart.svg",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart.

    label: what it shows, for those who do not see it. charts: its geometry in each width. kind: of TEMPLATES. caption: empty: the
    label. keys: its legend, (CSS name of a series, its word). columns: of the axis table, whose values are read under the
    pointer; only of a chart over time.
    """

    label: str
    charts: Sequence[Any]
    kind: str = "lines"
    caption: str = ""
    keys: Sequence[tuple[str, str]] = ()
    columns: str = ""

    @property
    def template(self) -> str:
        """Draws one of the charts."""
        return TEMPLATES[self.kind]

    @property
    def has_lines(self) -> bool:
        """Whether its series are lines, and not areas."""
        return self.kind in ("lines", "heat")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    name: str
    title: str
    sentence: str = ""
    figures: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()

    @classmethod
    def with_table(
        cls, name: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]], *, empty: str = "", **parts: Any
    ) -> Section:
        """A section whose table has its name and title. empty: as of the table. parts: what else the section has."""
        return cls(name, title, table=Table(name, title, columns, rows, empty=empty), **parts)


@dataclass(frozen=True, slots=True)
class Report:
    """finding: the answer in a sentence or two. notes: assumptions and definitions, each a sentence. generated: how many of the
    messages are generated history. refusal: why the history does not answer (parts of) the question. links: to related pages,
    their words as values."""

    finding: str
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    generated: int = 0
    refusal: str = ""
    links: Sequence[Link] = ()

    @property
    def tables(self) -> Mapping[str, Table]:
        return {section.table.name: section.table for section in self.sections if section.table}


@dataclass(frozen=True, slots=True)
class Analysis:
    """A question that a report answers.

    slug: in its URL; its job is the module of that name in explorer.analysis.jobs.reports (with _ for -). needs: the contents
    that the job reads, each with how long before the range (and the one to compare with) it reads them. present: (scope, cleaned
    values of the form, tables of the job) -> the report; raises CannotTell. form: a forms.ReportForm class. needs_entity:
    whether it is about one queue, not about a namespace. whole_namespace: whether its job reads all entities of the namespace,
    topics included, also for one queue; those of the scope are then the value "entity_ids" of its request. right: what reading
    it needs.
    """

    slug: str
    title: str
    question: str
    needs: Mapping[str, timedelta]
    present: Callable[[Any, Mapping[str, Any], Any], Report]
    form: Any
    needs_entity: bool = False
    whole_namespace: bool = False
    right: Right = Right.BROWSE


def plain(value: Any) -> Any:
    """A cell's value without its link."""
    return value.value if isinstance(value, Link) else value


def duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, such as "2,000 messages"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def difference(count: int, before: int, span: Any) -> str:
    """A number against that of another range, as a sentence."""
    if not before:
        return f"From {span} there were none."
    change = count / before - 1
    words = f"{abs(change):.0%} {'more' if change > 0 else 'fewer'} than" if round(change, 2) else "as many as"
    return f"That is {words.replace('%', chr(0xA0) + '%')} from {span} ({before:,})."


def by_interval(
    span: Any, cells: Iterable[tuple[str, datetime | None, int]], words: Mapping[str, str], label: str, caption: str
) -> Section:
    """Counts in the intervals of a range as stacked bars. cells: (name, start of the interval, count). words: of the names, in
    their order."""
    place = {at: i for i, at in enumerate(span.buckets)}
    counts = {name: [0] * len(place) for name in words}
    for name, at, count in cells:
        if at in place:
            counts[name][place[at]] += count
    series = {name: each for name, each in counts.items() if any(each)}
    charts = [stacked_bars(span.buckets, series, width, partial=span.partial) for width in WIDTHS]
    keys = [(name, words[name]) for name in series]
    return Section("times", "By time", figures=[Figure(label, charts, "bars", caption, keys)])


def _cell(column: Column, value: Any, longest: float) -> Cell:
    kind, plain_value = KINDS[column.kind], plain(value)
    if plain_value in (None, ""):
        return Cell(NOTHING, css=kind.css)
    bar = round(100 * float(kind.plain(plain_value)) / longest, 1) if column.has_bar and longest else None
    url = value.url if isinstance(value, Link) and plain_value != 0 else ""
    return Cell(kind.text(plain_value), url, kind.css, bar)
