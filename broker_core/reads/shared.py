"""What the reads share: caps, pages of rows, positions, and who may look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.runtime.entity_cache import row_of
from broker_core.store.driver import Steps
from broker_core.store.statements import call

PAGE_ROWS = 50
EXPIRED_CAP = 1_000  # for one entity; a line among many counts no further than the next
EXPIRED_CAP_OF_MANY = 100
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A namespace's clock as read at one instant.

    now:  by this clock; real_now: by the database's. rate: its seconds per real second; 0 where it is paused.
    is_manual: whether it is anything but the database's clock.
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
    """A number that was counted no further than a cap. str() is "5,000+" where it was."""

    value: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}{'+' if self.capped else ''}"

    def __bool__(self) -> bool:
        return self.value > 0


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, in the list's order.

    next_cursor, previous_cursor: pass as `cursor` to turn the page; None at either end.
    scanned: rows looked at to find these; capped: looking stopped at the cap before the page was full. `next_cursor` then
             continues the search where it stopped.
    clock:   of the list's namespace, as read; None for lists over several namespaces.
    """

    rows: tuple[Row, ...]
    next_cursor: str | None
    previous_cursor: str | None
    scanned: int
    capped: bool
    clock: ClockReading | None


@dataclass(frozen=True, slots=True)
class LinkedMessage:
    """A message that another one became, or was made from.

    address None: its entity was deleted long ago. sequence_number None: not known.
    """

    entity_id: int
    address: EntityAddress | None
    sequence_number: int | None


def require(actor: Actor | None, right: Right, what: EntityAddress | str) -> None:
    (actor or Actor.local()).require(right, what)


def entity_id_of(address: EntityAddress) -> Steps[int]:
    """Of whatever family, and as it is now: a page shows no entity that has been deleted."""
    return (yield from row_of(address)).id


def names_of(entity_ids: Iterable[int]) -> Steps[dict[int, EntityAddress]]:
    """Addresses of entities by id, deleted ones included as long as their row is kept."""
    rows = yield call("read_entity_names", ids=list(entity_ids))
    return {row.id: EntityAddress(row.namespace_name, row.path) for row in rows}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page begins. number: exclusive bound. downwards: towards lower numbers. backwards: against the list's order."""

    number: int
    downwards: bool
    backwards: bool

    @classmethod
    def parse(cls, cursor: str | None, newest_first: bool) -> Position:
        """Cursors read "below-7" and "above-7", so that they mean the same in both orders."""
        if cursor is None:
            return cls(2**63 - 1 if newest_first else -1, newest_first, False)
        side, _, number = cursor.partition("-")
        if side not in ("below", "above") or not number.isdecimal() or len(number) > 18:
            raise InvalidArgument("cursor", f"{cursor!r} is not a valid page cursor")
        return cls(int(number), side == "below", (side == "below") != newest_first)


def pairs(stored: Mapping[str, list] | None) -> dict[str, tuple[str, str | None]]:
    return {name: (kind, text) for name, (kind, text) in (stored or {}).items()}


def clock_of(row: Any) -> ClockReading:
    return ClockReading(row.now, row.real_now, row.rate, row.is_manual)
