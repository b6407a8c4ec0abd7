"""Receivers' report card: who receives how much, how fast, with which success, and how busily?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.types import EventKind
from explorer.shared.charts import WIDTHS, brief

from ..survival import FEWEST
from . import attempts
from .attempts import Attempt, quantile, wilson
from .drawings import named_heat_map
from .forms import ReportForm
from .lock_losses import receiver_name
from .report import Analysis, Column, Figure, Report, Section, Table, counted, moment, percent
from .scope import Range, Scope

MOST_DRAWN = 12
RETURNED = (EventKind.ABANDONED, EventKind.RELEASED, EventKind.DEFERRED)
LOST = (EventKind.LOCK_LOST,)
REJECTED = (EventKind.DEAD_LETTERED, EventKind.DROPPED, EventKind.MOVED)
COLUMNS = (
    Column("receiver", "Name"),
    Column("deliveries", "Deliveries", "count", has_bar=True),
    Column("queues", "Queues", "count"),
    Column("succeeded", "Succeeded", "share"),
    Column("returned", "Returned", "share"),
    Column("rejected", "Rejected", "share"),
    Column("lost", "Lock lost", "share"),
    Column("work_p50", "Processing, median", "duration"),
    Column("work_p95", "Processing, 95 %", "duration"),
    Column("at_once", "At once, mean", "number"),
    Column("idle", "Idle", "share"),
    Column("last", "Last delivery, UTC", "instant"),
)
NOTES = (
    "Receivers are told apart by their user or application; several instances with one name count as one.",
    "Returned: abandoned, requeued, released or deferred. Rejected: dead-lettered, moved or dropped while held.",
    "Idle is the share of the time between the first receipt and the last end in which no message was held. At once is how many "
    "were held at a time, when any was.",
    "Read from the archived deliveries; receives are recorded at the history level full.",
)


@dataclass(frozen=True, slots=True)
class Card:
    """The deliveries to a receiver. busy: the time in which it held a message; held: that of all of them together."""

    receiver: str | None
    deliveries: int
    queues: int
    succeeded: int
    returned: int
    rejected: int
    lost: int
    work: tuple[timedelta, ...]  # of those that succeeded, in order
    busy: timedelta
    held: timedelta
    first: datetime
    last: datetime

    @property
    def name(self) -> str:
        return receiver_name(self.receiver)

    @property
    def failed(self) -> int:
        return self.returned + self.rejected + self.lost

    @property
    def columns(self) -> tuple[Any, ...]:
        shares = (count / self.deliveries for count in (self.succeeded, self.returned, self.rejected, self.lost))
        at_once = self.held / self.busy if self.busy else None
        return (
            self.name,
            self.deliveries,
            self.queues,
            *shares,
            *(quantile(self.work, one) for one in (0.5, 0.95)),
            at_once,
            self.idle,
        )

    @property
    def idle(self) -> float | None:
        length = self.last - self.first
        return max(0.0, 1 - self.busy / length) if length else None


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    found = attempts.read(scope, scope.range)
    listed, noun = cards(found), scope.family.texts.receiver
    before = cards(attempts.read(scope, scope.compared)) if scope.compared else None
    said = sentence(listed, noun) + (
        f" {_compared(before, scope.compared, noun)}" if before is not None and scope.compared else ""
    )
    data = [(*one.columns, one.last) for one in listed]
    title = f"{noun.capitalize()}s"
    sections = [
        _busy(scope.range, found, listed, noun),
        Section("receivers", title, table=Table("receivers", title, COLUMNS, data)),
    ]
    return Report(said, sections if found else (), NOTES, sum(one.generated for one in found))


def cards(found: Sequence[Attempt]) -> list[Card]:
    """A card for each receiver, the one with most deliveries first. Pure."""
    groups: dict[str | None, list[Attempt]] = {}
    for one in found:
        groups.setdefault(one.received_by, []).append(one)
    result = []
    for receiver, each in groups.items():
        returned, rejected, lost = (sum(one.outcome in kinds for one in each) for kinds in (RETURNED, REJECTED, LOST))
        busy, held = (sum(times, timedelta(0)) for times in ((b - a for a, b in spans(each)), (one.held for one in each)))
        first, last = min(one.received_at for one in each), max(one.ended_at for one in each)
        work = tuple(sorted(one.held for one in each if one.succeeded))
        queues = len({one.entity_id for one in each})
        result.append(Card(receiver, len(each), queues, len(work), returned, rejected, lost, work, busy, held, first, last))
    return sorted(result, key=lambda card: (-card.deliveries, card.name))


def spans(each: Sequence[Attempt]) -> list[tuple[datetime, datetime]]:
    """The times in which any of these messages was held, without overlaps, in order. Pure."""
    merged: list[tuple[datetime, datetime]] = []
    for since, until in sorted((one.received_at, one.ended_at) for one in each):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged


def busy_shares(span: Range, each: Sequence[Attempt]) -> list[float]:
    """The share of each interval in which any of these messages was held. Pure."""
    shares, first = [0.0] * len(span.buckets), span.buckets[0]
    for since, until in spans(each):
        for i in range(max(0, (since - first) // span.bucket), min(len(shares) - 1, (until - first) // span.bucket) + 1):
            at = first + i * span.bucket
            shares[i] += (min(until, at + span.bucket) - max(since, at)) / span.bucket
    return [min(1.0, share) for share in shares]


def sentence(listed: Sequence[Card], noun: str) -> str:
    """Who received most, and who does worse than the others."""
    if not listed:
        return "No deliveries ended in this time."
    total, first = sum(card.deliveries for card in listed), listed[0]
    if len(listed) == 1:
        said = f"One {noun}, {first.name}, received {counted(total, 'message')}"
    else:
        said = (
            f"{len(listed)} {noun}s received {counted(total, 'message')}; {first.name} took {percent(first.deliveries / total)}"
        )
    said += f", half in {brief(quantile(first.work, 0.5))}." if first.work else "."
    worst = outlier(listed)
    if len(listed) == 1:
        return said
    if worst is None:
        return f"{said} None differs clearly from the others in failed deliveries."
    others = (sum(card.failed for card in listed) - worst.failed) / (total - worst.deliveries)
    return f"{said} {worst.name} did not complete {percent(worst.failed / worst.deliveries)}, the others {percent(others)}."


def outlier(listed: Sequence[Card]) -> Card | None:
    """The receiver whose share of failed deliveries is clearly above that of the others: its 95 % band is beyond theirs. Pure."""
    total, failed = sum(card.deliveries for card in listed), sum(card.failed for card in listed)
    found = []
    for card in listed:
        rest = total - card.deliveries
        if card.deliveries >= FEWEST and rest >= FEWEST:
            low, high = wilson(card.failed, card.deliveries)[0], wilson(failed - card.failed, rest)[1]
            if low > high:
                found.append((low - high, card))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _busy(span: Range, found: Sequence[Attempt], listed: Sequence[Card], noun: str) -> Section:
    rows = {
        card.name: busy_shares(span, [one for one in found if one.received_by == card.receiver]) for card in listed[:MOST_DRAWN]
    }
    label = f"How busy the {noun}s were, by {span.unit}"
    charts = [named_heat_map(span.buckets, rows, one, span.partial) for one in WIDTHS]
    figure = Figure(label, charts, "heat", f"share of each {span.unit} in which a message was held; the darker, the busier",
                    template="explorer/analysis/_heat_map.svg")  # fmt: skip
    more = f"The {MOST_DRAWN} with most deliveries." if len(listed) > MOST_DRAWN else ""
    return Section("busy", "How busy they were", more, [figure])


def _compared(before: Sequence[Card], span: Range, noun: str) -> str:
    if not before:
        return f"From {moment(span.start)} to {moment(span.end)} there were no deliveries."
    total, failed = sum(card.deliveries for card in before), sum(card.failed for card in before)
    did = f"{counted(len(before), noun)} received {counted(total, 'message')} and did not complete {percent(failed / total)}"
    return f"From {moment(span.start)} to {moment(span.end)}, {did}."


ANALYSIS = Analysis(
    slug="receivers", title="Receivers' report card", group="why", form=ReportForm, make=report,
    question="Who receives how much, how fast, with which success, and how busily?",
)  # fmt: skip
