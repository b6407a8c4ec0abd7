"""Flow and backlog: when did the backlog grow, and how long does it take to drain?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core.common.durations import human
from explorer.shared.charts import WIDTHS, brief, count_lines, duration_lines

from ..jobs import measures
from ..listing import messages_url
from .forms import ReportForm
from .report import ROLLED_UP, Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, moment
from .scope import HOUR, Range, Scope, floor, generated, of_measure, sums

ROOM = (HOUR / 2, 2 * HOUR)  # which the axis of ages includes
FOREVER = datetime.max.replace(tzinfo=UTC)
COLUMNS = (
    Column("at", "From, UTC", "instant"),
    Column("entered", "Entered", "count"),
    Column("left", "Left", "count"),
    Column("depth", "In the queue", "count"),
    Column("oldest", "Oldest", "duration"),
)
NOTES = (
    "The backlog and its oldest message are those at the end of each interval.",
    "Ages are rounded up to whole hours.",
    "Scheduled messages are not counted before they are activated.",
    ROLLED_UP,
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Of each interval: the messages that entered and left, those in the queue at its end, and how long the oldest of these had
    been there at most (hours are whole); None: none was there."""

    starts: list[datetime]
    entered: list[int]
    left: list[int]
    depth: list[int]
    oldest: list[timedelta | None]


Lives = Iterable[tuple[datetime, datetime, int]]  # the hours of entering and of leaving, messages


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    rows, span = of_measure(scope.rows(), measures.LIFE), scope.range
    found = flow(span, list(sums(rows, "hour", "end_hour")), _present(scope, span.end))
    table = Table("flow", "Data", COLUMNS, _rows(scope, found), is_axis=True)
    return Report(
        finding=sentence(found, span),
        sections=(*_sections(scope, found), Section("data", "Data", table=table)),
        notes=NOTES,
        generated=generated(rows),
    )


def flow(span: Range, lives: Lives, there: Mapping[datetime, int]) -> Flow:
    """The flow in the intervals of a range. there: present messages by the hour in which they entered. Pure."""
    starts, bucket = span.buckets, span.bucket
    entered, left = _by_bucket(there.items(), bucket), Counter[datetime]()
    until = dict.fromkeys(there, FOREVER)  # of the messages that entered in an hour: when the last one left
    for began, ended, count in lives:
        entered[floor(began, bucket)] += count
        left[floor(ended, bucket)] += count
        until[began] = max(until.get(began, ended), ended)
    depth = [sum(entered[at] for at in entered if at < starts[0]) - sum(left[at] for at in left if at < starts[0])]
    for at in starts:
        depth.append(depth[-1] + entered[at] - left[at])
    begun = sorted(until)
    oldest = []
    for at in starts:
        last = min(at + bucket - HOUR, floor(span.end, HOUR))
        first = next((one for one in begun if one <= last < until[one]), None)
        oldest.append(None if first is None else last + HOUR - first)
    return Flow(starts, [entered[at] for at in starts], [left[at] for at in starts], depth[1:], oldest)


def sentence(found: Flow, span: Range) -> str:
    """When the backlog was largest, and whether it shrinks."""
    most = max(found.depth)
    if not any(found.entered) and not any(found.left) and not most:
        return "No messages entered, left or waited in this range."
    if not most:
        return f"{counted(sum(found.entered), 'message')} entered; at the end of no hour was one waiting."
    at = found.depth.index(most)
    oldest = found.oldest[at]
    waited = f"; the oldest had waited at most {human(oldest)}" if oldest else ""
    verb = "is" if found.depth[-1] == 1 else "are"
    now = f" {found.depth[-1]:,} {verb} in the queue at the end" if found.depth[-1] else " The queue is empty at the end"
    gain = found.left[-1] - found.entered[-1]
    pace = (span.end - found.starts[-1]) / gain if gain > 0 else None
    drain = f"; at the last pace it is empty in {brief(found.depth[-1] * pace)}" if pace and found.depth[-1] else ""
    ended = min(found.starts[at] + span.bucket, span.end)
    return f"The backlog was largest at {moment(ended)}: {counted(most, 'message')}{waited}.{now}{drain}."


def _sections(scope: Scope, found: Flow) -> list[Section]:
    span, starts, partial = scope.range, found.starts, scope.range.partial
    total = sum(found.entered)
    compared = f" {difference(total, _entered_in(scope, scope.compared), scope.compared)}" if scope.compared else ""
    traffic = {"entered": found.entered, "left": found.left}
    text = f"{counted(total, 'message')} entered, {sum(found.left):,} left.{compared}"
    return [
        Section("backlog", "Backlog", is_half=True, figures=[Figure(
            f"Backlog by {span.unit}", [count_lines(starts, {"active": found.depth}, one, partial=partial) for one in WIDTHS],
            caption="messages in the queue at the end of each interval, UTC", columns="depth",
        )]),
        Section("oldest", "Oldest message", is_half=True, figures=[Figure(
            f"Age of the oldest message by {span.unit}",
            [duration_lines(starts, {"p50": found.oldest}, (), one, partial=partial, span=ROOM) for one in WIDTHS],
            caption="age of the oldest message at the end of each interval, rounded up to hours", columns="oldest",
        )]),
        Section("traffic", "Entered and left", text, [
            Figure(
                f"Messages that entered and left by {span.unit}",
                [count_lines(starts, traffic, one, partial=partial) for one in WIDTHS],
                caption=f"messages by {span.unit}", keys=[("entered", "entered"), ("left", "left")], columns="entered left",
            )
        ]),
    ]  # fmt: skip


def _rows(scope: Scope, found: Flow) -> list[tuple[Any, ...]]:
    """The intervals for the table, newest first. What entered leads to its messages."""
    span, rows = scope.range, []
    columns = zip(found.starts, found.entered, found.left, found.depth, found.oldest, strict=True)
    for at, entered, *others in reversed(list(columns)):
        url = messages_url(scope.query, max(at, span.start), min(at + span.bucket, span.end), order="enqueued")
        rows.append((at, Link(entered, url) if entered else 0, *others))
    return rows


def _present(scope: Scope, before: datetime) -> Counter[datetime]:
    there: Counter[datetime] = Counter()
    for row in scope.present(before):
        there[row.hour] += row.messages
    return there


def _entered_in(scope: Scope, span: Range) -> int:
    """The messages that entered in a range, also those that are still there."""
    lives = sum(count for at, count in sums(of_measure(scope.rows(span), measures.LIFE), "hour") if span.has(at))
    return lives + sum(count for at, count in _present(scope, span.end).items() if span.has(at))


def _by_bucket(counts: Iterable[tuple[datetime, int]], bucket: timedelta) -> Counter[datetime]:
    found: Counter[datetime] = Counter()
    for at, count in counts:
        found[floor(at, bucket)] += count
    return found


ANALYSIS = Analysis(
    slug="flow", title="Flow and backlog", group="happened", form=ReportForm, make=report,
    question="When did the backlog grow, and how long does it take to drain?",
)  # fmt: skip
