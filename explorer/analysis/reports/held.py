"""The deliveries of a queue as analyses of "what if" need them: how long each was held, and how it ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue

from ..jobs import outcomes
from ..messages import elapsed
from . import stored
from .scope import INSTANT, Range, Scope

LIMIT_REASONS = ("MaxDeliveryCountExceeded", "MaxDequeueCountExceeded", "delivery_limit")
COLUMNS = (
    *("subqueue", "sequence_number", "attempt", "outcome", "received_at", "ended_at", "locked_until", "lock_ended_at"),
    *("renewals", "received_by", "ended_by", "reason", "generated"),
)


def read(scope: Scope) -> pa.Table:
    """The deliveries from the main list that began in the range, whenever they ended, as `judged`. Raises TooManyLives."""
    span = scope.range
    table = stored.attempts(scope, Range(span.start, max(span.end, scope.now)), COLUMNS)
    first, over = pa.array([span.start, span.end], INSTANT)
    inside = pc.and_(pc.greater_equal(table["received_at"], first), pc.less(table["received_at"], over))
    return judged(table.filter(pc.and_(inside, pc.equal(table["subqueue"], int(SubQueue.MAIN)))))


def judged(attempts: pa.Table) -> pa.Table:
    """The attempts in the order of their messages, with

    held_us:   how long the holder had it: until it let go, or if it did not, until the lock ended or the message was taken away.
    lock_us:   the lock at the receipt; NULL: the family's locks do not end by time.
    let_go:    whether the holder ended the delivery, so that held_us is the whole time it needed.
    lost:      whether the lock ended first.
    well, rejected, failed: whether it was the message's last one because it was processed, or rejected by its receiver; or
               whether it counts as a failed delivery. None of these: it was released, deferred, or the message was taken away.
    """
    table = attempts.sort_by([("sequence_number", "ascending"), ("received_at", "ascending")]).combine_chunks()
    outcome, reason = table["outcome"], table["reason"]
    away = _is(outcome, EventKind.DEAD_LETTERED, EventKind.MOVED, EventKind.DROPPED)
    by_limit = pc.and_(away, pc.fill_null(pc.is_in(reason, pa.array(LIMIT_REASONS)), False))
    by_broker = pc.and_(away, pc.fill_null(pc.is_in(reason, pa.array(outcomes.BROKER_REASONS)), False))
    rejected = pc.and_(away, pc.invert(by_broker))
    late = pc.fill_null(pc.greater_equal(table["ended_at"], table["lock_ended_at"]), False)
    own = pc.fill_null(pc.equal(table["ended_by"], table["received_by"]), True)
    settled = _is(outcome, EventKind.COMPLETED, EventKind.ABANDONED, EventKind.DEFERRED)
    let_go = pc.or_(pc.or_(settled, rejected), pc.and_(_is(outcome, EventKind.RELEASED), own))
    let_go = pc.or_(let_go, pc.and_(by_limit, pc.invert(late)))
    lost = pc.or_(_is(outcome, EventKind.LOCK_LOST), pc.and_(late, pc.invert(let_go)))
    received, ended, lock_ended, locked = (
        pc.cast(table[name], pa.int64()) for name in ("received_at", "ended_at", "lock_ended_at", "locked_until")
    )
    until = pc.if_else(let_go, ended, pc.min_element_wise(ended, lock_ended))
    lock = pc.subtract(locked, received)
    columns = {
        "held_us": elapsed(received, until),
        "lock_us": pc.if_else(pc.greater(lock, 0), lock, None),
        "let_go": let_go,
        "lost": lost,
        "well": _is(outcome, EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED),
        "rejected": rejected,
        "failed": pc.or_(pc.or_(_is(outcome, EventKind.ABANDONED), lost), by_limit),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def usual_lock(judged_: pa.Table) -> timedelta | None:
    """The most frequent lock at the receipt; None: locks do not end by time."""
    found = pc.mode(judged_["lock_us"])
    return timedelta(microseconds=found[0]["mode"].as_py()) if len(found) else None


def starts_message(judged_: pa.Table) -> pa.Array:
    """Whether an attempt is the first one of its message here."""
    number = judged_["sequence_number"].combine_chunks()
    if not len(number):
        return pa.array([], pa.bool_())
    return pa.concat_arrays([pa.array([True]), pc.not_equal(number.slice(1), number.slice(0, len(number) - 1))])


def _is(outcome: Any, *kinds: EventKind) -> Any:
    return pc.is_in(outcome, pa.array([int(kind) for kind in kinds], pa.int16()))
