"""Exporting: each batch stores the lines of its messages with the operation, from where they are downloaded as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker_core.common.errors import NotAllowed
from broker_core.common.types import Actor, Right
from broker_core.reads.messages import stored
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .batches import Batch, Outcome, Skip
from .hiding import NOT_IN_LIST
from .records import Operation

CHUNK = 4 * 2**20  # of bodies that are read, and stored in a part of the file, at once
MOST_BYTES = 2**30  # of a file, which is in the database for a day


def export_lines(batch: Batch, line: Callable[[Any], str]) -> Steps[Outcome]:
    """Store the lines of the batch's messages, in parts; the messages stay as they are. Raises NotAllowed if the file would have
    more than MOST_BYTES."""
    left, missing = list(batch.numbers), set(batch.numbers)
    while left:
        chosen = batch.operation.selection.address
        messages = yield from stored.steps(chosen, left, max_bytes=CHUNK, actor=batch.actor)
        if not messages:
            break
        numbers = [row.sequence_number for row in messages]
        content = "".join(map(line, messages))
        [file] = yield call("export_store", operation_id=batch.operation.id, last_number=numbers[-1], content=content)
        if file.bytes > MOST_BYTES:
            position = batch.operation.position
            raise NotAllowed(
                f"The file would have more than {MOST_BYTES // 2**20:,} MB. It has the messages up to number {position}; "
                f"export the later ones with number>{position} in the filter."
            )
        left = [number for number in left if number > numbers[-1]]
        missing -= set(numbers)
    return Outcome(len(batch.numbers) - len(missing), dict.fromkeys(missing, Skip(NOT_IN_LIST)))


@use_case
def _next_part(namespace: str, operation: Operation, after: int, *, actor: Actor) -> Steps[tuple[int, str] | None]:
    """The part of an export's file after the one that ends with this number. None: there are no more."""
    actor.require(Right.BROWSE | Right.SEE_BODIES, operation.address)
    rows = yield call("export_part", operation_id=operation.id, after=after)
    return (rows[0].last_number, rows[0].content) if rows else None


def exported_lines(operation: Operation, *, actor: Actor) -> Iterator[str]:
    """The file of an export: its parts, each of whole lines. Raises NotAuthorized without Right.BROWSE and Right.SEE_BODIES; at
    its end NotAllowed, if the file was deleted meanwhile, so that a part is never taken for the whole."""
    actor.require(Right.BROWSE | Right.SEE_BODIES, operation.address)
    return _parts(operation, actor)


def _parts(operation: Operation, actor: Actor) -> Iterator[str]:
    number = lines = 0
    while (part := _next_part(operation.address.namespace, operation, number, actor=actor)) is not None:
        number, content = part
        lines += content.count("\n")
        yield content
    if lines != operation.done:
        raise NotAllowed(
            f"The file of operation {operation.id} was deleted while it was read: {lines:,} of {operation.done:,} messages were "
            "sent. Export the messages again."
        )
