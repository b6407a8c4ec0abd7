"""Waking waiting calls after a commit, and waiting by polling (docs/design.md D8)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from broker_core.common.types import SubQueue
from broker_core.store.driver import AfterCommit, Steps, WaitForSignal
from broker_core.store.signals import Signal
from broker_core.store.statements import call

from .wake_ups import WatchedList, wake_ups, watching

POLL_SECONDS = 1.0  # between attempts while waiting, if no wake-up arrives


def poll_for_messages(take, entity_ids: tuple[int, ...], max_wait_seconds: float) -> Steps:
    """Run `take` until it returns messages of these entities, at most so long; returns its last result."""
    deadline, signal = time.monotonic() + max_wait_seconds, Signal()
    with watching([WatchedList(entity_id) for entity_id in entity_ids], signal.set) as waking:
        while (left := deadline - time.monotonic()) > 0:
            signal.clear()
            messages = yield from take()
            if messages:
                return messages
            for entity_id in entity_ids:
                waking.expect(entity_id)
            yield WaitForSignal(signal, min(left, POLL_SECONDS))
        return (yield from take())


def wake(entity_ids: Iterable[int], marked: bool | Collection[int] = True, *, subqueue: SubQueue | None = None) -> Steps[None]:
    """After the commit, wake the calls that wait for messages of these entities: those of this process, and by a notification
    those of other processes.

    marked: whether other processes wait for them, or for which of them, as the statements report in `waiting`.
    subqueue: the only one of their lists that changed; None if others may have changed.
    """
    entity_ids = list(entity_ids)
    if wake_ups().has_calls:  # one that begins to wait before the commit finds the messages by its first or second check
        yield AfterCommit(_poke(entity_ids, subqueue), waits_for_callers=True)
    for entity_id in entity_ids:
        if marked is True or marked is not False and entity_id in marked:
            yield AfterCommit(_notify(entity_id))


def _poke(entity_ids: list[int], subqueue: SubQueue | None) -> Steps[None]:
    wake_ups().poke(entity_ids, subqueue)
    yield from ()


def _notify(entity_id: int) -> Steps[None]:
    yield call("wake", entity_id=entity_id)
