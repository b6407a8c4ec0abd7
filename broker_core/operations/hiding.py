"""Hiding messages where only an undo finds them, and returning them (docs/design.md D18)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker_core.common.actors import actor_name
from broker_core.common.errors import EntityNotFound
from broker_core.runtime.keeping import ending
from broker_core.runtime.room import require_reserve
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .batches import Batch, Outcome, Skip

Places = Sequence[tuple[int, int]]  # the entities and numbers of a message's copies
Copies = Mapping[int, Places]  # by old number
TAKEN = "already received, held, or published to subscriptions"
NOT_IN_LIST = "no longer in the list: received, expired or removed"


@use_case
def entity_status(namespace: str, entity_id: int) -> Steps[Any]:
    """The entity's family, the highest number assigned so far, its largest message, and the namespace's time. Raises
    EntityNotFound."""
    rows = yield call("operation_entity", entity_id=entity_id)
    if not rows:
        raise EntityNotFound(f"entity {entity_id}")
    return rows[0]


def hide(batch: Batch, *, include_locked: bool = False, reason: str | None = None) -> Steps[Outcome]:
    """Hide the batch's messages. include_locked: locked ones, too, as when a storage queue is cleared."""
    statement = yield from ending(
        "hide",
        batch.operation.entity_id,
        operation_id=batch.operation.id,
        subqueue=batch.place.subqueue,
        states=list(batch.place.states),
        numbers=list(batch.numbers),
        include_locked=include_locked,
        reason=reason,
        actor=batch.operation.actor,
    )
    rows = yield statement
    skipped = {number: Skip(NOT_IN_LIST) for number in batch.numbers}
    done = 0
    for row in rows:
        if row.free:
            del skipped[row.sequence_number]
            done += 1
        else:
            skipped[row.sequence_number] = Skip(f"held by {actor_name(row.locked_by) if row.locked_by else 'a receiver'}")
    return Outcome(done, skipped)


def keeping_originals(batch: Batch, move: Callable[[], Steps[tuple[Copies, Mapping[int, Skip]]]]) -> Steps[Outcome]:
    """Move messages by `move`, and keep the originals so that they can be returned. move: returns the copies of each message that
    was moved, and why others were not. Raises StorageFull: the originals need space until they can no longer be returned."""
    yield from require_reserve(batch.operation.address.namespace)
    which = {"operation_id": batch.operation.id, "numbers": list(batch.numbers)}
    yield call(
        "keep_originals",
        entity_id=batch.operation.entity_id,
        subqueue=batch.place.subqueue,
        states=list(batch.place.states),
        **which,
    )
    copies, why = yield from move()
    yield call("keep_copies", went=list(copies), copies=[json.dumps(list(places)) for places in copies.values()], **which)
    skipped = {number: why.get(number, Skip(NOT_IN_LIST)) for number in batch.numbers if number not in copies}
    return Outcome(len(copies), skipped)


def recall(operation_id: int, entity_id: int, after: int, max_count: int, actor: str) -> Steps[tuple[int, dict[int, Skip], int]]:
    """Return the next hidden messages to their list. Of moved ones, first the copies are removed; where a copy was taken, the
    message stays as it is. Returns how many were returned, why others were not, and the highest number that was tried."""
    rows = yield call("hidden", operation_id=operation_id, after=after, max_count=max_count)
    if not rows:
        return 0, {}, after
    back = {row.sequence_number for row in rows if not row.copies}  # removed, or dropped as a duplicate at its new place
    back |= yield from withdraw(operation_id, {row.sequence_number: row.copies or () for row in rows}, actor)
    done, is_present = 0, True
    if back:
        (row,) = yield call("restore", operation_id=operation_id, entity_id=entity_id, numbers=sorted(back), actor=actor)
        done, is_present = row.done, row.is_present
        if done:
            yield from wake([entity_id], row.waiting)
    if not is_present:
        raise EntityNotFound(f"entity {entity_id}")
    left = {row.sequence_number: Skip(TAKEN) for row in rows if row.sequence_number not in back}
    return done, left, rows[-1].sequence_number


def withdraw(operation_id: int, copies: Copies, actor: str) -> Steps[set[int]]:
    """Remove the copies of messages, of each all or none. Returns the old numbers of those whose copies were removed."""
    moved = [(original, entity, number) for original, places in copies.items() for entity, number in places]
    if not moved:
        return set()
    originals, entity_ids, numbers = (list(column) for column in zip(*moved, strict=True))
    rows = yield call(
        "withdraw", operation_id=operation_id, originals=originals, entity_ids=entity_ids, numbers=numbers, actor=actor
    )
    return {row.original for row in rows}
