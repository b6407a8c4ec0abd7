"""What a report is about, queues and a range, and the rows to read for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg.rows import namedtuple_row

from broker_core.common.types import SubQueue
from broker_core.history import archive
from broker_core.models import Namespace
from broker_core.namespaces import get_clock
from broker_core.store.statements import SQL
from explorer.shared.family import FamilyPages, pages_of

from .. import rollups
from ..jobs import measures
from ..subject import Subject

HOUR = timedelta(hours=1)
INSTANT = pa.timestamp("us", tz="UTC")
MOST_BUCKETS = 7 * 24 + 1  # seven days from the beginning of an hour
BUCKETS = {HOUR: "hour", 6 * HOUR: "6 hours", 24 * HOUR: "day", 7 * 24 * HOUR: "week"}


@dataclass(frozen=True, slots=True)
class Range:
    """From the beginning of an hour to an instant."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def bucket(self) -> timedelta:
        """The interval of charts: the shortest with which they have few enough points."""
        return next((one for one in BUCKETS if self.length <= MOST_BUCKETS * one), max(BUCKETS))

    @property
    def unit(self) -> str:
        """The interval in words: "hour", "6 hours"."""
        return BUCKETS[self.bucket]

    @property
    def buckets(self) -> list[datetime]:
        """The starts of the intervals that the range touches."""
        first = floor(self.start, self.bucket)
        return [first + i * self.bucket for i in range(-int((first - self.end) // self.bucket))]

    @property
    def partial(self) -> list[bool]:
        """Which of the intervals are only partly in the range."""
        return [at < self.start or at + self.bucket > self.end for at in self.buckets]

    def before(self, by: timedelta) -> Range:
        """The same range, earlier."""
        return Range(self.start - by, self.end - by)

    def has(self, at: datetime) -> bool:
        return self.start <= at < self.end

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M} – {self.end:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class Scope(Subject):
    """Adds the range, the time by the namespace's clock, and the range to compare with."""

    range: Range
    now: datetime
    compared: Range | None = None

    @property
    def family(self) -> FamilyPages:
        return pages_of(self.namespace.family)

    @property
    def ranges(self) -> list[Range]:
        """The range, and the one to compare with if there is one."""
        return [self.range, *([self.compared] if self.compared else [])]

    def rows(self, span: Range | None = None) -> pa.Table:
        """The rows of roll-ups of messages (main lists only) that were in a list, or held, at some time in a range."""
        span = span or self.range
        rows = rollups.read(self.ids, [self.namespace.pk], span.start, span.end)
        return rows.filter(pc.equal(rows["subqueue"], int(SubQueue.MAIN)))

    def present(self, before: datetime) -> list[Any]:
        """The messages that are in the queues and entered before an instant: entity_id, hour of entering, received, waited_us,
        messages."""
        values = {"entity_ids": self.ids, "end": before, "now": self.now}
        with archive.connected() as postgres, postgres.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(SQL["history_present"], values).fetchall()

    def present_bytes(self, span: Range) -> dict[int, float]:
        """By queue, the bytes of the messages that are in it, times the microseconds that they were there in a range."""
        values = {"entity_ids": self.ids, "start": span.start, "end": span.end}
        with archive.connected() as postgres:
            return dict(postgres.execute(SQL["history_present_bytes"], values).fetchall())


def clock_now(namespace: Namespace) -> datetime:
    """The time by a namespace's clock; real time if the namespace was deleted."""
    return datetime.now(UTC) if namespace.deleted_at else get_clock(namespace.name).now


def floor(at: datetime, bucket: timedelta) -> datetime:
    """The start of the interval in which an instant is. Weeks begin on Monday."""
    monday = datetime(1970, 1, 5, tzinfo=UTC)
    return monday + (at - monday) // bucket * bucket


def of_measure(rows: pa.Table, *wanted: int) -> pa.Table:
    """The rows of these measures."""
    return rows.filter(pc.is_in(rows["measure"], pa.array(wanted, pa.int16())))


def entered(rows: pa.Table, span: Range) -> pa.Table:
    """The rows of messages that entered (of attempts: that were received) in the hours of a range."""
    return _hours(rows, "hour", span)


def ended(rows: pa.Table, span: Range) -> pa.Table:
    """The rows of messages that left (of attempts: that ended) in the hours of a range."""
    return _hours(rows, "end_hour", span)


def sums(rows: pa.Table, *keys: str) -> Iterator[tuple[Any, ...]]:
    """(values of the keys..., messages), added up."""
    total = rows.group_by(list(keys), use_threads=False).aggregate([("messages", "sum")])
    return zip(*(total[name].to_pylist() for name in (*keys, "messages_sum")), strict=True)


def generated(rows: pa.Table) -> int:
    """How many of the messages are generated history."""
    return pc.sum(of_measure(rows, measures.LIFE)["generated"]).as_py() or 0


def _hours(rows: pa.Table, column: str, span: Range) -> pa.Table:
    first, over = pa.array([span.start, span.end], INSTANT)
    return rows.filter(pc.and_(pc.greater_equal(rows[column], first), pc.less(rows[column], over)))
