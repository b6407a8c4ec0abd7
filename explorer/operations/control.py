"""Pause, resume, stop and undo operations, and change their pace."""

from __future__ import annotations

from broker_core import operations as core
from broker_core.common.types import Actor
from broker_core.operations import Kind, Operation, State

from . import runner
from .starting import DIRECT, submit


def change(operation: Operation, action: str, *, actor: Actor) -> Operation:
    """Pause, resume, stop or undo an operation. A small undo is done when this returns. Raises NotAllowed if the operation's
    state does not permit it."""
    if operation.kind is Kind.DELETE and action == "undo":
        return core.restore(operation.address.namespace, operation.id, actor=actor)
    changed = core.change(operation, action, actor=actor)
    if changed.state in (State.QUEUED, State.UNDOING):
        if changed.state is State.UNDOING and changed.done <= DIRECT:
            runner.run(changed, seconds=None)
        else:
            submit(changed)
    return core.find(operation.id) or changed


def set_pace(operation: Operation, pace: float | None, *, actor: Actor) -> Operation:
    """Change the pace of an operation that is not over. Raises InvalidArgument for a pace of 0."""
    return core.set_pace(operation, pace, actor=actor)
