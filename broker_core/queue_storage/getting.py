"""Get and peek.

Concurrent gets of a process are made together. A get is one statement, starting at the queue's visibility hint. It may be
followed by a refresh of the hint (if it found fewer messages than requested, and periodically), the move of spent messages to the
poison queue, and another get for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

from broker_core.common.types import Actor, EntityAddress, EntityStatus, Right
from broker_core.queue_storage.rules.errors import QueueDisabled
from broker_core.queue_storage.rules.limits import DEFAULT_LEASE
from broker_core.queue_storage.rules.messages import check_count, check_get
from broker_core.runtime.caches import BoundedCache
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.pacing import ROUNDS
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .changing import key_of
from .shared import authorize, run_on_queue
from .tidying import expire_batch, move_poison
from .values import GotMessage, PeekedMessage, got_message, peeked_message

REFRESH_EVERY = 0.5  # seconds between refreshes, per process and queue, while gets find as many messages as requested
CHEAP_REFRESH = 0.005  # seconds; a refresh this fast is repeated whenever a get finds fewer messages than requested
REST_FACTOR = 20  # a slower one (many dead index entries) is not repeated for this many times its duration


class _HintState(NamedTuple):
    """When the next refresh of the hint is due, and until when it is too expensive (monotonic seconds)."""

    due_at: float
    not_before: float


_NO_HINT_STATE = _HintState(0.0, 0.0)
_hint_states = BoundedCache(100_000)  # database and queue -> _HintState


def _release_unclaimed(messages: list[GotMessage], asked: Mapping[str, Any]) -> Steps[None]:
    """Make the messages of a cancelled call visible again; the get is not counted. asked: the arguments of that call."""
    actor = asked.get("actor") or Actor.local()
    key = key_of([(message.message_id, message.pop_receipt) for message in messages])

    def attempt(queue: CachedEntity) -> Steps:
        return (yield call("storage_release_unclaimed", entity_id=queue.id, actor=str(actor), reason=None, **key))

    yield from run_on_queue(asked["address"], attempt)


@use_case(on_cancel=_release_unclaimed)
def get(
    address: EntityAddress, count: int = 1, *, visibility_timeout: timedelta = DEFAULT_LEASE, actor: Actor | None = None
) -> Steps[list[GotMessage]]:
    """Receive up to count (1 to 32) visible messages and make them invisible for visibility_timeout (QS-020, QS-021).

    Returns a list of GotMessage at once, empty if no message is visible. Raises OutOfRangeQueryParameterValue (QS-022, QS-023),
    QueueNotFound (QS-028).
    """
    actor = authorize(actor, Right.LISTEN, address)
    check_get(count, visibility_timeout)
    return (yield from _gets.call((address, actor.holder_label, visibility_timeout), count))


def _get_together(key: tuple[EntityAddress, str, timedelta], counts: Sequence[int]) -> Steps[list[list[GotMessage]]]:
    """The messages of several calls, each of which wants so many: the first call gets the first ones."""
    address, holder, visibility = key
    params = {"holder": holder, "visibility": visibility}
    rows = yield from run_on_queue(address, lambda queue: _get(address, queue.id, sum(counts), params))
    messages = map(got_message, rows)
    return [list(islice(messages, count)) for count in counts]


def _weight(count: int) -> int:
    return _WEIGHT_OF_A_MESSAGE * count


_WEIGHT_OF_A_MESSAGE = 4  # a group gets at most 125 messages: how large they are is not known before
_gets: Gathering[int, list[GotMessage]] = Gathering(_get_together, size_of=_weight)


@use_case
def peek(address: EntityAddress, count: int = 1, *, actor: Actor | None = None) -> Steps[list[PeekedMessage]]:
    """Up to count (1 to 32) messages that a get would return, unchanged: a list of PeekedMessage (QS-035)."""
    authorize(actor, Right.LISTEN, address)
    check_count(count)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_peek", entity_id=queue.id, max_count=count, from_start=False)
        if len(rows) == count:
            return rows
        if not _may_refresh_hint(queue.id):
            return rows if rows or (yield from _exists(address, queue.id)) else None
        hint = yield from _hint_of(address, queue.id)
        if hint is None or not hint.visible:
            return None if hint is None else []
        return (yield call("storage_peek", entity_id=queue.id, max_count=count, from_start=True))

    return [peeked_message(row) for row in (yield from run_on_queue(address, attempt))]


def _get(address: EntityAddress, queue_id: int, count: int, params: dict[str, Any]) -> Steps:
    """The rows; None if the queue does not exist."""
    rows, spent = yield from _get_once(queue_id, count, from_start=False, **params)
    for _ in range(ROUNDS):
        if len(rows) == count:
            break
        if spent:
            yield from move_poison(queue_id)
        elif not _may_refresh_hint(queue_id):
            return rows if rows or (yield from _exists(address, queue_id)) else None
        else:
            hint = yield from _hint_of(address, queue_id, has_messages=bool(rows))
            if hint is None:
                return rows or None
            if hint.expired:
                yield from expire_batch(queue_id)
            if not hint.visible:
                return rows
        more, spent = yield from _get_once(queue_id, count - len(rows), from_start=True, **params)
        if not more and not spent:
            return rows
        rows = [*rows, *more]
    if _hint_refresh_is_due(queue_id):
        yield from _hint_of(address, queue_id, has_messages=bool(rows))
    return rows


def _get_once(queue_id: int, count: int, **params: Any) -> Steps:
    """One get: its rows, and the number of spent messages it met."""
    rows = yield call("storage_get", entity_id=queue_id, max_count=count, **params)
    return [row for row in rows if row.sequence_number is not None], rows[0].spent if rows else 0


def _refresh_hint(queue_id: int) -> Steps:
    """Find the first visible message without the hint and set the hint to it; None if the queue does not exist."""
    began = time.monotonic()
    rows = yield call("storage_refresh_hint", entity_id=queue_id)
    took = time.monotonic() - began
    rest = REST_FACTOR * took
    now = began + took
    _hint_states.keep(_key(queue_id), _HintState(now + max(REFRESH_EVERY, rest), now + rest if took > CHEAP_REFRESH else 0.0))
    return rows[0] if rows else None


def _hint_of(address: EntityAddress, queue_id: int, *, has_messages: bool = False) -> Steps:
    """Refresh the hint. Raises QueueDisabled; not to a call that has messages, which would be lost until their leases end."""
    hint = yield from _refresh_hint(queue_id)
    if hint is not None and not has_messages:
        _require_getting(address, hint.status)
    return hint


def _exists(address: EntityAddress, queue_id: int) -> Steps[bool]:
    """Whether the queue exists: asked when a get returned no rows. Raises QueueDisabled."""
    rows = yield call("storage_bounds", entity_id=queue_id)
    for row in rows:
        _require_getting(address, row.status)
    return bool(rows)


def _require_getting(address: EntityAddress, status: str) -> None:
    """Raise QueueDisabled while gets are paused (QS-926)."""
    if not EntityStatus(status).may_receive:
        raise QueueDisabled(str(address), status, "gets")


def _hint_refresh_is_due(queue_id: int) -> bool:
    return time.monotonic() >= _hint_states.get(_key(queue_id), _NO_HINT_STATE).due_at


def _may_refresh_hint(queue_id: int) -> bool:
    return time.monotonic() >= _hint_states.get(_key(queue_id), _NO_HINT_STATE).not_before


def _key(queue_id: int) -> tuple:
    return connections.current_database(), queue_id
