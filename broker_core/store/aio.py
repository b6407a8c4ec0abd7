"""The asynchronous driver: runs the same steps as `driver`, on one connection pool per event loop (docs/design.md D12).

A statement borrows a connection while it runs; a call that waits for messages holds none.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.errors import BrokerError

from . import connections
from .direct import NotDirect, wait
from .driver import _TRIES, AfterCommit, Atomically, Batch, Blocking, Contended, Gathered, Steps, WaitForSignal, directly
from .failures import DATABASE_ERRORS, TRANSIENT, UNSTORABLE, is_unstorable, refusal, translated, unstorable
from .pool import Pool
from .signals import Signal
from .statements import Statement, check

T = TypeVar("T")
POOL_SIZE = 8  # enough to keep two cores busy; further statements wait and are grouped (docs/design.md D3)
_POLL_SECONDS = 0.02  # between checks whether a cancelled call has ended
_log = logging.getLogger(__name__)


class LoopResources:
    """The pool of one event loop for one database."""

    def __init__(self, database: connections.Database):
        self.pool = Pool(database, POOL_SIZE, at_end=self._forget)

    def _forget(self) -> None:
        """Called when the loop ends."""
        for key in [key for key, resources in _resources.items() if resources is self]:
            del _resources[key]


_resources: dict[tuple[asyncio.AbstractEventLoop, connections.Database], LoopResources] = {}


def loop_resources() -> LoopResources:
    """The running loop's resources for the database in use. Also drops those of closed loops."""
    for key in [key for key in _resources if key[0].is_closed()]:
        del _resources[key]
    key = (asyncio.get_running_loop(), connections.current_database())
    if key not in _resources:
        _resources[key] = LoopResources(key[1])
    return _resources[key]


async def close() -> None:
    """Close the running loop's connections now rather than when the loop ends."""
    for key in [key for key in _resources if key[0] is asyncio.get_running_loop()]:
        await _resources.pop(key).pool.close()


async def run(steps: Steps) -> Any:
    """Run steps to completion on the loop's pool. Raises BrokerError for what the database refuses."""
    try:
        return await _drive_at(steps, loop_resources())
    except DATABASE_ERRORS:
        with translated():
            raise


class _Idle:
    """Whether a call is waiting for messages at this moment: it then holds nothing and may be cancelled."""

    is_on = False


_idle: contextvars.ContextVar[_Idle | None] = contextvars.ContextVar("vitrine_idle", default=None)


async def run_uncancelled(call: Coroutine[Any, Any, T], *, left_behind: Callable[[T], Awaitable[Any]] | None = None) -> T:
    """Await a call that must not be interrupted. If the awaiting task is cancelled, the call first runs to completion, or to its
    next wait for messages; then CancelledError is raised.

    left_behind: called with the result that has no receiver; runs to completion as well. Its refusal is logged.
    """
    idle, context = _Idle(), contextvars.copy_context()
    context.run(_idle.set, idle)
    task = asyncio.get_running_loop().create_task(call, context=context)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        await _wait_for_end(task, idle)
        if not task.cancelled() and task.exception() is None and left_behind:
            await _wait_for_end(asyncio.ensure_future(_release(left_behind(task.result()))))
        raise


async def _wait_for_end(task: asyncio.Task, idle: _Idle | None = None) -> None:
    """Wait for a task's end, however often the waiting is cancelled; cancel the task while it is idle."""
    while not task.done():
        if idle and idle.is_on:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=_POLL_SECONDS)


async def _release(releasing: Awaitable[Any]) -> None:
    try:
        await releasing
    except BrokerError as exc:
        _log.warning("could not release what a cancelled call had acquired: %s", exc)


async def _drive(steps: Steps, perform: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run steps to completion; `perform` carries out each yielded step."""
    try:
        step = next(steps)
        while True:
            try:
                value = await perform(step)
            except Exception as exc:
                step = steps.throw(refusal(exc))
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()  # also if the call is cancelled


async def _drive_at(steps: Steps, at: LoopResources) -> Any:
    """Run steps outside a transaction."""
    return await _drive(steps, lambda step: _perform(step, at))


async def _perform(step: Any, at: LoopResources) -> Any:
    match step:
        case Statement() | Batch() | Contended():
            return await _execute(step, at.pool)
        case Atomically():
            later: list[Steps] = []
            async with at.pool.connection() as connection, connection.transaction():
                value = await _drive_on(step.steps, connection, later)
            for steps in later:
                await _drive_at(steps, at)
            return value
        case Gathered():
            return await step.gathering.run_aio(step.key, step.argument, lambda steps: _drive_at(steps, at))
        case AfterCommit():
            return await _drive_at(step.steps, at)
        case Blocking():
            return await asyncio.to_thread(step.call)
        case WaitForSignal():
            return await _wait_idle(step.signal, step.seconds)
    raise TypeError(f"a use case yielded {step!r}")


async def _wait_idle(signal: Signal, seconds: float) -> None:
    """Wait for a signal, at most so long. Nothing is locked meanwhile, so `run_uncancelled` may cancel this. A signal that is set
    in the same moment goes first: the call may have been given messages, so it runs to completion."""
    idle, event = _idle.get() or _Idle(), asyncio.Event()
    signal.notify(partial(_set_soon, asyncio.get_running_loop(), event))
    idle.is_on = not signal.is_set()
    try:
        if idle.is_on:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # asyncio.wait_for of Python 3.11 can swallow a cancellation
                    await event.wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not signal.is_set() or _idle.get() is None or task is None:
            raise
        task.uncancel()
    finally:
        idle.is_on = False
        signal.notify(None)


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)


async def _drive_on(steps: Steps, connection: connections.AsyncConnection, later: list[Steps]) -> Any:
    """Run the statements of one transaction on its connection. later: collects the steps to run after the commit."""
    return await _drive(steps, lambda step: _perform_on(step, connection, later))


async def _perform_on(step: Any, connection: connections.AsyncConnection, later: list[Steps]) -> Any:
    match step:
        case Statement() | Batch() | Contended():
            return await _execute_on(step, connection)
        case Atomically():
            own: list[Steps] = []
            async with connection.transaction():
                value = await _drive_on(step.steps, connection, own)
            later += own
            return value
        case Gathered():
            return await _drive_on(step.gathering.separately(step.key, step.argument), connection, later)
        case AfterCommit():
            return later.append(step.steps)
    raise TypeError(f"a transaction yielded {step!r}")


async def _execute(step: Statement | Batch | Contended, pool: Pool) -> list:
    for tries_left in reversed(range(_TRIES)):
        connection = await pool.take()
        try:
            return await _execute_on(step, connection)
        except TRANSIENT:
            if not tries_left:
                raise
        finally:
            pool.put_back(connection)
    raise AssertionError("unreachable")


async def _execute_on(step: Statement | Batch | Contended, connection: connections.AsyncConnection) -> list:
    try:
        try:
            return await wait(directly(step, connection), connection)
        except NotDirect:
            return await _fetched(step, connection)
    except UNSTORABLE as exc:
        if not is_unstorable(exc):
            raise
        raise unstorable(exc, step.params) from exc


async def _fetched(step: Statement | Batch | Contended, connection: connections.AsyncConnection) -> list:
    if isinstance(step, Batch):
        async with connection.transaction():
            return [await _fetched(each, connection) for each in step.statements]
    statement = step.statement if isinstance(step, Contended) else step
    check(statement)
    async with psycopg.AsyncCursor(connection, row_factory=namedtuple_row) as cursor:
        await cursor.execute(statement.sql, statement.params, binary=True)
        return await cursor.fetchall() if cursor.rownumber is not None else []
