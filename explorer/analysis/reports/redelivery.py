"""Redelivery and poison: why do deliveries not succeed, does another attempt help, and what fails again after a resubmit?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_core.common.types import EventKind, Family
from explorer.charts.chart import WIDTHS
from explorer.charts.columns import share_bars
from explorer.frames.timeline import words

from ..survival import FEWEST
from .attempts import messages_section, wilson
from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, percent
from .scope import Range, Scope
from .tables import Tables

LAST = 11  # stands for this delivery and all later ones (jobs/reports/redelivery.py)
BY_DELIVERY = (
    Column("delivery", "Delivery"),
    Column("deliveries", "Deliveries", "count"),
    Column("succeeded", "Succeeded", "count"),
    Column("share", "Share", "share", has_bar=True),
    Column("low", "At least", "share", about="95 % band"),
    Column("high", "At most", "share", about="95 % band"),
)
REASONS = (
    Column("queue", "Queue"),
    Column("end", "Delivery ended as"),
    Column("reason", "Reason"),
    Column("deliveries", "Deliveries", "count", has_bar=True),
    Column("messages", "Messages", "count"),
    Column("later", "Succeeded later", "share"),
    Column("time", "Time spent", "duration"),
    Column("example", "Latest message"),
)
AGAIN = (
    Column("queue", "Resubmitted from"),
    Column("resubmitted", "Messages", "count"),
    Column("lost", "Lost again", "count"),
    Column("share", "Share lost again", "share", has_bar=True),
    Column("ended", "Ended well", "count"),
    Column("open", "Not ended in this range", "count"),
)
NOTES = (
    "A delivery succeeded if the receiver completed (acknowledged, deleted) the message. Those that ended in this range count.",
    "Reasons are without numbers and ids. Time spent is from the receipt to the end of the delivery.",
    f"The marks in the chart are the 95 % bands of the shares (Wilson); fewer than {FEWEST} deliveries say little.",
    "Receives are recorded at the history level full.",
)


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    total, steps = tables.only_row("totals"), sorted(tables["steps"], key=lambda step: step.delivery)
    if not total.deliveries:
        return Report("No deliveries ended in this range.", (), NOTES)
    messages, reasons = tables.only_row("messages"), tables["reasons"]
    finding = sentence(total, messages, reasons, steps, scope)
    if scope.compared:
        finding += f" {_compared(total, scope.compared)}"
    sections = [*_steps(steps), *_reasons(scope, reasons), *_again(scope, tables["resubmitted"])]
    if worst := repeated(tables["worst"]):
        sections.append(messages_section(scope, worst, "Deliveries of the messages that failed most often"))
    return Report(finding, sections, NOTES, messages.generated)


def sentence(total: Any, messages: Any, reasons: Sequence[Any], steps: Sequence[Any], scope: Scope) -> str:
    """How many deliveries failed, mostly why, and whether another attempt helps. scope: names the queue of the reason."""
    failed = total.deliveries - total.well
    if not failed:
        return f"All {counted(total.deliveries, 'delivery', 'deliveries')} succeeded."
    text = (
        f"{failed:,} of {counted(total.deliveries, 'delivery', 'deliveries')} ({percent(failed / total.deliveries)}) did not "
        f"succeed"
    )
    if reasons:
        first = reasons[0]
        text += f", most often {first.deliveries:,} of {scope.paths[first.entity_id]} ({_words(first, scope.namespace.family)})"
    enough = [step for step in steps if step.deliveries >= FEWEST]
    if len(enough) > 1:
        first, last = ((_place(step), percent(step.succeeded / step.deliveries)) for step in (enough[0], enough[-1]))
        text += f"; delivery {first[0]} succeeds in {first[1]}, delivery {last[0]} in {last[1]}"
    again = "was" if messages.again == 1 else "were"
    return f"{text}. {messages.again:,} of {counted(messages.messages, 'message')} {again} delivered more than once."


def repeated(rows: Iterable[Any]) -> list[Any]:
    """The deliveries of messages that have more than one. Pure."""
    rows = list(rows)
    count = Counter((row.entity_id, row.sequence_number) for row in rows)
    return [row for row in rows if count[row.entity_id, row.sequence_number] > 1]


def _steps(steps: Sequence[Any]) -> list[Section]:
    if not steps:
        return []
    names, shares = [_place(step) for step in steps], [step.succeeded / step.deliveries for step in steps]
    bands = [wilson(step.succeeded, step.deliveries) for step in steps]
    tips = [
        f"delivery {name}: {percent(share)} of {step.deliveries:,}"
        for name, share, step in zip(names, shares, steps, strict=True)
    ]
    label = "Share of deliveries that succeeded, by their place among those of the message"
    figure = Figure(label, [share_bars(names, shares, bands, tips, width) for width in WIDTHS], "bars")
    data = [
        (name, step.deliveries, step.succeeded, share, *band)
        for name, share, band, step in zip(names, shares, bands, steps, strict=True)
    ]
    table = Table("steps", "By delivery", BY_DELIVERY, data)
    return [Section("steps", "Does another delivery help?", figures=[figure], table=table)]


def _place(step: Any) -> str:
    return str(step.delivery) if step.delivery < LAST else f"{LAST}+"


def _words(reason: Any, family: Family) -> str:
    word = words(EventKind(reason.outcome), family).word
    return f"{word}: {reason.error}" if reason.error else word


def _reasons(scope: Scope, reasons: Sequence[Any]) -> list[Section]:
    if not reasons:
        return []
    data = [
        (scope.paths[reason.entity_id], words(EventKind(reason.outcome), scope.namespace.family).word, reason.error,
         reason.deliveries, reason.messages, reason.later / reason.messages, timedelta(microseconds=reason.held_us),
         Link(f"#{reason.latest}", scope.message_url(reason.entity_id, reason.latest)))
        for reason in reasons
    ]  # fmt: skip
    return [Section.with_table("reasons", "Reasons", REASONS, data)]


def _again(scope: Scope, rows: Sequence[Any]) -> list[Section]:
    """Messages that were resubmitted in the range: a life in a dead-letter or poison queue ended, and another began."""
    if not rows:
        return []
    data = [
        (scope.paths[row.entity_id], row.messages, row.lost, row.lost / row.messages, row.ended - row.lost,
         row.messages - row.ended)
        for row in sorted(rows, key=lambda row: (-row.lost, -row.messages, row.entity_id))
    ]  # fmt: skip
    total, lost = sum(row.messages for row in rows), sum(row.lost for row in rows)
    was = ["was" if count == 1 else "were" for count in (total, lost)]
    text = f"{counted(total, 'message')} {was[0]} resubmitted; {lost:,} {was[1]} lost again."
    return [Section.with_table("resubmitted", "After a resubmit", AGAIN, data, sentence=text)]


def _compared(total: Any, span: Range) -> str:
    if not total.before:
        return f"From {span} there were no deliveries."
    failed = total.before - total.before_well
    share = percent(failed / total.before)
    return f"From {span} it was {share} ({failed:,} of {total.before:,})."


ANALYSIS = Analysis(
    slug="redelivery", title="Redelivery and poison messages", form=ReportForm, present=present,
    needs={"lives": timedelta(0)},
    question="Why do deliveries fail, does another one help, and what fails again after a resubmit?",
)  # fmt: skip
