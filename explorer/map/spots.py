"""Which entities the live map shows: all of them, groups of those whose names begin alike, or the busiest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker_core import reads
from broker_core.common.types import Actor, EntityAddress
from broker_core.reads import Counted, EntityFilter, Flows, Item
from broker_core.store import connections
from explorer import sandbox_names
from explorer.frames import figures
from explorer.frames.family import pages_of
from explorer.frames.presenters import is_neglected

from .graph import Place, Spot

MOST = 60  # entities and groups
MOST_GROUPED = 5_000  # entities; of more, only the busiest are shown


class MapEntry(NamedTuple):
    """A spot of the map with its numbers. address: of the entity; None: it is a group."""

    spot: Spot
    parts: tuple[Counted, ...]
    address: EntityAddress | None


@dataclass(frozen=True, slots=True)
class Spots:
    """What the map shows. entities: how many match. names: of all that it stands for. is_part: the others are too many."""

    entries: tuple[MapEntry, ...]
    entities: int
    names: tuple[reads.Name, ...]
    is_part: bool = False


def find(namespace: str | None, flows: Flows, actor: Actor, *, entities: int, opened: Sequence[str] = ()) -> Spots:
    """The entities of a namespace, or of all but sandboxes; if they are more than MOST, in groups. entities: how many there are,
    about. opened: groups, as "namespace/prefix", whose entities are shown."""
    entity_filter = EntityFilter(namespace=namespace, include_hidden=sandbox_names.may_be_one(namespace))
    if entities <= MOST:
        entries = _of_entities(reads.tree(entity_filter, grouped=False, limit=MOST, with_oldest=True, actor=actor).items)
        return Spots(entries, len(entries), _names(entries))
    if entities <= MOST_GROUPED:
        grouped = reads.tree(
            entity_filter, toggled=opened, open_below=0, limit=MOST + 1, max_children=MOST, with_oldest=True, actor=actor
        )
        if grouped.count <= MOST:
            names = reads.names(namespace=namespace, limit=MOST_GROUPED, actor=actor).matches
            entries = _of_groups(grouped.items, names, actor)
            if len(entries) <= MOST:
                return Spots(entries, grouped.totals.entities, names)
    entries = _busiest(flows, actor)
    return Spots(entries, entities, _names(entries), is_part=True)


def _busiest(flows: Flows, actor: Actor) -> tuple[MapEntry, ...]:
    """The entities with the most recent messages."""
    messages: Counter[tuple[str, int]] = Counter()
    for (namespace, flow), count in flows.counts.items():
        messages[namespace, flow.entity_id] += count
    chosen: dict[str, list[int]] = {}
    for (namespace, entity_id), _ in messages.most_common(MOST):
        chosen.setdefault(namespace, []).append(entity_id)
    entries: list[MapEntry] = []
    for namespace, ids in chosen.items():
        with connections.of(namespace):
            rows = reads.entities_by_id(ids, actor=actor)
        entries += [_entity(row, is_neglected(row)) for row in rows if not row.hidden]
    return tuple(sorted(entries, key=lambda entry: entry.spot.key))


def place_of(name: reads.Name) -> Place:
    return connections.database_of(name.address.namespace), name.id


def _of_entities(items: Sequence[Item]) -> tuple[MapEntry, ...]:
    return tuple(_entity(item.parts[0], bool(item.parts[0].neglected)) for item in items)


def _entity(counted: Counted, is_neglected: bool) -> MapEntry:
    address = counted.address
    place = (connections.database_of(address.namespace), counted.id or 0)
    has_dead = bool(figures.DEAD.of(counted)) and not pages_of(counted.family).needs_a_person(counted)
    key = f"{address.namespace}/{address.path}"
    label = address.name if address.topic else address.path  # the edge from its topic tells the rest
    spot = Spot(key, address.namespace, label, (place,), has_dead=has_dead, is_neglected=is_neglected)
    return MapEntry(spot, (counted,), address)


def _of_groups(items: Sequence[Item], names: Sequence[reads.Name], actor: Actor) -> tuple[MapEntry, ...]:
    entries: list[MapEntry] = []
    opened = [entity_id for item in items if item.is_open for entity_id in item.children]
    rows = {row.id: row for row in reads.entities_by_id(opened, actor=actor)} if opened else {}
    for item in items:
        if item.id is not None:
            entries += _of_entities([item])
        elif item.is_open:
            entries += [
                _entity(rows[entity_id], is_neglected(rows[entity_id])) for entity_id in item.children if entity_id in rows
            ]
        else:
            inside = tuple(place_of(name) for name in names if _is_in(name.address, item))
            dead = any(figures.DEAD.of(part) for part in item.parts)
            spot = Spot(
                f"{item.namespace}/{item.prefix}*", item.namespace, f"{item.prefix}…", inside, is_group=True, has_dead=dead,
                is_neglected=any(part.neglected for part in item.parts),
            )  # fmt: skip
            entries.append(MapEntry(spot, item.parts, None))
    return tuple(entries)


def _is_in(address: EntityAddress, item: Item) -> bool:
    return address.namespace == item.namespace and address.path.lower().startswith((item.prefix or "").lower())


def _names(entries: Sequence[MapEntry]) -> tuple[reads.Name, ...]:
    return tuple(reads.Name(entry.spot.members[0][1], entry.address) for entry in entries if entry.address)
