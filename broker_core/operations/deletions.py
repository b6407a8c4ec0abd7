"""Deleted entities that can be restored for a while, with their messages (docs/design.md D21).

Deleting soft-deletes an entity: clients see it as deleted and its name is free, but its messages and other rows stay until the
time is over. The deletion is recorded as an operation, whose undo restores the entity.
"""

from __future__ import annotations

import json
from typing import Any

from broker_core.common.arguments import require_storable, whole_numbers
from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.namespaces.namespaces import hold_namespace
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .records import UNDO_TIME, Kind, Operation, Selection, operation_of, why_not_undo


def delete_rows(
    entity_id: int, address: EntityAddress, family: Family, kind: str, actor: Actor, operation_id: int | None
) -> Steps[None]:
    """Delete an entity whose row is locked, in the transaction of its family. operation_id: of the operation that can restore it;
    None: it cannot be restored."""
    rows = yield from delete_entities([entity_id], str(actor), operation_id)
    if operation_id is not None and rows:
        yield call(
            "operation_of_deletion", id=operation_id, actor=str(actor), family=str(family), namespace=address.namespace,
            path=address.path, entity_id=entity_id, selection=json.dumps(Selection(address).as_json()),
            options=json.dumps({"entity": kind}), messages=rows[0].deleted_messages, keep=UNDO_TIME,
        )  # fmt: skip


def require_operation_id(operation_id: int | None) -> None:
    """Raise InvalidArgument unless it is None, or a number."""
    if operation_id is not None:
        whole_numbers([operation_id], "operation_id")


def delete_entities(entity_ids: list[int], actor: str, operation_id: int | None) -> Steps[list[Any]]:
    """Delete entities. operation_id: of the operation that can restore them; None: the deletion is final."""
    return (yield call("delete_entities", entity_ids=entity_ids, actor=actor, operation_id=operation_id, keep=UNDO_TIME))


@use_case
def restore(namespace: str, operation_id: int, *, actor: Actor) -> Steps[Operation]:
    """Restore what an operation deleted: the entity, a topic with its subscriptions. Locks that were held then are ended, as if
    they had expired. Time-to-live continued meanwhile.

    Raises NotAllowed if the time is over, another entity has the name, or the topic of a subscription is gone.
    """

    require_storable("actor", str(actor))

    def steps() -> Steps[Operation]:
        stored = yield call("operation", id=operation_id)
        if not stored:
            raise EntityNotFound(f"operation {operation_id}")
        operation = operation_of(stored[0])
        actor.require(Right.MANAGE, operation.address)
        if operation.kind is not Kind.DELETE or not operation.can_be_undone:
            raise NotAllowed(why_not_undo(operation))
        space = yield from hold_namespace(namespace)
        rows = yield call("soft_deleted_by", operation_id=operation_id)
        _require_restorable(operation, rows)
        ids = [row.entity_id for row in rows]
        (restored,) = yield call("restore_entities", entity_ids=ids)
        yield from definition_of(operation.family).entities_restored(space.name, rows, restored.bindings, actor)
        (row,) = yield call("operation_restored", id=operation_id)
        return operation_of(row)

    operation = yield Atomically(steps())
    yield from wake([operation.entity_id])
    return operation


def _require_restorable(operation: Operation, rows: list[Any]) -> None:
    if not rows:
        raise NotAllowed(why_not_undo(operation))
    for row in rows:
        if row.is_taken:
            name = EntityAddress(operation.address.namespace, row.path)
            raise NotAllowed(f"'{name}' cannot be restored: another entity has this name now. Delete that one first.")
        if row.missing_topic:
            raise NotAllowed(f"'{operation.address}' cannot be restored: its topic '{row.missing_topic}' was deleted.")
