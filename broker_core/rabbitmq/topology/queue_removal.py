"""Removing queues and dependent objects in a transaction that holds their virtual host."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.common.types import BROKER, Actor
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .vhosts import delete_idle_exchanges, topology_changed


def remove_queues(namespace_id: int, entity_ids: Sequence[int], actor: Actor | None = None) -> Steps[None]:
    """Delete queues of a locked virtual host with their consumers and bindings, and auto-delete exchanges that lose their last
    binding (RMQ-313, RMQ-353). Consumers that wait for their messages end at once (RMQ-146). actor None: the
    broker itself."""
    yield call("rabbit_lock_counters", entity_ids=list(entity_ids))  # in the same order as publishers
    yield call("notify_waiting_consumers", entity_ids=list(entity_ids))
    yield from wake(entity_ids, marked=False)
    lost = yield call("unbind_queues", entity_ids=list(entity_ids))
    yield call("delete_entities", entity_ids=list(entity_ids), actor=str(actor or BROKER))
    exchanges, more = yield from delete_idle_exchanges({row.source_id for row in lost})
    bindings = [*(row.id for row in lost), *more]
    yield from topology_changed(namespace_id, queues=entity_ids, exchanges=exchanges, bindings=bindings)
