"""Protection of entities of all families from deletion, their visibility, and the history of their settings."""

from __future__ import annotations

from collections.abc import Collection

from broker_core.common.errors import EntityNotFound, EntityProtected
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.runtime.entity_cache import row_of
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .namespaces import changeable_namespace


@use_case
def set_protected(address: EntityAddress, protected: bool, *, actor: Actor | None = None) -> Steps[None]:
    """Protect an entity from being deleted by anyone, or no longer. Expiry of an idle entity is not affected.

    Raises EntityNotFound.
    """
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)

    def steps() -> Steps[None]:
        entity_id = (yield from row_of(address)).id
        if not (yield call("set_protected", entity_id=entity_id, protected=bool(protected))):
            raise EntityNotFound(str(address))
        yield from record_revisions([entity_id], actor)

    yield Atomically(steps())


@use_case
def hide_entities(namespace: str, *, actor: Actor | None = None) -> Steps[None]:
    """Hide all present entities of a namespace in the pages about all namespaces. Raises EntityNotFound."""
    target = yield from changeable_namespace(namespace, actor)
    yield call("hide_entities", namespace_id=target.id)


def require_unprotected(entity_ids: Collection[int]) -> Steps[None]:
    """Raise EntityProtected if one of these entities, or a subscription of one, is protected. In the transaction that deletes
    them, after their rows were locked."""
    rows = yield call("protected_entities", entity_ids=list(entity_ids))
    if rows:
        raise EntityProtected(f"{row.namespace}/{row.path}" for row in rows)


def record_revisions(entity_ids: Collection[int], actor: Actor) -> Steps[None]:
    """Keep the settings of these entities, in the transaction that changed them."""
    yield call("record_revisions", entity_ids=list(entity_ids), actor=str(actor))
