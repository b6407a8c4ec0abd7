"""Make the changes that are due on an entity: run by receives for their entity, and by sweeps for all entities."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from broker_core.common.types import BROKER, EntityKind, SubQueue
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, ROUNDS, in_batches, in_rounds
from broker_core.runtime.waiting import wake
from broker_core.store.connections import in_callers_transaction
from broker_core.store.driver import Atomically, Steps, all_or_none, undo
from broker_core.store.statements import call

from .forwarding import as_sent, forward_on, wake_and_forward
from .publishing import SourceMessage, Stored, publish


def tidy(entity_id: int, status: Any) -> Steps:
    """Make the due changes on an entity that `entity_status` reported (docs/design.md D5), and forward messages to it.

    Works in batches, with another one only while they are full, so that a receive never spends long on it and a few receives
    clear a backlog. Returns how many messages were changed.
    """
    return (yield from in_rounds(lambda: _tidy_once(entity_id, status)))[0]


def _tidy_once(entity_id: int, status: Any) -> Steps:
    done = 0
    if status.scheduled:
        done += yield from _activate_due(entity_id, status)
    if status.locks:
        done += (yield from end_expired_locks(entity_id)).done
    if status.expired:
        done += yield from _expire_some(entity_id, status)
    if status.forward_to or status.forward_dead_lettered_messages_to:
        yield from forward_on([entity_id])
    if status.sources:
        done += yield from _forward_from(status.sources)
    return done


def _activate_due(entity_id: int, status: Any) -> Steps:
    """Activate due scheduled messages; those of a subscription wait at its topic (SB-051)."""
    if status.topic_id:
        return (yield from activate(status.topic_id, EntityKind.TOPIC))
    return (yield from activate(entity_id, status.kind))


def _forward_from(sources: Sequence[int]) -> Steps:
    """Forward messages from other entities to here, including scheduled ones that have become due."""
    for source in sources:
        status = yield call("entity_status", entity_id=source)
        if status and status[0].scheduled:
            yield from _activate_due(source, status[0])
    return (yield from forward_on(sources))


def activate(entity_id: int, kind: str) -> Steps:
    """Move a batch of due messages to the end of the queue (SB-047), or publish it (SB-051). Returns how many."""
    if kind == EntityKind.TOPIC:
        return (yield from _publish_due(entity_id))
    (row,) = yield call("activate", entity_id=entity_id, max_count=BATCH)
    if row.done:
        yield from wake([entity_id], row.waiting)
    return row.done


def _publish_due(topic_id: int) -> Steps:
    """Publish due messages. A topic that does not accept messages now keeps them until it does."""

    def steps() -> Steps:
        rows = yield call("take_due_at_topic", entity_id=topic_id, max_count=BATCH)
        if not rows:
            return Stored([])
        origins = [SourceMessage(enqueued_at=row.scheduled_enqueue_at) for row in rows]
        return (yield from publish(topic_id, [as_sent(row) for row in rows], BROKER, origins)) or undo()

    stored = yield from all_or_none(steps())
    if stored is None:
        return 0
    yield from wake_and_forward(stored)
    return len(stored.numbers)


def end_expired_locks(entity_id: int, *, dropped_by: str | None = None) -> Steps:
    """Release a batch of messages whose lock has ended (SB-090, SB-091). dropped_by: end all locks, on behalf of this actor.

    Returns the statement's row; fewer `deadlines` than BATCH mean that there are no more.
    """
    (row,) = yield from _ending(
        "end_locks",
        entity_id,
        subqueue=SubQueue.MAIN,
        max_count=BATCH,
        every_lock=dropped_by is not None,
        actor=dropped_by,
        reason=None,
        expires_deferred=False,
        properties=None,
    )
    if row.done:
        yield from wake([entity_id], row.waiting)
    return row


def end_all_expired_locks(entity_id: int) -> Steps[bool]:
    """Release the messages of all deadlines that have passed. Returns whether none is left, after at most ROUNDS batches."""
    for _ in range(ROUNDS):
        if (yield from end_expired_locks(entity_id)).deadlines < BATCH:
            return True
    return False


def end_locks(entity: Any, deadline: float) -> Steps:
    """Release all messages of an entity whose lock has ended, for a sweep. Returns how many."""
    total, deadlines = 0, BATCH
    while deadlines == BATCH and time.monotonic() < deadline:
        row = yield from end_expired_locks(entity.entity_id)
        total, deadlines = total + row.done, row.deadlines
    return total


def activate_all(entity: Any, deadline: float) -> Steps:
    """Enqueue all due scheduled messages of an entity, for a sweep. Returns how many."""
    total, done = 0, BATCH
    while done == BATCH and time.monotonic() < deadline:
        done = yield from activate(entity.entity_id, entity.kind)
        total += done
    return total


def _expire_some(entity_id: int, status: Any) -> Steps:
    """Dead-letter or drop a batch of expired messages (SB-033, SB-034, SB-037). Returns how many."""
    if status.whole_sessions:
        return (yield from expire_sessions(entity_id, 0)).done
    (own,) = yield from _expiring("expire", entity_id, unflushed=False)
    (default,) = yield from _expiring("expire_by_default", entity_id, from_number=0, unflushed=False)
    return own.done + default.done


def expire(entity: Any, deadline: float, pause: Callable[[float], None]) -> Steps:
    """Dead-letter or drop all expired messages of an entity, for a sweep. entity: a row of `entities_with_due`. Returns how
    many."""

    def paced(batch: Callable[[], Steps]) -> Steps:
        return in_batches(batch, deadline, pause)

    if entity.whole_sessions:
        return (yield from paced(_expired_sessions(entity.entity_id)))
    own = yield from paced(_expired_by_own(entity.entity_id))
    return own + (yield from paced(_expired_by_default(entity.entity_id)))


def _expired_by_own(entity_id: int) -> Callable[[], Steps]:
    def batch() -> Steps:
        (row,) = yield from _expiring("expire", entity_id, unflushed=not in_callers_transaction())
        return row.done, row.done == BATCH

    return batch


def _expired_by_default(entity_id: int) -> Callable[[], Steps]:
    from_number = 0

    def batch() -> Steps:
        nonlocal from_number
        unflushed = not in_callers_transaction()
        (row,) = yield from _expiring("expire_by_default", entity_id, from_number=from_number, unflushed=unflushed)
        from_number = (row.last_number or 0) + 1
        return row.done, row.last_number is not None

    return batch


def _expired_sessions(entity_id: int) -> Callable[[], Steps]:
    from_number = 0

    def batch() -> Steps:
        nonlocal from_number
        row = yield from expire_sessions(entity_id, from_number)
        if not row.done:  # otherwise the same sessions may have more
            from_number = (row.last_number or 0) + 1
        return row.done, row.done > 0 or row.last_number is not None

    return batch


def expire_sessions(entity_id: int, from_number: int) -> Steps:
    """Dead-letter or drop a batch of messages of expired sessions, and update the rows of these sessions, so that they are not
    scanned again. Returns the statement's row."""
    (row,) = yield from _expiring("expire_sessions", entity_id, from_number=from_number)

    def settle() -> Steps:
        free = yield call("lock_unheld_sessions", entity_id=entity_id, session_ids=row.session_ids)
        yield call("reset_sessions", entity_id=entity_id, session_ids=[session.session_id for session in free])

    if row.done:
        yield Atomically(settle())
    return row


def settle_sessions(entity_id: int, after: str | None, max_count: int) -> Steps:
    """Update the rows of stale, unheld sessions among the next max_count by id, in one transaction. Returns how many, and the
    last id scanned, None at the end."""
    (taken,) = yield call("lock_stale_sessions", entity_id=entity_id, after=after, max_count=max_count)
    if taken.session_ids:
        yield call("reset_sessions", entity_id=entity_id, session_ids=taken.session_ids)
    return len(taken.session_ids), taken.last


def _expiring(name: str, entity_id: int, **params: Any) -> Steps[list]:
    return (yield from _ending(name, entity_id, subqueue=SubQueue.MAIN, max_count=BATCH, properties=None, **params))


def _ending(name: str, entity_id: int, **params: Any) -> Steps[list]:
    return (yield (yield from ending(name, entity_id, **params)))
