"""Waiting for messages of entities, and waking who waits (docs/design.md D8)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from broker_core.store.driver import AfterCommit, Listening, Steps, WaitForMessages
from broker_core.store.statements import call

POLL_SECONDS = 1.0  # between looks while waiting; wake-ups come sooner
FIRST_POLL_SECONDS = 0.05  # a send that was under way when the wait began may not know of it


def look_again(take, entity_ids: tuple[int, ...], max_wait_seconds: float) -> Steps:
    """What `patiently` does after a first look, for messages of any of these entities."""
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
    """Tell who waits for messages of these entities, after the commit (docs/design.md D8)."""
    for entity_id in entity_ids:
        yield AfterCommit(_wake(entity_id))


def _wake(entity_id: int) -> Steps[None]:
    yield call("wake", entity_id=entity_id)
