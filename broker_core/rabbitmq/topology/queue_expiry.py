"""Queue expiry (x-expires): deletion of a queue after a period without use (RMQ-040 to RMQ-051).

The last use is recorded exactly, and only for queues that can expire. Uses are: a get, even an empty one; a declaration, even
a passive one; the end of the last consumer; a policy change. Not: publishing, connecting, binding, purging, browsing. The
period restarts with the broker, that is, the database server. A queue with consumers does not expire. An expired queue is
deleted at the next use, even if no sweep has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.runtime.entity_cache import forget
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

from .queue_removal import remove_queues
from .vhosts import lock_vhost


def use(address: EntityAddress) -> Steps:
    """Record the use of a queue. Returns its row (id, owner_id), or None if it does not exist or has just expired."""
    rows = yield call("use_queue", vhost=address.namespace, name=address.path)
    if rows and rows[0].is_over and (yield from _delete_unused(rows[0].id, address)):
        rows = []
    return rows[0] if rows else None


def delete_idle(row: Any) -> Steps[bool]:
    """Delete an expired queue found by a sweep (RMQ-045). Returns whether it was still unused. row: entity_id, namespace_name,
    path."""
    return (yield from _delete_unused(row.entity_id, EntityAddress(row.namespace_name, row.path)))


def restart(entity_ids: Sequence[int]) -> Steps[None]:
    """Restart the expiry of these queues: their last consumer ended, or a policy changed (RMQ-043, RMQ-048)."""
    if entity_ids:
        yield call("restart_expiry", entity_ids=list(entity_ids))


def _delete_unused(entity_id: int, address: EntityAddress) -> Steps[bool]:
    """Delete a queue with its messages, which are not dead-lettered, and its bindings (RMQ-040, RMQ-051)."""

    def steps() -> Steps:
        host = yield from lock_vhost(address.namespace)
        yield call("lock_rabbitmq_queue", entity_id=entity_id)
        if not (yield call("lock_unused_queue", entity_id=entity_id)):
            return False
        yield from remove_queues(host.id, [entity_id])
        forget(address)
        return True

    return (yield Atomically(steps()))
