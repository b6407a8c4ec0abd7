"""Lists of entities, page by page, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

from .entities import Counts, EntityRow, counts_of, rows_of
from .shared import EXPIRED_CAP_OF_MANY, PAGE_ROWS, Capped, names_of, require


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Conditions on entities. part: of "namespace/path", with "topic/name" for a subscription (case-insensitive).

    include_hidden: also entities hidden in the overview. include_system: also Vitrine's own.
    """

    namespace: str | None = None
    kind: EntityKind | None = None
    family: Family | None = None
    part: str = ""
    include_hidden: bool = False
    include_system: bool = False

    def parameters(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "kind": None if self.kind is None else str(self.kind),
            "family": None if self.family is None else str(self.family),
            "part": self.part or None,
            "hidden": self.include_hidden,
            "system": self.include_system,
            "prefix": None,
            "topic_id": None,
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts and rates of one entity, or the sums of several of the same family and kind whose messages all do, or all do not,
    wait for an operator.

    id:        None: of several. address: of the entity, or of one of them. entities: how many they are.
    neglected: how many have available messages that no receiver has asked for within the last minute.
    The other attributes are those of EntityRow. oldest_active_at: only of one entity.
    """

    id: int | None
    address: EntityAddress
    kind: EntityKind
    family: Family
    entities: int
    neglected: int
    counts: Counts
    expired_pending: Capped
    expired_leased: int
    expired_delayed: int
    sent_rate: float
    completed_rate: float
    oldest_active_at: datetime | None

    @property
    def holds_messages(self) -> bool:
        return self.kind != EntityKind.TOPIC


Counted = EntityRow | Tally


@dataclass(frozen=True, slots=True)
class Tallies:
    """Sums of a list of entities. first_neglected: the addresses of the first five neglected ones."""

    rows: tuple[Tally, ...]
    first_neglected: tuple[EntityAddress, ...]

    @property
    def entities(self) -> int:
        return sum(row.entities for row in self.rows)

    @property
    def neglected(self) -> int:
        return sum(row.neglected for row in self.rows)


def _joined(results: list[Tallies]) -> Tallies:
    neglected = tuple(chain.from_iterable(one.first_neglected for one in results))
    return Tallies(tuple(chain.from_iterable(one.rows for one in results)), neglected[:5])


@use_case(namespace="filter", combine=_joined)
def tallies(filter: EntityFilter = EntityFilter(), *, each: bool = False, actor: Actor | None = None) -> Steps[Tallies]:
    """The sums of the entities that match, or, with `each`, the counts of each of them. Without `each`, the cost of an entity is
    some microseconds."""
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    rows = yield Atomically(_tallies(filter, each))
    first = rows[0].first_neglected if rows else []
    names = yield from names_of(first)
    return Tallies(tuple(_tally(row) for row in rows), tuple(names[one] for one in first if one in names))


@use_case(namespace="filter", combine=by_namespace)
def list_entities(
    filter: EntityFilter, *, first: int = 0, limit: int = PAGE_ROWS, actor: Actor | None = None
) -> Steps[list[EntityRow]]:
    """Some of the entities that match, in the order of `overview`, from place `first` on; of each database, if there are
    several."""
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    ids = yield call("read_listed", **filter.parameters(), first=first, max_count=limit)
    return (yield from rows_of([row.id for row in ids]))


@use_case(namespace=WHOLE_DATABASE)
def entities_by_id(ids: Sequence[int], *, actor: Actor | None = None) -> Steps[list[EntityRow]]:
    """The overview rows of these entities in this order, without those that no longer exist."""
    require(actor, Right.BROWSE, "entities")
    found = {row.id: row for row in (yield from rows_of(list(ids)))}
    return [found[one] for one in ids if one in found]


def _tallies(filter: EntityFilter, each: bool) -> Steps[list[Any]]:
    yield call("prepare_for_sums")
    return (yield call("read_tallies", **filter.parameters(), each=each, with_oldest=each, expired_cap=EXPIRED_CAP_OF_MANY))


def _tally(row: Any) -> Tally:
    return Tally(
        id=row.id,
        address=EntityAddress(row.namespace_name, row.path),
        kind=EntityKind(row.kind),
        family=Family(row.family),
        entities=row.entities,
        neglected=row.neglected,
        counts=counts_of(row),
        expired_pending=Capped(row.expired_pending, row.expired_capped),
        expired_leased=row.expired_leased,
        expired_delayed=row.expired_delayed,
        sent_rate=row.sent_rate,
        completed_rate=row.completed_rate,
        oldest_active_at=row.oldest_active_at,
    )
