"""A queue's own life, x-expires: how long it may be unused (RMQ-040 to RMQ-051).

The last use is written exactly, and only for queues that can expire. Uses are: a get, also an empty one; a declaration, also a
passive one; the end of the last consumer; a policy that is applied. Not: publishing, connecting, binding, purging, browsing. The
time begins anew with the broker, which is the database server. Consumers keep a queue alive. Who uses a queue whose time is over
finds it gone, whether or not a sweep was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.runtime.entity_cache import forget
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

from .queue_removal import remove_queues
from .vhosts import hold_vhost


def use(address: EntityAddress) -> Steps:
    """Use a queue. Returns what there is to know of it (id, owner_id), or None: there is none, or it has expired just now."""
    rows = yield call("use_queue", vhost=address.namespace, name=address.path)
    if rows and rows[0].is_over and (yield from _delete_unused(rows[0].id, address)):
        rows = []
    return rows[0] if rows else None


def delete_idle(row: Any) -> Steps[bool]:
    """Delete a queue that a sweep found unused (RMQ-045). Returns whether it still was. row: entity_id, namespace_name, path."""
    return (yield from _delete_unused(row.entity_id, EntityAddress(row.namespace_name, row.path)))


def restart(entity_ids: Sequence[int]) -> Steps[None]:
    """From now on these queues are unused: their last consumer went, or a policy was applied (RMQ-043, RMQ-048)."""
    if entity_ids:
        yield call("restart_expiry", entity_ids=list(entity_ids))


def _delete_unused(entity_id: int, address: EntityAddress) -> Steps[bool]:
    """Its messages go with it and are not dead-lettered; its bindings go (RMQ-040, RMQ-051)."""

    def steps() -> Steps:
        held = yield from hold_vhost(address.namespace)
        yield call("lock_rabbitmq_queue", entity_id=entity_id)
        if not (yield call("lock_unused_queue", entity_id=entity_id)):
            return False
        yield from remove_queues(held.id, [entity_id])
        forget(address)
        return True

    return (yield Atomically(steps()))
