"""Operations for operators: clear a queue, release or remove single messages, requeue from a poison queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from broker_core.common.arguments import require_reason, whole_numbers
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.queue_storage.rules.errors import QueueNotFound
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.messages import check_put
from broker_core.queue_storage.rules.names import REQUEUED, requeued_to
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import authorize, one_row, queue_exists, run_on_queue


@use_case
def clear(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """Remove every message that was in the queue when the call began, even if delayed or leased. Returns how many (QS-064).

    Works in batches, each in its own transaction, so that a large queue cannot time out (QS-065).
    """
    actor = actor or Actor.local()
    authorize(actor, Right.OPERATE if actor.rights & Right.OPERATE else Right.MANAGE, address)
    purged = {"actor": str(actor), "kind": int(EventKind.PURGED)}

    def attempt(queue: CachedEntity) -> Steps:
        bounds = yield call("storage_bounds", entity_id=queue.id)
        if not bounds:
            return None
        total, from_number = 0, bounds[0].first
        while True:
            batch = {"from_number": from_number, "below": bounds[0].next_number, "max_count": BATCH}
            (row,) = yield (yield from ending("storage_clear", queue.id, **batch, **purged))
            total += row.done
            if row.last_number is None:
                return total
            from_number = row.last_number + 1

    return (yield from run_on_queue(address, attempt))


@use_case
def release(
    address: EntityAddress, sequence_numbers: Sequence[int], *, reason: str | None = None, actor: Actor | None = None
) -> Steps:
    """Make invisible messages visible now, each with a new receipt; their holders get PopReceiptMismatch.

    Returns the numbers of the released messages; the others were visible, expired or not in the queue. reason: for the messages'
    history.
    """
    actor = authorize(actor, Right.OPERATE, address)
    require_reason(reason)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_release", entity_id=queue.id, numbers=numbers, actor=str(actor), reason=reason)
        return (yield from _numbers(queue, rows))

    return (yield from run_on_queue(address, attempt))


@use_case
def remove(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps:
    """Remove messages in any state, without a receipt. Returns the numbers of the removed messages."""
    actor = authorize(actor, Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        how = {"numbers": numbers, "actor": str(actor), "kind": int(EventKind.PURGED)}
        rows = yield (yield from ending("storage_remove", queue.id, **how))
        return (yield from _numbers(queue, rows))

    return (yield from run_on_queue(address, attempt))


@use_case
def requeue_poison(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    *,
    time_to_live: timedelta | None = DEFAULT_LIFE,
    actor: Actor | None = None,
) -> Steps:
    """Move messages of a poison queue back to the queue they came from, or, if they were put or requeued here, to the queue that
    this one is named after. Leased messages stay.

    They become new messages with their own time-to-live and a record of their origin (QS-109). Returns old number -> new number.
    Raises QueueNotFound, and moves nothing, if a queue they came from does not exist.
    """
    actor = authorize(actor, Right.OPERATE, address)
    check_put(timedelta(0), time_to_live)
    numbers = whole_numbers(sequence_numbers)
    params = {"actor": str(actor), "reason": REQUEUED, "time_to_live": time_to_live}

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_origins", entity_id=queue.id, numbers=numbers)
        numbers_by_path: dict[str, list[int]] = {}
        for row in rows:
            numbers_by_path.setdefault(_origin(address, row.resubmitted_from), []).append(row.sequence_number)
        targets = {}
        for path in numbers_by_path:
            targets[path] = (yield from one_row(EntityAddress(address.namespace, path), "storage_bounds")).entity_id
        answer: dict[int, int] = {}
        for path, group in numbers_by_path.items():
            moved = yield call("storage_move", entity_id=queue.id, target_id=targets[path], numbers=group, **params)
            answer |= {row.old_number: row.new_number for row in moved}
        return answer if rows or (yield from queue_exists(queue.id)) else None

    return (yield from run_on_queue(address, attempt))


@use_case
def move(
    address: EntityAddress, sequence_numbers: Sequence[int], to: str | None = None, *, actor: Actor | None = None
) -> Steps[tuple[dict[int, list[tuple[int, int]]], dict[int, str]]]:
    """Move messages to another queue of the account, or, without `to`, each to the queue that it came from, as `requeue_poison`
    does; leased ones stay. Returns where each is now, as (entity id, number), and why others stayed. Messages that are leased or
    gone are in neither. Raises QueueNotFound for `to`."""
    actor = authorize(actor, Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_origins", entity_id=queue.id, numbers=numbers)
        groups: dict[str, list[int]] = {}
        why: dict[int, str] = {}
        for row in rows:
            path = to or requeued_to(address.path, row.resubmitted_from)
            if path is None:
                why[row.sequence_number] = "it has no recorded origin; move it to a queue of your choice"
            elif path == address.path:
                why[row.sequence_number] = "it came from this queue"
            else:
                groups.setdefault(path, []).append(row.sequence_number)
        copies: dict[int, list[tuple[int, int]]] = {}
        for path, group in groups.items():
            try:
                target = yield from one_row(EntityAddress(address.namespace, path), "storage_bounds")
            except QueueNotFound:
                if to:
                    raise
                why |= dict.fromkeys(group, f"the queue {path} no longer exists")
                continue
            moved = yield call(
                "storage_move",
                entity_id=queue.id,
                target_id=target.entity_id,
                numbers=group,
                actor=str(actor),
                reason=REQUEUED,
                time_to_live=DEFAULT_LIFE,
            )
            copies |= {row.old_number: [(target.entity_id, row.new_number)] for row in moved}
        return (copies, why) if rows or (yield from queue_exists(queue.id)) else None

    return (yield from run_on_queue(address, attempt))


def _origin(address: EntityAddress, came_from: Mapping | None) -> str:
    name = requeued_to(address.path, came_from)
    if name is None:
        raise InvalidArgument("address", f"'{address}' is not a poison queue, and its messages do not record their origin")
    if name == address.path:
        raise QueueNotFound(name)
    return name


def _numbers(queue: CachedEntity, rows: list) -> Steps:
    """The sequence numbers of rows; None if the queue does not exist."""
    if not rows and not (yield from queue_exists(queue.id)):
        return None
    return [row.sequence_number for row in rows]
