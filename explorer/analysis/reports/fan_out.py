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
    published = {(None, topic.source_id): topic.published for topic in tables["topics"]}
    taken = {(source.source, source.source_id): source.taken for source in tables["sources"]}
    published |= {source: count for source, count in taken.items() if source not in published}  # of exchanges
    targets = of_scope(scope, tables["targets"])
    named = scope.with_entities(entity_id for row in targets for entity_id in (row.entity_id, row.source_id))
    nobody = sum(published.values()) - sum(taken.values()) if scope.is_whole and tables["topics"] else 0
    finding = sentence(targets, published, named.paths, scope.family.texts.copier, nobody)
    if scope.compared and scope.is_whole:
        finding += f" {difference(sum(published.values()), tables.only_row('before').published, scope.compared)}"
    notes = NOTES if tables["topics"] else (*NOTES, UNROUTABLE)
    sections = _sections(scope, targets, published, named.paths) if targets else ()
    return Report(finding, sections, notes, sum(target.generated for target in targets))


def of_scope(scope: Scope, rows: Sequence[Any]) -> list[Any]:
    """Those of the topics or exchanges from which the scope's queues took messages."""
    if scope.is_whole:
        return list(rows)
    sources = {(row.source, row.source_id) for row in rows if row.entity_id in scope.ids}
    return [row for row in rows if (row.source, row.source_id) in sources]


def sentence(targets: Sequence[Any], published: Mapping[Any, int], names: Mapping[int, str], copier: str, nobody: int) -> str:
    """How much was published, who takes least, and who lags most. published: messages by source. nobody: taken by none."""
    if not targets:
        return f"No {copier} had messages taken from it in this range."
    sources = {(target.source, target.source_id) for target in targets}
    total, copies = sum(published[source] for source in sources), sum(target.taken for target in targets)
    text = f"{counted(total, 'message')} of {counted(len(sources), copier)} became {counted(copies, 'copy', 'copies')}"
    least = min(targets, key=lambda target: (_share(target, published), target.entity_id))
    if (share := _share(least, published)) < 1:
        text += f"; {_name(least, names)} took the fewest: {percent(share)} of the messages of {_source(least, names)}"
    worst = targets[0]
    if worst.lag_p95_us and worst.compared >= FEWEST:
        text += f"; {_name(worst, names)} lags most behind the fastest, by {brief(duration(worst.lag_p50_us))} in the median"
    return f"{text}." + (f" {counted(nobody, 'message')} {'was' if nobody == 1 else 'were'} taken by none." if nobody else "")


def _sections(scope: Scope, targets: Sequence[Any], published: Mapping[Any, int], names: Mapping[int, str]) -> list[Section]:
    by_share = sorted(targets, key=lambda target: (-_share(target, published), target.entity_id))[:MOST_DRAWN]
    rows = [
        ShareRow(
            _name(target, names),
            _share(target, published),
            f"{_name(target, names)}: {target.taken:,} of {_of(target, published):,}",
        )
        for target in by_share
    ]
    label = "Share of the published messages that each one took"
    figure = Figure(label, [share_rows(rows, width) for width in WIDTHS], "gantt")
    table = Table("targets", "Subscriptions and queues", COLUMNS, [_row(scope, target, published, names) for target in targets])
    return [Section("taken", "Taken", figures=[figure], table=table), *_lags(targets, names)]


def _lags(targets: Sequence[Any], names: Mapping[int, str]) -> list[Section]:
    """A row for each one that lags: up to the median, and on to the 95th percentile."""
    lagging = [target for target in targets if target.lag_p95_us and target.compared >= FEWEST][:MOST_DRAWN]
    if not lagging:
        return []
    rows = []
    for target in lagging:
        half, most = (timedelta(microseconds=us) for us in (target.lag_p50_us, target.lag_p95_us))
        title = f"{_name(target, names)}: half by at most {brief(half)}, 95 % by at most {brief(most)}"
        bars = [("held", timedelta(0), half, title), ("waiting", half, most, title)]
        rows.append((_name(target, names), bars[half == timedelta(0) :]))
    charts, keys = [gantt(rows, width) for width in WIDTHS], [("held", "half of the copies"), ("waiting", "95 %")]
    figure = Figure(LAG, charts, "gantt", keys=keys)
    return [Section("lag", "Behind the fastest", figures=[figure])]


def _row(scope: Scope, target: Any, published: Mapping[Any, int], names: Mapping[int, str]) -> tuple[Any, ...]:
    url = messages_url({"queue": target.entity_id}, scope.range.start, scope.range.end, order="enqueued")
    times = [duration(us) for us in (target.p50_us, target.p95_us)]
    lags = [duration(us) for us in (target.lag_p50_us, target.lag_p95_us)]
    first, of = target.fastest / target.compared if target.compared else None, _of(target, published)
    return (
        _source(target, names), _name(target, names), of, Link(target.taken, url), _share(target, published),
        max(0, of - target.taken), target.handled, target.lost, target.there, *times, first, *lags,
    )  # fmt: skip


def _of(target: Any, published: Mapping[Any, int]) -> int:
    return published[target.source, target.source_id]


def _share(target: Any, published: Mapping[Any, int]) -> float:
    return target.taken / _of(target, published)


def _name(target: Any, names: Mapping[int, str]) -> str:
    """The queue's, or the subscription's without its topic's."""
    return names.get(target.entity_id, "a deleted queue").removeprefix(f"{_source(target, names)}/Subscriptions/")


def _source(target: Any, names: Mapping[int, str]) -> str:
    return target.source if target.source is not None else names.get(target.source_id, "a deleted topic")


ANALYSIS = Analysis(
    slug="fan-out", title="Topics and fan-out", form=ReportForm, present=present, whole_namespace=True,
    needs={"lives": timedelta(0), "open": timedelta(0), "events": timedelta(0)},
    question="How much does each subscription or bound queue receive, and how far does it lag behind the others?",
)  # fmt: skip
