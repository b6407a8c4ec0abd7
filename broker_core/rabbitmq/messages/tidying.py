"""Tidying: removing expired messages and messages over a length limit. Used by deliveries, sweeps and policy changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.types import BROKER, SubQueue
from broker_core.runtime.caches import BoundedCache
from broker_core.runtime.pacing import BATCH, advance_head, in_batches, in_rounds
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call

from .dead_lettering import (
    EXPIRED,
    dead_letter,
    enforce_limits,
    expire_at_head,
    lock_dead_letter_chain,
    lock_departing,
    process_arrivals,
)
from .length_limits import drops_head
from .routing_transaction import RoutingTransaction, transact

SCAN_SECONDS = 0.9  # between scans; waiting consumers poll once a second
MOST_HEADS = 20  # queues per scan

_scanned_at = BoundedCache(1_000)  # database and virtual host -> time of the last scan


def expire(entity: Any, deadline: float, pause: Callable[[float], None]) -> Steps:
    """Remove all expired messages of a queue, for a sweep. entity: with entity_id. Returns how many."""
    queue = next(iter((yield call("rabbit_queues_due", entity_ids=[entity.entity_id]))), None)
    if queue is None:
        return 0

    def batch() -> Steps:
        done = yield from expire_some(queue.namespace_name, queue.path)
        return done, done == BATCH

    return (yield from in_batches(batch, deadline, pause))


def expire_head(entity_id: int) -> Steps:
    """Remove expired messages of a queue in a bounded number of rounds. Returns how many."""
    total = 0
    for queue in (yield call("rabbit_queues_due", entity_ids=[entity_id])):
        total += (yield from in_rounds(partial(expire_some, queue.namespace_name, queue.path)))[0]
    return total


def after_policy(entity_ids: Sequence[int]) -> Steps[None]:
    """Apply a policy change to existing messages: length limits (RMQ-097) and message TTLs (RMQ-902). Runs after the commit of
    an enclosing transaction."""
    yield AfterCommit(_after_policy(list(entity_ids)))


def _after_policy(entity_ids: list[int]) -> Steps[None]:
    for queue in (yield call("rabbit_queues_due", entity_ids=entity_ids)):
        if queue.expired:
            yield from expire_head(queue.entity_id)
        done = BATCH
        while queue.over and done >= BATCH:
            done = yield from enforce_limit(queue.namespace_name, queue.path)
        yield from advance_head(queue.entity_id, SubQueue.MAIN)


def dead_letter_expired_heads(vhost: str) -> Steps:
    """Expire the heads of dead-lettering queues for consumers that wait for their dead letters (RMQ-004, RMQ-920). One scan
    per second and process serves all waiting consumers. Returns how many messages were removed."""
    key, began, total = (connections.current_database(), vhost.lower()), time.monotonic(), 0
    if began < _scanned_at.get(key, -SCAN_SECONDS) + SCAN_SECONDS:
        return 0
    _scanned_at.keep(key, began)
    while time.monotonic() < began + SCAN_SECONDS:
        done = 0
        for queue in (yield call("rabbit_heads_due", vhost=vhost, max_count=MOST_HEADS)):
            done += yield from _expire_unless_busy(vhost, queue.path)
        if not done:
            break
        total += done
        _scanned_at.pop(key, None)  # messages that arrived in other queues may be due soon
    return total


def _expire_unless_busy(vhost: str, name: str) -> Steps:
    """A busy queue is left to its consumers, the next scan and the sweeps."""
    try:
        return (yield from expire_some(vhost, name))
    except BrokerError as refusal:
        if not refusal.retryable:
            raise
        return 0


def clear_head(vhost: str, name: str) -> Steps[bool]:
    """Remove expired messages at the head in a bounded number of rounds. Returns whether all were removed."""
    return (yield from in_rounds(partial(expire_some, vhost, name)))[1]


def expire_some(vhost: str, name: str) -> Steps:
    """Remove a batch of expired messages in one transaction: at the head (RMQ-012), or anywhere in a queue with exact expiry
    (RMQ-901). Returns how many; fewer than BATCH: no more are left."""

    def steps(transaction: RoutingTransaction) -> Steps:
        done = yield from expire_at_head(transaction, name)
        queue = transaction.queue(name)
        if queue is None or done == BATCH:
            return done
        for how in ("anywhere", "by_queue_ttl") if queue.has_priorities else ("anywhere",):
            rows = yield from lock_departing(how, queue, max_count=BATCH)
            yield from process_arrivals(transaction, (yield from dead_letter(transaction, name, rows, EXPIRED)))
            done = BATCH if len(rows) == BATCH else done + len(rows)
        return done

    return (yield from transact(vhost, BROKER, steps))


def enforce_limit(vhost: str, name: str) -> Steps:
    """Remove messages over a queue's length limit in one transaction. Returns how many."""

    def steps(transaction: RoutingTransaction) -> Steps:
        queue = transaction.queue(name)
        if queue is None or not drops_head(queue):
            return 0
        yield from lock_dead_letter_chain(transaction, [name])
        return (yield from enforce_limits(transaction, [name]))

    return (yield from transact(vhost, BROKER, steps))
