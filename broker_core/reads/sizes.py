"""How much space the messages of namespaces and entities use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

from .shared import require

MOST_ENTITIES = 10


@dataclass(frozen=True, slots=True)
class NamespaceSize:
    """bytes: of the messages of all its entities, dead letters included. max_size_in_megabytes: None: unlimited. archive_days:
    how many days of its history are archived; None: all."""

    id: int
    name: str
    family: Family
    is_system: bool
    entities: int
    bytes: int
    max_size_in_megabytes: int | None
    archive_days: int | None


@dataclass(frozen=True, slots=True)
class EntitySize:
    """bytes: of all its messages, dead letters included."""

    address: EntityAddress
    bytes: int


def _largest(lists: Iterable[list[EntitySize]]) -> list[EntitySize]:
    return sorted(chain.from_iterable(lists), key=lambda row: -row.bytes)[:MOST_ENTITIES]


@use_case(namespace=WHOLE_DATABASE, combine=by_namespace)
def namespace_sizes(*, actor: Actor | None = None) -> Steps[list[NamespaceSize]]:
    """All namespaces by name."""
    require(actor, Right.BROWSE, "sizes")
    rows = yield call("read_namespace_sizes")
    return [NamespaceSize(**row._asdict() | {"family": Family(row.family)}) for row in rows]


@use_case(namespace=WHOLE_DATABASE, combine=_largest)
def largest_entities(*, actor: Actor | None = None) -> Steps[list[EntitySize]]:
    """The entities whose messages use the most space, at most MOST_ENTITIES."""
    require(actor, Right.BROWSE, "sizes")
    rows = yield call("read_largest_entities", max_count=MOST_ENTITIES)
    return [EntitySize(EntityAddress(row.namespace_name, row.path), row.bytes) for row in rows]
