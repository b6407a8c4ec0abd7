"""The messages behind a number of an analysis, read from the archive's lives without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_core.common.types import SubQueue
from broker_core.history import manifest, schema, storage
from broker_core.models import Entity

from . import dimensions
from .jobs import outcomes

MOST = 200
MOST_LIVES = 5_000_000  # in the files to read; more take longer than a page should
COLUMNS = [
    *("entity_id", "subqueue", "sequence_number", "outcome", "reason", "enqueued_at", "first_received_at", "last_received_at"),
    *("ended_at", "message_id", "deliveries", "settled_by", "error"),
]
ORDERS = {
    "waiting": "longest wait first",
    "processing": "longest processing first",
    "enqueued": "oldest first",
    "left": "latest to leave first",
}
_KEYS = {
    "waiting": ("waiting_us", "descending"),
    "processing": ("processing_us", "descending"),
    "enqueued": ("enqueued_at", "ascending"),
    "left": ("ended_at", "descending"),
}


class TooManyLives(Exception):
    """The range has more lives than a page reads."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A message that left its queue. waiting: enqueued to first received; processing: last received to settled by a receiver."""

    entity_id: int
    sequence_number: int
    message_id: str | None
    outcome: str
    reason: str | None
    enqueued_at: datetime
    ended_at: datetime
    waiting: timedelta | None
    processing: timedelta | None
    deliveries: int | None
    settled_by: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """count: how many messages match; rows: the first MOST of them."""

    count: int
    rows: list[Ended]


def find(
    entity_ids: Sequence[int],
    start: datetime,
    end: datetime,
    *,
    left: tuple[datetime, datetime] | None = None,
    outcome: str = "",
    reason: str = "",
    cause: str | None = None,
    key: str = "",
    value: str = "",
    origin: int | None = None,
    destination: int | None = None,
    order: str = "waiting",
) -> Found:
    """The messages that entered the main queues of entities in a range and have left them, by the definitions of the job "time in
    queue and outcome". left: the range in which they left. outcome: a name of outcomes.COLUMNS, or "other". reason: exactly this,
    or outcomes.NO_REASON. cause: the reason without numbers and ids; empty: without one. key, value: of dimensions. origin,
    destination: the entity of the message that this one was made from, or became; 0: there is none.

    Raises TooManyLives.
    """
    links = {"from_entity_id": origin, "to_entity_id": destination}
    needed = [
        *([dimensions.column_of(key)] if key else []),
        *(name for name, entity_id in links.items() if entity_id is not None),
    ]
    lives = with_outcome(_lives(entity_ids, start, end, [*COLUMNS, *needed]))
    chosen = pc.and_(_within(lives["enqueued_at"], start, end), pc.equal(lives["subqueue"], int(SubQueue.MAIN)))
    chosen = pc.and_(chosen, pc.not_equal(lives["outcome"], outcomes.CANCELLED))
    if left:
        chosen = pc.and_(chosen, _within(lives["ended_at"], *left))
    if outcome:
        chosen = pc.and_(chosen, _has_outcome(lives, outcome))
    if reason:
        chosen = pc.and_(chosen, _same(lives["reason"], None if reason == outcomes.NO_REASON else reason))
    if cause is not None:
        error = pc.if_else(pc.equal(lives["outcome"], outcomes.EXPIRED), pa.scalar(None, pa.string()), lives["error"])
        chosen = pc.and_(chosen, _same(error, cause or None))
    if key:
        chosen = pc.and_(chosen, _same(dimensions.values(lives, key), value))
    for name, entity_id in links.items():
        if entity_id is not None:
            chosen = pc.and_(chosen, _same(lives[name], entity_id or None))
    found = with_times(lives.filter(chosen))
    first = found.sort_by([_KEYS[order], ("sequence_number", "ascending")]).slice(0, MOST)
    return Found(found.num_rows, [_ended(row) for row in first.to_pylist()])


def with_outcome(lives: pa.Table) -> pa.Table:
    """As transforms.with_expiry: what left because its time-to-live ended has the outcome "expired" and no reason."""
    moved = pc.is_in(lives["outcome"], pa.array(outcomes.WITH_REASON, pa.int16()))
    expired = pc.and_(moved, pc.is_in(lives["reason"], pa.array(outcomes.EXPIRY_REASONS)))
    outcome = pc.if_else(expired, pa.scalar(outcomes.EXPIRED, pa.int16()), lives["outcome"])
    reason = pc.if_else(pc.equal(outcome, outcomes.EXPIRED), pa.scalar(None, pa.string()), lives["reason"])
    return _replaced(_replaced(lives, "outcome", outcome), "reason", reason)


def with_times(lives: pa.Table) -> pa.Table:
    """As transforms.with_time_in_queue: adds waiting_us and processing_us."""
    at_once = pc.equal(lives["outcome"], outcomes.RECEIVED_AND_DELETED)
    first = pc.coalesce(lives["first_received_at"], pc.if_else(at_once, lives["ended_at"], None))
    by_broker = pc.is_in(lives["reason"], pa.array(outcomes.BROKER_REASONS))
    rejected = pc.and_(pc.is_in(lives["outcome"], pa.array(outcomes.WITH_REASON, pa.int16())), pc.invert(by_broker))
    by_receiver = pc.or_(pc.equal(lives["outcome"], outcomes.COMPLETED), rejected)
    processing = pc.if_else(by_receiver, elapsed(lives["last_received_at"], lives["ended_at"]), None)
    return lives.append_column("waiting_us", elapsed(lives["enqueued_at"], first)).append_column("processing_us", processing)


def elapsed(since: pa.ChunkedArray, until: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds, never negative: a namespace's clock may have been set back in between."""
    passed = pc.subtract(pc.cast(until, pa.int64()), pc.cast(since, pa.int64()))
    return pc.if_else(pc.less(passed, 0), pa.scalar(0, pa.int64()), passed)


def _has_outcome(lives: pa.Table, outcome: str) -> pa.ChunkedArray:
    if outcome in outcomes.COLUMNS:
        return pc.equal(lives["outcome"], outcomes.COLUMNS[outcome])
    return pc.invert(pc.is_in(lives["outcome"], pa.array(list(outcomes.COLUMNS.values()), pa.int16())))


def _lives(entity_ids: Sequence[int], start: datetime, end: datetime, columns: Sequence[str]) -> pa.Table:
    namespace_ids = list(Entity.objects.filter(pk__in=entity_ids).values_list("namespace_id", flat=True).distinct())
    files, wanted = manifest.life_files(start, end, namespace_ids), pa.schema([schema.LIFE.field(name) for name in columns])
    if files.rows > MOST_LIVES:
        raise TooManyLives(f"This range has {files.rows:,} messages in the archive; at most {MOST_LIVES:,} are searched.")
    parts = [schema.conform(_read(file.path, entity_ids, columns), wanted) for file in files.files]
    return pa.concat_tables([wanted.empty_table(), *parts])


def _within(column: pa.ChunkedArray, start: datetime, end: datetime) -> pa.ChunkedArray:
    first, over = pa.array([start, end], pa.timestamp("us", tz="UTC"))
    return pc.fill_null(pc.and_(pc.greater_equal(column, first), pc.less(column, over)), False)


def _same(column: pa.ChunkedArray, value: str | int | None) -> pa.ChunkedArray:
    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)


def _read(path: str, entity_ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    with storage.archive_here().open(path) as opened:
        there = set(pq.read_schema(opened).names)
        opened.seek(0)
        wanted = [name for name in columns if name in there]
        return pq.read_table(opened, columns=wanted, filters=[("entity_id", "in", list(entity_ids))])


def _ended(row: dict) -> Ended:
    names = {code: name for name, code in outcomes.COLUMNS.items()}
    return Ended(
        entity_id=row["entity_id"],
        sequence_number=row["sequence_number"],
        message_id=row["message_id"],
        outcome=names.get(row["outcome"], "other"),
        reason=row["reason"],
        enqueued_at=row["enqueued_at"],
        ended_at=row["ended_at"],
        waiting=_duration(row["waiting_us"]),
        processing=_duration(row["processing_us"]),
        deliveries=row["deliveries"],
        settled_by=row["settled_by"],
    )


def _duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
