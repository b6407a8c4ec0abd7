"""Tidying: what is due on an entity, applied by receives to their own entity and by the sweeps to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker_core.common.types import BROKER, EntityKind, SubQueue
from broker_core.runtime.pacing import BATCH, in_batches, in_rounds
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Atomically, Steps, all_or_none, undo
from broker_core.store.statements import call

from .forwarding import afterwards, as_sent, forward_on
from .publishing import SourceMessage, Stored, publish


def tidy(entity_id: int, status: Any) -> Steps:
    """Apply what is due on an entity, as `look` saw it (docs/design.md D5), and fetch what is to be forwarded to it.

    In batches, further ones only as long as they are full: so a receive is never long at it, and a few receives clear what would
    else be walked past again and again. Returns how many messages were touched.
    """
    return (yield from in_rounds(lambda: _tidy_once(entity_id, status)))[0]


def _tidy_once(entity_id: int, status: Any) -> Steps:
    done = 0
    if status.scheduled:
        done += yield from _activate_seen(entity_id, status)
    if status.locks:
        done += (yield from end_expired_locks(entity_id)).done
    if status.expired:
        done += yield from _expire_some(entity_id, status)
    if status.forward_to or status.forward_dead_lettered_messages_to:
        yield from forward_on([entity_id])
    if status.sources:
        done += yield from _fetch(status.sources)
    return done


def _activate_seen(entity_id: int, status: Any) -> Steps:
    """What a subscription receives late waits at its topic (SB-051)."""
    if status.topic_id:
        return (yield from activate(status.topic_id, EntityKind.TOPIC))
    return (yield from activate(entity_id, status.kind))


def _fetch(sources: Sequence[int]) -> Steps:
    """What other entities forward to here, what has just come due there included."""
    for source in sources:
        status = yield call("entity_status", entity_id=source)
        if status and status[0].scheduled:
            yield from _activate_seen(source, status[0])
    return (yield from forward_on(sources))


def activate(entity_id: int, kind: str) -> Steps:
    """Put a batch of due messages at the end of the queue (SB-047), or publish it (SB-051). Returns how many they were."""
    if kind == EntityKind.TOPIC:
        return (yield from _publish_due(entity_id))
    (row,) = yield call("activate", entity_id=entity_id, max_count=BATCH)
    if row.done and row.waiting:
        yield from wake([entity_id])
    return row.done


def _publish_due(topic_id: int) -> Steps:
    """A topic that takes no messages now keeps what is due until it does."""

    def steps() -> Steps:
        rows = yield call("due_at_topic", entity_id=topic_id, max_count=BATCH)
        if not rows:
            return Stored([])
        origins = [SourceMessage(enqueued_at=row.scheduled_enqueue_at) for row in rows]
        return (yield from publish(topic_id, [as_sent(row) for row in rows], BROKER, origins)) or undo()

    stored = yield from all_or_none(steps())
    if stored is None:
        return 0
    yield from afterwards(stored)
    return len(stored.numbers)


def end_expired_locks(entity_id: int, *, dropped_by: str | None = None) -> Steps:
    """Take back a batch of messages whose lock has ended (SB-090, SB-091), or, where somebody drops locks, any lock.

    Returns the statement's row; fewer `deadlines` than BATCH: that was all.
    """
    (row,) = yield call(
        "end_locks",
        entity_id=entity_id,
        subqueue=SubQueue.MAIN,
        max_count=BATCH,
        every_lock=dropped_by is not None,
        actor=dropped_by,
        expires_deferred=False,
        properties=None,
    )
    if row.done and row.waiting:
        yield from wake([entity_id])
    return row


def _expire_some(entity_id: int, status: Any) -> Steps:
    """Take away a batch of what has expired, as the entity wants it (SB-033, SB-034, SB-037). Returns how many."""
    if status.whole_sessions:
        return (yield from expire_sessions(entity_id, 0)).done
    (own,) = yield _expiring("expire", entity_id)
    (default,) = yield _expiring("expire_by_default", entity_id, from_number=0)
    return own.done + default.done


def expire(entity: Any, deadline: float, pause: Callable[[float], None]) -> Steps:
    """All that has expired on an entity, for a sweep. entity: a row of `entities_with_due`. Returns how many messages left."""

    def paced(batch: Callable[[], Steps]) -> Steps:
        return in_batches(batch, deadline, pause)

    if entity.whole_sessions:
        return (yield from paced(_sessions_that_are_over(entity.entity_id)))
    own = yield from paced(_that_are_over(entity.entity_id))
    return own + (yield from paced(_that_are_over_by_default(entity.entity_id)))


def _that_are_over(entity_id: int) -> Callable[[], Steps]:
    def batch() -> Steps:
        (row,) = yield _expiring("expire", entity_id)
        return row.done, row.done == BATCH

    return batch


def _that_are_over_by_default(entity_id: int) -> Callable[[], Steps]:
    from_number = 0

    def batch() -> Steps:
        nonlocal from_number
        (row,) = yield _expiring("expire_by_default", entity_id, from_number=from_number)
        from_number = (row.last_number or 0) + 1
        return row.done, row.last_number is not None

    return batch


def _sessions_that_are_over(entity_id: int) -> Callable[[], Steps]:
    from_number = 0

    def batch() -> Steps:
        nonlocal from_number
        row = yield from expire_sessions(entity_id, from_number)
        if not row.done:  # else the same sessions may have more
            from_number = (row.last_number or 0) + 1
        return row.done, row.done > 0 or row.last_number is not None

    return batch


def expire_sessions(entity_id: int, from_number: int) -> Steps:
    """Take away messages of sessions whose life is over, and bring those sessions up to date: nobody is to look at them again for
    what is gone. Returns the statement's row."""
    (row,) = yield _expiring("expire_sessions", entity_id, from_number=from_number)

    def settle() -> Steps:
        free = yield call("take_free_sessions", entity_id=entity_id, session_ids=row.session_ids)
        yield call("settle_sessions", entity_id=entity_id, session_ids=[session.session_id for session in free])

    if row.done:
        yield Atomically(settle())
    return row


def settle_sessions(entity_id: int, after: str | None, max_count: int) -> Steps:
    """In one transaction: look at the next sessions by id, and bring what nobody holds up to date. Returns how many were not, and
    the last id looked at, None at the end."""
    (taken,) = yield call("take_idle_sessions", entity_id=entity_id, after=after, max_count=max_count)
    if taken.session_ids:
        yield call("settle_sessions", entity_id=entity_id, session_ids=taken.session_ids)
    return len(taken.session_ids), taken.last


def _expiring(name: str, entity_id: int, **params: Any):
    return call(name, entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=BATCH, properties=None, **params)
