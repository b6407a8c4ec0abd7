"""The messages, or deliveries, behind a number of an analysis, read from the archive without Spark, a file after the other.

No rule is stated here: lives and attempts have columns for what they count as (jobs/schemas.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from broker_core.common.actors import spellings
from broker_core.common.types import SubQueue
from broker_core.history import manifest, storage
from broker_core.models import ArchiveFile, Entity
from explorer.analysis import dimensions
from explorer.analysis.jobs import outcomes

from .report import duration

logger = logging.getLogger(__name__)

MOST = 200
BATCH_ROWS = 50_000  # read at a time
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
# How deliveries ended, and those that did.
ENDINGS: dict[str, tuple[str, ds.Expression | None]] = {
    "all": ("", None),
    "succeeded": (" that succeeded", ds.field("attempt_well")),
    "lost": (" whose lock was lost", ds.field("attempt_lost")),
    "rejected": (" that were rejected", ds.field("attempt_rejected")),
    "failed": (" that failed without losing their lock", ds.field("attempt_failed") & ~ds.field("attempt_lost")),
    "other": (
        " that ended otherwise",
        ~ds.field("attempt_well") & ~ds.field("attempt_rejected") & ~ds.field("attempt_failed") & ~ds.field("attempt_lost"),
    ),
}
_INSTANT = pa.timestamp("us", tz="UTC")
_MAIN = int(SubQueue.MAIN)


def _columns(kind: pa.DataType, *names: str) -> list[pa.Field]:
    return [pa.field(name, kind) for name in names]


LIFE = pa.schema([
    *_columns(pa.int64(), "entity_id", "sequence_number", "from_entity_id", "to_entity_id"),
    *_columns(pa.int64(), "waiting_us", "processing_us", "time_to_live_in_force_us"),
    *_columns(pa.int16(), "subqueue", "outcome", "result"),
    *_columns(pa.int32(), "deliveries", "size"),
    *_columns(_INSTANT, "enqueued_at", "first_received_at", "ended_at"),
    *_columns(pa.string(), "reason", "cause", "message_id", "session_id", "settled_by", "chosen_properties"),
    *_columns(pa.bool_(), "is_waiting"),  # of messages that have not ended
])  # fmt: skip
ATTEMPT = pa.schema([  # of rows of lives that ended a delivery
    *_columns(pa.int64(), "entity_id", "sequence_number", "attempt_held_us"),
    *_columns(pa.int16(), "attempt_subqueue", "attempt_outcome"),
    *_columns(pa.int32(), "attempt"),
    *_columns(_INSTANT, "attempt_received_at"),
    *_columns(pa.string(), "attempt_received_by", "reason"),
    *_columns(pa.bool_(), "attempt_well", "attempt_lost", "attempt_rejected", "attempt_failed"),
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message. outcome: a name of outcomes.COLUMNS, or "other". waiting: enqueued to first received; processing: last received
    to settled by a receiver. ended_at: None: it is still in the queue."""

    entity_id: int
    sequence_number: int
    message_id: str | None
    outcome: str
    reason: str | None
    enqueued_at: datetime
    ended_at: datetime | None
    waiting: timedelta | None
    processing: timedelta | None
    deliveries: int | None
    settled_by: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """attempt: its place among those of the message; None: unknown. outcome: the kind of the event that ended it. held_time: how
    long the receiver had it."""

    entity_id: int
    sequence_number: int
    attempt: int | None
    outcome: int
    reason: str | None
    received_at: datetime
    held_time: timedelta | None
    received_by: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """count: how many match; rows: the first MOST of them. damaged: the files that could not be read."""

    count: int
    rows: Sequence[Any]
    damaged: Sequence[str] = field(default_factory=list)


def find(
    entity_ids: Sequence[int],
    entered: tuple[datetime, datetime] | None,
    *,
    left: tuple[datetime, datetime] | None = None,
    outcome: str = "",
    cause: str | None = None,
    key: str = "",
    value: str = "",
    origin: int | None = None,
    destination: int | None = None,
    order: str = "waiting",
) -> Found:
    """The messages of the main lists of entities. entered, left: the ranges in which they were enqueued, and left; at least one.
    Without `left`, those that are still there count, too. outcome: a name of outcomes.COLUMNS, or "other". cause: the reason
    without numbers and ids; empty: without one. key, value: of dimensions. origin, destination: the entity of the message that
    this one was made from, or became; 0: there is none."""
    where = (ds.field("subqueue") == _MAIN) & (
        _within("enqueued_at", *entered) if entered else ds.field("enqueued_at").is_valid()
    )
    where &= _within("ended_at", *left) if left else ds.scalar(True)
    where &= _same("cause", cause or None) if cause is not None else ds.scalar(True)
    for name, entity_id in (("from_entity_id", origin), ("to_entity_id", destination)):
        where &= _same(name, entity_id or None) if entity_id is not None else ds.scalar(True)
    where &= dimensions.condition(key, value) if key else ds.scalar(True)
    keep = _with_property(key, value) if dimensions.is_property(key) else None
    not_ended = where & ~ds.field("is_waiting")
    where &= _has_outcome(outcome) & (ds.field("outcome") != outcomes.CANCELLED)
    top = _Top([_KEYS[order], ("sequence_number", "ascending")], LIFE)
    ranges = [span for span in (entered, left) if span]
    first, over = max(since for since, _ in ranges), min(until for _, until in ranges)  # who left in one was there before its end
    top.read(ArchiveFile.LIVES, entity_ids, first, over, where, keep)
    if not left and outcome in ("", "still_there"):
        top.read(ArchiveFile.OPEN, entity_ids, first, over, not_ended, keep)
    return Found(top.count, [_message(row) for row in top.rows], top.damaged)


def find_deliveries(
    entity_ids: Sequence[int], start: datetime, end: datetime, *, ending: str = "all", receiver: str | None = None
) -> Found:
    """The deliveries from main lists that were received in a range and have ended, as Delivery, the latest first. ending: of
    ENDINGS. receiver: who received them; empty: unknown."""
    where = (ds.field("attempt_subqueue") == _MAIN) & _within("attempt_received_at", start, end)
    ended = ENDINGS[ending][1]
    where &= ended if ended is not None else ds.scalar(True)
    where &= _received_by(receiver) if receiver is not None else ds.scalar(True)
    top = _Top([("attempt_received_at", "descending"), ("sequence_number", "ascending")], ATTEMPT)
    top.read(ArchiveFile.LIVES, entity_ids, start, end, where)
    return Found(top.count, [_delivery(row) for row in top.rows], top.damaged)


class _Top:
    """The first MOST rows of those that were read, by an order; and how many there are."""

    def __init__(self, order: list[tuple[str, str]], columns: pa.Schema):
        self.count, self.damaged = 0, list[str]()
        self._order, self._columns, self._first = order, columns, columns.empty_table()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self._first.to_pylist()

    def read(
        self,
        content: str,
        entity_ids: Sequence[int],
        start: datetime,
        end: datetime,
        where: ds.Expression,
        keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> None:
        """Read the files of a content with rows of a range. A file that cannot be read is added to `damaged`."""
        namespace_ids = list(Entity.objects.filter(pk__in=entity_ids).values_list("namespace_id", flat=True).distinct())
        of_entities = ds.field("entity_id").isin(list(entity_ids))
        for file in manifest.files(content, namespace_ids, start, end):
            try:
                for batch in _batches(file.path, self._columns, of_entities & where):
                    self._add(keep(batch) if keep else batch)
            except (OSError, pa.ArrowException):
                logger.warning("The archive file %s cannot be read", file.path, exc_info=True)
                self.damaged.append(file.path)

    def _add(self, batch: pa.RecordBatch) -> None:
        self.count += batch.num_rows
        if batch.num_rows:
            both = pa.concat_tables([self._first, pa.Table.from_batches([batch])])
            self._first = both.sort_by(self._order).slice(0, MOST)


def _batches(path: str, columns: pa.Schema, where: ds.Expression) -> Iterator[pa.RecordBatch]:
    """The rows of a file; columns that it lacks are NULL. Raises OSError, pa.ArrowException."""
    with storage.current_archive().open(path) as opened:
        fragment = ds.ParquetFileFormat().make_fragment(opened)
        yield from fragment.to_batches(
            schema=columns, filter=where, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        )


def _with_property(key: str, value: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Keeps the rows that have this value of a chosen property."""
    name = dimensions.name(key)

    def matching_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = batch.column("chosen_properties").dictionary_encode()
        same = pa.array([json.loads(text.as_py()).get(name) == value for text in texts.dictionary], pa.bool_())
        return batch.filter(same.take(texts.indices))

    return matching_rows


def _has_outcome(outcome: str) -> ds.Expression:
    if not outcome:
        return ds.scalar(True)
    if outcome in outcomes.COLUMNS:
        return ds.field("result") == outcomes.COLUMNS[outcome]
    return ~ds.field("result").isin(list(outcomes.COLUMNS.values()))


def _within(column: str, start: datetime, end: datetime) -> ds.Expression:
    first, over = (pa.scalar(at, _INSTANT) for at in (start, end))
    return (ds.field(column) >= first) & (ds.field(column) < over)


def _same(column: str, value: str | int | None) -> ds.Expression:
    return ds.field(column).is_null() if value is None else ds.field(column) == value


def _received_by(receiver: str) -> ds.Expression:
    """Deliveries to a receiver, however it is stored; empty: unknown."""
    if not receiver:
        return _same("attempt_received_by", None)
    texts, prefixes = spellings(receiver)
    where = ds.field("attempt_received_by").isin(texts)
    for prefix in prefixes:
        where |= pc.starts_with(ds.field("attempt_received_by"), prefix)
    return where


def _message(row: dict[str, Any]) -> ListedMessage:
    names = {code: name for name, code in outcomes.COLUMNS.items()}
    waiting = duration(row["waiting_us"])
    if row["ended_at"] is None and row["first_received_at"]:
        waiting = max(row["first_received_at"] - row["enqueued_at"], timedelta(0))
    shared = ("entity_id", "sequence_number", "message_id", "reason", "enqueued_at", "ended_at", "deliveries", "settled_by")
    outcome = "still_there" if row["ended_at"] is None else names.get(row["result"], "other")
    processing = duration(row["processing_us"])
    return ListedMessage(**{name: row[name] for name in shared}, outcome=outcome, waiting=waiting, processing=processing)


def _delivery(row: dict[str, Any]) -> Delivery:
    of_attempt = {name: row[f"attempt_{name}"] for name in ("outcome", "received_at", "received_by")}
    shared = {name: row[name] for name in ("entity_id", "sequence_number", "attempt", "reason")}
    return Delivery(**shared, **of_attempt, held_time=duration(row["attempt_held_us"]))
