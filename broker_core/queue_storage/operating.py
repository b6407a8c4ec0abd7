"""What operators do beyond the wire: clear, release and remove single messages, bring poison back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from broker_core.common.arguments import whole_numbers
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.queue_storage.rules.errors import QueueNotFound
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.messages import check_put
from broker_core.queue_storage.rules.names import REQUEUED, requeued_to
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.pacing import BATCH
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import may, on_queue, one_row, there


@use_case
def clear(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """Remove every message that was there when it began, delayed and leased ones too, and say how many (QS-064).

    In batches, each its own transaction, so a large queue is no reason to give up (QS-065).
    """
    actor = actor or Actor.local()
    may(actor, Right.OPERATE if actor.rights & Right.OPERATE else Right.MANAGE, address)
    purged = {"actor": str(actor), "kind": int(EventKind.PURGED)}

    def attempt(queue: CachedEntity) -> Steps:
        bounds = yield call("storage_bounds", entity_id=queue.id)
        if not bounds:
            return None
        total, from_number = 0, bounds[0].first
        while True:
            (row,) = yield call(
                "storage_clear",
                entity_id=queue.id,
                from_number=from_number,
                below=bounds[0].next_number,
                max_count=BATCH,
                **purged,
            )
            total += row.done
            if row.last_number is None:
                return total
            from_number = row.last_number + 1

    return (yield from on_queue(address, attempt))


@use_case
def release(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps:
    """Make invisible messages visible now, each with a new receipt: who held one gets PopReceiptMismatch.

    Returns the numbers of those that were released; the others were visible, expired or gone.
    """
    actor = may(actor, Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_release", entity_id=queue.id, numbers=numbers, actor=str(actor))
        return (yield from _numbers(queue, rows))

    return (yield from on_queue(address, attempt))


@use_case
def remove(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps:
    """Remove messages without a receipt, whatever they are. Returns the numbers of those that were there."""
    actor = may(actor, Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_remove", entity_id=queue.id, numbers=numbers, actor=str(actor), kind=int(EventKind.PURGED))
        return (yield from _numbers(queue, rows))

    return (yield from on_queue(address, attempt))


@use_case
def requeue_poison(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    *,
    time_to_live: timedelta | None = DEFAULT_LIFE,
    actor: Actor | None = None,
) -> Steps:
    """Move messages of a poison queue back to the queue they came from, or, where they were put or requeued here, to the one that
    this is named after. Those that a consumer holds stay.

    They are new messages with a life of their own, which name what they were (QS-109). Returns old number -> new number. Raises
    QueueNotFound if a queue they came from is gone: then nothing is moved.
    """
    actor = may(actor, Right.OPERATE, address)
    check_put(timedelta(0), time_to_live)
    numbers = whole_numbers(sequence_numbers)
    params = {"actor": str(actor), "reason": REQUEUED, "time_to_live": time_to_live}

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_origins", entity_id=queue.id, numbers=numbers)
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(_origin(address, row.resubmitted_from), []).append(row.sequence_number)
        targets = {}
        for path in found:
            targets[path] = (yield from one_row(EntityAddress(address.namespace, path), "storage_bounds")).entity_id
        answer: dict[int, int] = {}
        for path, group in found.items():
            moved = yield call("storage_move", entity_id=queue.id, target_id=targets[path], numbers=group, **params)
            answer |= {row.old_number: row.new_number for row in moved}
        return answer if rows or (yield from there(queue.id)) else None

    return (yield from on_queue(address, attempt))


def _origin(address: EntityAddress, came_from: Mapping | None) -> str:
    name = requeued_to(address.path, came_from)
    if name is None:
        raise InvalidArgument("address", f"'{address}' is not a poison queue, and its messages do not record their origin")
    if name == address.path:
        raise QueueNotFound(name)
    return name


def _numbers(queue: CachedEntity, rows: list) -> Steps:
    """None if the queue is gone."""
    if not rows and not (yield from there(queue.id)):
        return None
    return [row.sequence_number for row in rows]
