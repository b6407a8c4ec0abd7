"""Flow and backlog: when did the backlog grow, and how long did it take to drain?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.columns import count_lines
from explorer.charts.labels import brief

from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, moment
from .scope import Axis, Range, Scope
from .tables import Tables

AT, QUEUE = Column("at", "From, UTC", "instant"), Column("queue", "Queue")
MOVED = (
    Column("entered", "Entered", "count"),
    Column("left", "Left", "count"),
    Column("depth", "In the queue at the end", "count"),
)
NUMBERS = (AT, *MOVED, Column("most", "Largest", "count"))
QUEUES = (
    QUEUE,
    *MOVED,
    Column("most", "Largest backlog", "count", has_bar=True),
    Column("most_at", "Largest at, UTC", "instant"),
    Column("since", "Since, UTC", "instant"),
    Column("drained", "Drained in", "duration"),
)
STEPS = (AT, QUEUE, *MOVED)
NOTES = (
    "The backlog is counted at the end of each step of 5 minutes (of an hour in history that is older than a week); the largest "
    "of an interval is that of its steps.",
    "A backlog lasts while it is above a tenth of its largest; the time to drain is from the largest to a tenth of it.",
    "Scheduled messages are not counted before they are activated.",
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Of each interval: the messages that entered and left, those in the queue at its end, and the largest backlog in it."""

    starts: Sequence[datetime]
    entered: list[int]
    left: list[int]
    depth: list[int]
    most: list[int]


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    known, span = tables.only_row("known"), scope.range
    axis = span.axis(known.since)
    series = flow(axis.starts, [row for row in tables["flow"] if row.entity_id is None])
    total = next((row for row in tables["backlogs"] if row.entity_id is None), None)
    queues = [row for row in tables["backlogs"] if row.entity_id is not None]
    finding = sentence(scope, series, total)
    if scope.is_whole and total and total.most and len(queues) > 1:
        finding += f" {largest_queue(scope, queues)}"
    if not total:
        return Report(finding, (), NOTES)
    steps = [row for row in tables["flow"] if row.entity_id is not None and row.at is not None]
    details = [*_by_queue(scope, queues, known.since), *_by_step(scope, steps, known.since)]
    data = Table("flow", "Data", NUMBERS, _rows(scope, series, known.since), is_axis=True)
    pictures = _pictures(scope, axis, series, tables.only_row("before").entered)
    return Report(finding, [*pictures, *details, Section("data", "Data", table=data)], NOTES, known.generated)


def flow(starts: Sequence[datetime], rows: Iterable[Any]) -> Flow:
    """The flow in these intervals. rows: at (None: all before), entered, left, depth, most; intervals in which nothing moved have
    none. Pure."""
    by_time = {row.at: row for row in rows}
    counts, depth = Flow(starts, [], [], [], []), by_time[None].depth if None in by_time else 0
    for at in starts:
        row = by_time.get(at)
        entered, left, depth, most = (row.entered, row.left, row.depth, row.most) if row else (0, 0, depth, depth)
        counts.entered.append(entered)
        counts.left.append(left)
        counts.depth.append(depth)
        counts.most.append(most)
    return counts


def sentence(scope: Scope, series: Flow, total: Any) -> str:
    """When the backlog was largest, since when, how long it took to drain, and whether it shrinks. total: as in the table."""
    name, span = scope.name, scope.range
    if total is None:
        return f"No messages entered, left or waited in {name} in this range."
    if not total.most:
        entered = f"{counted(total.entered, 'message')} entered {name}"
        step = "5 minutes" if span.finest < timedelta(hours=1) else "an hour"
        return f"{entered}; none {'was' if total.entered == 1 else 'were'} in the queue at the end of a step of {step}."
    began = f"from {moment(total.since)} on" if total.since else "since before the range"
    text = (
        f"The backlog of {name} was largest at {moment(reached(span, total.most_at))}: {counted(total.most, 'message')}, {began}."
    )
    if total.until:
        return f"{text} It drained within {brief(total.until - total.most_at)}. {_now(series.depth[-1])}."
    gain = series.left[-1] - series.entered[-1]
    pace = (span.end - max(series.starts[-1], span.start)) / gain if gain > 0 else None
    left = f"; at the last pace it is empty in {brief(series.depth[-1] * pace)}" if pace and series.depth[-1] else ""
    return f"{text} It did not drain: {_now(series.depth[-1])[0].lower()}{_now(series.depth[-1])[1:]}{left}."


def largest_queue(scope: Scope, rows: Iterable[Any]) -> str:
    """The queue with the largest backlog. rows: of the table "backlogs"."""
    first = max(rows, key=lambda row: row.most)
    at = moment(reached(scope.range, first.most_at))
    return f"The largest of one queue was that of {scope.paths[first.entity_id]}, {first.most:,} at {at}."


def reached(span: Range, step: datetime) -> datetime:
    """The end of a step of the range."""
    return min(step + span.finest, span.end)


def _now(depth: int) -> str:
    return f"At the end {counted(depth, 'message')} {'was' if depth == 1 else 'were'} in the queue" if depth else "It ended empty"


def _pictures(scope: Scope, axis: Axis, series: Flow, before: int) -> list[Section]:
    """The backlog; what entered and left, and entered in the range to compare with."""
    span, starts = scope.range, series.starts
    text = f"{counted(sum(series.entered), 'message')} entered, {sum(series.left):,} left."
    if scope.compared:
        text += f" {difference(sum(series.entered), before, scope.compared)}"
    traffic = {"entered": series.entered, "left": series.left}
    return [
        Section("backlog", "Backlog", figures=[Figure(
            f"Largest backlog by {span.unit}",
            [count_lines(starts, {"active": series.most}, width, partial=axis.partial) for width in WIDTHS],
            caption=f"messages in the queue, the largest of each {span.unit}, UTC", columns="most depth",
        )]),
        Section("traffic", "Entered and left", text, [Figure(
            f"Messages that entered and left by {span.unit}",
            [count_lines(starts, traffic, width, partial=axis.partial) for width in WIDTHS],
            caption=f"messages by {span.unit}", keys=[("entered", "entered"), ("left", "left")], columns="entered left",
        )]),
    ]  # fmt: skip


def _by_queue(scope: Scope, rows: Sequence[Any], since: datetime | None) -> list[Section]:
    """The largest backlog of each queue; it leads to the messages that were in it and have left."""
    data, span = [], scope.range
    for row in sorted(rows, key=lambda queue: (-queue.most, -queue.entered)):
        query = {"queue": row.entity_id}
        end = reached(span, row.most_at)
        data.append(
            (scope.paths[row.entity_id], _entered(query, row.entered, span.start, span.end),
             _left(query, row.left, since or span.start, span.start, span.end), row.depth,
             Link(row.most, messages_url(query, since or span.start, end, left_start=end, left_end=scope.now)),
             end if row.most else None, row.since, row.until - row.most_at if row.until else None)
        )  # fmt: skip
    title = "By queue" if scope.is_whole else "Largest backlog"
    return [Section.with_table("queues", title, QUEUES, data)] if data else []


def _by_step(scope: Scope, rows: Sequence[Any], since: datetime | None) -> list[Section]:
    """What entered and left each queue in each interval of a short range."""
    if not rows or not scope.is_whole:
        return []
    span, data = scope.range, []
    for row in sorted(rows, key=lambda step: (step.at, scope.paths[step.entity_id])):
        query, end = {"queue": row.entity_id}, min(row.at + span.bucket, span.end)
        left = _left(query, row.left, since or row.at, row.at, end)
        data.append((row.at, scope.paths[row.entity_id], _entered(query, row.entered, row.at, end), left, row.depth))
    title = f"By {span.unit} and queue"
    return [Section.with_table("steps", title, STEPS, data)]


def _rows(scope: Scope, series: Flow, since: datetime | None) -> list[tuple[Any, ...]]:
    """The intervals for the table, newest first."""
    span, rows = scope.range, []
    for at, entered, left, depth, most in zip(series.starts, series.entered, series.left, series.depth, series.most, strict=True):
        start, end = max(at, span.start), min(at + span.bucket, span.end)
        numbers = _entered(scope.query, entered, start, end), _left(scope.query, left, since or start, start, end)
        rows.append((at, *numbers, depth, most))
    return rows[::-1]


def _entered(query: Mapping[str, Any], count: int, start: datetime, end: datetime) -> Link:
    return Link(count, messages_url(query, start, end, order="enqueued"))


def _left(query: Mapping[str, Any], count: int, since: datetime, start: datetime, end: datetime) -> Link:
    """since: when the first of them can have entered."""
    return Link(count, messages_url(query, since, end, left_start=start, left_end=end))


ANALYSIS = Analysis(
    slug="flow", title="Flow and backlog", form=ReportForm, present=present, needs={"counts": timedelta(days=1)},
    question="When did the backlog grow, and how long did it take to drain?",
)  # fmt: skip
