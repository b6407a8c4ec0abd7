"""The asynchronous driver: runs the same steps as `driver`, on one connection pool per event loop (docs/design.md D12).

A statement borrows a connection while it runs; a call that waits for messages holds none. Each loop receives wake-ups over one
listening connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.errors import BrokerError

from . import connections
from .driver import _TRIES, WAKE_CHANNEL, AfterCommit, Atomically, Blocking, Gathered, Listening, Steps, WaitForMessages
from .failures import TRANSIENT, UNSTORABLE, is_unstorable, refusal, translated, unstorable
from .pool import Pool
from .statements import Statement

T = TypeVar("T")
POOL_SIZE = 8  # enough to keep two cores busy; further statements wait and are grouped (docs/design.md D3)
_RECONNECT_SECONDS = 0.5
_POLL_SECONDS = 0.02  # between checks whether a cancelled call has ended
_log = logging.getLogger(__name__)


class LoopResources:
    """The pool of one event loop for one database, and the calls that wait for messages of each entity."""

    def __init__(self, database: connections.Database):
        self._database = database
        self.pool = Pool(database, POOL_SIZE, at_end=self._forget)
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._listener: asyncio.Task | None = None
        self._listens = asyncio.Event()

    def _forget(self) -> None:
        """Called when the loop ends: drops the references, since a cancelled task would keep its connection alive."""
        self._listener = None
        for key in [key for key, resources in _resources.items() if resources is self]:
            del _resources[key]

    async def close(self) -> None:
        if self._listener:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
        await self.pool.close()

    async def listen(self, step: Listening) -> Any:
        wake = asyncio.Event()
        for entity_id in step.entity_ids:
            self._waiting.setdefault(entity_id, set()).add(wake)
        if self._listener is None or self._listener.done():
            self._listens.clear()
            self._listener = asyncio.create_task(self._pass_on_wake_ups())
        try:
            await _wait_idle(self._listens, 1)  # without a listener, waiting falls back to slow polling
            return await _drive_at(step.steps, self, wake)
        finally:
            for entity_id in step.entity_ids:
                self._waiting[entity_id].discard(wake)
                if not self._waiting[entity_id]:
                    del self._waiting[entity_id]

    async def _pass_on_wake_ups(self) -> None:
        task = asyncio.current_task()
        while not (task and task.cancelling()):  # also if a library below has swallowed the cancellation
            with suppress(psycopg.Error, OSError):
                parameters = await asyncio.to_thread(self._database.parameters)
                async with await psycopg.AsyncConnection.connect(**parameters) as connection:
                    await connection.execute(f"LISTEN {WAKE_CHANNEL}")
                    self._listens.set()
                    async for notification in connection.notifies():
                        for wake in self._waiting.get(int(notification.payload), ()):
                            wake.set()
            self._listens.clear()
            await asyncio.sleep(_RECONNECT_SECONDS)


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
    """Close the running loop's connections and listeners now rather than when the loop ends."""
    for key in [key for key in _resources if key[0] is asyncio.get_running_loop()]:
        await _resources.pop(key).close()


async def run(steps: Steps) -> Any:
    """Run steps to completion on the loop's pool. Raises BrokerError for what the database refuses."""
    with translated():
        return await _drive_at(steps, loop_resources(), None)


class _Idle:
    """Whether a call is waiting for messages at this moment: it then holds nothing and may be cancelled."""

    is_on = False


_idle: contextvars.ContextVar[_Idle | None] = contextvars.ContextVar("vitrine_idle", default=None)


async def run_uncancelled(call: Coroutine[Any, Any, T], *, left_behind: Callable[[T], Awaitable[Any]] | None = None) -> T:
    """Await a call that must not be interrupted. If the awaiting task is cancelled, the call first runs to completion, or to its
    next wait for messages; then CancelledError is raised.

    left_behind: called with the result that nobody receives; runs to completion as well. Its refusal is logged.
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
    with closing(steps):  # also if the call is cancelled
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


async def _drive_at(steps: Steps, at: LoopResources, wake: asyncio.Event | None) -> Any:
    """Run steps outside a transaction. wake: inside Listening, the event that a notification sets."""
    return await _drive(steps, lambda step: _perform(step, at, wake))


async def _perform(step: Any, at: LoopResources, wake: asyncio.Event | None) -> Any:
    match step:
        case Statement():
            return await _execute(step, at.pool)
        case Atomically():
            later: list[Steps] = []
            async with at.pool.connection() as connection, connection.transaction():
                value = await _drive_on(step.steps, connection, later)
            for steps in later:
                await _drive_at(steps, at, wake)
            return value
        case Gathered():
            return await step.gathering.run_aio(step.key, step.argument, lambda steps: _drive_at(steps, at, None))
        case AfterCommit():
            return await _drive_at(step.steps, at, wake)
        case Blocking():
            return await asyncio.to_thread(step.call)
        case Listening():
            return await at.listen(step)
        case WaitForMessages() if wake is not None:  # inside Listening
            await _wait_idle(wake, step.seconds)
            return wake.clear()
    raise TypeError(f"a use case yielded {step!r}")


async def _wait_idle(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long. Nothing is held meanwhile, so `run_uncancelled` may cancel this."""
    idle = _idle.get() or _Idle()
    idle.is_on = True
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # asyncio.wait_for of Python 3.11 can swallow a cancellation
                await event.wait()
    finally:
        idle.is_on = False


async def _drive_on(steps: Steps, connection: psycopg.AsyncConnection, later: list[Steps]) -> Any:
    """Run the statements of one transaction on its connection. later: collects the steps to run after the commit."""
    return await _drive(steps, lambda step: _perform_on(step, connection, later))


async def _perform_on(step: Any, connection: psycopg.AsyncConnection, later: list[Steps]) -> Any:
    match step:
        case Statement():
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


async def _execute(statement: Statement, pool: Pool) -> list:
    for tries_left in reversed(range(_TRIES)):
        try:
            async with pool.connection() as connection:
                return await _execute_on(statement, connection)
        except TRANSIENT:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def _execute_on(statement: Statement, connection: psycopg.AsyncConnection) -> list:
    async with psycopg.AsyncCursor(connection, row_factory=namedtuple_row) as cursor:
        try:
            await cursor.execute(statement.sql, statement.params, binary=True)
        except UNSTORABLE as exc:
            if not is_unstorable(exc):
                raise
            raise unstorable(exc, statement.params) from exc
        return await cursor.fetchall() if cursor.rownumber is not None else []
