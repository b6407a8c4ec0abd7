"""One batch of an undo: what it returns or recalls, and the operation's progress, commit together or not at all."""

from __future__ import annotations

from dataclasses import replace

from broker_core.store.driver import Atomically, Steps
from broker_core.store.use_cases import use_case

from .batches import Skip, hold, noted, write
from .hiding import recall
from .importing import recall_imported
from .records import Kind, Operation

NOT_UNDONE = "not undone: "  # begins the reason for which a message was not undone


@use_case
def undo_batch(namespace: str, token: str, operation: Operation, max_count: int, actor: str) -> Steps[tuple[Operation, bool]]:
    """Undo the next messages of an operation and write the progress, in one transaction. Returns the operation with its progress,
    and whether there may be more to undo. Raises ClaimLost."""

    def steps() -> Steps[tuple[Operation, bool]]:
        yield from hold(token, operation)
        if operation.kind is Kind.IMPORT:
            done, left, last = yield from recall_imported(operation, max_count, actor)
        else:
            done, left, last = yield from recall(operation.id, operation.entity_id, operation.undo_position, max_count, actor)
        listed, reasons = noted(operation, {number: Skip(f"{NOT_UNDONE}{skip.why}") for number, skip in left.items()})
        after = replace(operation, undone=operation.undone + done, undo_position=last, listed=listed, reasons=reasons)
        yield write(after)
        return after, last > operation.undo_position

    return (yield Atomically(steps()))
