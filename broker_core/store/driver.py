"""The steps of a use case, and the synchronous driver that runs them; `aio` is the asynchronous one (docs/design.md D12).

A use case is a generator that yields the steps it needs and receives their results, so it is written once for both drivers.
The steps are
- a Statement: runs by itself and is committed at once; its value is the list of rows,
- Batch(statements): runs several in one transaction and one round trip; its value is the list of rows of each,
- Contended(statement): a Statement that others wait for: committed first, flushed afterwards, and answered then,
- Atomically(steps): runs the statements of another generator in one transaction; its value is what that generator returns,
- AfterCommit(steps): runs steps outside any transaction; inside one they run after the commit, otherwise at once,
- Blocking(call): makes a blocking call; its value is what the call returns,
- WaitForSignal: waits until a Signal is set or the time is up. Outside transactions only,
- Gathered(call): makes a call together with concurrent ones (`runtime.gathering`); its value is the call's result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import psycopg
from psycopg.rows import namedtuple_row

from . import connections
from .direct import NotDirect
from .direct import Steps as DirectSteps
from .failures import DATABASE_ERRORS, TRANSIENT, UNSTORABLE, is_unstorable, refusal, translated, unstorable
from .signals import Signal
from .statements import Statement, call, check

T = TypeVar("T")
Steps = Generator[Any, Any, T]  # of a use case; `Steps[Page]` returns a Page, a bare `Steps` anything
_TRIES = 8  # eight receivers that accept sessions of one queue lost four times in a row once in ten thousand


@dataclass(frozen=True, slots=True)
class Batch:
    """Statements that do not depend on each other's rows, to run in one transaction."""

    statements: tuple[Statement, ...]

    @property
    def params(self) -> dict[str, Any]:
        return {name: value for statement in self.statements for name, value in statement.params.items()}


@dataclass(frozen=True, slots=True)
class Contended:
    """A statement that holds a lock which others wait for. It is committed before the log is flushed, so that the lock is free
    during the flush, and its rows are returned after the flush. Inside a transaction it is only the statement.

    entity_id: senders to this entity take turns by an advisory lock; None: they meet at the entity's counter.
    """

    statement: Statement
    entity_id: int | None

    @property
    def params(self) -> dict[str, Any]:
        return self.statement.params

    def parts(self, server_version: int) -> tuple[Statement, Statement, Statement]:
        """The statements of its round trip: the first two are a transaction, the last one flushes the log."""
        before = call("commit_unflushed")
        if self.entity_id is not None:
            before = call("commit_unflushed_in_turn", entity_id=self.entity_id)
        return before, self.statement, call("flush" if server_version >= 170_000 else "flush_by_commit")


@dataclass(frozen=True, slots=True)
class Atomically:
    """Steps to run in one transaction. No waiting inside."""

    steps: Steps


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """Steps to run after the surrounding transaction commits, and not at all if it rolls back; without a transaction, at once.

    waits_for_callers: also wait for the commit of a transaction of the caller's, because the steps report its content to others.
        Other steps run within it.
    """

    steps: Steps
    waits_for_callers: bool = False


@dataclass(frozen=True, slots=True)
class Blocking:
    """A call that blocks on something other than a statement; in an event loop it runs in a thread."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class WaitForSignal:
    """Wait at most `seconds` for a signal. May end early without one, so the caller checks again."""

    signal: Signal
    seconds: float


class Gathers(Protocol):
    """Makes concurrent calls together. drive: runs steps outside a transaction."""

    def separately(self, key: Hashable, argument: Any) -> Steps: ...
    def run(self, key: Hashable, argument: Any, drive: Callable[[Steps], Any]) -> Any: ...
    async def run_aio(self, key: Hashable, argument: Any, drive: Callable[[Steps], Awaitable[Any]]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Gathered:
    """A call that may be made together with concurrent calls of the same key; within a transaction it is made separately."""

    gathering: Gathers
    key: Hashable
    argument: Any


def run(steps: Steps[T]) -> T:
    """Run steps to completion on this thread's connection. Raises BrokerError for what the database refuses."""
    try:
        return _drive(steps, connections.current())
    except DATABASE_ERRORS:
        with translated():
            raise


def _drive(steps: Steps, connection: psycopg.Connection | None, later: list[AfterCommit] | None = None) -> Any:
    """Run steps to completion. later: inside a transaction, collects the steps to run after it."""
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is WaitForSignal and later is None:
                    connection, value = None, None  # the database may end the connection meanwhile
                    step.signal.wait(step.seconds)
                else:
                    connection = connection or connections.current()
                    value = _execute(step, connection) if type(step) is Statement else _perform(step, connection, later)
            except Exception as exc:
                step = steps.throw(refusal(exc))  # steps may catch a refusal, or the exception that ended their transaction
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()  # also if the thread is interrupted


def _perform(step: Any, connection: psycopg.Connection, later: list[AfterCommit] | None) -> Any:
    match step:
        case Gathered() if later is not None or connections.in_callers_transaction():
            return _drive(step.gathering.separately(step.key, step.argument), connection, later)
        case Gathered():
            return step.gathering.run(step.key, step.argument, lambda steps: _drive(steps, connection))
        case Atomically():
            own: list[AfterCommit] = []
            with connection.transaction():
                value = _drive(step.steps, connection, own)
            for after in own:
                _perform(after, connection, later)
            return value
        case Batch() | Contended():
            return _execute(step, connection)
        case AfterCommit() if later is not None:
            return later.append(step)
        case AfterCommit() if step.waits_for_callers and connections.in_callers_transaction():
            return connections.after_callers_commit(lambda: run(step.steps))
        case AfterCommit():
            return _drive(step.steps, connection)
        case Blocking():
            return step.call()
    raise TypeError(f"a use case yielded {step!r}")


def _execute(step: Statement | Batch | Contended, connection: psycopg.Connection) -> list:
    """Run one statement or a batch. A deadlock changed nothing, so outside a transaction it is tried again."""
    for tries_left in reversed(range(_TRIES)):
        try:
            return _rows_of(step, connection)
        except UNSTORABLE as exc:
            if not is_unstorable(exc):
                raise
            raise unstorable(exc, step.params) from exc
        except TRANSIENT:
            if not tries_left or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raise
    raise AssertionError("unreachable")


def directly(
    step: Statement | Batch | Contended, connection: connections.Connection | connections.AsyncConnection
) -> DirectSteps:
    match step:
        case Contended():
            return connection.direct.execute_behind(*step.parts(connection.pgconn.server_version))
        case Batch():
            return connection.direct.execute_all(step.statements)
    return connection.direct.execute(step.sql, step.params)


def _rows_of(step: Statement | Batch | Contended, connection: psycopg.Connection) -> list:
    if not isinstance(connection, connections.Connection):
        return _fetched(step, connection)
    try:
        try:
            return connection.wait(directly(step, connection))
        except NotDirect:
            return _fetched(step, connection)
    except BaseException:
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:  # the thread was interrupted
            connections.abandon(connection)
        raise


def _fetched(step: Statement | Batch | Contended, connection: psycopg.Connection) -> list:
    if isinstance(step, Batch):
        with connection.transaction():
            return [_fetched(each, connection) for each in step.statements]
    statement = step.statement if isinstance(step, Contended) else step
    check(statement)
    with psycopg.Cursor(connection, row_factory=namedtuple_row) as cursor:
        cursor.execute(statement.sql, statement.params, binary=True)
        return cursor.fetchall() if cursor.rownumber is not None else []


class _Undo(Exception):
    """Rolls back the transaction of `all_or_none`."""


def undo() -> NoReturn:
    """Inside `all_or_none`: roll back the transaction."""
    raise _Undo


def all_or_none(steps: Steps) -> Steps:
    """Run steps in one transaction. Returns their result, or None if they called `undo`."""
    try:
        return (yield Atomically(steps))
    except _Undo:
        return None
