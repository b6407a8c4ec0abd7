"""Long work in batches that let others through, and the bound below which an entity has nothing left."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker_core.common.types import SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

BATCH = 500  # messages of one transaction, so that others are let through
ROUNDS = 20  # such batches at most in the way of another operation; a sweep does the rest
HEAD_LAG = 1000  # numbers between a bound and what is received above it that make it worth raising
PAUSE_SHARE = 3.0  # of the time that a sweep's batch took: receivers on other queues keep most of their rate


def in_batches(batch: Callable[[], Steps], deadline: float, pause: Callable[[float], None]) -> Steps:
    """Run batches until the last one, or until the deadline (time.monotonic). Returns how many messages they took away.

    batch: returns how many it took away, and whether there may be more. After each one that did something it pauses, for
    PAUSE_SHARE of its time.
    """
    total, more = 0, True
    while more and time.monotonic() < deadline:
        began = time.monotonic()
        done, more = yield from batch()
        total += done
        if done:
            pause((time.monotonic() - began) * PAUSE_SHARE)
    return total


def in_rounds(batch: Callable[[], Steps]) -> Steps:
    """Run batches as long as they are full, at most ROUNDS of them. batch: returns how many messages it took away.

    Returns how many messages they took away, and whether that was all.
    """
    total = 0
    for _ in range(ROUNDS):
        done = yield from batch()
        total += done
        if done < BATCH:
            return total, True
    return total, False


def advance_head(entity_id: int, subqueue: SubQueue) -> Steps:
    """Raise the bound below which nothing is present, unless another process is at it."""

    def steps() -> Steps:
        if (yield call("take_head", entity_id=entity_id, subqueue=subqueue)):
            yield call("advance_head", entity_id=entity_id, subqueue=subqueue)

    yield Atomically(steps())
