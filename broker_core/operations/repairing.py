"""Repairing bodies: messages get new bodies where they are, just before the same transaction moves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from broker_core.common.types import BodyKind
from broker_core.runtime.room import require_room
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .batches import Batch, Skip
from .hiding import NOT_IN_LIST, Copies

Move = Callable[[Batch], Steps[tuple[Copies, Mapping[int, Skip]]]]


def repaired(batch: Batch, repair: Callable[[bytes], bytes], largest: int | None, move: Move) -> Steps:
    """Give the batch's messages repaired bodies and move them; those that stay keep their bodies. repair: the new body; a
    ValueError says why there is none. largest: message, in bytes; None: the entity's own limit, as
    for a send. Returns what `move` returns. Only in `keeping_originals`. Raises NamespaceFull, StorageFull: new bodies may be
    larger."""
    operation, place = batch.operation, batch.place
    yield from require_room(operation.address.namespace)
    where = {"entity_id": operation.entity_id, "subqueue": place.subqueue, "states": list(place.states)}
    why = dict.fromkeys(batch.numbers, Skip(f"locked, or {NOT_IN_LIST}"))
    bodies: dict[int, bytes] = {}
    if largest is None:
        (status,) = yield call("operation_entity", entity_id=operation.entity_id)
        largest = status.largest
    for row in (yield call("operation_bodies", numbers=list(batch.numbers), **where)):
        try:
            bodies[row.sequence_number] = _body(row, repair, largest)
            del why[row.sequence_number]
        except ValueError as problem:
            why[row.sequence_number] = Skip(str(problem), failed=True)
    if not bodies:
        return {}, why
    yield call("operation_set_bodies", numbers=list(bodies), bodies=list(bodies.values()), **where)
    copies, left = yield from move(replace(batch, numbers=list(bodies)))
    yield call(
        "operation_repaired", operation_id=operation.id, entity_id=operation.entity_id, subqueue=place.subqueue,
        numbers=list(copies),
    )  # fmt: skip
    if stayed := [number for number in bodies if number not in copies]:
        yield call("operation_reset_bodies", operation_id=operation.id, numbers=stayed, **where)
    return copies, {**why, **left}


def _body(row: Any, repair: Callable[[bytes], bytes], largest: int) -> bytes:
    if BodyKind(row.body_kind) is not BodyKind.DATA:
        raise ValueError("its body is an AMQP value, not bytes")
    body = repair(bytes(row.body))
    if len(body) + row.beside_body > largest:
        raise ValueError(f"with its new body it has {len(body) + row.beside_body:,} bytes; {largest:,} are allowed")
    return body
