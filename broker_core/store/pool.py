"""The connections of one event loop: opened on demand, kept while they are in use, closed with the loop.

The pool has no background tasks: callers open their connections themselves. The tasks of psycopg_pool use `asyncio.wait_for`,
which in Python 3.11 can swallow the cancellation with which `asyncio.run` ends every task; the loop then never ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
from psycopg.pq import TransactionStatus

from . import connections, hangs

SECONDS_TO_CONNECT = 10.0  # to wait for a free connection, or for a server that does not respond
_PAUSE_SECONDS = 0.25  # between attempts to connect
_IDLE_SECONDS = 600.0  # after which an unused connection is closed


class Pool:
    """At most `size` connections. Belongs to the loop in which it is first used; `at_end` is called when that loop ends."""

    def __init__(self, database: connections.Database, size: int, at_end: Callable[[], None]):
        self._database, self._at_end = database, at_end
        self._free = asyncio.Semaphore(size)
        self._idle: deque[tuple[connections.AsyncConnection, float]] = deque()  # with the time of last use, most recent last
        self._with_the_loop: AsyncGenerator[None] | None = None
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[connections.AsyncConnection]:
        """A connection for this caller alone. Raises psycopg.OperationalError if there is none in time."""
        connection = await self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    async def take(self) -> connections.AsyncConnection:
        """As `connection`; the caller puts it back."""
        ends_at = time.monotonic() + SECONDS_TO_CONNECT
        hangs.refuse_if_hanging(self._database)
        if self._free.locked():
            try:
                async with asyncio.timeout(SECONDS_TO_CONNECT):
                    await self._free.acquire()
            except TimeoutError as exc:
                raise psycopg.OperationalError("no connection became free in time") from exc
        else:
            await self._free.acquire()  # at once
        try:
            hangs.refuse_if_hanging(self._database)
            return self._newest_idle() or await self._connect(ends_at)
        except BaseException:
            self._free.release()
            raise

    def put_back(self, connection: connections.AsyncConnection) -> None:
        now = time.monotonic()
        if self._is_closed or connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.pgconn.finish()  # closes without awaiting: the call may have been cancelled
        else:
            self._idle.append((connection, now))
        while self._idle and self._idle[0][1] < now - _IDLE_SECONDS:
            self._idle.popleft()[0].pgconn.finish()
        self._free.release()

    async def close(self) -> None:
        """Close the idle connections now, and every other connection after its use."""
        if self._with_the_loop is None:
            self.finish()
        else:
            await self._with_the_loop.aclose()

    def finish(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop()[0].pgconn.finish()
        self._at_end()

    def _newest_idle(self) -> connections.AsyncConnection | None:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connections.is_dead(connection):
                return connection
            connection.pgconn.finish()
        return None

    async def _connect(self, ends_at: float) -> connections.AsyncConnection:
        """Open a connection; retries until the time is up if the server does not respond."""
        if self._with_the_loop is None:
            self._with_the_loop = _closing_with_the_loop(self)
            await anext(self._with_the_loop)
        parameters = await asyncio.to_thread(self._database.parameters)
        while True:
            try:
                connection = await connections.AsyncConnection.connect(**parameters)
            except psycopg.errors.ConnectionTimeout:
                hangs.note_timeout(self._database)
                raise
            except psycopg.OperationalError:
                if time.monotonic() + _PAUSE_SECONDS >= ends_at:
                    raise
            else:
                hangs.watch(connection, self._database)
                return connection
            await asyncio.sleep(_PAUSE_SECONDS)


async def _closing_with_the_loop(pool: Pool) -> AsyncGenerator[None]:
    """Finishes the pool when the loop ends: `asyncio.run` closes asynchronous generators last."""
    try:
        yield
    finally:
        pool.finish()
