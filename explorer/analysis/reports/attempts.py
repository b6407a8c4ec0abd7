"""Deliveries ("attempts") as the reports about locks, redelivery and consumers read them. Pure, but for `read`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue

from ..messages import TooManyLives
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
MOST_READ = 250_000  # deliveries that a page examines one by one, in some seconds


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


def read(scope: Scope, span: Range) -> list[Attempt]:
    """The deliveries that ended in a range, by message and time. Raises TooManyLives."""
    table = stored.attempts(scope, span, COLUMNS)
    table = table.filter(pc.equal(table["subqueue"], int(SubQueue.MAIN))).drop_columns(["subqueue"])
    table = table.sort_by([(name, "ascending") for name in ("entity_id", "sequence_number", "received_at", "ended_at")])
    if table.num_rows > MOST_READ:
        raise TooManyLives(f"{table.num_rows:,} deliveries ended in this range; at most {MOST_READ:,} are examined. Shorten it.")
    columns = [pc.fill_null(table["renewals"], 0) if name == "renewals" else table[name] for name in table.column_names]
    return [Attempt(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def by_message(attempts: Iterable[Attempt]) -> dict[tuple[int, int], list[Attempt]]:
    """The deliveries of each message, in their order."""
    found: dict[tuple[int, int], list[Attempt]] = {}
    for one in attempts:
        found.setdefault(one.message, []).append(one)
    return found


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % band of a share (Wilson's score interval)."""
    if not of:
        return 0.0, 1.0
    share, z = count / of, Z95
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - spread), min(1.0, middle + spread)


def share_of(count: int, found: Sequence[Attempt]) -> str:
    """Some of these deliveries, as the beginning of a sentence."""
    return f"{count:,} of {counted(len(found), 'delivery', 'deliveries')} ({percent(count / len(found))})"


def quantile(values: Sequence[timedelta], share: float) -> timedelta | None:
    """The value that this share does not exceed; None: there are no values. values: in order."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def names_of(words: Mapping[Any, str], attempts: Iterable[Attempt]) -> list[tuple[str, str]]:
    """The legend: the ways in which these deliveries ended, in the order of NAMES."""
    there = {one.kind for one in attempts}
    return [(name, words[kind]) for kind, name in NAMES.items() if kind in there]
