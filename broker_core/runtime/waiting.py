"""Waiting for messages of entities, and waking waiting calls (docs/design.md D8)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from broker_core.store.driver import AfterCommit, Listening, Steps, WaitForMessages
from broker_core.store.statements import call

POLL_SECONDS = 1.0  # between attempts while waiting, if no wake-up arrives
FIRST_POLL_SECONDS = 0.05  # a send already under way when the wait begins may not see the waiting call


def poll_for_messages(take, entity_ids: tuple[int, ...], max_wait_seconds: float) -> Steps:
    """Run `take` until it returns messages of these entities, at most so long; returns its last result."""
    deadline = time.monotonic() + max_wait_seconds

    def steps() -> Steps:
        pause = FIRST_POLL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for entity_id in entity_ids:
                yield call("wait_begins", entity_id=entity_id, seconds=min(left, POLL_SECONDS + 1))
            found = yield from take()
            if found:
                return found
            yield WaitForMessages(entity_ids, min(left, pause))
            pause = POLL_SECONDS
        return (yield from take())

    return (yield Listening(entity_ids, steps()))


def wake(entity_ids: Iterable[int]) -> Steps[None]:
    """Wake the calls that wait for messages of these entities, after the commit (docs/design.md D8)."""
    for entity_id in entity_ids:
        yield AfterCommit(_wake(entity_id))


def _wake(entity_id: int) -> Steps[None]:
    yield call("wake", entity_id=entity_id)
