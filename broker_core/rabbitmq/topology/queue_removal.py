"""Removing queues and dependent objects in a transaction that holds their virtual host."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from broker_core import operations
from broker_core.common.types import BROKER, Actor, EntityAddress, EntityKind, Family
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .vhosts import delete_idle_exchanges, topology_changed


class Restorable(NamedTuple):
    """A queue that can be restored after its deletion, under the number of an operation."""

    address: EntityAddress
    operation_id: int


def remove_queues(
    namespace_id: int, entity_ids: Sequence[int], actor: Actor | None = None, *, restorable: Restorable | None = None
) -> Steps[None]:
    """Delete queues of a locked virtual host with their consumers and bindings, and auto-delete exchanges that lose their last
    binding (RMQ-313, RMQ-353). Consumers that wait for their messages end at once (RMQ-146). actor None: the
    broker itself. restorable: the only queue can be restored."""
    bindings_before = (yield call("bindings_of_queues", entity_ids=list(entity_ids))) if restorable else []
    yield call("rabbit_lock_counters", entity_ids=list(entity_ids))  # in the same order as publishers
    yield call("notify_waiting_consumers", entity_ids=list(entity_ids))
    yield from wake(entity_ids, marked=False)
    lost = yield call("unbind_queues", entity_ids=list(entity_ids))
    if restorable is None:
        yield from operations.delete_entities(list(entity_ids), str(actor or BROKER), None)
    else:
        kind, by = str(EntityKind.QUEUE), actor or Actor.local("broker")
        yield from operations.delete_rows(entity_ids[0], restorable.address, Family.RABBITMQ, kind, by, restorable.operation_id)
        for row in bindings_before:
            yield call("keep_soft_deleted_bindings", entity_id=row.queue_id, bindings=json.dumps(row.bindings))
    exchanges, more = yield from delete_idle_exchanges({row.source_id for row in lost})
    bindings = [*(row.id for row in lost), *more]
    yield from topology_changed(namespace_id, queues=entity_ids, exchanges=exchanges, bindings=bindings)
