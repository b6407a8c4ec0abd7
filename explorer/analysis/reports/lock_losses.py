"""Locks: how are locks (leases, unacknowledged deliveries) lost: by which cause, by whom, and when?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind
from explorer.shared.charts import WIDTHS, brief, stacked_bars
from explorer.shared.presenters import actor_name
from explorer.shared.timeline import words

from . import attempts
from .attempts import Attempt, by_message, microseconds
from .drawings import gantt
from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, joined, keyed, moment, percent
from .scope import Range, Scope, floor

CAUSES = {
    "longer": "work longer than the lock",
    "gone": "receiver stopped",
    "unsettled": "receiver went on to others",
}
SHORTEST = timedelta(minutes=1)  # a receiver that receives nothing for so long, or for the length of its lock, has stopped
NEARLY = 0.8  # of the lock
MOST_MESSAGES = 12  # in the Gantt chart
RECEIVERS = (
    Column("receiver", "Receiver"),
    Column("deliveries", "Deliveries", "count"),
    Column("lost", "Lost", "count"),
    Column("share", "Share lost", "share", has_bar=True),
    *(Column(name, word.capitalize(), "count") for name, word in CAUSES.items()),
    Column("last", "Last lost, UTC", "instant"),
)
QUEUES = (
    Column("queue", "Queue"),
    Column("deliveries", "Deliveries", "count"),
    Column("lost", "Lost", "count"),
    Column("share", "Share lost", "share", has_bar=True),
    Column("lock", "Lock, median", "duration"),
    Column("held_p95", "Held, 95 %", "duration"),
    Column("nearly", "Settled in the last fifth of the lock", "share"),
)
MESSAGES = (
    Column("message", "Message", "text"),
    Column("queue", "Queue"),
    Column("deliveries", "Deliveries", "count"),
    Column("failed", "Not successful", "count"),
    Column("lost", "Locks lost", "count"),
    Column("first", "First received, UTC", "instant"),
    Column("end", "Last delivery ended as"),
)
NOTES = (
    "A lock was lost if it ended before the receiver settled the message: a Service Bus lock, the lease of a storage queue, or a "
    "RabbitMQ delivery whose channel closed or timed out.",
    "Causes are derived. Work is longer than the lock if the lock was renewed, if a later delivery of the message took longer, "
    "or if the receiver received nothing else until the lock had ended. A receiver has stopped if it received nothing for the "
    "length of the lock, at least 1 min, afterwards. Receivers are told apart by their user or application.",
    "Read from the archived deliveries; receives are recorded at the history level full.",
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A delivery whose lock was lost. at: when the lock ended. cause: of CAUSES."""

    attempt: Attempt
    at: datetime
    cause: str


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    span, found = scope.range, attempts.read(scope, scope.range)
    before = attempts.read(scope, scope.compared) if scope.compared else None
    troubled = attempts.listed(attempts.of_messages(found, pc.equal(found["outcome"], int(EventKind.LOCK_LOST))))
    lost = losses(troubled, receipts(found, {one.received_by for one in troubled}))
    sections = [_by_time(span, lost), _receivers(found, lost), _queues(scope, found)] if lost else [_queues(scope, found)]
    worst = worst_messages(by_message(troubled).values())
    if worst:
        sections.insert(1, messages_section(scope, worst, "Deliveries of the messages that lost most locks"))
    said = sentence(found.num_rows, lost, scope.family.texts.lock_lost)
    if scope.compared:
        said += f" {_compared(before, scope.compared)}"
    return Report(said, sections if found.num_rows else (), NOTES, pc.sum(found["generated"]).as_py() or 0)


def receipts(found: pa.Table, receivers: Iterable[str | None]) -> dict[str | None, Sequence[int]]:
    """When these receivers received, in order, in microseconds since 1970. Pure."""
    wanted = found.filter(pc.is_in(found["received_by"], pa.array(list(receivers), pa.string())))
    grouped = wanted.group_by("received_by").aggregate([("received_at", "list")])
    lists = (one.values for one in grouped["received_at_list"])
    return {
        name: memoryview(pc.cast(values.take(pc.array_sort_indices(values)), pa.int64()).buffers()[1]).cast("q")
        for name, values in zip(grouped["received_by"].to_pylist(), lists, strict=True)
    }


def losses(troubled: Sequence[Attempt], received: Mapping[str | None, Sequence[int]]) -> list[Lost]:
    """The deliveries whose lock was lost, each with its cause. troubled: all deliveries of their messages. received: by receiver,
    as `receipts`. Pure."""
    later = by_message(troubled)
    result = []
    for one in troubled:
        if one.outcome != EventKind.LOCK_LOST:
            continue
        at = min(one.ended_at, one.lock_ended_at) if one.lock_ended_at else one.ended_at
        lock = one.lock
        longest = max(
            (a.held for a in later[one.message] if a.received_at > one.received_at and a.succeeded), default=timedelta(0)
        )
        if one.renewals or (lock is not None and longest > lock):
            cause = "longer"
        else:
            cause = _by_activity(one, at, received[one.received_by])
        result.append(Lost(one, at, cause))
    return result


def _by_activity(one: Attempt, at: datetime, received: Sequence[int]) -> str:
    """Why a lock was lost, by when its receiver received other messages. RabbitMQ has no lock that work could exceed."""
    silence = at + max(one.lock or SHORTEST, SHORTEST)
    begun, ended, silent = (microseconds(instant) for instant in (one.received_at, at, silence))
    if bisect_left(received, ended) == bisect_right(received, silent):
        return "gone"
    went_on = one.lock is None or bisect_right(received, begun) < bisect_left(received, ended)
    return "unsettled" if went_on else "longer"


def by_bucket(span: Range, lost: Sequence[Lost]) -> dict[str, list[int]]:
    """The lost locks in each interval by cause. Pure."""
    place = {at: i for i, at in enumerate(span.buckets)}
    found: dict[str, list[int]] = {}
    for one in lost:
        if (at := floor(one.at, span.bucket)) in place:
            found.setdefault(one.cause, [0] * len(place))[place[at]] += 1
    return {name: found[name] for name in CAUSES if name in found}


def sentence(deliveries: int, lost: Sequence[Lost], because: str) -> str:
    """How many locks were lost, mostly why, by whom and when. because: the family's words."""
    if not deliveries:
        return "No deliveries ended in this range."
    if not lost:
        return f"None of {counted(deliveries, 'delivery', 'deliveries')} ended because {because}."
    causes, hours = Counter(one.cause for one in lost), Counter(floor(one.at, timedelta(hours=1)) for one in lost)
    who = Counter(one.attempt.received_by for one in lost)
    parts = [f"{CAUSES[cause]} ({count:,})" for cause, count in causes.most_common()]
    (receiver, most), (hour, in_hour) = who.most_common(1)[0], hours.most_common(1)[0]
    return (
        f"{attempts.share_of(len(lost), deliveries)} ended because {because}: {joined(parts)}. Most were held by "
        f"{receiver_name(receiver)} ({most:,}), most in the hour from {moment(hour)} ({in_hour:,})."
    )


def worst_messages(messages: Any) -> list[list[Attempt]]:
    """Those with most deliveries that did not succeed, and at least one. Pure."""
    failed = [(sum(not one.succeeded for one in each), each) for each in messages]
    ranked = sorted((pair for pair in failed if pair[0]), key=lambda pair: (-pair[0], pair[1][0].message))
    return [each for _, each in ranked[:MOST_MESSAGES]]


def messages_section(scope: Scope, worst: Sequence[list[Attempt]], title: str) -> Section:
    """The deliveries of these messages as a Gantt chart, with its table."""
    family = scope.namespace.family
    ends = {kind: words(kind, family).word for kind in attempts.NAMES}
    rows = [(f"#{each[0].sequence_number}", _bars(each, ends)) for each in worst]
    figure = Figure(
        title, [gantt(rows, one) for one in WIDTHS], "gantt", "by time since the first delivery",
        attempts.names_of(ends, [one for each in worst for one in each]), template="explorer/analysis/_gantt.svg",
    )  # fmt: skip
    data = [
        (Link(f"#{each[0].sequence_number}", scope.message_url(*each[0].message)), scope.paths[each[0].entity_id], len(each),
         sum(not one.succeeded for one in each), sum(one.outcome == EventKind.LOCK_LOST for one in each), each[0].received_at,
         ends.get(each[-1].kind, each[-1].name))
        for each in worst
    ]  # fmt: skip
    return Section("messages", title, figures=[figure], table=Table("messages", title, MESSAGES, data))


def receiver_name(actor: str | None) -> str:
    return actor_name(actor) if actor else "an unknown receiver"


def _bars(each: Sequence[Attempt], ends: Mapping[EventKind, str]) -> list[tuple[str, timedelta, timedelta, str]]:
    first = each[0].received_at
    return [(one.name, one.received_at - first, one.ended_at - first, _title(one, ends)) for one in each]


def _title(one: Attempt, ends: Mapping[EventKind, str]) -> str:
    reason = f" ({one.error})" if one.error else ""
    how = f"{ends.get(one.kind, one.name)}{reason}"
    return f"delivery {one.attempt or '?'} by {receiver_name(one.received_by)}: {how} after {brief(one.held)}"


def _by_time(span: Range, lost: Sequence[Lost]) -> Section:
    series = by_bucket(span, lost)
    charts = [stacked_bars(span.buckets, series, (), one, partial=span.partial) for one in WIDTHS]
    label = f"Lost locks by {span.unit} and cause"
    figure = Figure(label, charts, "bars", f"by the {span.unit} in which they ended", keyed(series, CAUSES))
    return Section("times", "By time", figures=[figure])


def _receivers(found: pa.Table, lost: Sequence[Lost]) -> Section:
    deliveries = attempts.counts(found["received_by"])
    by_receiver: dict[str | None, list[Lost]] = {}
    for one in lost:
        by_receiver.setdefault(one.attempt.received_by, []).append(one)
    data = []
    for receiver, losses_ in sorted(by_receiver.items(), key=lambda item: (-len(item[1]), item[0] or "")):
        causes = Counter(one.cause for one in losses_)
        data.append((
            receiver_name(receiver), deliveries[receiver], len(losses_), len(losses_) / deliveries[receiver],
            *(causes[name] for name in CAUSES), max(one.at for one in losses_),
        ))  # fmt: skip
    return Section("receivers", "By receiver", table=Table("receivers", "By receiver", RECEIVERS, data))


def _queues(scope: Scope, found: pa.Table) -> Section:
    data = []
    for entity_id, each in attempts.by_entity(found):
        lost = _lost(each)
        done = each.filter(pc.and_(each["succeeded"], pc.is_valid(each["lock_us"])))
        nearly = pc.sum(pc.greater(done["held_us"], pc.multiply(done["lock_us"], NEARLY))).as_py()
        data.append((
            scope.paths[entity_id], each.num_rows, lost, lost / each.num_rows, attempts.quantile_of(each["lock_us"], 0.5),
            attempts.quantile_of(done["held_us"], 0.95), nearly / done.num_rows if done.num_rows else None,
        ))  # fmt: skip
    data.sort(key=lambda row: (-row[2], row[0]))
    return Section("queues", "Use of the lock", table=Table("queues", "Use of the lock", QUEUES, data))


def _compared(before: pa.Table | None, span: Range) -> str:
    if before is None or not before.num_rows:
        return "There were no deliveries in the range to compare with."
    lost, total = _lost(before), before.num_rows
    return f"From {moment(span.start)} to {moment(span.end)} it was {percent(lost / total)} ({lost:,} of {total:,})."


def _lost(found: pa.Table) -> int:
    return pc.sum(pc.equal(found["outcome"], int(EventKind.LOCK_LOST))).as_py() or 0


ANALYSIS = Analysis(
    slug="locks", title="Locks", group="why", form=ReportForm, make=report,
    question="Why are locks lost, by which receivers, and when?",
)  # fmt: skip
