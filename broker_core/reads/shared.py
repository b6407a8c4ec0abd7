"""Shared by the reads: caps, pages of rows, cursors and rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.runtime.entity_cache import row_of
from broker_core.store.driver import Steps
from broker_core.store.statements import call

PAGE_ROWS = 50
EXPIRED_CAP = 1_000  # expired messages counted when one entity is read
EXPIRED_CAP_OF_MANY = 100  # per entity, when many are read
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of a namespace's clock.

    now:  by this clock; real_now: by the database's. rate: its seconds per real second; 0 if paused.
    is_manual: whether it differs from the database's clock.
    """

    now: datetime
    real_now: datetime
    rate: float
    is_manual: bool

    @property
    def is_paused(self) -> bool:
        return self.rate == 0


@dataclass(frozen=True, slots=True)
class Capped:
    """A count that stops at a cap. str() is "5,000+" if it did."""

    value: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}{'+' if self.capped else ''}"

    def __bool__(self) -> bool:
        return self.value > 0


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, in the list's order.

    next_cursor, previous_cursor: pass as `cursor` for the next or previous page; None at either end.
    scanned: rows examined; capped: the search stopped at its cap before the page was full. `next_cursor` then continues it.
    clock:   of the list's namespace; None for lists over several namespaces.
    not_json: rows that match except that their bodies are not JSON, although the filter has conditions on values in JSON.
    """

    rows: tuple[Row, ...]
    next_cursor: str | None
    previous_cursor: str | None
    scanned: int
    capped: bool
    clock: ClockReading | None
    not_json: int = 0


@dataclass(frozen=True, slots=True)
class LinkedMessage:
    """A message that another one became, or from which it was created.

    address None: its entity was deleted long ago. sequence_number None: unknown.
    """

    entity_id: int
    address: EntityAddress | None
    sequence_number: int | None


def require(actor: Actor | None, right: Right, what: EntityAddress | str) -> None:
    (actor or Actor.local()).require(right, what)


def entity_id_of(address: EntityAddress) -> Steps[int]:
    """The id of an entity of any family, uncached, so that deleted entities are not found. Raises EntityNotFound."""
    return (yield from row_of(address)).id


def names_of(entity_ids: Iterable[int]) -> Steps[dict[int, EntityAddress]]:
    """The addresses of entities by id, including deleted ones whose row still exists."""
    rows = yield call("read_entity_names", ids=list(entity_ids))
    return {row.id: EntityAddress(row.namespace_name, row.path) for row in rows}


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Position:
    """The start of a page. number: exclusive bound; due: with it, in a list by due instant. downwards: towards lower numbers, or
    earlier instants. backwards: against the list's order."""

    number: int
    downwards: bool
    backwards: bool
    due: datetime

    @classmethod
    def parse(cls, cursor: str | None, newest_first: bool, *, by_due: bool = False) -> Position:
        """Parse a cursor, "below-7" or "above-7", which means the same in both orders; by_due: "above-7-1700000000000000", with
        the instant in microseconds. Raises InvalidArgument."""
        if cursor is None:
            return cls(2**63 - 1 if newest_first else -1, newest_first, False, _LAST if newest_first else _FIRST)
        side, *numbers = cursor.split("-")
        valid = side in ("below", "above") and len(numbers) == 1 + by_due and all(n.isdecimal() and len(n) <= 18 for n in numbers)
        if not valid:
            raise InvalidArgument("cursor", f"{cursor!r} is not a valid page cursor")
        due = _EPOCH + timedelta(microseconds=int(numbers[1])) if by_due else _FIRST
        return cls(int(numbers[0]), side == "below", (side == "below") != newest_first, due)

    @property
    def is_end(self) -> bool:
        """Whether it is an end of the list."""
        return self.number in (2**63 - 1, -1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def pairs(stored: Mapping[str, list] | None) -> dict[str, tuple[str, str | None]]:
    return {name: (kind, text) for name, (kind, text) in (stored or {}).items()}


def clock_of(row: Any) -> ClockReading:
    return ClockReading(row.now, row.real_now, row.rate, row.is_manual)
