"""What a process remembers, first of all the entities behind addresses: what never changes about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call


class BoundedCache(dict):
    """What a process remembers, in all its threads: any of them may forget it at any time. With `most` it begins anew, so what
    is gone for good takes no space for ever."""

    def __init__(self, most: int):
        self.most = most

    def keep(self, key: Any, value: Any) -> Any:
        if len(self) >= self.most:
            self.clear()
        self[key] = value
        return value


class CachedEntity(NamedTuple):
    """What never changes about an entity, so it can be remembered."""

    id: int
    kind: EntityKind
    family: Family
    requires_session: bool
    requires_duplicate_detection: bool


_known = BoundedCache(100_000)  # database, namespace and path -> Known


def _key(address: EntityAddress):
    require_kind("address", address, EntityAddress)  # it is a text, most often
    return connections.current_database(), address.namespace.lower(), address.path


def forget(address: EntityAddress) -> None:
    _known.pop(_key(address), None)


def cached_entity(address: EntityAddress, family: Family = Family.SERVICE_BUS) -> Steps:
    """What is known of the entity behind an address, remembered: ids are never used again.

    Raises EntityNotFound; NotAllowed for one of another family, which has operations of its own.
    """
    key = _key(address)
    found = _known.get(key)
    if found is None:
        row = yield from row_of(address)
        flags = row.requires_session, row.requires_duplicate_detection
        found = _known.keep(key, CachedEntity(row.id, EntityKind(row.kind), Family(row.family), *flags))
    if found.family is not family:
        raise NotAllowed(f"'{address}' is of the family {found.family}, whose operations differ from those of {family}.")
    return found


def row_of(address: EntityAddress) -> Steps:
    """The entity behind an address as it is now. Raises EntityNotFound."""
    require_kind("address", address, EntityAddress)
    rows = yield call("find_entity", namespace=address.namespace, path=address.path)
    if not rows:
        raise EntityNotFound(str(address))
    return rows[0]


def entity_id_of(address: EntityAddress) -> Steps:
    """The id behind an address. Raises EntityNotFound."""
    return (yield from cached_entity(address)).id


def on_entity(address: EntityAddress, attempt: Callable[[CachedEntity], Steps], family: Family = Family.SERVICE_BUS) -> Steps:
    """Attempt something on an entity. Returns what is known of it, the answer, and, if there is none, a look at the entity.

    What is remembered may be of an entity deleted since: it is looked up once more where nothing was found, or where it does not
    allow the attempt. Raises EntityNotFound.
    """
    for is_last in (False, True):
        remembered = _key(address) in _known
        entity = yield from cached_entity(address, family)
        try:
            answer = yield from attempt(entity)
        except NotAllowed:
            if is_last or not remembered:
                raise
            forget(address)
            continue
        if answer:
            return entity, answer, None
        status = yield call("entity_status", entity_id=entity.id)
        if status:
            return entity, None, status[0]
        forget(address)
        if not remembered:
            break
    raise EntityNotFound(str(address))
