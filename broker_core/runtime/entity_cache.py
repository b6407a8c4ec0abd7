"""Caches of a process, above all the immutable properties of the entities behind addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .caches import BoundedCache


class CachedEntity(NamedTuple):
    """The properties of an entity that never change."""

    id: int
    kind: EntityKind
    family: Family
    requires_session: bool
    requires_duplicate_detection: bool


_entities = BoundedCache(100_000)  # (database, namespace, path) -> CachedEntity


def _key(address: EntityAddress):
    require_kind("address", address, EntityAddress)  # callers often pass a string
    return connections.current_database(), address.namespace.lower(), address.path


def forget(address: EntityAddress) -> None:
    _entities.pop(_key(address), None)


def cached_entity(address: EntityAddress, family: Family) -> Steps[CachedEntity]:
    """The CachedEntity behind an address, from the cache if possible. It may have been deleted since; ids are never reused.

    Raises EntityNotFound; NotAllowed for an entity of another family.
    """
    key = _key(address)
    entity = _entities.get(key)
    if entity is None:
        row = yield from row_of(address)
        flags = row.requires_session, row.requires_duplicate_detection
        entity = _entities.keep(key, CachedEntity(row.id, EntityKind(row.kind), Family(row.family), *flags))
    if entity.family is not family:
        raise NotAllowed(f"'{address}' is of the family {entity.family}, whose operations differ from those of {family}.")
    return entity


def row_of(address: EntityAddress) -> Steps:
    """The current row of the entity behind an address. Raises EntityNotFound."""
    require_kind("address", address, EntityAddress)
    connections.require_same_database(address.namespace)
    rows = yield call("find_entity", namespace=address.namespace, path=address.path)
    if not rows:
        raise EntityNotFound(str(address))
    return rows[0]


def on_entity(address: EntityAddress, attempt: Callable[[CachedEntity], Steps], family: Family) -> Steps:
    """Attempt an operation on an entity. Returns (CachedEntity, result, None), or without a result (CachedEntity, None, status).

    The cached entity may have been deleted. If the attempt has no result, or the entity does not allow it, the address is looked
    up once more. Raises EntityNotFound.
    """
    for is_last in (False, True):
        entity: CachedEntity | None = _entities.get(_key(address))
        was_cached = entity is not None
        if entity is None or entity.family is not family:
            entity = yield from cached_entity(address, family)
            assert entity is not None
        try:
            result = yield from attempt(entity)
        except NotAllowed:
            if is_last or not was_cached:
                raise
            forget(address)
            continue
        if result:
            return entity, result, None
        status = yield call("entity_status", entity_id=entity.id)
        if status:
            return entity, None, status[0]
        forget(address)
        if not was_cached:
            break
    raise EntityNotFound(str(address))
