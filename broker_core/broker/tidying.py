"""Tidying: what is due on an entity, applied by receives to their own entity and by the sweeps to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core.semantics.types import EntityKind, SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call

from .forwarding import afterwards, as_sent, forward_on
from .publishing import Origin, Stored, publish
from .shared import BROKER, all_or_none, undo, wake

TIDY_BATCH = 500  # messages that are moved out of a receive's way in one transaction
TIDY_ROUNDS = 20  # such batches at most for one receive


def tidy(entity_id: int, look: Any, max_count: int = TIDY_BATCH) -> Steps:
    """Apply what is due on an entity, as `look` saw it (design D5), and fetch what is to be forwarded to it.

    In batches, further ones only as long as they are full: so a receive is never long at it, and a few receives clear what would
    else be walked past again and again. Returns how many messages were touched.
    """
    total = 0
    for _ in range(TIDY_ROUNDS):
        done = yield from _tidy_once(entity_id, look, max_count)
        total += done
        if done < max_count:
            break
    return total


def _tidy_once(entity_id: int, look: Any, max_count: int) -> Steps:
    done = 0
    if look.scheduled:
        done += yield from _activate_seen(entity_id, look, max_count)
    if look.locks:
        done += yield from end_locks(entity_id, max_count)
    if look.expired:
        done += yield from expire(entity_id, look, max_count)
    if look.forward_to or look.forward_dead_lettered_messages_to:
        yield from forward_on([entity_id])
    if look.sources:
        done += yield from _fetch(look.sources, max_count)
    return done


def _activate_seen(entity_id: int, look: Any, max_count: int) -> Steps:
    """What a subscription receives late waits at its topic (SB-051)."""
    if look.topic_id:
        return (yield from activate(look.topic_id, EntityKind.TOPIC, max_count))
    return (yield from activate(entity_id, look.kind, max_count))


def _fetch(sources: Sequence[int], max_count: int) -> Steps:
    """What other entities forward to here, what has just come due there included."""
    for source in sources:
        look = yield call("look", entity_id=source)
        if look and look[0].scheduled:
            yield from _activate_seen(source, look[0], max_count)
    return (yield from forward_on(sources))


def activate(entity_id: int, kind: str, max_count: int) -> Steps:
    """Put scheduled messages that are due at the end of the queue (SB-047), or publish them (SB-051)."""
    if kind == EntityKind.TOPIC:
        return (yield from _publish_due(entity_id, max_count))
    (row,) = yield call("activate", entity_id=entity_id, max_count=max_count)
    if row.done and row.waiting:
        yield from wake([entity_id])
    return row.done


def _publish_due(topic_id: int, max_count: int) -> Steps:
    """A topic that takes no messages now keeps what is due until it does."""

    def steps() -> Steps:
        rows = yield call("due_at_topic", entity_id=topic_id, max_count=max_count)
        if not rows:
            return Stored([])
        origins = [Origin(enqueued_at=row.scheduled_enqueue_at) for row in rows]
        return (yield from publish(topic_id, [as_sent(row) for row in rows], BROKER, origins)) or undo()

    stored = yield from all_or_none(steps())
    if stored is None:
        return 0
    yield from afterwards(stored)
    return len(stored.numbers)


def end_locks(entity_id: int, max_count: int) -> Steps:
    """Take back messages whose lock has ended (SB-090, SB-091). max_count: receives whose messages are looked at."""
    row = yield from take_back(entity_id, max_count)
    return row.done


def take_back(entity_id: int, max_count: int, *, dropped_by: str | None = None) -> Steps:
    """End locks: those whose time is over, or, where somebody drops them, all. Returns the row of what was done."""
    (row,) = yield call(
        "end_locks",
        entity_id=entity_id,
        subqueue=SubQueue.MAIN,
        max_count=max_count,
        every_lock=dropped_by is not None,
        actor=dropped_by,
        expires_deferred=False,
        properties=None,
    )
    if row.done and row.waiting:
        yield from wake([entity_id])
    return row


def expire(entity_id: int, look: Any, max_count: int, from_number: int = 0) -> Steps:
    """Take expired messages away in the manner of the entity (SB-033, SB-034, SB-037, design D10)."""
    if look.whole_sessions:
        return (yield from expire_sessions(entity_id, max_count, from_number)).done
    if look.expiry_mode == "at_head":
        (row,) = yield _expiring("expire_at_head", entity_id, max_count)
        return row.done
    (own,) = yield _expiring("expire", entity_id, max_count)
    (default,) = yield _expiring("expire_by_default", entity_id, max_count, from_number=from_number)
    return own.done + default.done


def expire_sessions(entity_id: int, max_count: int, from_number: int) -> Steps:
    """Take away messages of sessions whose life is over, and bring those sessions up to date: nobody is to look at them again for
    what is gone. Returns the statement's row."""
    (row,) = yield _expiring("expire_sessions", entity_id, max_count, from_number=from_number)

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


def advance_head(entity_id: int, subqueue: SubQueue) -> Steps:
    """Raise the bound below which nothing is present, unless another process is at it."""

    def steps() -> Steps:
        if (yield call("take_head", entity_id=entity_id, subqueue=subqueue)):
            yield call("advance_head", entity_id=entity_id, subqueue=subqueue)

    yield Atomically(steps())


def _expiring(name: str, entity_id: int, max_count: int, **params: Any):
    return call(name, entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=max_count, properties=None, **params)
