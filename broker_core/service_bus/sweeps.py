"""The background tasks that only Service Bus needs; see broker_core.sweeps for those of all families."""

from __future__ import annotations

import time

from broker_core.common.family import Sweep
from broker_core.common.sweep_refusals import Refusals
from broker_core.runtime.pacing import BATCH, SWEEP_SECONDS
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .messages import forwarding, tidying

SEEN_BATCH = 5_000


@use_case
def forward_messages(*, namespace: str | None = None, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Forward messages whose forwarding failed, or was interrupted, when they were stored (SB-170, SB-178, SB-166), and those
    that a sweep made active or dead-lettered. namespace: only of this one."""
    deadline, total, refusals = time.monotonic() + seconds_at_most, 0, Refusals()
    for entity_id in {row.entity_id: None for row in (yield call("entities_with_transfers", namespace=namespace))}:
        if time.monotonic() < deadline:
            total += yield from forwarding.forward_on([entity_id], refusals)
    return {"forwarded": total} | refusals.outcome()


@use_case(namespace=WHOLE_DATABASE)
def forget_seen_ids(*, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Remove message ids outside the window of duplicate detection (SB-132, SB-137)."""
    deadline, total, done = time.monotonic() + seconds_at_most, 0, SEEN_BATCH
    while done == SEEN_BATCH and time.monotonic() < deadline:
        (row,) = yield call("forget_seen_ids", max_count=SEEN_BATCH)
        done = row.done
        total += done
    return {"forgotten": total}


@use_case(namespace=WHOLE_DATABASE)
def forget_sessions(*, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Process sessions whose lock ended without a close: remove those without messages and state, and set the first number of the
    others (SB-111)."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("session_entities")):
        after = None
        while time.monotonic() < deadline:
            done, after = yield Atomically(tidying.settle_sessions(entity.entity_id, after, BATCH))
            total += done
            if after is None:
                break
    return {"sessions": total}


SWEEPS = (
    Sweep(forward_messages, "Forwarded messages", 2, "Forwards messages that could not be forwarded on send."),
    Sweep(forget_seen_ids, "Duplicate detection", 30, "Removes message ids that are outside the duplicate detection window."),
    Sweep(forget_sessions, "Empty sessions", 30, "Removes sessions that have no messages and no state."),
)
