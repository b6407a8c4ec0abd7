"""Tidying: what is due on an entity, applied by receives to their own entity and by the sweeps to all."""

from __future__ import annotations

from typing import Any

from broker_core.semantics.types import SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

TIDY_BATCH = 500  # messages a receive moves out of its way at most


def tidy(entity_id: int, look: Any, max_count: int = TIDY_BATCH) -> Steps:
    """Apply a bounded batch of what is due on an entity, as `look` saw it (design D5). Returns how many messages were touched."""
    done = 0
    if look.scheduled:
        done += yield from activate(entity_id, max_count)
    if look.locks:
        done += yield from end_locks(entity_id, max_count)
    if look.expired:
        done += yield from expire(entity_id, look.expiry_mode, max_count)
    return done


def activate(entity_id: int, max_count: int) -> Steps:
    """Put scheduled messages that are due at the end of the queue (SB-047)."""
    (row,) = yield call("activate", entity_id=entity_id, max_count=max_count)
    if row.done and row.waiting:
        yield call("wake", entity_id=entity_id)
    return row.done


def end_locks(entity_id: int, max_count: int) -> Steps:
    """Take back messages whose lock has ended (SB-090, SB-091). max_count: receives whose messages are looked at."""
    (row,) = yield call(
        "end_locks", entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=max_count, expires_deferred=False, properties=None
    )
    if row.done and row.waiting:
        yield call("wake", entity_id=entity_id)
    return row.done


def expire(entity_id: int, expiry_mode: str, max_count: int, from_number: int = 0) -> Steps:
    """Take expired messages away in the manner of the entity (SB-033, SB-034, design D10)."""
    if expiry_mode == "at_head":
        (row,) = yield _expiring("expire_at_head", entity_id, max_count)
        return row.done
    (own,) = yield _expiring("expire", entity_id, max_count)
    (default,) = yield _expiring("expire_by_default", entity_id, max_count, from_number=from_number)
    return own.done + default.done


def advance_head(entity_id: int, subqueue: SubQueue) -> Steps:
    """Raise the bound below which nothing is present, unless another process is at it."""

    def steps():
        if (yield call("take_head", entity_id=entity_id, subqueue=subqueue)):
            yield call("advance_head", entity_id=entity_id, subqueue=subqueue)

    yield Atomically(steps())


def _expiring(name: str, entity_id: int, max_count: int, **params: Any):
    return call(name, entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=max_count, properties=None, **params)
