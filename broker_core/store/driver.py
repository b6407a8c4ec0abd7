"""Runs use cases. A use case is a generator that yields what it needs done and receives the rows (docs/design.md D12), so it is
written once and run by a synchronous and an asynchronous driver, both below.

It yields
- a Statement: run by itself, committed at once; the value is its list of rows,
- Atomically(steps): the statements of another generator in one transaction; the value is what that generator returns,
- AfterCommit(steps): steps that belong to no transaction; inside one they run once it is committed, else at once,
- Listening(steps): steps that may wait, run while wake-ups for these entities are received; the value is what they return,
- WaitForMessages, inside Listening: sleep until somebody sends to one of the entities or the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import update_wrapper
from inspect import signature
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

import psycopg
from psycopg.rows import namedtuple_row

from . import connections
from .failures import TRANSIENT, UNSTORABLE, is_unstorable, refusal, translated, unstorable
from .statements import Statement

P = ParamSpec("P")
T = TypeVar("T")
Steps = Generator[Any, Any, T]  # what a use case is when called; `Steps[Page]` returns a Page in the end, a bare `Steps` anything
WAKE_CHANNEL = "vitrine_wake"
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Atomically:
    """Steps to run in one transaction. No waiting inside."""

    steps: Steps


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """Steps to run once the transaction around them is committed, not at all if it is not; without one, at once.

    waits_for_callers: for a transaction of the caller's, too, as they tell others what is in it. Other steps are a part of that.
    """

    steps: Steps
    waits_for_callers: bool = False


@dataclass(frozen=True, slots=True)
class Listening:
    """Steps during which no wake-up of these entities is missed, from before the first step on."""

    entity_ids: tuple[int, ...]
    steps: Steps


@dataclass(frozen=True, slots=True)
class WaitForMessages:
    """Wait at most `seconds` for a wake-up. Ends early without one now and then: look again."""

    entity_ids: tuple[int, ...]
    seconds: float


class UseCase(Generic[P, T]):
    """A use case as callers see it: `send(...)` runs now, on this thread's connection; `await send.aio(...)` on the process's
    pool; `send.steps(...)` is the generator, to be composed with `yield from`."""

    def __init__(self, steps: Callable[P, Steps[T]]):
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self.steps(*args, **kwargs))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        from .aio import run as run_async

        return await run_async(self.steps(*args, **kwargs))


class Taking(UseCase[P, T]):
    """A use case that takes something for its caller. Where awaiting it is cancelled it comes to its end first, or to its next
    wait for messages, and what it took is given back: nothing is left with nobody."""

    def __init__(self, steps: Callable[P, Steps[T]], give_back: Callable[[Any, Mapping[str, Any]], Steps]):
        super().__init__(steps)
        self._give_back = give_back

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        from . import aio

        async def give_back(taken: T) -> None:
            await aio.run(self._give_back(taken, signature(self.steps).bind(*args, **kwargs).arguments))

        return await aio.to_its_end(super().aio(*args, **kwargs), left_behind=give_back)


def use_case(steps: Callable[P, Steps[T]]) -> UseCase[P, T]:
    """Make a generator function callable."""
    return UseCase(steps)


def use_case_that_takes(
    give_back: Callable[[Any, Mapping[str, Any]], Steps],
) -> Callable[[Callable[P, Steps[T]]], Taking[P, T]]:
    """Make a generator function callable that takes something, as Taking says.

    give_back: the steps that give back what was taken; gets it, and the arguments of the call by name.
    """
    return lambda steps: Taking(steps, give_back)


def run(steps: Steps[T]) -> T:
    """Drive steps to their end on this thread's connection. Raises BrokerError for what the database refuses."""
    with translated():
        return _drive(steps, connections.current())


def _drive(steps: Steps, connection: psycopg.Connection, later: list[AfterCommit] | None = None) -> Any:
    """later: inside a transaction, where to put what is to run after it."""
    with closing(steps):  # also when the thread is interrupted
        try:
            step = next(steps)
            while True:
                try:
                    value = _perform(step, connection, later)
                except Exception as exc:
                    step = steps.throw(refusal(exc))  # steps may catch what they were refused, or what ended their transaction
                else:
                    step = steps.send(value)
        except StopIteration as end:
            return end.value


def _perform(step: Any, connection: psycopg.Connection, later: list[AfterCommit] | None) -> Any:
    match step:
        case Statement():
            return _execute(step, connection)
        case Atomically():
            own: list[AfterCommit] = []
            with connection.transaction():
                value = _drive(step.steps, connection, own)
            for after in own:
                _perform(after, connection, later)
            return value
        case AfterCommit() if later is not None:
            return later.append(step)
        case AfterCommit() if step.waits_for_callers and connections.in_callers_transaction():
            return connections.after_callers_commit(lambda: run(step.steps))
        case AfterCommit():
            return _drive(step.steps, connection)
        case Listening():
            return _listen(step, connection)
        case WaitForMessages():
            return _wait(step, connection)
    raise TypeError(f"a use case yielded {step!r}")


def _execute(statement: Statement, connection: psycopg.Connection) -> list:
    """Run one statement. A deadlock changed nothing, so outside a transaction it is simply tried again."""
    for tries_left in reversed(range(_TRIES)):
        try:
            with psycopg.Cursor(connection, row_factory=namedtuple_row) as cursor:
                cursor.execute(statement.sql, statement.params, binary=True)
                return cursor.fetchall() if cursor.rownumber is not None else []
        except UNSTORABLE as exc:
            if not is_unstorable(exc):
                raise
            raise unstorable(exc, statement.params) from exc
        except TRANSIENT:
            if not tries_left or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raise
    raise AssertionError("unreachable")


def _listen(step: Listening, connection: psycopg.Connection) -> Any:
    if connections.in_callers_transaction():
        return _drive(step.steps, connection)
    connection.execute(f"LISTEN {WAKE_CHANNEL}")
    try:
        return _drive(step.steps, connection)
    finally:
        if not connection.closed:
            connection.execute(f"UNLISTEN {WAKE_CHANNEL}")


def _wait(step: WaitForMessages, connection: psycopg.Connection) -> None:
    if connections.in_callers_transaction():
        time.sleep(step.seconds)
        return
    wanted = {str(entity_id) for entity_id in step.entity_ids}
    deadline = time.monotonic() + step.seconds
    while (left := deadline - time.monotonic()) > 0:
        for notification in connection.notifies(timeout=left, stop_after=1):
            if notification.payload in wanted:
                return


class _Undo(Exception):
    """Ends a transaction in which a later step was refused."""


def undo() -> NoReturn:
    """Inside `all_or_none`: end the transaction, so that nothing of it is kept."""
    raise _Undo


def all_or_none(steps: Steps) -> Steps:
    """Steps in one transaction; None if they were undone."""
    try:
        return (yield Atomically(steps))
    except _Undo:
        return None
