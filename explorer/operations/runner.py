"""Runs operations: claims one, and processes it in batches of one transaction each until it is over, or its time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from broker_core import operations as core
from broker_core.common.errors import BrokerError, EntityDisabled, EntityNotFound, NotAllowed, NotAuthorized, ServerBusy
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, Right
from broker_core.export_format.messages import message_line
from broker_core.operations import UNDO_TIME, Batch, ClaimLost, Kind, Operation, Outcome, Skip, State
from broker_core.store import connections
from broker_core.store.driver import Steps
from explorer.frames.family import pages_of

from .message_files import send
from .patching import patched
from .selecting import next_part

BATCH = 500
BODIES_BATCH = 100  # if bodies are read and written
REST = 1.0  # after a batch in the background, of its duration: receivers beside an operation keep most of their rate
MOST_REST = 0.5  # seconds
TRIES = 6
ENDS = (EntityNotFound, EntityDisabled, NotAllowed, NotAuthorized)  # refusals that concern all messages, not one

Work = Callable[[], Steps[Outcome]]
Move = Callable[[Batch], Any]


def run(operation: Operation, *, seconds: float | None) -> bool:
    """Run an operation for so long, None: until its end. Returns whether something is left for another run, which must be
    requested. Nothing happens if it is paused, over, or run by another worker."""
    with connections.of(operation.address.namespace):
        token = core.claim_token()
        claimed = core.claim(operation.address.namespace, operation.id, token)
        if claimed is None:
            return False
        deadline = None if seconds is None else time.monotonic() + seconds
        step = _undo_step if claimed.state is State.UNDOING else _step
        with suppress(ClaimLost):
            return _until_over(claimed, token, step, deadline)
        return False


def _until_over(operation: Operation, token: str, step: Callable, deadline: float | None) -> bool:
    namespace, more = operation.address.namespace, True
    while more:
        began = time.monotonic()
        before = operation
        try:
            operation, more = step(operation, token)
        except BrokerError as problem:
            _fail(operation, token, problem)
            return False
        if not more:
            break
        _wait(before, operation, time.monotonic() - began, rests=deadline is not None)
        if deadline is not None and time.monotonic() >= deadline:
            core.end(namespace, operation, token, operation.state)
            return True
    _finish(operation, token)
    return False


def _finish(operation: Operation, token: str) -> None:
    to = State.UNDONE if operation.state is State.UNDOING else State.DONE
    keep = UNDO_TIME if to is State.UNDONE else operation.kind.retention
    core.end(operation.address.namespace, operation, token, to, keep=keep)


def _fail(operation: Operation, token: str, problem: BrokerError) -> None:
    core.end(
        operation.address.namespace, operation, token, State.FAILED, message=str(problem), keep=operation.kind.retention
    )  # fmt: skip


def _wait(before: Operation, after: Operation, worked: float, *, rests: bool) -> None:
    """Wait as long as the operation's pace gives for what was processed, and in the background as long as the batch took. The
    lease is longer than the longest wait."""
    due = worked + min(MOST_REST, REST * worked) if rests else 0.0
    if after.pace and after.state is State.RUNNING:
        due = max(due, (after.processed - before.processed) / after.pace)
    time.sleep(max(0.0, due - worked))


def _step(operation: Operation, token: str) -> tuple[Operation, bool]:
    """The next batch of an operation."""
    most = BODIES_BATCH if operation.kind in (Kind.REPAIR, Kind.EXPORT) else BATCH
    size = most if operation.pace is None else max(1, min(most, int(operation.pace)))
    part = next_part(operation, size)
    if not part.numbers:
        return _batch(operation, token, part.position, None), not part.at_end
    try:
        operation = _batch(operation, token, part.position, _work(operation, part.numbers))
    except ENDS:
        raise
    except BrokerError as problem:
        if problem.retryable:
            raise
        operation = _one_by_one(operation, token, part.numbers)
        operation = _batch(operation, token, part.position, None)
    return operation, not part.at_end


def _one_by_one(operation: Operation, token: str, numbers: list[int]) -> Operation:
    """A message that is refused must not keep the others of its batch from being processed."""
    for number in numbers:
        try:
            operation = _batch(operation, token, number, _work(operation, [number]))
        except ENDS:
            raise
        except BrokerError as problem:
            if problem.retryable:
                raise
            operation = _batch(operation, token, number, _refused(number, problem))
    return operation


def _batch(operation: Operation, token: str, position: int, work: Work | None) -> Operation:
    """One batch in one transaction, tried again when it met others' locks."""
    for tries_left in reversed(range(TRIES)):
        try:
            return core.run_batch(operation.address.namespace, token, operation, position, work)
        except ServerBusy:
            if not tries_left:
                raise
            time.sleep(0.05 * (TRIES - tries_left))
    raise AssertionError("unreachable")


def _undo_step(operation: Operation, token: str) -> tuple[Operation, bool]:
    for tries_left in reversed(range(TRIES)):
        try:
            return core.undo_batch(operation.address.namespace, token, operation, BATCH, operation.actor)
        except ServerBusy:
            if not tries_left:
                raise
            time.sleep(0.05 * (TRIES - tries_left))
    raise AssertionError("unreachable")


def _refused(number: int, problem: BrokerError) -> Work:
    def work() -> Steps[Outcome]:
        yield from ()
        return Outcome(0, {number: Skip(str(problem), failed=True)})

    return work


def _work(operation: Operation, numbers: list[int]) -> Work:
    kind, _, name = operation.actor.partition(":")
    batch = Batch(operation, numbers, Actor(kind, name, Right.ALL))
    family: Any = pages_of(operation.family).operations  # that the family has the kind was checked at the start
    match operation.kind:
        case Kind.PURGE:
            return lambda: core.hide(batch, include_locked=family.hides_held)
        case Kind.DISCARD:
            return lambda: core.hide(batch, include_locked=family.hides_held, reason="discarded")
        case Kind.ARCHIVE:
            return lambda: core.hide(batch, include_locked=family.hides_held, reason="archived")
        case Kind.RESUBMIT:
            return lambda: _moving(batch, family.resubmit)
        case Kind.MOVE:
            return lambda: _moving(batch, family.move)
        case Kind.REPAIR:
            return lambda: _repairing(batch, family.resubmit, family.largest_body)
        case Kind.RELEASE:
            return lambda: family.release(batch)
        case Kind.IMPORT:
            return lambda: core.send_lines(batch, partial(send, batch, family))
        case Kind.EXPORT:
            part = definition_of(operation.family).transfer
            return lambda: core.export_lines(batch, lambda row: message_line(row, part))
        case Kind.DELETE:
            raise AssertionError("a deletion is done when it is recorded")


def _moving(batch: Batch, move: Move) -> Steps[Outcome]:
    return (yield from core.keeping_originals(batch, lambda: _explained(move, batch)))


def _repairing(batch: Batch, move: Move, largest: int | None) -> Steps[Outcome]:
    def repair(body: bytes) -> bytes:
        return patched(body, batch.operation.options)

    def moved() -> Steps:
        return (yield from core.repaired(batch, repair, largest, partial(_explained, move)))

    return (yield from core.keeping_originals(batch, moved))


def _explained(move: Move, batch: Batch) -> Steps:
    copies, why = yield from move(batch)
    return copies, {number: Skip(text) for number, text in why.items()}
