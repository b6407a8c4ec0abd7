"""Maintenance of storage queues: remove expired messages after the queue's expiry_grace (QS-923), and move spent ones to the
poison queue (QS-105).

Gets are correct without it: they return neither expired (QS-073) nor spent messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.common.types import BROKER, EntityAddress, EventKind, HistoryLevel
from broker_core.queue_storage.rules.errors import AccountNotFound
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.names import SPENT
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, in_batches
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .queues import ensure_target

SPENT_SCAN = 500  # visible messages, in the order of gets, that are checked for spent ones


def is_due(entity: Any) -> bool:
    """Whether a sweep has to visit a queue: messages have expired, or it has a poison queue. entity: a row of
    `entities_with_due`."""
    return entity.expired or "poison_queue" in entity.effective


def expire(entity: Any, deadline: float, pause: Callable[[float], None]) -> Steps:
    """Do everything due on one queue, for a sweep. entity: a row of `entities_with_due`. Returns how many messages it removed or
    moved."""

    def expired() -> Steps:
        done = yield from expire_batch(entity.entity_id)
        return done, done == BATCH

    def spent() -> Steps:
        done = yield from move_poison(entity.entity_id)
        return done, done > 0

    first = yield from move_poison(entity.entity_id)  # these are in the way of gets
    total = first + (yield from in_batches(expired, deadline, pause))
    return total + ((yield from in_batches(spent, deadline, pause)) if first else 0)


def expire_batch(queue_id: int) -> Steps:
    """Remove one batch of messages whose expiry_grace has passed. Returns how many."""
    statement = yield from ending("storage_expire", queue_id, max_count=BATCH, actor=BROKER, kind=int(EventKind.EXPIRED))
    (row,) = yield statement
    return row.done


def move_poison(queue_id: int) -> Steps[int]:
    """Move one batch of spent messages to the poison queue, which is created if it does not exist. Returns how many."""
    for _ in range(2):
        rows = yield call("storage_poison", entity_id=queue_id, max_count=SPENT_SCAN)
        if not rows or rows[0].poison_queue is None or not rows[0].spent:
            return 0
        (row,) = rows
        target = EntityAddress(row.namespace_name, row.poison_queue)
        try:
            target_id = yield from ensure_target(target, HistoryLevel(row.history_level))
        except AccountNotFound:  # deleted with the queue in the meantime
            return 0
        moved = yield call(
            "storage_move_spent",
            entity_id=queue_id,
            target_id=target_id,
            max_count=SPENT_SCAN,
            actor=BROKER,
            reason=SPENT,
            time_to_live=DEFAULT_LIFE,
        )
        if moved:
            return len(moved)
    return 0
