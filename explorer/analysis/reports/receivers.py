"""How much each receiver receives, how fast, how successfully, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.labels import brief
from explorer.charts.rows import ShareRow, named_heat_map, share_rows

from ..survival import FEWEST
from .attempts import margin, receiver_link, receiver_name, wilson
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, counted, duration, percent
from .scope import Range, Scope
from .tables import Tables

MOST_DRAWN = 12
COLUMNS = (
    Column("receiver", "Name"),
    Column("deliveries", "Deliveries", "count", has_bar=True),
    Column("queues", "Queues", "count"),
    Column("succeeded", "Succeeded", "count"),
    Column("lost", "Locks lost", "count"),
    Column("rejected", "Rejected", "count"),
    Column("failed", "Failed otherwise", "count"),
    Column("unsuccessful", "Not successful", "share"),
    Column("low", "At least", "share", about="95 % band"),
    Column("high", "At most", "share", about="95 % band"),
    Column("work_p50", "Processing, median", "duration"),
    Column("work_p95", "Processing, 95 %", "duration"),
    Column("last", "Last receipt, UTC", "instant"),
)
NOTES = (
    "Receivers are told apart by their user or application; several instances with one name count as one.",
    "Not successful: the lock was lost, the message was rejected (dead-lettered, moved or dropped), or the delivery failed "
    "otherwise, such as by an abandon. Deliveries that were released or deferred are neither.",
    f"A receiver is compared with the others if both have at least {FEWEST} deliveries; bands are Wilson's.",
    "Deliveries are counted by when they were received. Receives are recorded at the history level full.",
)


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    rows, everything, noun = tables["receivers"], tables.only_row("all"), scope.family.texts.receiver
    finding = sentence(rows, everything, scope.name, noun)
    if scope.compared:
        finding += f" {_compared(tables.only_row('before'), scope.compared, noun)}"
    sections = [*_shares(rows, everything, noun), *_times(scope.range, tables["times"], noun), _table(scope, rows, noun)]
    return Report(finding, sections if rows else (), NOTES, everything.generated)


def unsuccessful(row: Any) -> int:
    return row.lost + row.rejected + row.failed


def sentence(rows: Sequence[Any], everything: Any, subject: str, noun: str) -> str:
    """Who received most, and who does worse than the others."""
    if not rows:
        return f"No messages of {subject} were received in this range."
    first, deliveries = rows[0], counted(everything.deliveries, "delivery", "deliveries")
    half = f", half in {brief(duration(first.work_us))}" if first.work_us is not None else ""
    if everything.receivers == 1:
        return f"{receiver_name(first.receiver)} is the only {noun} of {subject}: {deliveries}{half}."
    text = (
        f"{everything.receivers:,} {noun}s had {deliveries} of {subject}; {receiver_name(first.receiver)} took "
        f"{percent(first.deliveries / everything.deliveries)}{half}"
    )
    worst = outlier(rows, everything)
    if worst is None:
        return f"{text}, and none fails clearly more often than the others."
    share, rest = unsuccessful(worst) / worst.deliveries, _rest(worst, everything)
    return f"{text}. {receiver_name(worst.receiver)} fails more often: {percent(share)}, the others {percent(rest)}."


def outlier(rows: Sequence[Any], everything: Any) -> Any | None:
    """The receiver whose share of deliveries without success is clearly above that of the others: its band is beyond theirs."""

    def above(row: Any) -> float:
        count, others = unsuccessful(row), everything.deliveries - row.deliveries
        return margin(count, row.deliveries, everything.unsuccessful - count, others)

    worst = max(rows, key=above)
    return worst if above(worst) > 0 else None


def _shares(rows: Sequence[Any], everything: Any, noun: str) -> list[Section]:
    """The picture: which receivers fail more often than the others."""
    compared = [row for row in rows if row.deliveries >= FEWEST and everything.deliveries - row.deliveries >= FEWEST]
    ordered = sorted(compared, key=lambda row: (-unsuccessful(row) / row.deliveries, -row.deliveries))[:MOST_DRAWN]
    if not any(unsuccessful(row) for row in ordered):
        return []
    drawn = [_share(row, everything) for row in ordered]
    label = f"Share of the deliveries to each {noun} that did not succeed"
    keys = [("share", "share"), ("rest", f"other {noun}s")]
    figure = Figure(label, [share_rows(drawn, width) for width in WIDTHS], "gantt", keys=keys)
    return [Section("shares", f"Which {noun}s fail more often", figures=[figure])]


def _share(row: Any, everything: Any) -> ShareRow:
    count, name, rest = unsuccessful(row), receiver_name(row.receiver), _rest(row, everything)
    tip = f"{name}: {percent(count / row.deliveries)} of {row.deliveries:,}; others {percent(rest)}"
    return ShareRow(name, count / row.deliveries, tip, wilson(count, row.deliveries), rest)


def _rest(row: Any, everything: Any) -> float:
    """The share of the others' deliveries that did not succeed."""
    others = everything.deliveries - row.deliveries
    return (everything.unsuccessful - unsuccessful(row)) / others if others else 0.0


def _times(span: Range, rows: Iterable[Any], noun: str) -> list[Section]:
    """When they received, if any paused."""
    by_receiver: dict[str, dict[datetime, int]] = {}
    for row in rows:
        by_receiver.setdefault(row.receiver, {})[row.at] = row.deliveries
    paused = any(counts.keys() != set(span.buckets) for counts in by_receiver.values())
    if not paused:
        return []
    ordered = sorted(by_receiver.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    drawn = [(receiver_name(name), [counts.get(at, 0) / max(counts.values()) for at in span.buckets]) for name, counts in ordered]
    label = f"Deliveries to each {noun} by {span.unit}"
    charts = [named_heat_map(span.buckets, drawn, width) for width in WIDTHS]
    figure = Figure(label, charts, "heat", f"{label}; the stronger the color, the more compared with its busiest")
    return [Section("times", f"When the {noun}s received", figures=[figure])]


def _table(scope: Scope, rows: Sequence[Any], noun: str) -> Section:
    span, data = scope.range, []
    for row in rows:
        links, count = {}, unsuccessful(row)
        for name in ("deliveries", "succeeded", "lost", "rejected", "failed"):
            ending = "all" if name == "deliveries" else name
            url = messages_url(scope.query, span.start, span.end, deliveries=ending, receiver=row.receiver)
            links[name] = Link(getattr(row, name), url)
        data.append((
            receiver_link(row.receiver), links["deliveries"], row.queues, links["succeeded"], links["lost"],
            links["rejected"], links["failed"], count / row.deliveries, *wilson(count, row.deliveries), duration(row.work_us),
            duration(row.work_95_us), row.last_at,
        ))  # fmt: skip
    title = f"{noun.capitalize()}s"
    return Section.with_table("receivers", title, COLUMNS, data)


def _compared(before: Any, span: Range, noun: str) -> str:
    if not before.deliveries:
        return f"From {span} there were no deliveries."
    of = f"{counted(before.receivers, noun)} had {counted(before.deliveries, 'delivery', 'deliveries')}"
    return f"From {span}, {of}; {percent(before.unsuccessful / before.deliveries)} did not succeed."


ANALYSIS = Analysis(
    slug="receivers", title="Receivers", form=ReportForm, present=present, needs={"lives": timedelta(0)},
    question="How much does each receiver receive, how fast, how successfully, and when?",
)  # fmt: skip
