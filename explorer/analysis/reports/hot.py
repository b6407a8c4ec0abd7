"""Hot properties and sessions: which values of properties wait or fail more than the others, and which sessions stalled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.urls import reverse

from broker_core.common.durations import human
from broker_core.common.types import SubQueue
from broker_core.history import properties
from explorer.shared.charts import WIDTHS

from .. import dimensions, messages
from ..jobs import outcomes
from ..listing import messages_url
from ..survival import FEWEST
from . import stored
from .attempts import counts, wilson
from .drawings import ShareRow, named_heat_map, share_rows
from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, moment, percent
from .scope import INSTANT, Range, Scope
from .spans import Spans

SLOW = 0.9  # slower than this share of the queue's messages
MOST_VALUES = 200  # of a key, the most frequent
MOST_TEXTS = 200_000  # different combinations of properties, which are decoded one by one
MOST_DRAWN = 10
MOST_SESSIONS = 100  # examined: those with most messages, and those with the longest waits
LONG_STILL = timedelta(minutes=1)  # a session that stalled for less is not worth a sentence
MOST_EXAMINED = 250_000  # messages of sessions
FAILED = (outcomes.EXPIRED, outcomes.DEAD_LETTERED, outcomes.DROPPED, outcomes.MOVED)
NEEDED = (
    *("entity_id", "subqueue", "sequence_number", "outcome", "reason", "enqueued_at", "first_received_at", "last_received_at"),
    *("ended_at", "deliveries", "generated", *dimensions.COLUMNS.values(), dimensions.PROPERTIES),
)
VALUES = (
    Column("queue", "Queue"),
    Column("property", "Property"),
    Column("value", "Value"),
    Column("messages", "Messages", "count"),
    Column("failed", "Failed", "share"),
    Column("failed_low", "At least (95 % band)", "share"),
    Column("failed_high", "At most", "share"),
    Column("failed_others", "Others failed", "share"),
    Column("slow", "Waited long", "share"),
    Column("slow_low", "At least (95 % band)", "share"),
    Column("slow_high", "At most", "share"),
    Column("slow_others", "Others waited long", "share"),
)
SESSIONS = (
    Column("queue", "Queue"),
    Column("session", "Session"),
    Column("messages", "Messages", "count", has_bar=True),
    Column("share", "Share of the queue's", "share"),
    Column("failed", "Failed", "count"),
    Column("wait", "Longest wait", "duration"),
    Column("stalled", "Stalled, at most", "duration"),
    Column("since", "From, UTC", "instant"),
    Column("first", "Message that left then"),
)
NOTES = (
    "Includes the messages that left in this range. A message failed if it expired, was dead-lettered, moved or dropped, or "
    "was delivered more than once.",
    f"It waited long if it waited longer than {SLOW:.0%} of its queue's messages.".replace("%", "\xa0%"),
    f"A value is compared with the other messages of its queue, if both have at least {FEWEST}; bands are Wilson's, and a value "
    "stands out where its band is above that of the others, wider bands if the key has many values.",
)
STILL = "A session is stalled while messages of it wait and none leaves: its messages are delivered one after the other."


@dataclass(frozen=True, slots=True)
class Value:
    """The messages of a queue with one value, and the others of the queue. slow: those that waited long. tested: how many values
    of the key there are; by chance alone, one of many differs."""

    entity_id: int
    key: str
    value: str
    messages: int
    failed: int
    slow: int
    others: int
    others_failed: int
    others_slow: int
    tested: int = 1

    @property
    def words(self) -> str:
        return dimensions.words(self.key, self.value)

    def shares(self, metric: str) -> tuple[float, float, float, float]:
        """The share that "failed" or was "slow", its band, and the share of the others."""
        count = getattr(self, metric)
        return count / self.messages, *wilson(count, self.messages), getattr(self, f"others_{metric}") / max(1, self.others)

    def margin(self, metric: str) -> float:
        """By how much the value's band is above that of the others; below 0: it does not stand out. The bands are wider for keys
        with many values."""
        if self.messages < FEWEST or self.others < FEWEST:
            return -1.0
        z = NormalDist().inv_cdf(1 - 0.025 / self.tested)
        low = wilson(getattr(self, metric), self.messages, z)[0]
        return low - wilson(getattr(self, f"others_{metric}"), self.others, z)[1]


@dataclass(frozen=True, slots=True)
class Session:
    """The messages of a session that left. still: the longest time in which messages waited and none left, and when it began;
    first: the message whose leaving ended it. spells: all such times of at least a hundredth of the range."""

    entity_id: int
    name: str
    messages: int
    share: float
    failed: int
    wait: timedelta
    still: timedelta
    since: datetime
    first: int
    spells: tuple[tuple[datetime, datetime], ...] = ()


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    lives = read(scope, scope.range)
    found = by_value(lives, dimensions.by_key(lives))
    sessions = by_session(lives, scope.range)
    said = f"{sentence(found, scope.paths)}{_compared(scope, found)} {session_sentence(sessions)}".strip()
    sections = [*_values(scope, found), *_sessions(scope, sessions)] if lives.num_rows else []
    return Report(said, sections, NOTES, pc.sum(lives["generated"]).as_py() or 0, links=_links(scope))


def read(scope: Scope, span: Range) -> pa.Table:
    """The messages of the main lists that left in a range, with `failed`, and `slow` by their queue. Raises TooManyLives."""
    lives = stored.lives(scope, span.start - timedelta(days=7), span, NEEDED)
    if (texts := pc.count_distinct(lives[dimensions.PROPERTIES]).as_py()) > MOST_TEXTS:
        raise messages.TooManyLives(
            f"The messages of this range have {texts:,} different combinations of properties; at most {MOST_TEXTS:,} are "
            "compared. Shorten it, or archive fewer properties."
        )
    there = pc.and_(pc.equal(lives["subqueue"], int(SubQueue.MAIN)), pc.not_equal(lives["outcome"], outcomes.CANCELLED))
    return judged(lives.filter(there))


def judged(lives: pa.Table) -> pa.Table:
    """Adds wait_us (of a message that was never received: until it left), failed, and slow."""
    timed = messages.with_times(messages.with_outcome(lives)).combine_chunks()
    wait = pc.coalesce(timed["waiting_us"], messages.elapsed(timed["enqueued_at"], timed["ended_at"]))
    again = pc.fill_null(pc.greater(timed["deliveries"], 1), False)
    failed = pc.or_(pc.is_in(timed["outcome"], pa.array(FAILED, pa.int16())), again)
    slow = pc.greater(wait, _limits(timed["entity_id"], wait))
    added = {"wait_us": wait, "failed": pc.cast(failed, pa.int64()), "slow": pc.cast(slow, pa.int64())}
    for name, column in added.items():
        timed = timed.append_column(name, column)
    return timed


def by_value(lives: pa.Table, columns: Iterable[tuple[str, Any]]) -> list[Value]:
    """The messages by queue and value of each key; those that stand out most come first. Keys with one value say nothing.
    columns: keys, with the value of each message."""
    totals = {row["entity_id"]: row for row in _counted(lives, ["entity_id"]).to_pylist()}
    found = []
    for key, column in columns:
        table = lives.select(["entity_id", "sequence_number", "failed", "slow"]).append_column("value", column)
        counted_ = _counted(table.filter(pc.is_valid(column)), ["entity_id", "value"])
        by_queue: dict[int, list[dict[str, Any]]] = {}
        for row in most_frequent(counted_, MOST_VALUES).to_pylist():
            by_queue.setdefault(row["entity_id"], []).append(row)
        for entity_id, rows in by_queue.items():
            total = totals[entity_id]
            found += [_value(key, row, total, len(rows)) for row in rows if row["messages"] < total["messages"]]
    return sorted(found, key=lambda one: (-max(one.margin("failed"), one.margin("slow")), -one.messages, one.key, one.value))


def most_frequent(counted_: pa.Table, most: int) -> pa.Table:
    """The values of each queue with most messages, so many of each. counted_: a row for each queue and value. Pure."""
    ordered = counted_.sort_by([("entity_id", "ascending"), ("messages", "descending"), ("value", "ascending")])
    ids, place = ordered["entity_id"].combine_chunks(), pa.array(range(ordered.num_rows), pa.int64())
    begins = pc.fill_null(pc.not_equal(ids, pc.array_take(ids, pc.max_element_wise(pc.subtract(place, 1), 0))), True)
    first = pc.cumulative_max(pc.if_else(begins, place, 0))
    return ordered.filter(pc.less(pc.subtract(place, first), most))


def standing_out(found: Sequence[Value], metric: str) -> list[Value]:
    """Those that clearly do, most first."""
    return sorted((one for one in found if one.margin(metric) > 0), key=lambda one: -one.margin(metric))


def by_session(lives: pa.Table, span: Range) -> list[Session]:
    """Sessions, those that stalled longest first; those with most messages and with the longest waits are examined."""
    lives = lives.filter(pc.is_valid(lives["session_id"]))
    if not lives.num_rows:
        return []
    key = ["entity_id", "session_id"]
    totals = lives.group_by(key).aggregate([("sequence_number", "count"), ("wait_us", "max")])
    kept = [
        totals.sort_by([(name, "descending"), *((one, "ascending") for one in key)]).slice(0, MOST_SESSIONS).select(key)
        for name in ("sequence_number_count", "wait_us_max")
    ]
    mine = lives.select([*key, "sequence_number", "enqueued_at", "ended_at", "failed", "wait_us"])
    mine = mine.join(pa.concat_tables(kept), key, join_type="left semi")
    if mine.num_rows > MOST_EXAMINED:
        raise messages.TooManyLives(f"The busiest sessions have {mine.num_rows:,} messages in this range. Shorten it.")
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in mine.to_pylist():
        groups.setdefault((row["entity_id"], row["session_id"]), []).append(row)
    in_queue = {row["entity_id"]: row["messages"] for row in _counted(lives, ["entity_id"]).to_pylist()}
    sessions = [_session(*which, rows, in_queue[which[0]], span) for which, rows in groups.items()]
    return sorted(sessions, key=lambda one: (-one.still, -one.messages, one.name))


def spells(times: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """When messages waited and none left, each until one left. times: (enqueued, ended), in the order of the ends. Pure."""
    oldest: list[datetime] = []  # of those that had not left yet
    for enqueued, _ in reversed(times):
        oldest.append(min(enqueued, oldest[-1]) if oldest else enqueued)
    before, found = times[0][0], []
    for (_, ended), first in zip(times, reversed(oldest), strict=True):
        found.append((min(max(before, first), ended), ended))
        before = ended
    return found


def sentence(found: Sequence[Value], paths: Mapping[int, str]) -> str:
    """Which value fails, and which waits, clearly more than the others of its queue."""
    if not found:
        return "No messages that differ in a property left in this range."
    parts = []
    for metric, verb in (("failed", "failed"), ("slow", "waited long")):
        if worst := standing_out(found, metric)[:1]:
            one = worst[0]
            share, low, high, rest = one.shares(metric)
            at = f" in {paths[one.entity_id]}" if len(paths) > 1 else ""
            parts.append(
                f"Messages with {one.words}{at} {verb} more often: {percent(share)} ({percent(low)} to {percent(high)}), "
                f"{percent(rest)} of the others."
            )
    return " ".join(parts) or "No value of a property failed or waited clearly more often than the others of its queue."


def session_sentence(sessions: Sequence[Session]) -> str:
    """Which session stalled longest, and which has far more messages than an equal share."""
    if not sessions:
        return ""
    still, most = sessions[0], max(sessions, key=lambda one: one.messages)
    said = []
    if still.still >= LONG_STILL:
        said.append(f"Session {still.name} stalled longest: {human(still.still)} from {moment(still.since)}.")
    equal = 1 / len({one.name for one in sessions if one.entity_id == most.entity_id})
    if len(sessions) > 1 and most.share > 3 * equal and most.messages >= FEWEST:
        said.append(f"Session {most.name} has most messages, {percent(most.share)} of its queue's.")
    return " ".join(said)


def _value(key: str, row: Mapping[str, Any], total: Mapping[str, Any], tested: int) -> Value:
    return Value(
        row["entity_id"], key, row["value"], row["messages"], row["failed"], row["slow"], total["messages"] - row["messages"],
        total["failed"] - row["failed"], total["slow"] - row["slow"], tested,
    )  # fmt: skip


def _limits(entity_ids: Any, wait: Any) -> Any:
    """For each message, longer than which its queue's messages waited long; NULL: none of them has a waiting time."""
    known = pa.table({"entity_id": entity_ids, "wait": wait}).filter(pc.is_valid(wait))
    ordered = known.sort_by([("entity_id", "ascending"), ("wait", "ascending")])
    limits, begin = {}, 0
    for entity_id, count in counts(ordered["entity_id"]).items():
        limits[entity_id] = ordered["wait"][begin + math.ceil(SLOW * (count - 1))].as_py()
        begin += count
    place = pc.index_in(entity_ids, pa.array(limits, entity_ids.type))
    return pa.array(limits.values(), pa.int64()).take(place)


def _counted(lives: pa.Table, keys: list[str]) -> pa.Table:
    total = lives.group_by(keys).aggregate([("sequence_number", "count"), ("failed", "sum"), ("slow", "sum")])
    return total.rename_columns([*keys, "messages", "failed", "slow"])


def _session(entity_id: int, name: str, rows: Sequence[Mapping[str, Any]], in_queue: int, span: Range) -> Session:
    in_order = sorted(rows, key=lambda row: (row["ended_at"], row["sequence_number"]))
    times = spells([(row["enqueued_at"], row["ended_at"]) for row in in_order])
    lengths = [until - since for since, until in times]
    place = lengths.index(max(lengths))
    wait = timedelta(microseconds=max(row["wait_us"] for row in rows))
    long = tuple(one for one, length in zip(times, lengths, strict=True) if length >= span.length / 100)
    return Session(
        entity_id, name, len(rows), len(rows) / in_queue, sum(row["failed"] for row in rows), wait, lengths[place],
        times[place][0], in_order[place]["sequence_number"], long,
    )  # fmt: skip


def _values(scope: Scope, found: Sequence[Value]) -> list[Section]:
    sections = []
    for metric, title in (("failed", "Which values fail more often"), ("slow", "Which values wait longer")):
        if drawn := standing_out(found, metric)[:MOST_DRAWN]:
            rows = [_drawn(one, metric, scope) for one in drawn]
            label = f"{title}: share of the messages with each value, with its 95 % band, and of the others"
            keys = [("share", "share"), ("rest", "others of the queue")]
            charts = [share_rows(rows, one) for one in WIDTHS]
            figure = Figure(label, charts, "bars", "with its 95 % band", keys, template="explorer/analysis/_gantt.svg")
            sections.append(Section(metric, title, figures=[figure], is_half=True))
    if len(sections) == 1:
        sections = [replace(sections[0], is_half=False)]
    data = [_value_row(scope, one) for one in found]
    empty = "No messages that differ in a property left in this range."
    return [*sections, Section("values", "Values", table=Table("values", "Values", VALUES, data, empty=empty))]


def _drawn(one: Value, metric: str, scope: Scope) -> ShareRow:
    share, low, high, rest = one.shares(metric)
    at = f"{scope.paths[one.entity_id]}: " if scope.is_whole else ""
    tip = f"{at}{one.words}: {percent(share)} of {one.messages:,}; others {percent(rest)}"
    return ShareRow(at + dimensions.text(one.key, one.value), share, tip, (low, high), rest)


def _value_row(scope: Scope, one: Value) -> tuple[Any, ...]:
    url = messages_url(
        {"queue": one.entity_id}, scope.range.start - timedelta(days=7), scope.range.end, left_start=scope.range.start,
        left_end=scope.range.end, key=one.key, value=one.value,
    )  # fmt: skip
    text = dimensions.text(one.key, one.value)
    shares = (*one.shares("failed"), *one.shares("slow"))
    return scope.paths[one.entity_id], dimensions.name(one.key), text, Link(one.messages, url), *shares


def _sessions(scope: Scope, sessions: Sequence[Session]) -> list[Section]:
    if not sessions:
        return []
    paths, span = scope.paths, scope.range
    drawn = [(one.name, _covered(one.spells).shares(span)) for one in sessions[:MOST_DRAWN] if one.spells]
    label = f"Share of each {span.unit} in which a session was stalled"
    charts = [named_heat_map(span.buckets, drawn, one, span.partial) for one in WIDTHS]
    figure = Figure(
        label, charts, "heat", f"{label}; the stronger the color, the longer", template="explorer/analysis/_heat_map.svg"
    )
    figures = [figure] if drawn else []
    data = [
        (paths[one.entity_id], one.name,
         Link(one.messages, messages_url({"queue": one.entity_id}, span.start - timedelta(days=7), span.end,
                                         left_start=span.start, left_end=span.end, key=dimensions.SESSION, value=one.name)),
         one.share, one.failed, one.wait, one.still, one.since,
         Link(f"#{one.first}", scope.message_url(one.entity_id, one.first)))
        for one in sessions
    ]  # fmt: skip
    table = Table("sessions", "Sessions", SESSIONS, data)
    return [Section("sessions", "Sessions", STILL, figures, table)]


def _covered(spells: Sequence[tuple[datetime, datetime]]) -> Spans:
    return Spans(*(pa.array(side, INSTANT) for side in zip(*spells, strict=True)))


def _compared(scope: Scope, found: Sequence[Value]) -> str:
    """What the value that stands out most was in the other range."""
    worst = next((one for one in found if max(one.margin("failed"), one.margin("slow")) > 0), None)
    if worst is None or scope.compared is None:
        return ""
    metric = max(("failed", "slow"), key=worst.margin)
    then = read(scope, scope.compared)
    before = by_value(then, [(worst.key, dimensions.values(then, worst.key))])
    same = next((one for one in before if (one.entity_id, one.value) == (worst.entity_id, worst.value)), None)
    between = f"From {moment(scope.compared.start)} to {moment(scope.compared.end)}"
    if same is None:
        return f" {between} there were no messages with {worst.words} to compare."
    share, low, high, _ = same.shares(metric)
    words = "failed" if metric == "failed" else "waited long"
    of = counted(same.messages, "message")
    return f" {between}, {percent(share)} ({percent(low)} to {percent(high)}) of {of} with {worst.words} {words}."


def _links(scope: Scope) -> list[Link]:
    if not scope.family.texts.application_properties:
        return []
    words = "Change the properties" if properties.chosen(scope.ids) else "Choose properties to tell messages apart by"
    return [Link(words, f"{reverse('explorer:analysis_properties')}?{scope.url_query}")]


ANALYSIS = Analysis(
    slug="properties", title="Hot properties and sessions", group="why", form=ReportForm, make=report,
    question="Which property values wait or fail more often than others, and which sessions stalled?",
)  # fmt: skip
