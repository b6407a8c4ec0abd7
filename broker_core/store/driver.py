"""Runs use cases. A use case is a generator that yields what it needs done and receives the rows (docs/design.md D12), so it is
written once and run by a synchronous and an asynchronous driver, both below.

It yields
- a Statement: run by itself, committed at once; the value is its list of rows,
- Atomically(steps): the statements of another generator in one transaction; the value is what that generator returns,
- AfterCommit(steps): steps that belong to no transaction; inside one they run once it is committed, else at once,
- Blocking(call): a call that blocks; the value is what it returns,
- Listening(steps): steps that may wait, run while wake-ups for these entities are received; the value is what they return,
- WaitForMessages, inside Listening: sleep until somebody sends to one of the entities or the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial, update_wrapper
from inspect import signature
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

import psycopg
from psycopg.rows import namedtuple_row

from . import connections
from .failures import TRANSIENT, UNSTORABLE, is_unstorable, refusal, translated, unstorable
from .statements import Statement

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
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
class Blocking:
    """A call that blocks on something other than a statement; in an event loop it runs in a thread. The value is its answer."""

    call: Callable[[], Any]


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


OnCancel = Callable[[Any, Mapping[str, Any]], Steps]  # of the answer and the call's arguments by name


class UseCase(Generic[P, T]):
    """A use case as callers see it: `send(...)` runs now, on this thread's connection; `await send.aio(...)` on the process's
    pool; `send.steps(...)` is the generator, to be composed with `yield from`. In a class it is a method.

    on_cancel: if the awaiting task is cancelled, the call runs to completion, or to its next wait for messages, and then these
    steps release what it acquired. None: the call is broken off.
    """

    def __init__(self, steps: Callable[P, Steps[T]], on_cancel: OnCancel | None = None):
        self.steps, self._on_cancel = steps, on_cancel
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self.steps(*args, **kwargs))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        from . import aio

        if (on_cancel := self._on_cancel) is None:
            return await aio.run(self.steps(*args, **kwargs))

        async def release(answer: T) -> None:
            await aio.run(on_cancel(answer, signature(self.steps).bind(*args, **kwargs).arguments))

        return await aio.run_uncancelled(aio.run(self.steps(*args, **kwargs)), left_behind=release)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> UseCase[P, T]: ...
    @overload
    def __get__(self: UseCase[Concatenate[S, Q], T], instance: S, owner: type | None = None) -> Method[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)


class Method(Generic[P, T]):
    """A use case of an instance."""

    def __init__(self, case: UseCase, instance: Any):
        self._case, self._instance = case, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._case(self._instance, *args, **kwargs)

    def steps(self, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return self._case.steps(self._instance, *args, **kwargs)

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._case.aio(self._instance, *args, **kwargs)


def complete_only(answer: Any, arguments: Mapping[str, Any]) -> Steps[None]:
    """For `on_cancel`: the call runs to completion and has acquired nothing."""
    yield from ()


@overload
def use_case(steps: Callable[P, Steps[T]]) -> UseCase[P, T]: ...
@overload
def use_case(*, on_cancel: OnCancel) -> Callable[[Callable[P, Steps[T]]], UseCase[P, T]]: ...
def use_case(steps: Any = None, *, on_cancel: OnCancel | None = None) -> Any:
    """Make a generator function callable, as UseCase says."""
    return partial(UseCase, on_cancel=on_cancel) if steps is None else UseCase(steps)


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
        case Blocking():
            return step.call()
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
