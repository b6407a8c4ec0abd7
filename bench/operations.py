"""An operation over 100,000 messages: its rate, that of its undo, and the share of its rate that a receiver beside it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

from broker_core import operations as core
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind
from broker_core.store import connections
from explorer import operations
from explorer.operations import runner, starting
from explorer.operations.tasks import SLICE_SECONDS

from . import measuring
from .measuring import a_queue, empty, fill, in_processes, receive_and_complete, send, worked

KEPT = 0.7
PAIRS = 3
ACTOR = Actor("user", "bench", Right.ALL)


def run(report) -> None:
    starting.submit = lambda _: None  # it is run here
    messages = measuring.scale.operated
    measuring.make_bare_tables()
    empty()
    queue, other = a_queue(), a_queue()
    fill(queue, messages)
    for kind in (Kind.PURGE, Kind.MOVE):
        options = {"to": other.path} if kind is Kind.MOVE else None
        operation, seconds = _timed(partial(_run, kind, queue, options))
        report.row(f"{kind} {messages:,} messages", operation.done / seconds, "messages/s")
        _, seconds = _timed(partial(_undo, operation))
        report.row(f"undo of that {kind}", operation.done / seconds, "messages/s")
    work = _work(a_queue())
    connections.close_all()  # no connection crosses the fork
    report.row("receiver beside an operation, of its rate alone", median(_kept(work, queue) for _ in range(PAIRS)), "", KEPT)


def _kept(work: Callable[[], float], queue: EntityAddress) -> float:
    """What a sender and receiver keep of their rate while an operation runs beside them, which is then undone."""
    [alone] = in_processes([work])
    return max(in_processes([work, lambda: _beside(queue)])) / alone


def _beside(queue: EntityAddress) -> float:
    operation = operations.start(Kind.PURGE, operations.selection(queue, Family.SERVICE_BUS, "active"), actor=ACTOR)
    ends = time.monotonic() + 2 * measuring.scale.seconds
    while time.monotonic() < ends and runner.run(operation, seconds=0.5):
        pass
    if (now := core.find(operation.id)) and now.is_open:
        core.change(now, "stop", actor=ACTOR)
    _undo(operation)
    return 0.0


def _run(kind: Kind, queue: EntityAddress, options) -> core.Operation:
    chosen = operations.selection(queue, Family.SERVICE_BUS, "active")
    operation = operations.start(kind, chosen, options=options, actor=ACTOR)
    _in_background(operation)
    return core.find(operation.id) or operation


def _undo(operation: core.Operation) -> None:
    core.change(operation, "undo", actor=ACTOR)
    _in_background(operation)


def _in_background(operation: core.Operation) -> None:
    """Run it as a worker does, in tasks of ten seconds."""
    while runner.run(operation, seconds=SLICE_SECONDS):
        pass


def _timed(work: Callable):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def _work(queue: EntityAddress) -> Callable[[], float]:
    """The rate of a sender and receiver of a queue."""

    def exchange() -> int:
        send(queue)
        return receive_and_complete(queue)

    return lambda: worked(exchange, 2 * measuring.scale.seconds)
