"""Lists of entities, page by page, and their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

from .conditions import NumberRange
from .entities import Counts, EntityRow, counts_of, rows_of
from .shared import EXPIRED_CAP_OF_MANY, PAGE_ROWS, Capped, names_of, require


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Conditions on entities. parts: all of them in "namespace/path", with "topic/name" for a subscription (case-insensitive).

    include_hidden: also entities hidden in the overview. include_system: also Vitrine's own. prefix: of the path.
    except_namespaces: their entities are left out. is_paused: whether something is disabled. counts: only of `tree`: columns by
    which it sorts, and the numbers that they may have; "neglected" is 1 for an entity that waits for a receiver, else 0.
    """

    namespace: str | None = None
    kind: EntityKind | None = None
    family: Family | None = None
    parts: tuple[str, ...] = ()
    include_hidden: bool = False
    include_system: bool = False
    prefix: str = ""
    except_namespaces: tuple[str, ...] = ()
    is_paused: bool | None = None
    counts: tuple[NumberRange, ...] = ()

    def parameters(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "kind": None if self.kind is None else str(self.kind),
            "family": None if self.family is None else str(self.family),
            "parts": list(self.parts) or None,
            "hidden": self.include_hidden,
            "system": self.include_system,
            "prefix": self.prefix or None,
            "topic_id": None,
            "except_namespaces": [name.lower() for name in self.except_namespaces],
            "paused": self.is_paused,
        }

    def count_parameters(self) -> dict[str, Any]:
        return {
            "counts": [count.field for count in self.counts] or None,
            "lows": [0 if count.low is None else count.low for count in self.counts],
            "highs": [2**62 if count.high is None else count.high for count in self.counts],
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts and rates of one entity, or the sums of several of the same family and kind whose messages all do, or all do not,
    wait for an operator.

    id:        None: of several. address: of the entity, or of one of them. entities: how many they are.
    neglected: how many have available messages that no receiver has asked for within the last minute.
    The other attributes are those of EntityRow. oldest_active_at: the oldest of all, if it was asked for.
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
    waits_for_operator: bool = False

    @property
    def holds_messages(self) -> bool:
        return self.kind != EntityKind.TOPIC


Counted = EntityRow | Tally


@dataclass(frozen=True, slots=True)
class Tallies:
    """Sums of a list of entities. first_neglected: the addresses of the first five neglected ones, in a tree."""

    rows: tuple[Tally, ...]
    first_neglected: tuple[EntityAddress, ...] = ()

    @property
    def entities(self) -> int:
        return sum(row.entities for row in self.rows)

    @property
    def neglected(self) -> int:
        return sum(row.neglected for row in self.rows)


def _joined(results: list[Tallies]) -> Tallies:
    neglected = tuple(chain.from_iterable(result.first_neglected for result in results))
    return Tallies(tuple(chain.from_iterable(result.rows for result in results)), neglected[:5])


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the table of entities: one entity, or a group of several with a common prefix.

    prefix: of the group's paths; None: one entity. parts: its sums by kind. is_open: whether `children` are shown, the ids of
    its entities in order, as many as were asked for. order: the place among all items, for lists of several databases.
    """

    namespace: str
    prefix: str | None
    parts: tuple[Tally, ...]
    is_open: bool
    children: tuple[int, ...]
    order: tuple[Any, ...]

    @property
    def id(self) -> int | None:
        return self.parts[0].id

    @property
    def entities(self) -> int:
        return sum(part.entities for part in self.parts)


@dataclass(frozen=True, slots=True)
class Tree:
    """A page of the table of entities. count: of all items. totals: of all entities that match. namespaces: the sums of those
    with an item on the page, by name, if it is sorted by name."""

    items: tuple[Item, ...]
    count: int
    totals: Tallies
    namespaces: Mapping[str, tuple[Tally, ...]] = field(default_factory=dict)


def _joined_trees(results: list[Tree]) -> Tree:
    items = sorted(chain.from_iterable(result.items for result in results), key=lambda item: item.order)
    namespaces = {name: sums for result in results for name, sums in result.namespaces.items()}
    return Tree(tuple(items), sum(result.count for result in results), _joined([result.totals for result in results]), namespaces)


@use_case(namespace="filter", combine=_joined)
def tallies(filter: EntityFilter = EntityFilter(), *, actor: Actor | None = None) -> Steps[Tallies]:
    """The sums of the entities that match. The cost of an entity is some microseconds."""
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    params = filter.parameters() | {"with_oldest": False, "expired_cap": EXPIRED_CAP_OF_MANY}
    rows = yield Atomically(_summed("read_tallies", params))
    return Tallies(tuple(_tally(row) for row in rows))


@use_case(namespace="filter", combine=_joined_trees)
def tree(
    filter: EntityFilter = EntityFilter(),
    *,
    sort: str = "name",
    grouped: bool = True,
    toggled: Sequence[str] = (),
    open_below: int = PAGE_ROWS,
    first: int = 0,
    limit: int = PAGE_ROWS,
    max_children: int = PAGE_ROWS,
    with_oldest: bool = False,
    actor: Actor | None = None,
) -> Steps[Tree]:
    """A page of the entities that match, grouped by the beginning of their names, with the sums of each group and of all.

    sort: "name", "attention" (what needs an operator), or a count; with a minus in descending order. toggled: groups, as
    "namespace/prefix", that are open though there are more than open_below entities, or closed though there are fewer.
    max_children: of an open group. with_oldest: also the oldest messages, for which each entity with messages is looked at. Of
    each database, if there are several.
    """
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    name = sort.removeprefix("-")
    params = filter.parameters() | {
        "with_oldest": with_oldest or name == "oldest",
        "expired_cap": EXPIRED_CAP_OF_MANY,
        "within": filter.prefix,
        "sort": name,
        "descending": sort.startswith("-"),
        "grouped": grouped,
        "toggled": list(toggled),
        "open_below": open_below,
        "first": first,
        "max_count": limit,
        "max_children": max_children,
        **filter.count_parameters(),
    }
    rows = yield Atomically(_summed("read_tree", params))
    totals = [row for row in rows if row.level == 0]
    places: dict[int, list[Any]] = {}
    namespaces: dict[str, tuple[Tally, ...]] = {}
    for row in rows:
        if row.level == 3:
            namespaces[row.namespace_name] = (*namespaces.get(row.namespace_name, ()), _tally(row))
        elif row.level:
            places.setdefault(row.place, []).append(row)
    items = sorted((_item(place, params["descending"]) for place in places.values()), key=lambda item: item.order)
    return Tree(tuple(items), totals[0].items if totals else 0, (yield from _totals(totals)), namespaces)


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
    rows_by_id = {row.id: row for row in (yield from rows_of(list(ids)))}
    return [rows_by_id[entity_id] for entity_id in ids if entity_id in rows_by_id]


def _summed(name: str, params: dict[str, Any]) -> Steps[list[Any]]:
    yield call("prepare_for_sums")
    return (yield call(name, **params))


def _totals(rows: Sequence[Any]) -> Steps[Tallies]:
    first = rows[0].first_neglected if rows else []
    names = yield from names_of(first)
    return Tallies(tuple(_tally(row) for row in rows), tuple(names[entity_id] for entity_id in first if entity_id in names))


def _item(rows: list[Any], descending: bool) -> Item:
    """The item of the rows with its place: its own, one for each of its parts, and those of its children."""
    own = [row for row in rows if row.level == 1]
    first, sign = own[0], -1 if descending else 1
    order = (first.place * sign,) if first.value is None else (first.value * sign,)
    return Item(
        namespace=first.namespace_name,
        prefix=first.prefix_of_group,
        parts=tuple(_tally(row) for row in own),
        is_open=first.is_open,
        children=tuple(row.id for row in rows if row.level == 2),
        order=(*order, first.namespace_name.lower(), first.place),
    )


def _tally(row: Any) -> Tally:
    return Tally(
        id=row.id,
        address=EntityAddress(row.namespace_name, row.path),
        kind=EntityKind(row.kind),
        family=Family(row.family),
        entities=row.entities,
        neglected=row.neglected,
        counts=counts_of(row),
        expired_pending=Capped(row.expired_pending, row.expired_found > row.expired_pending),
        expired_leased=row.expired_leased,
        expired_delayed=row.expired_delayed,
        sent_rate=row.sent / row.seconds,
        completed_rate=row.completed / row.seconds,
        oldest_active_at=row.oldest_active_at,
        waits_for_operator=row.waits_for_operator,
    )
