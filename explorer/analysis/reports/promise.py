"""Service level: was the promise kept that a share of the messages is received within a time, by week or month?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms

from broker_core.common.durations import human
from broker_core.form_fields import DurationField
from explorer.charts.chart import WIDTHS
from explorer.charts.rows import ShareRow, share_rows

from ..jobs.constants import BY_WEEK, WEEK
from ..jobs.measures import lower_bound
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, counted, joined, moment, percent
from .scope import Range, Scope
from .tables import Tables
from .times import Times, times_by

DEFAULT_SHARE, DEFAULT_TIME = 95.0, timedelta(minutes=1)
FEW = 30  # messages, from which a share is worth a verdict
PERIODS = (
    Column("period", "Entered in"),
    Column("messages", "Messages", "count"),
    Column("kept", "Received in time", "share"),
    Column("late", "Not in time", "count", has_bar=True),
    Column("undecided", "Not decided", "count"),
    Column("verdict", "Promise"),
)
QUEUES = (Column("queue", "Queue"), *PERIODS)
NOTES = (
    "Time is from enqueueing to the first delivery; a message counts in the week or month in which it was enqueued.",
    "A message that was never received counts as not in time if it was in the queue for at least the promised time. One that "
    "expired, was removed, or has waited for less is not decided: its share is estimated from the others (Kaplan-Meier); where "
    "no message was observed for long enough, it counts as not in time.",
    f"No verdict is given on fewer than {FEW} messages. Times are those of bins, off by at most 1 in 32.",
)


class PromiseForm(ReportForm):
    DEFAULTS = {"range": "30d"}
    compare = None

    share = forms.FloatField(label="Share of messages, %", required=False, min_value=1, max_value=99.999, initial=DEFAULT_SHARE)
    time = DurationField(label="Received within", required=False, help_text='Such as "30 s" or "5 min".')

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        return cleaned | {"share": cleaned.get("share") or DEFAULT_SHARE, "time": cleaned.get("time") or DEFAULT_TIME}


@dataclass(frozen=True, slots=True)
class Promise:
    """A share (0 to 1) of the messages is received within a time."""

    share: float
    time: timedelta

    def __str__(self) -> str:
        return f"{100 * self.share:g}\xa0% within {human(self.time)}"


@dataclass(frozen=True, slots=True)
class Level:
    """The result of a promise in a period. share_in_time: the share of messages received in time. late: messages that were not.
    undecided: those of which it is not known."""

    messages: int
    share_in_time: float
    late: int
    undecided: int

    def verdict(self, promise: Promise) -> str:
        return "" if self.messages < FEW else "kept" if self.share_in_time >= promise.share else "broken"


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    promise = Promise(values["share"] / 100, values["time"])
    rows = tables["queues"]
    if not rows:
        return Report(f"No messages entered {scope.name} in this range.", (), NOTES)
    periods = levels(times_by(rows, "at"), promise.time)
    whole = level(times_by(rows)[None], promise.time)
    by_queue = levels(times_by(rows, "entity_id", "at"), promise.time)
    finding = sentence(scope, promise, whole, periods)
    if scope.is_whole and (broken := broken_by(scope.paths, promise, by_queue)):
        finding += f" {broken}"
    return Report(finding, _sections(scope, promise, periods, by_queue), NOTES, tables.only_row("known").generated)


def levels(times: Mapping[Any, Times], within: timedelta) -> dict[Any, Level]:
    """By the same keys, in order. Pure."""
    return {key: level(times[key], within) for key in sorted(times)}


def level(times: Times, within: timedelta) -> Level:
    """A bin is in time only if all of it is. Pure."""
    limit = within // timedelta(microseconds=1)

    def beyond(histogram: Mapping[int, int]) -> int:
        return sum(count for number, count in histogram.items() if lower_bound(number + 1) > limit)

    late, in_time = beyond(times.waiting) + beyond(times.absent), 1 - times.curve.share_at(limit)
    return Level(times.messages, in_time, late, times.absent.total() - beyond(times.absent))


def sentence(scope: Scope, promise: Promise, whole: Level, periods: Mapping[datetime, Level]) -> str:
    """Whether the promise was kept, and in which periods it was not."""
    unit, judged = _unit(scope.range), {at: period_level for at, period_level in periods.items() if period_level.verdict(promise)}
    of = counted(whole.messages, "message")
    share = f"{percent(whole.share_in_time)} of {of} in {scope.name} were received within {human(promise.time)}"
    if not judged:
        return f"{share}; that is too few in each {unit} to judge the promise of {promise}."
    broken = [at for at, period_level in judged.items() if period_level.verdict(promise) == "broken"]
    if not broken:
        every = f"all {len(judged):,} {unit}s" if len(judged) > 1 else f"this {unit}"
        return f"The promise of {promise} was kept in {every}: {share}."
    worst = min(broken, key=lambda at: periods[at].share_in_time)
    when = joined([period(scope.range, at) for at in broken[-3:]])
    more = f"{counted(len(broken), unit)} of {len(judged):,}" if len(judged) > 1 else f"this {unit}"
    which = (
        f" ({when})" if len(broken) <= 3 else f"; worst in {period(scope.range, worst)} ({percent(periods[worst].share_in_time)})"
    )
    return f"The promise of {promise} was broken in {more}{which}: {share}."


def broken_by(names: Mapping[int, str], promise: Promise, by_queue: Mapping[tuple[int, datetime], Level]) -> str:
    """The queue that had most messages that were not in time, of those that broke the promise; empty: none did."""
    late: dict[int, int] = {}
    for (entity_id, _), queue_level in by_queue.items():
        if queue_level.verdict(promise) == "broken":
            late[entity_id] = late.get(entity_id, 0) + queue_level.late
    if not late:
        return ""
    worst = max(late, key=lambda entity_id: late[entity_id])
    others = f", and {counted(len(late) - 1, 'other queue')} broke it" if len(late) > 1 else ""
    return f"{names[worst]} broke it most: {counted(late[worst], 'message')} not in time{others}."


def period(span: Range, at: datetime) -> str:
    """The week or month that begins at an instant, in words."""
    return f"the week of {at:%Y-%m-%d}" if _unit(span) == "week" else f"{at:%Y-%m}"


def _unit(span: Range) -> str:
    return "week" if span.length <= BY_WEEK else "month"


def _sections(
    scope: Scope, promise: Promise, periods: Mapping[datetime, Level], by_queue: Mapping[tuple[int, datetime], Level]
) -> list[Section]:
    """The shares that were not in time, beside what the promise permits; then the details."""
    span, permitted = scope.range, 1 - promise.share
    bars = [
        ShareRow(
            period(span, at),
            1 - period_level.share_in_time,
            f"{period(span, at)}: {percent(1 - period_level.share_in_time)} not in time",
            others=permitted,
        )
        for at, period_level in periods.items()
    ]
    label = f"share of messages not received within {human(promise.time)}; the promise permits {percent(permitted)}"
    keys = [("share", "not in time"), ("rest", "permitted")]
    figure = Figure(label, [share_rows(bars, width) for width in WIDTHS], "gantt", keys=keys)
    rows = [_row(scope, promise, scope.query, at, period_level) for at, period_level in reversed(list(periods.items()))]
    title = f"By {_unit(span)}"
    sections = [Section.with_table("periods", title, PERIODS, rows, figures=[figure])]
    if scope.is_whole:
        worst = sorted(by_queue.items(), key=lambda item: (-item[1].late, item[0]))
        data = [
            (scope.paths[queue], *_row(scope, promise, {"queue": queue}, at, queue_level)) for (queue, at), queue_level in worst
        ]
        title = f"By queue and {_unit(span)}, most late messages first"
        sections.append(Section.with_table("queues", title, QUEUES, data))
    return sections


def _row(scope: Scope, promise: Promise, query: Mapping[str, Any], at: datetime, own_level: Level) -> Sequence[Any]:
    """A period; its late messages lead to all of it, those that waited longest first."""
    span = scope.range
    start, end = max(at, span.start), min(_next(span, at), span.end)
    cut = f" (from {moment(start)})" if start > at else ""
    late = Link(own_level.late, messages_url(query, start, end, order="waiting"))
    messages = Link(own_level.messages, messages_url(query, start, end))
    return (period(span, at) + cut, messages, own_level.share_in_time, late, own_level.undecided, own_level.verdict(promise))


def _next(span: Range, at: datetime) -> datetime:
    """When the next period begins."""
    return at + WEEK if _unit(span) == "week" else (at + timedelta(days=32)).replace(day=1)


ANALYSIS = Analysis(
    slug="promise", title="Service level", form=PromiseForm, present=present,
    needs={"counts": timedelta(0), "histograms": timedelta(0)},
    question="Did we keep our promise that a share of the messages is received within a time?",
)  # fmt: skip
