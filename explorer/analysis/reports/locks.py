"""Locks: are they long enough, by which cause are they lost, by whom, and when?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.durations import human
from explorer.charts.labels import brief

from .attempts import messages_section, receiver_link
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Link, Report, Section, by_interval, counted, duration, percent
from .scope import Range, Scope
from .tables import Tables

CAUSES = {
    "longer": "work longer than the lock",
    "gone": "receiver stopped",
    "unsettled": "receiver went on to others",
}
BECAUSE = {
    "longer": "work took longer than the lock",
    "gone": "their receiver stopped",
    "unsettled": "their receiver went on to other messages",
}
LONGEST_LOCK = timedelta(minutes=5)  # that is proposed; longer work renews its lock
CAUSE_COLUMNS = tuple(Column(name, word.capitalize(), "count") for name, word in CAUSES.items())
QUEUES = (
    Column("queue", "Queue"),
    Column("deliveries", "Deliveries", "count"),
    Column("lost", "Lost", "count"),
    Column("share", "Share lost", "share", has_bar=True),
    *CAUSE_COLUMNS,
    Column("lock", "Lock, median", "duration"),
    Column("held_p95", "Held, 95 %", "duration"),
    Column("nearly", "Settled in the last fifth of the lock", "share"),
    Column("late", "Settled too late", "count"),
    Column("needed_p50", "These needed, median", "duration"),
    Column("needed_p95", "These needed, 95 %", "duration"),
)
RECEIVERS = (
    Column("receiver", "Receiver"),
    Column("deliveries", "Deliveries", "count"),
    Column("lost", "Lost", "count"),
    Column("share", "Share lost", "share", has_bar=True),
    *CAUSE_COLUMNS,
    Column("last", "Last lost, UTC", "instant"),
)
NOTES = (
    "A lock was lost if it ended before the receiver settled the message: a Service Bus lock, the lease of a storage queue, or a "
    "RabbitMQ delivery whose channel closed or timed out.",
    "Causes are derived. Work is longer than the lock if the lock was renewed, if a later delivery of the message took longer, "
    "if the receiver used the lock after its end, or if it received nothing else until the lock had ended. A receiver has "
    "stopped if it received nothing for the length of the lock, at least 1 min, afterwards.",
    "Receivers are told apart by their user or application.",
    "Settled too late: the receiver tried to settle the message after its lock had ended. What these needed is the time from the "
    "receipt to that attempt. Work that takes longer than the longest possible lock must renew it.",
    "Deliveries are counted by when they were received. Receives are recorded at the history level full.",
)


@dataclass(slots=True)
class Lost:
    """Lost locks by cause. late: how many were settled too late; needed, needed_95: in what time, median and 95th percentile."""

    causes: dict[str, int] = field(default_factory=dict)
    last: datetime | None = None
    late: int = 0
    needed: timedelta | None = None
    needed_95: timedelta | None = None

    @property
    def columns(self) -> list[int]:
        return [self.causes.get(name, 0) for name in CAUSES]


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    rows = tables["losses"]
    by_queue, queues = lost_by(rows, "entity_id"), [row for row in tables["deliveries"] if row.entity_id is not None]
    queues.sort(key=lambda queue: (-queue.lost, scope.paths[queue.entity_id]))
    finding = sentence(scope, queues, by_queue)
    if scope.compared:
        finding += f" {_compared(tables.only_row('before'), scope.compared)}"
    sections = [_queues(scope, queues, by_queue)]
    if queues and queues[0].lost:
        receivers = [row for row in tables["deliveries"] if row.entity_id is None]
        title = "Deliveries of the messages that lost the most locks"
        sections = [
            _by_time(scope.range, rows),
            messages_section(scope, tables["worst"], title),
            sections[0],
            _receivers(scope, receivers, lost_by(rows, "receiver")),
        ]
    return Report(
        finding,
        sections if queues else (),
        NOTES,
        sum(queue.generated for queue in queues),
        links=_links(scope, queues, by_queue),
    )


def lost_by(rows: Sequence[Any], key: str) -> dict[Any, Lost]:
    """The lost locks by a column of the table "losses". Pure."""
    lost_by_value: dict[Any, Lost] = {}
    for row in rows:
        if (value := getattr(row, key)) is None:
            continue
        lost = lost_by_value.setdefault(value, Lost())
        if row.cause is None:  # of all causes
            lost.late, lost.needed, lost.needed_95 = row.late, duration(row.needed_us), duration(row.needed_95_us)
        else:
            lost.causes[row.cause] = row.lost
            lost.last = max(lost.last or row.last_at, row.last_at)
    return lost_by_value


def sentence(scope: Scope, queues: Sequence[Any], by_queue: Mapping[int, Lost]) -> str:
    """Of the queue that lost most locks: how many, mostly why, and which lock would have been long enough. queues: rows of the
    table "deliveries", that one first."""
    if not queues:
        return f"No messages of {scope.name} were received in this range."
    because, worst = scope.family.texts.lock_lost, queues[0]
    if not worst.lost:
        deliveries = counted(sum(queue.deliveries for queue in queues), "delivery", "deliveries")
        text = f"None of {deliveries} of {scope.name} ended because {because}"
        if len(queues) == 1 and worst.timed:
            text += f"; 95\xa0% of those that succeeded took at most {brief(duration(worst.held_us))} of the lock"
            text += f" of {brief(duration(worst.lock_us))}"
        return f"{text}."
    lost, path = by_queue[worst.entity_id], scope.paths[worst.entity_id]
    deliveries = counted(worst.deliveries, "delivery", "deliveries")
    text = f"{worst.lost:,} of {deliveries} of {path} ({percent(worst.lost / worst.deliveries)}) ended because {because}"
    others = sum(queue.lost > 0 for queue in queues) - 1
    text += f", more than of {counted(others, 'other queue')}" if others else ""
    cause = max(lost.causes, key=lambda name: lost.causes[name])
    text += f", {'mostly ' if len(lost.causes) > 1 else ''}because {BECAUSE[cause]}"
    text += f" of {brief(duration(worst.lock_us))}" if cause == "longer" and worst.lock_us else ""
    if lost.needed and lost.needed_95:
        text += (
            f"; a lock of at least {human(at_least(lost.needed_95))} would have kept 95\xa0% of the {lost.late:,} that were "
            f"settled too late, in the median {brief(lost.needed)} after the receipt"
        )
    return f"{text}."


def at_least(needed: timedelta) -> timedelta:
    """A lock that is no shorter: in whole seconds, from a minute on in steps of 5 s."""
    step = 5 if needed > timedelta(minutes=1) else 1
    return timedelta(seconds=step * math.ceil(needed / timedelta(seconds=step)))


def _by_time(span: Range, rows: Sequence[Any]) -> Section:
    label, caption = f"Lost locks by {span.unit} and cause", f"by the {span.unit} in which the message was received"
    return by_interval(span, ((row.cause, row.at, row.lost) for row in rows), CAUSES, label, caption)


def _queues(scope: Scope, queues: Sequence[Any], by_queue: Mapping[int, Lost]) -> Section:
    data = []
    for queue in queues:
        lost, query = by_queue.get(queue.entity_id, Lost()), {"queue": queue.entity_id}
        data.append((
            scope.paths[queue.entity_id], _link(scope, query, queue.deliveries, "all"), _link(scope, query, queue.lost, "lost"),
            queue.lost / queue.deliveries, *lost.columns, duration(queue.lock_us), duration(queue.held_us),
            queue.nearly / queue.timed if queue.timed else None, lost.late, lost.needed, lost.needed_95,
        ))  # fmt: skip
    return Section.with_table("queues", "Use of the lock", QUEUES, data)


def _receivers(scope: Scope, receivers: Sequence[Any], by_receiver: Mapping[str, Lost]) -> Section:
    data = []
    for receiver in sorted(receivers, key=lambda receiver: (-receiver.lost, receiver.receiver)):
        lost = by_receiver[receiver.receiver]
        endings = (("all", receiver.deliveries), ("lost", receiver.lost))
        numbers = (_link(scope, scope.query, count, ending, receiver.receiver) for ending, count in endings)
        data.append((receiver_link(receiver.receiver), *numbers, receiver.lost / receiver.deliveries, *lost.columns, lost.last))
    return Section.with_table("receivers", "By receiver", RECEIVERS, data)


def _link(scope: Scope, query: Mapping[str, Any], count: int, ending: str, receiver: str | None = None) -> Link:
    """A number of deliveries, which leads to them."""
    url = messages_url(query, scope.range.start, scope.range.end, deliveries=ending, receiver=receiver)
    return Link(count, url)


def _links(scope: Scope, queues: Sequence[Any], by_queue: Mapping[int, Lost]) -> list[Link]:
    """The preview of the lock that the answer names, if it is a setting of the queue."""
    needed = by_queue[queues[0].entity_id].needed_95 if queues and queues[0].lost else None
    if needed is None or (lock := at_least(needed)) > LONGEST_LOCK:
        return []
    entity = scope.by_id[queues[0].entity_id]
    url = "" if entity.deleted_at else scope.family.limits.propose(entity, lock, None, None)
    return [Link(f"Preview a lock of {human(lock)} for {entity.path}", url)] if url else []


def _compared(before: Any, span: Range) -> str:
    if not before.deliveries:
        return "There were no deliveries in the range to compare with."
    lost = f"{percent(before.lost / before.deliveries)} of all locks were lost ({before.lost:,} of {before.deliveries:,})"
    return f"From {span}, {lost}."


ANALYSIS = Analysis(
    slug="locks", title="Locks", form=ReportForm, present=present, needs={"lives": timedelta(0), "events": timedelta(0)},
    question="Are locks long enough, why are they lost, by which receivers, and when?",
)  # fmt: skip
