"""Runs long work in batches, so that other operations can proceed, and advances the head of a list."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker_core.common.types import SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

BATCH = 500  # messages per transaction
ROUNDS = 20  # maximum number of batches as part of another operation; a sweep does the rest
HEAD_LAG = 500  # distance between where a receive begins and the numbers it finds, from which advancing the bounds pays
SWEEP_SECONDS = 20.0  # maximum duration of a sweep's run; the rest is left to the next one
PAUSE_SHARE = 5.0  # pause after a sweep's batch, in multiples of its duration, so that receivers keep most of their rate


def in_batches(batch: Callable[[], Steps], deadline: float, pause: Callable[[float], None]) -> Steps:
    """Run batches until the last one, or until the deadline (time.monotonic). Returns how many messages they removed.

    batch: returns how many messages it removed, and whether there may be more. After each batch that removed some, `pause` is
    called with PAUSE_SHARE times its duration.
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
    """Run batches as long as they are full, at most ROUNDS. batch: returns how many messages it removed.

    Returns the total number removed, and whether nothing is left to remove.
    """
    total = 0
    for _ in range(ROUNDS):
        done = yield from batch()
        total += done
        if done < BATCH:
            return total, True
    return total, False


def advance_head(entity_id: int, subqueue: SubQueue) -> Steps:
    """Advance the bounds of a list: the number below which it has no message, and the one below which all are locked. Does
    nothing while another process does the same."""

    def steps() -> Steps:
        if (yield call("take_head", entity_id=entity_id, subqueue=subqueue)):
            yield call("advance_head", entity_id=entity_id, subqueue=subqueue, lag=HEAD_LAG)

    yield Atomically(steps())
