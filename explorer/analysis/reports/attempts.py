"""Deliveries ("attempts") as the reports about locks, redelivery and consumers read them. Pure, but for `read`.

All deliveries of a range are counted in columns. Those of messages that failed, which are few, are examined one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue

from ..messages import TooManyLives, elapsed
from . import stored
from .report import counted, percent
from .scope import Range, Scope

COLUMNS = (
    *(
        "entity_id",
        "subqueue",
        "sequence_number",
        "attempt",
        "outcome",
        "received_at",
        "ended_at",
        "locked_until",
        "lock_ended_at",
    ),
    *("renewals", "received_by", "error", "generated"),
)
SUCCESSES = (EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED)
NAMES = {  # CSS names of the ways in which a delivery ends
    EventKind.COMPLETED: "completed",
    EventKind.RECEIVED_AND_DELETED: "received_and_deleted",
    EventKind.ABANDONED: "abandoned",
    EventKind.LOCK_LOST: "lock_lost",
    EventKind.RELEASED: "released",
    EventKind.DEFERRED: "deferred",
    EventKind.DEAD_LETTERED: "dead_lettered",
    EventKind.EXPIRED: "expired",
    EventKind.DROPPED: "dropped",
    EventKind.MOVED: "moved",
}
Z95 = 1.959964
MOST_READ = 250_000  # messages that a page examines one by one, in some seconds
MOST_LISTED = 500_000  # deliveries that it does
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE = ("entity_id", "sequence_number")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A delivery. attempt: its place among those of the message; None: unknown. locked_until: at the receipt; None: there was no
    lock with an end. lock_ended_at: after the last renewal. error: the reason of its end, without numbers and ids."""

    entity_id: int
    sequence_number: int
    attempt: int | None
    outcome: int
    received_at: datetime
    ended_at: datetime
    locked_until: datetime | None = None
    lock_ended_at: datetime | None = None
    renewals: int = 0
    received_by: str | None = None
    error: str | None = None
    generated: bool = False

    @property
    def message(self) -> tuple[int, int]:
        return self.entity_id, self.sequence_number

    @property
    def held(self) -> timedelta:
        return max(self.ended_at - self.received_at, timedelta(0))

    @property
    def lock(self) -> timedelta | None:
        """The lock that was given at the receipt."""
        return self.locked_until - self.received_at if self.locked_until else None

    @property
    def kind(self) -> EventKind:
        return EventKind(self.outcome)

    @property
    def succeeded(self) -> bool:
        return self.outcome in SUCCESSES

    @property
    def name(self) -> str:
        return NAMES.get(self.kind, "other")


def read(scope: Scope, span: Range) -> pa.Table:
    """The deliveries that ended in a range, as `judged`. Raises TooManyLives."""
    table = stored.attempts(scope, span, COLUMNS)
    return judged(table.filter(pc.equal(table["subqueue"], int(SubQueue.MAIN))).drop_columns(["subqueue"]))


def judged(deliveries: pa.Table) -> pa.Table:
    """Deliveries by message and time, with held_us, lock_us (at the receipt; NULL: it has no end), succeeded, and first: whether
    it is the first one of its message here."""
    table = deliveries.sort_by([(name, "ascending") for name in (*MESSAGE, "received_at", "ended_at")])
    received, locked = (pc.cast(table[name], pa.int64()) for name in ("received_at", "locked_until"))
    added = {
        "held_us": elapsed(table["received_at"], table["ended_at"]),
        "lock_us": pc.subtract(locked, received),
        "succeeded": is_one_of(table["outcome"], SUCCESSES),
        "first": _begins(table),
    }
    for name, column in added.items():
        table = table.append_column(name, column)
    return table


def listed(found: pa.Table) -> list[Attempt]:
    """Deliveries one by one. Raises TooManyLives."""
    if found.num_rows > MOST_LISTED:
        raise TooManyLives(
            f"{found.num_rows:,} deliveries of this range have to be examined one by one; at most {MOST_LISTED:,} are. "
            "Shorten it."
        )
    columns = {name: found[name] for name in COLUMNS if name != "subqueue"} | {"renewals": pc.fill_null(found["renewals"], 0)}
    return [Attempt(*row) for row in zip(*map(_values, columns.values()), strict=True)]


def _values(column: Any) -> list[Any]:
    """As to_pylist, which takes ten times as long for instants."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    return [at if at is None else instant(at) for at in pc.cast(column, pa.int64()).to_pylist()]


def of_messages(found: pa.Table, which: Any) -> pa.Table:
    """All deliveries of the messages that have one of those chosen. found: judged. which: for each delivery, whether."""
    if not found.num_rows:
        return found
    place = pc.cumulative_sum(pc.cast(found["first"], pa.int64()))
    return found.filter(pc.is_in(place, pc.unique(place.filter(which))))


def by_entity(found: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The deliveries of each entity, without a copy. found: judged."""
    begin = 0
    for entity_id, count in counts(found["entity_id"]).items():
        yield entity_id, found.slice(begin, count)
        begin += count


def is_one_of(outcome: Any, kinds: Iterable[EventKind]) -> Any:
    return pc.is_in(outcome, pa.array([int(kind) for kind in kinds], pa.int16()))


def microseconds(at: datetime) -> int:
    """Since 1970, as columns of instants have it."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def instant(microseconds_: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds_)


def counts(column: Any) -> dict[Any, int]:
    """How often each value is there."""
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def _begins(table: pa.Table) -> pa.Array:
    """Whether a row is of another message than the one before. table: in the order of the messages."""
    if not table.num_rows:
        return pa.array([], pa.bool_())
    differs = [pc.not_equal(one[1:], one[:-1]) for one in (table[name].combine_chunks() for name in MESSAGE)]
    return pa.concat_arrays([pa.array([True]), pc.or_(*differs)])


def by_message(attempts: Iterable[Attempt]) -> dict[tuple[int, int], list[Attempt]]:
    """The deliveries of each message, in their order."""
    found: dict[tuple[int, int], list[Attempt]] = {}
    for one in attempts:
        found.setdefault(one.message, []).append(one)
    return found


def wilson(count: int, of: int, z: float = Z95) -> tuple[float, float]:
    """The band of a share, by default with 95 % (Wilson's score interval)."""
    if not of:
        return 0.0, 1.0
    share = count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - spread), min(1.0, middle + spread)


def share_of(count: int, of: int) -> str:
    """Some of so many deliveries, as the beginning of a sentence."""
    return f"{count:,} of {counted(of, 'delivery', 'deliveries')} ({percent(count / of)})"


def quantile(values: Sequence[timedelta], share: float) -> timedelta | None:
    """The value that this share does not exceed; None: there are no values. values: in order."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def quantile_of(column: Any, share: float) -> timedelta | None:
    """As `quantile`, of a column of microseconds in no order; NULLs do not count."""
    known = pc.drop_null(column)
    if not len(known):
        return None
    place = max(0, math.ceil(share * len(known)) - 1)
    return timedelta(microseconds=known.take(pc.sort_indices(known)[place : place + 1])[0].as_py())


def names_of(words: Mapping[Any, str], attempts: Iterable[Attempt]) -> list[tuple[str, str]]:
    """The legend: the ways in which these deliveries ended, in the order of NAMES."""
    there = {one.kind for one in attempts}
    return [(name, words[kind]) for kind, name in NAMES.items() if kind in there]
