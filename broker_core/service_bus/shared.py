"""What Service Bus's use cases share: a statement on an entity, and refusing what cannot be done there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from broker_core.common.errors import EntityDisabled, NotAllowed
from broker_core.common.limits import STRICT
from broker_core.common.types import EntityAddress, EntityKind, EntityStatus, SubQueue
from broker_core.runtime.entity_cache import CachedEntity, entity_id_of, on_entity
from broker_core.service_bus.rules.messages import check_properties_fit
from broker_core.store.driver import Steps
from broker_core.store.statements import call


def on(address: EntityAddress, name: str, **params: Any) -> Steps:
    """Run a statement on an entity. Returns its id, the rows, and, if there are none, a look at the entity."""

    def attempt(entity: CachedEntity) -> Steps:
        return (yield call(name, entity_id=entity.id, subqueue=address.subqueue, **params))

    entity, rows, look = yield from on_entity(address, attempt)
    return entity.id, rows or [], look


def require_properties_fit(address: EntityAddress, numbers: Sequence[int], properties: str | None) -> Steps[None]:
    """Raise MessageTooLarge where one of these messages would have more application properties than may be sent.

    properties: those to be added, as JSON.
    """
    entity_id = yield from entity_id_of(address.main)
    rows = yield call(
        "properties_too_large",
        entity_id=entity_id, subqueue=address.subqueue, numbers=numbers, properties=properties, largest=STRICT.all_properties,
    )  # fmt: skip
    for row in rows:
        check_properties_fit(row.size, row.sequence_number)


def new_ids(count: int) -> list[str]:
    """Random message ids, from one call for all."""
    ids = os.urandom(16 * count).hex()
    return [ids[at : at + 32] for at in range(0, 32 * count, 32)]


def require_receivable(address: EntityAddress, look: Any) -> None:
    """Raise what keeps everybody from receiving: the entity's kind, its status, or that its messages go elsewhere (SB-104,
    SB-171)."""
    if look.kind == EntityKind.TOPIC and address.subqueue is not SubQueue.TRANSFER_DEAD_LETTER:
        raise NotAllowed(f"Cannot receive from the topic {address}; receive from one of its subscriptions.")
    goes_to = {SubQueue.MAIN: look.forward_to, SubQueue.DEAD_LETTER: look.forward_dead_lettered_messages_to}.get(address.subqueue)
    if goes_to:
        raise NotAllowed(f"Cannot receive from {address}: its messages are forwarded to '{goes_to}' (SB-171).")
    if not EntityStatus(look.status).may_receive:
        raise EntityDisabled(str(address), look.status, "receives or settlements")


def require_sendable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_send:
        raise EntityDisabled(str(address), look.status, "sends")
