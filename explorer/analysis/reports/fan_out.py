"""Topics and fan-out: which subscriptions or bound queues take how much of what is published, and how far they lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.labels import brief
from explorer.charts.rows import ShareRow, gantt, share_rows

from ..survival import FEWEST, CannotTell
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, duration, percent
from .scope import Scope
from .tables import Tables

MOST_DRAWN = 12
COLUMNS = (
    Column("source", "Published to"),
    Column("target", "Taken by"),
    Column("published", "Published", "count"),
    Column("taken", "Taken", "count", has_bar=True),
    Column("share", "Share taken", "share"),
    Column("filtered", "Filtered", "count"),
    Column("handled", "Handled", "count"),
    Column("lost", "Lost", "count"),
    Column("there", "Not ended", "count"),
    Column("p50", "Until handled, median", "duration"),
    Column("p95", "Until handled, 95 %", "duration"),
    Column("first", "Fastest copy", "share"),
    Column("lag_p50", "Behind the fastest, median", "duration"),
    Column("lag_p95", "Behind the fastest, 95 %", "duration"),
)
NOTES = (
    "Includes the messages that were published in this range, and the outcomes of their copies until now. Handled: completed "
    "(acknowledged, deleted) or forwarded.",
    "The lag of a copy is how much later it was handled than the first copy of the same message that was handled. Messages with "
    "one handled copy have none.",
)
UNROUTABLE = "Messages that no queue took are not in the archive, so Published and Filtered are without them."
LAG = "How much later copies were handled than the fastest copy of the same message"


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    if not scope.family.texts.copier:
        raise CannotTell("Each message of this namespace is put into one queue: there is nothing that copies it to several.")
    published = {(None, one.source_id): one.published for one in tables["topics"]}
    taken = {(one.source, one.source_id): one.taken for one in tables["sources"]}
    published |= {source: count for source, count in taken.items() if source not in published}  # of exchanges
    listed = of_scope(scope, tables["targets"])
    named = scope.with_entities(one for row in listed for one in (row.entity_id, row.source_id))
    nobody = sum(published.values()) - sum(taken.values()) if scope.is_whole and tables["topics"] else 0
    said = sentence(listed, published, named.paths, scope.family.texts.copier, nobody)
    if scope.compared and scope.is_whole:
        said += f" {difference(sum(published.values()), tables.one('before').published, scope.compared)}"
    notes = NOTES if tables["topics"] else (*NOTES, UNROUTABLE)
    sections = _sections(scope, listed, published, named.paths) if listed else ()
    return Report(said, sections, notes, sum(one.generated for one in listed))


def of_scope(scope: Scope, rows: Sequence[Any]) -> list[Any]:
    """Those of the topics or exchanges from which the scope's queues took messages."""
    if scope.is_whole:
        return list(rows)
    sources = {(one.source, one.source_id) for one in rows if one.entity_id in scope.ids}
    return [one for one in rows if (one.source, one.source_id) in sources]


def sentence(listed: Sequence[Any], published: Mapping[Any, int], names: Mapping[int, str], copier: str, nobody: int) -> str:
    """How much was published, who takes least, and who lags most. published: messages by source. nobody: taken by none."""
    if not listed:
        return f"No {copier} had messages taken from it in this range."
    sources = {(one.source, one.source_id) for one in listed}
    total, copies = sum(published[one] for one in sources), sum(one.taken for one in listed)
    said = f"{counted(total, 'message')} of {counted(len(sources), copier)} became {counted(copies, 'copy', 'copies')}"
    least = min(listed, key=lambda one: (_share(one, published), one.entity_id))
    if (share := _share(least, published)) < 1:
        said += f"; {_name(least, names)} took the fewest: {percent(share)} of the messages of {_source(least, names)}"
    worst = listed[0]
    if worst.lag_p95_us and worst.compared >= FEWEST:
        said += f"; {_name(worst, names)} lags most behind the fastest, by {brief(duration(worst.lag_p50_us))} in the median"
    return f"{said}." + (f" {counted(nobody, 'message')} {'was' if nobody == 1 else 'were'} taken by none." if nobody else "")


def _sections(scope: Scope, listed: Sequence[Any], published: Mapping[Any, int], names: Mapping[int, str]) -> list[Section]:
    by_share = sorted(listed, key=lambda one: (-_share(one, published), one.entity_id))[:MOST_DRAWN]
    rows = [
        ShareRow(_name(one, names), _share(one, published), f"{_name(one, names)}: {one.taken:,} of {_of(one, published):,}")
        for one in by_share
    ]
    label = "Share of the published messages that each one took"
    figure = Figure(label, [share_rows(rows, one) for one in WIDTHS], "gantt")
    table = Table("targets", "Subscriptions and queues", COLUMNS, [_row(scope, one, published, names) for one in listed])
    return [Section("taken", "Taken", figures=[figure], table=table), *_lags(listed, names)]


def _lags(listed: Sequence[Any], names: Mapping[int, str]) -> list[Section]:
    """A row for each one that lags: up to the median, and on to the 95th percentile."""
    lagging = [one for one in listed if one.lag_p95_us and one.compared >= FEWEST][:MOST_DRAWN]
    if not lagging:
        return []
    rows = []
    for one in lagging:
        half, most = (timedelta(microseconds=us) for us in (one.lag_p50_us, one.lag_p95_us))
        title = f"{_name(one, names)}: half by at most {brief(half)}, 95 % by at most {brief(most)}"
        bars = [("held", timedelta(0), half, title), ("waiting", half, most, title)]
        rows.append((_name(one, names), bars[half == timedelta(0) :]))
    charts, keys = [gantt(rows, one) for one in WIDTHS], [("held", "half of the copies"), ("waiting", "95 %")]
    figure = Figure(LAG, charts, "gantt", keys=keys)
    return [Section("lag", "Behind the fastest", figures=[figure])]


def _row(scope: Scope, one: Any, published: Mapping[Any, int], names: Mapping[int, str]) -> tuple[Any, ...]:
    url = messages_url({"queue": one.entity_id}, scope.range.start, scope.range.end, order="enqueued")
    times = [duration(us) for us in (one.p50_us, one.p95_us)]
    lags = [duration(us) for us in (one.lag_p50_us, one.lag_p95_us)]
    first, of = one.fastest / one.compared if one.compared else None, _of(one, published)
    return (
        _source(one, names), _name(one, names), of, Link(one.taken, url), _share(one, published), max(0, of - one.taken),
        one.handled, one.lost, one.there, *times, first, *lags,
    )  # fmt: skip


def _of(one: Any, published: Mapping[Any, int]) -> int:
    return published[one.source, one.source_id]


def _share(one: Any, published: Mapping[Any, int]) -> float:
    return one.taken / _of(one, published)


def _name(one: Any, names: Mapping[int, str]) -> str:
    """The queue's, or the subscription's without its topic's."""
    return names.get(one.entity_id, "a deleted queue").removeprefix(f"{_source(one, names)}/Subscriptions/")


def _source(one: Any, names: Mapping[int, str]) -> str:
    return one.source if one.source is not None else names.get(one.source_id, "a deleted topic")


ANALYSIS = Analysis(
    slug="fan-out", title="Topics and fan-out", form=ReportForm, present=present, whole_namespace=True,
    needs={"lives": timedelta(0), "open": timedelta(0), "events": timedelta(0)},
    question="How much does each subscription or bound queue receive, and how far does it lag behind the others?",
)  # fmt: skip
