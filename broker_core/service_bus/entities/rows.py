"""Finding an entity's row, or making one, and holding it while it changes."""

from __future__ import annotations

from typing import Any

from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .kinds import Entity, from_row


def entity_row(address: EntityAddress) -> Steps:
    """The row of whatever has this address. Raises EntityNotFound."""
    rows = yield call("get_entity", namespace=address.namespace, path=address.path)
    return _first(rows, address)


def lock_entity(address: EntityAddress, kind: EntityKind | None) -> Steps:
    """An entity that nobody else changes or deletes before the transaction ends; nor its topic, if it is a subscription's.

    The topic's row comes first: deleting a topic takes its subscriptions in that order.
    """
    if address.topic:
        yield call("lock_entity", namespace=address.topic.namespace, path=address.topic.path)
    rows = yield call("lock_entity", namespace=address.namespace, path=address.path)
    return require_kind(from_row(_first(rows, address)), kind)


def require_kind(entity: Entity, kind: EntityKind | None) -> Entity:
    """The entity, if it is what was asked for (None: whatever it is). Raises InvalidArgument."""
    if kind not in (None, entity.kind):
        raise InvalidArgument("address", f"'{entity.address}' is a {entity.kind}; a {kind} is required")
    return entity


def fanout_changed(topic_id: int) -> Steps[None]:
    """In the same transaction as the change, so that whoever sees the one sees the other."""
    yield call("raise_rules_version", topic_id=topic_id)


def _first(rows: list, address: EntityAddress) -> Any:
    if not rows:
        raise EntityNotFound(str(address))
    if rows[0].family != Family.SERVICE_BUS:
        raise NotAllowed(
            f"'{address}' is of the family {rows[0].family}, whose settings differ from those of a Service Bus entity."
        )
    return rows[0]
