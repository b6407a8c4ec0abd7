"""Getting and peeking.

A get is one statement. What may follow it: a look from the beginning, where it found less than was asked for, and now and
then; the move of spent messages; and the rest of the get.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.limits import DEFAULT_LEASE
from broker_core.queue_storage.rules.messages import check_count, check_get
from broker_core.runtime.entity_cache import BoundedCache, CachedEntity
from broker_core.runtime.pacing import ROUNDS
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .changing import key_of
from .shared import may, on_queue, there
from .tidying import expire_batch, move_poison
from .values import GotMessage, PeekedMessage, got_message, peeked_message

LOOK_EVERY = 0.5  # seconds between looks from the beginning, per process and queue, while gets find all that they ask for
CHEAP = 0.005  # a look that took no longer is repeated whenever a get finds less than it asked for
SHARE = 20  # else it is left out for so many times what it took: dead index entries that cannot be removed yet are walked rarely


class _Looked(NamedTuple):
    """Until when a look from the beginning is not due, and until when it is too dear."""

    due_at: float
    not_before: float


_NEVER_LOOKED = _Looked(0.0, 0.0)
_looked = BoundedCache(100_000)  # database and queue -> _Looked


def _give_back(messages: list[GotMessage], asked: Mapping[str, Any]) -> Steps[None]:
    """What was got for a caller who has gone is visible at once, and not counted. asked: the arguments of that call."""
    actor = asked.get("actor") or Actor.local()
    key = key_of([(message.message_id, message.pop_receipt) for message in messages])

    def attempt(queue: CachedEntity) -> Steps:
        return (yield call("storage_give_back", entity_id=queue.id, actor=str(actor), **key))

    yield from on_queue(asked["address"], attempt)


@use_case(on_cancel=_give_back)
def get(
    address: EntityAddress, count: int = 1, *, visibility_timeout: timedelta = DEFAULT_LEASE, actor: Actor | None = None
) -> Steps[list[GotMessage]]:
    """Up to count (1 to 32) visible messages, invisible from now on for visibility_timeout: a list of GotMessage (QS-020,
    QS-021).

    It comes at once, empty where nothing is visible. Raises OutOfRangeQueryParameterValue (QS-022, QS-023), QueueNotFound
    (QS-028).
    """
    actor = may(actor, Right.LISTEN, address)
    check_get(count, visibility_timeout)
    params = {"holder": actor.holder_label, "visibility": visibility_timeout}
    rows = yield from on_queue(address, lambda queue: _get(queue.id, count, params))
    return [got_message(row) for row in rows]


@use_case
def peek(address: EntityAddress, count: int = 1, *, actor: Actor | None = None) -> Steps[list[PeekedMessage]]:
    """Up to count (1 to 32) visible messages as a get would return them, unchanged: a list of PeekedMessage (QS-035)."""
    may(actor, Right.LISTEN, address)
    check_count(count)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_peek", entity_id=queue.id, max_count=count, from_start=False)
        if len(rows) == count:
            return rows
        if not _may_look(queue.id):
            return rows if rows or (yield from there(queue.id)) else None
        look = yield from _look(queue.id)
        if look is None or not look.visible:
            return None if look is None else []
        return (yield call("storage_peek", entity_id=queue.id, max_count=count, from_start=True))

    return [peeked_message(row) for row in (yield from on_queue(address, attempt))]


def _get(queue_id: int, count: int, params: dict[str, Any]) -> Steps:
    """The rows; None if the queue is gone."""
    rows, spent = yield from _take(queue_id, count, from_start=False, **params)
    for _ in range(ROUNDS):
        if len(rows) == count:
            break
        if spent:
            yield from move_poison(queue_id)
        elif not _may_look(queue_id):
            return rows if rows or (yield from there(queue_id)) else None
        else:
            look = yield from _look(queue_id)
            if look is None:
                return rows or None
            if look.expired:
                yield from expire_batch(queue_id)
            if not look.visible:
                return rows
        more, spent = yield from _take(queue_id, count - len(rows), from_start=True, **params)
        if not more and not spent:
            return rows
        rows = [*rows, *more]
    if _is_due(queue_id):
        yield from _look(queue_id)
    return rows


def _take(queue_id: int, count: int, **params: Any) -> Steps:
    """One get: its rows, and how many spent messages it met."""
    rows = yield call("storage_get", entity_id=queue_id, max_count=count, **params)
    return [row for row in rows if row.sequence_number is not None], rows[0].spent if rows else 0


def _look(queue_id: int) -> Steps:
    """What there is from the beginning on, with the hint set anew; None if the queue is gone."""
    began = time.monotonic()
    rows = yield call("storage_look", entity_id=queue_id)
    took = time.monotonic() - began
    rest = SHARE * took
    now = began + took
    _looked.keep(_key(queue_id), _Looked(now + max(LOOK_EVERY, rest), now + rest if took > CHEAP else 0.0))
    return rows[0] if rows else None


def _is_due(queue_id: int) -> bool:
    return time.monotonic() >= _looked.get(_key(queue_id), _NEVER_LOOKED).due_at


def _may_look(queue_id: int) -> bool:
    return time.monotonic() >= _looked.get(_key(queue_id), _NEVER_LOOKED).not_before


def _key(queue_id: int) -> tuple:
    return connections.current_database(), queue_id
