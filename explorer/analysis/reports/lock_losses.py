"""Locks: how are locks (leases, unacknowledged deliveries) lost: by which cause, by whom, and when?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse

from broker_core.common.types import EventKind
from explorer.shared.charts import WIDTHS, brief, stacked_bars
from explorer.shared.presenters import actor_name
from explorer.shared.timeline import words

from . import attempts
from .attempts import Attempt, by_message, quantile
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
    lost = losses(found, span.end)
    before = attempts.read(scope, scope.compared) if scope.compared else None
    sections = [_by_time(span, lost), _receivers(found, lost), _queues(scope, found)] if lost else [_queues(scope, found)]
    worst = worst_messages(one for one in by_message(found).values() if any(a.outcome == EventKind.LOCK_LOST for a in one))
    if worst:
        sections.insert(1, messages_section(scope, worst, "Deliveries of the messages that lost most locks"))
    said = sentence(found, lost, scope.family.texts.lock_lost) + (
        f" {_compared(before, scope.compared)}" if scope.compared else ""
    )
    return Report(said, sections if found else (), NOTES, sum(one.generated for one in found))


def losses(found: Sequence[Attempt], until: datetime) -> list[Lost]:
    """The deliveries whose lock was lost, each with its cause. until: what came later is unknown. Pure."""
    later = by_message(found)
    received: dict[str | None, list[datetime]] = {}
    for one in found:
        received.setdefault(one.received_by, []).append(one.received_at)
    result = []
    for one in found:
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


def _by_activity(one: Attempt, at: datetime, received: Sequence[datetime]) -> str:
    """Why a lock was lost, by when its receiver received other messages. RabbitMQ has no lock that work could exceed."""
    silence = at + max(one.lock or SHORTEST, SHORTEST)
    if not any(at <= other <= silence for other in received):
        return "gone"
    went_on = one.lock is None or any(one.received_at < other < at for other in received)
    return "unsettled" if went_on else "longer"


def by_bucket(span: Range, lost: Sequence[Lost]) -> dict[str, list[int]]:
    """The lost locks in each interval by cause. Pure."""
    place = {at: i for i, at in enumerate(span.buckets)}
    found: dict[str, list[int]] = {}
    for one in lost:
        if (at := floor(one.at, span.bucket)) in place:
            found.setdefault(one.cause, [0] * len(place))[place[at]] += 1
    return {name: found[name] for name in CAUSES if name in found}


def sentence(found: Sequence[Attempt], lost: Sequence[Lost], because: str) -> str:
    """How many locks were lost, mostly why, by whom and when. because: the family's words."""
    if not found:
        return "No deliveries ended in this time."
    if not lost:
        return f"None of {counted(len(found), 'delivery', 'deliveries')} ended because {because}."
    causes, hours = Counter(one.cause for one in lost), Counter(floor(one.at, timedelta(hours=1)) for one in lost)
    who = Counter(one.attempt.received_by for one in lost)
    parts = [f"{CAUSES[cause]} ({count:,})" for cause, count in causes.most_common()]
    (receiver, most), (hour, in_hour) = who.most_common(1)[0], hours.most_common(1)[0]
    return (
        f"{attempts.share_of(len(lost), found)} ended because {because}: {joined(parts)}. Most were held by "
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
        (Link(f"#{each[0].sequence_number}", _url(scope, each[0])), scope.paths[each[0].entity_id], len(each),
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


def _url(scope: Scope, one: Attempt) -> str:
    entity = next(entity for entity in scope.entities if entity.pk == one.entity_id)
    url = reverse("explorer:message", args=(scope.namespace.name, entity.path, one.sequence_number))
    return f"{url}?of={entity.pk}" if entity.deleted_at else url


def _by_time(span: Range, lost: Sequence[Lost]) -> Section:
    series = by_bucket(span, lost)
    charts = [stacked_bars(span.buckets, series, (), one, partial=span.partial) for one in WIDTHS]
    label = f"Lost locks by {span.unit} and cause"
    figure = Figure(label, charts, "bars", f"by the {span.unit} in which they ended", keyed(series, CAUSES))
    return Section("times", "By time", figures=[figure])


def _receivers(found: Sequence[Attempt], lost: Sequence[Lost]) -> Section:
    deliveries = Counter(one.received_by for one in found)
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


def _queues(scope: Scope, found: Sequence[Attempt]) -> Section:
    by_queue: dict[int, list[Attempt]] = {}
    for one in found:
        by_queue.setdefault(one.entity_id, []).append(one)
    data = []
    for entity_id, each in by_queue.items():
        lost = sum(one.outcome == EventKind.LOCK_LOST for one in each)
        done = [one for one in each if one.succeeded and one.lock]
        nearly = sum(one.held > NEARLY * one.lock for one in done if one.lock)
        data.append((
            scope.paths[entity_id], len(each), lost, lost / len(each),
            quantile(sorted(one.lock for one in each if one.lock), 0.5), quantile(sorted(one.held for one in done), 0.95),
            nearly / len(done) if done else None,
        ))  # fmt: skip
    data.sort(key=lambda row: (-row[2], row[0]))
    return Section("queues", "Use of the lock", table=Table("queues", "Use of the lock", QUEUES, data))


def _compared(before: Sequence[Attempt] | None, span: Range | None) -> str:
    if not before or span is None:
        return "There were no deliveries in the range to compare with."
    lost = sum(one.outcome == EventKind.LOCK_LOST for one in before)
    return f"From {moment(span.start)} to {moment(span.end)} it was {percent(lost / len(before))} ({lost:,} of {len(before):,})."


ANALYSIS = Analysis(
    slug="locks", title="Locks", group="why", form=ReportForm, make=report,
    question="How are locks lost: by which cause, by whom and when?",
)  # fmt: skip
