"""Topics and fan-out: which subscriptions or bound queues take how much of what is published, and how far they lag."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue
from broker_core.models import Entity
from explorer.shared.charts import WIDTHS, brief, duration_lines

from .. import messages
from ..jobs import outcomes
from ..listing import messages_url
from ..survival import FEWEST, CannotTell
from . import stored
from .attempts import MOST_READ, quantile
from .drawings import ShareRow, share_rows
from .forms import ReportForm
from .losses import LOST
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, keyed, percent
from .scope import Range, Scope, floor

MOST_DRAWN = 12
MOST_EVENTS = 2 * MOST_READ  # of copies, and of the messages that were published
HANDLED = (outcomes.COMPLETED, outcomes.RECEIVED_AND_DELETED, outcomes.FORWARDED)
TAKEN = (EventKind.SENT, EventKind.SCHEDULED, EventKind.DEAD_LETTERED)  # by a subscription, which may dead-letter it at once
EVENTS = (
    *("entity_id", "sequence_number", "kind", "at", "xid", "message_id", "properties", "link", "linked_entity_id"),
    "linked_sequence_number",
)
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
    "Read from the archived events.",
)
UNROUTABLE = "Messages that no queue took are not in the archive, so Published and Filtered are without them."

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """A message of a subscription or queue. source: the topic (id) or exchange (name) it was published to; message: the same for
    all copies of a message. outcome, ended_at: None while it is there."""

    source: int | str
    message: Key
    entity_id: int
    at: datetime
    outcome: int | None = None
    ended_at: datetime | None = None

    @property
    def handled_in(self) -> timedelta | None:
        return max(self.ended_at - self.at, timedelta(0)) if self.ended_at and self.outcome in HANDLED else None


@dataclass(frozen=True, slots=True)
class Published:
    """counts: the messages by topic or exchange. nobody: how many of topics' messages no subscription took; None: not known."""

    copies: list[Copy]
    counts: Mapping[int | str, int]
    nobody: int | None


@dataclass(slots=True)
class Target:
    """What a subscription or queue took of what was published to a topic or exchange. times, lags: in order. lag_at: (when
    handled, lag)."""

    source: int | str
    entity_id: int
    published: int
    taken: int = 0
    lost: int = 0
    there: int = 0
    fastest: int = 0
    times: list[timedelta] = field(default_factory=list)
    lags: list[timedelta] = field(default_factory=list)
    lag_at: list[tuple[datetime, timedelta]] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.taken / self.published if self.published else 0.0

    @property
    def lag(self) -> timedelta:
        """The 95th percentile, of enough messages."""
        found = quantile(self.lags, 0.95) if len(self.lags) >= FEWEST else None
        return found or timedelta(0)


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    copier = scope.family.texts.copier
    if not copier:
        raise CannotTell("Each message of this namespace is put into one queue: there is nothing that copies it to several.")
    wide = replace(scope, entities=list(Entity.objects.filter(namespace=scope.namespace).order_by("pk")), is_whole=True)
    found, names = read(wide, scope.range), wide.paths
    listed = _of_scope(scope, targets(found))
    said = sentence(listed, names, copier, found.nobody if scope.is_whole else None)
    if scope.compared:
        said += f" {_compared(listed, _of_scope(scope, targets(read(wide, scope.compared))), names, scope.compared)}"
    notes = (*NOTES, UNROUTABLE) if found.nobody is None else NOTES
    return Report(said, _sections(scope, listed, names) if listed else (), notes)


def read(scope: Scope, span: Range) -> Published:
    """What was published in a range. scope: of all entities of the namespace. Raises TooManyLives."""
    events = stored.events(scope, span, EVENTS, (*TAKEN, EventKind.PUBLISHED), most=MOST_EVENTS)
    taken = events.filter(pc.is_in(events["kind"], pa.array([int(kind) for kind in TAKEN], pa.int16())))
    if taken.num_rows > MOST_READ:
        raise messages.TooManyLives(f"{taken.num_rows:,} copies were made in this range; at most {MOST_READ:,} are examined.")
    columns = ("entity_id", "subqueue", "sequence_number", "outcome", "reason", "ended_at", "generated")
    lives = stored.lives(scope, span.start, Range(span.start, max(span.end, scope.now)), columns)
    main = messages.with_outcome(lives.filter(pc.equal(lives["subqueue"], int(SubQueue.MAIN))))
    ends = main.select(["entity_id", "sequence_number", "outcome", "ended_at"])
    rows = taken.join(ends, ["entity_id", "sequence_number"], join_type="left outer").to_pylist()
    published = events.filter(pc.equal(events["kind"], int(EventKind.PUBLISHED))).select(["entity_id", "sequence_number"])
    keys = set(zip(*(column.to_pylist() for column in published.columns), strict=True))
    return of_events(rows, keys)


def of_events(rows: Sequence[Mapping[str, Any]], published: Collection[tuple[int, int]]) -> Published:
    """rows: events of messages that entered, with the outcome and the end of the life. published: messages (topic, number) that
    topics published. Pure."""
    copies = [one for row in rows if (one := _of_topic(row, published)) is not None]
    of_exchanges = _of_exchanges([row for row in rows if row["link"] is None])
    counts: Counter[int | str] = Counter(topic for topic, _ in published)
    counts.update(source for source, _ in {(one.source, one.message) for one in of_exchanges})
    nobody = len(set(published) - {(one.source, *one.message) for one in copies}) if published else None
    return Published([*copies, *of_exchanges], counts, nobody)


def targets(found: Published) -> list[Target]:
    """What each subscription or queue took, those that lag most first. Pure."""
    by_target: dict[tuple[int | str, int], Target] = {}
    first: dict[Key, list[datetime]] = {}
    for one in found.copies:
        if one.handled_in is not None and one.ended_at:
            first.setdefault((one.source, *one.message), []).append(one.ended_at)
    for one in found.copies:
        key = (one.source, one.entity_id)
        target = by_target.setdefault(key, Target(*key, found.counts[one.source]))
        target.taken += 1
        target.lost += one.outcome in LOST
        target.there += one.outcome is None
        handled = first.get((one.source, *one.message), [])
        if one.handled_in is None or not one.ended_at:
            continue
        target.times.append(one.handled_in)
        if len(handled) > 1:
            lag = one.ended_at - min(handled)
            target.fastest += not lag
            target.lags.append(lag)
            target.lag_at.append((one.ended_at, lag))
    for target in by_target.values():
        target.times.sort()
        target.lags.sort()
    return sorted(by_target.values(), key=lambda one: (-one.lag, -one.taken, str(one.source), one.entity_id))


def sentence(listed: Sequence[Target], names: Mapping[int, str], copier: str, nobody: int | None) -> str:
    """How much was published, who takes least, and who lags most."""
    if not listed:
        return f"No {copier} had messages taken from it in this range."
    sources = {one.source: one.published for one in listed}
    copies, total = sum(one.taken for one in listed), sum(sources.values())
    said = f"{counted(total, 'message')} of {counted(len(sources), copier)} became {counted(copies, 'copy', 'copies')}"
    said += f"; {nobody:,} were taken by none." if nobody else "."
    least = min(listed, key=lambda one: (one.share, one.entity_id))
    if least.share < 1:
        said += (
            f" “{_name(least, names)}” took fewest, {percent(least.share)} of what was published to “{_source(least, names)}”."
        )
    worst = listed[0]
    if worst.lag:
        half = quantile(worst.lags, 0.5)
        most = f"{f'half by {brief(half)}, ' if half else ''}5\xa0% by {brief(worst.lag)} or more"
        said += f" “{_name(worst, names)}” lags most behind the fastest: {most}."
    return said


def _of_topic(row: Mapping[str, Any], published: Collection[tuple[int, int]]) -> Copy | None:
    origin = (row["linked_entity_id"], row["linked_sequence_number"])
    if row["link"] != "published_from" or origin not in published:
        return None
    return Copy(origin[0], origin[1:], row["entity_id"], row["at"], row["outcome"], row["ended_at"])


def _of_exchanges(rows: Sequence[Mapping[str, Any]]) -> list[Copy]:
    """Copies of one publish have the same transaction. Of those with the same routing key and id, the first in a queue is a copy
    of the first in another: they were stored in the order in which they were published."""
    seen: Counter[Key] = Counter()
    copies = []
    for row in sorted(rows, key=lambda row: (row["entity_id"], row["sequence_number"])):
        properties = json.loads(row["properties"] or "{}")
        if exchange := properties.get("exchange"):
            key = (row["xid"], str(properties.get("routing_key")), row["message_id"])
            place = seen[exchange, key, row["entity_id"]]
            seen[exchange, key, row["entity_id"]] += 1
            copies.append(Copy(exchange, (*key, place), row["entity_id"], row["at"], row["outcome"], row["ended_at"]))
    return copies


def _of_scope(scope: Scope, listed: Sequence[Target]) -> list[Target]:
    """Those of the topics or exchanges from which the scope's queues took messages."""
    if scope.is_whole:
        return list(listed)
    sources = {one.source for one in listed if one.entity_id in scope.ids}
    return [one for one in listed if one.source in sources]


def _sections(scope: Scope, listed: Sequence[Target], names: Mapping[int, str]) -> list[Section]:
    by_share = sorted(listed, key=lambda one: (-one.share, one.entity_id))[:MOST_DRAWN]
    rows = [
        ShareRow(_name(one, names), one.share, f"{_name(one, names)}: {one.taken:,} of {one.published:,}") for one in by_share
    ]
    label = "Share of the published messages that each one took"
    figure = Figure(label, [share_rows(rows, one) for one in WIDTHS], "bars", label, template="explorer/analysis/_gantt.svg")
    sections = [Section("taken", "Taken", figures=[figure], is_half=True)]
    worst, span = listed[0], scope.range
    if worst.lag:
        buckets = [[lag for at, lag in sorted(worst.lag_at) if floor(at, span.bucket) == start] for start in span.buckets]
        lines = {f"p{share:.0%}".rstrip("%"): [quantile(sorted(lags), share) for lags in buckets] for share in (0.5, 0.95)}
        label = f"How far “{_name(worst, names)}” lags behind the fastest, by {span.unit}"
        charts = [duration_lines(span.buckets, lines, (), one, partial=span.partial) for one in WIDTHS]
        keys = keyed(lines, {"p50": "median", "p95": "95 %"})
        figure = Figure(label, charts, caption=label, keys=keys)
        sections.append(Section("lag", f"Lag of “{_name(worst, names)}”", figures=[figure], is_half=True))
    else:
        sections[0] = replace(sections[0], is_half=False)
    table = Table("targets", "Subscriptions and queues", COLUMNS, [_row(scope, one, names) for one in listed])
    return [*sections, Section("targets", "By subscription or queue", table=table)]


def _row(scope: Scope, one: Target, names: Mapping[int, str]) -> tuple[Any, ...]:
    url = messages_url({"queue": one.entity_id}, scope.range.start, scope.range.end, order="enqueued")
    times = [quantile(one.times, share) for share in (0.5, 0.95)]
    lags = [quantile(one.lags, share) for share in (0.5, 0.95)]
    first = one.fastest / len(one.lags) if one.lags else None
    return (
        _source(one, names), _name(one, names), one.published, Link(one.taken, url), one.share, one.published - one.taken,
        len(one.times), one.lost, one.there, *times, first, *lags,
    )  # fmt: skip


def _name(one: Target, names: Mapping[int, str]) -> str:
    """The queue's, or the subscription's without its topic's."""
    name, topic = names.get(one.entity_id, "a deleted queue"), _source(one, names)
    return name.removeprefix(f"{topic}/Subscriptions/")


def _source(one: Target, names: Mapping[int, str]) -> str:
    return one.source if isinstance(one.source, str) else names.get(one.source, "a deleted topic")


def _compared(listed: Sequence[Target], before: Sequence[Target], names: Mapping[int, str], span: Range) -> str:
    """How much was published then, and how far the one that lags most now lagged."""
    total, then = (sum({one.source: one.published for one in each}.values()) for each in (listed, before))
    said = difference(total, then, span)
    worst = listed[0] if listed else None
    same = next((one for one in before if worst and (one.source, one.entity_id) == (worst.source, worst.entity_id)), None)
    if worst and worst.lag and same and same.lag:
        said += f" “{_name(same, names)}” then lagged by {brief(same.lag)} or more in 5\xa0%."
    return said


ANALYSIS = Analysis(
    slug="fan-out", title="Topics and fan-out", group="happened", form=ReportForm, make=report,
    question="How much does each subscription or bound queue receive, and how far does it lag behind the others?",
)  # fmt: skip
