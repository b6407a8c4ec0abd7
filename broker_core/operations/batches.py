"""One batch of an operation: what it does to messages, and the operation's progress, commit together or not at all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from broker_core.common.types import Actor
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import use_case

from .records import LEASE, Operation, Place

MOST_LISTED = 200  # skipped messages that are named; all are counted
MOST_REASONS = 50


class ClaimLost(Exception):
    """The operation was paused or stopped, or is claimed by another worker. The batch was rolled back."""


class Skip(NamedTuple):
    """Why a message was skipped. failed: it was tried, and refused."""

    why: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch's messages: how many were done, and why others were not, by number."""

    done: int
    skipped: Mapping[int, Skip] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages of one transaction of an operation. actor: who requested it, with the rights that it was checked for."""

    operation: Operation
    numbers: Sequence[int]
    actor: Actor

    @property
    def place(self) -> Place:
        return self.operation.selection.place


@use_case
def run_batch(
    namespace: str, token: str, operation: Operation, position: int, work: Callable[[], Steps[Outcome]] | None
) -> Steps[Operation]:
    """Run `work` and write the progress, in one transaction. position: the highest number that is processed then. work None: no
    message of this part is concerned. Returns the operation with its progress. Raises ClaimLost."""

    def steps() -> Steps[Operation]:
        pace = yield from hold(token, operation)
        outcome = (yield from work()) if work else Outcome(0)
        after = replace(with_outcome(operation, outcome, position), pace=pace)
        yield write(after)
        return after

    return (yield Atomically(steps()))


def with_outcome(operation: Operation, outcome: Outcome, position: int) -> Operation:
    """The operation after a batch."""
    failed = sum(skip.failed for skip in outcome.skipped.values())
    listed, reasons = noted(operation, outcome.skipped)
    return replace(
        operation,
        done=operation.done + outcome.done,
        skipped=operation.skipped + len(outcome.skipped) - failed,
        failed=operation.failed + failed,
        position=position,
        listed=listed,
        reasons=reasons,
    )


def noted(operation: Operation, skipped: Mapping[int, Skip]) -> tuple[list, dict[str, int]]:
    """The first messages that were skipped, and the counts by reason, with these added."""
    reasons = Counter(operation.reasons)
    for skip in skipped.values():
        reasons[skip.why if skip.why in reasons or len(reasons) < MOST_REASONS else "other reasons"] += 1
    room = MOST_LISTED - len(operation.listed)
    listed = [*operation.listed, *([number, skipped[number].why] for number in sorted(skipped)[: max(0, room)])]
    return listed, dict(reasons)


def hold(token: str, operation: Operation) -> Steps[float | None]:
    """Keep others from changing the operation until the transaction ends. It is done first, so that the batch is not made in
    vain. Returns the pace that is set now. Raises ClaimLost."""
    rows = yield call("operation_hold", id=operation.id, claim=token, state=str(operation.state))
    if not rows:
        raise ClaimLost(f"operation {operation.id} was paused or stopped, or is run by another worker")
    return rows[0].pace


def write(operation: Operation) -> Statement:
    """The statement that writes the progress."""
    return call(
        "operation_progress",
        id=operation.id,
        done=operation.done,
        skipped=operation.skipped,
        failed=operation.failed,
        reasons=json.dumps(dict(operation.reasons)),
        listed=json.dumps(list(operation.listed)),
        position=operation.position,
        undone=operation.undone,
        undo_position=operation.undo_position,
        lease=LEASE,
    )
