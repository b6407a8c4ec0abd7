"""How much each receiver receives, how fast, how successfully, and how busy it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind
from explorer.shared.charts import WIDTHS, brief

from ..survival import FEWEST
from . import attempts
from .attempts import wilson
from .drawings import named_heat_map
from .forms import ReportForm
from .lock_losses import receiver_name
from .report import Analysis, Column, Figure, Report, Section, Table, counted, moment, percent
from .scope import Range, Scope
from .spans import Spans

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
    """The deliveries to a receiver. work_p50, work_p95: of those that succeeded. spans: the times in which it held a message;
    held: that of all of them together."""

    receiver: str | None
    deliveries: int
    queues: int
    succeeded: int
    returned: int
    rejected: int
    lost: int
    work_p50: timedelta | None
    work_p95: timedelta | None
    held: timedelta
    spans: Spans
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
            self.work_p50,
            self.work_p95,
            at_once,
            self.idle,
        )

    @property
    def busy(self) -> timedelta:
        return self.spans.before(self.last)

    @property
    def idle(self) -> float | None:
        length = self.last - self.spans.first
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
        _busy(scope.range, listed, noun),
        Section("receivers", title, table=Table("receivers", title, COLUMNS, data)),
    ]
    return Report(said, sections if listed else (), NOTES, pc.sum(found["generated"]).as_py() or 0)


def cards(found: pa.Table) -> list[Card]:
    """A card for each receiver, the one with most deliveries first. found: as attempts.judged. Pure."""
    columns = ("entity_id", "outcome", "received_at", "ended_at", "held_us")
    grouped = found.group_by("received_by", use_threads=False).aggregate([(name, "list") for name in columns])
    lists = zip(*(grouped[f"{name}_list"] for name in columns), strict=True)
    of = zip(grouped["received_by"].to_pylist(), lists, strict=True)
    result = [_card(receiver, *(one.values for one in each)) for receiver, each in of]
    return sorted(result, key=lambda card: (-card.deliveries, card.name))


def _card(receiver: str | None, entity_ids: Any, outcomes: Any, received: Any, ended: Any, held: Any) -> Card:
    well = attempts.is_one_of(outcomes, attempts.SUCCESSES)
    returned, rejected, lost = (pc.sum(attempts.is_one_of(outcomes, kinds)).as_py() for kinds in (RETURNED, REJECTED, LOST))
    work = held.filter(well)
    return Card(
        receiver, len(outcomes), len(pc.unique(entity_ids)), len(work), returned, rejected, lost,
        attempts.quantile_of(work, 0.5), attempts.quantile_of(work, 0.95), timedelta(microseconds=pc.sum(held).as_py()),
        Spans(received, ended), pc.max(ended).as_py(),
    )  # fmt: skip


def sentence(listed: Sequence[Card], noun: str) -> str:
    """Who received most, and who does worse than the others."""
    if not listed:
        return "No deliveries ended in this range."
    total, first = sum(card.deliveries for card in listed), listed[0]
    if len(listed) == 1:
        said = f"One {noun}, {first.name}, received {counted(total, 'message')}"
    else:
        said = (
            f"{len(listed)} {noun}s received {counted(total, 'message')}; {first.name} took {percent(first.deliveries / total)}"
        )
    said += f", half in {brief(first.work_p50)}." if first.work_p50 is not None else "."
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


def _busy(span: Range, listed: Sequence[Card], noun: str) -> Section:
    rows = [(card.name, card.spans.shares(span)) for card in listed[:MOST_DRAWN]]
    label = f"How busy the {noun}s were, by {span.unit}"
    charts = [named_heat_map(span.buckets, rows, one, span.partial) for one in WIDTHS]
    figure = Figure(label, charts, "heat", f"share of each {span.unit} in which a message was held; the stronger the "
                    "color, the busier", template="explorer/analysis/_heat_map.svg")  # fmt: skip
    more = f"The {MOST_DRAWN} with most deliveries." if len(listed) > MOST_DRAWN else ""
    return Section("busy", "How busy they were", more, [figure])


def _compared(before: Sequence[Card], span: Range, noun: str) -> str:
    if not before:
        return f"From {moment(span.start)} to {moment(span.end)} there were no deliveries."
    total, failed = sum(card.deliveries for card in before), sum(card.failed for card in before)
    did = f"{counted(len(before), noun)} received {counted(total, 'message')} and did not complete {percent(failed / total)}"
    return f"From {moment(span.start)} to {moment(span.end)}, {did}."


ANALYSIS = Analysis(
    slug="receivers", title="Receivers", group="why", form=ReportForm, make=report,
    question="How much does each receiver receive, how fast, how successfully, and how busy is it?",
)  # fmt: skip
