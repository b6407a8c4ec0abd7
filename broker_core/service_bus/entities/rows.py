"""Find and lock the rows of entities."""

from __future__ import annotations

from typing import Any

from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .kinds import Entity, from_row


def entity_row(address: EntityAddress) -> Steps:
    """The row of the entity of this address. Raises EntityNotFound."""
    rows = yield call("get_entity", namespace=address.namespace, path=address.path)
    return _first(rows, address)


def lock_entity(address: EntityAddress, kind: EntityKind | None) -> Steps:
    """Lock an entity's row, and that of a subscription's topic, until the transaction ends.

    The topic's row is locked first, as in deleting a topic with its subscriptions.
    """
    if address.topic:
        yield call("lock_entity", namespace=address.topic.namespace, path=address.topic.path)
    rows = yield call("lock_entity", namespace=address.namespace, path=address.path)
    return require_kind(from_row(_first(rows, address)), kind)


def require_kind(entity: Entity, kind: EntityKind | None) -> Entity:
    """Return the entity if it is of this kind (None: any). Raises InvalidArgument."""
    if kind not in (None, entity.kind):
        raise InvalidArgument("address", f"'{entity.address}' is a {entity.kind}; a {kind} is required")
    return entity


def fanout_changed(topic_id: int) -> Steps[None]:
    """Raise the topic's rules version, in the transaction of the change, so that both become visible together."""
    yield call("raise_rules_version", topic_id=topic_id)


def _first(rows: list, address: EntityAddress) -> Any:
    if not rows:
        raise EntityNotFound(str(address))
    if rows[0].family != Family.SERVICE_BUS:
        raise NotAllowed(
            f"'{address}' is of the family {rows[0].family}, whose settings differ from those of a Service Bus entity."
        )
    return rows[0]
