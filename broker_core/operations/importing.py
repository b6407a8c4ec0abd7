"""Importing: the lines of a file are stored with their operation, and sent from there in batches, each a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .batches import Batch, Outcome, Skip
from .hiding import TAKEN, Places, withdraw
from .records import Operation

# The lines of a batch, by number -> where each message is now, or why it was not sent.
Send = Callable[[Mapping[int, str]], Steps[Mapping[int, Places | Skip]]]


@use_case
def next_lines(namespace: str, operation: Operation, max_count: int) -> Steps[list[int]]:
    """The numbers of the next lines that an import has not processed."""
    rows = yield call("import_next", operation_id=operation.id, after=operation.position, max_count=max_count)
    return [row.line for row in rows]


def send_lines(batch: Batch, send: Send) -> Steps[Outcome]:
    """Send the messages of the batch's lines, and record where they are, so that an undo finds them."""
    which = {"operation_id": batch.operation.id, "lines": list(batch.numbers)}
    rows = yield call("import_lines", **which)
    results = yield from send({row.line: row.content for row in rows})
    sent = {line: places for line, places in results.items() if not isinstance(places, Skip)}
    copies = [json.dumps(list(places)) for places in sent.values()]
    yield call("import_sent", operation_id=batch.operation.id, lines=list(sent), copies=copies)
    return Outcome(len(sent), {line: skip for line, skip in results.items() if isinstance(skip, Skip)})


def recall_imported(operation: Operation, max_count: int, actor: str) -> Steps[tuple[int, dict[int, Skip], int]]:
    """Remove the next imported messages that still wait. Returns how many were removed, why others were not, and the highest line
    that was tried."""
    after = operation.undo_position
    rows = yield call("import_copies", operation_id=operation.id, after=after, max_count=max_count)
    if not rows:
        return 0, {}, after
    places: dict[int, Sequence] = {row.line: row.copies for row in rows}
    removed = yield from withdraw(operation.id, places, actor)
    return len(removed), {line: Skip(TAKEN) for line in places if line not in removed}, rows[-1].line
