"""The connections of one event loop: opened as they are needed, kept while they are used, closed with the loop.

A pool without tasks of its own. Those of psycopg_pool wait with `asyncio.wait_for`, which in Python 3.11 can swallow the
cancellation that `asyncio.run` ends every task with; the loop then never ends. Here a caller opens its connection itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from . import connections

SECONDS_TO_CONNECT = 10.0  # to wait for a free connection, and for a server that is away
_PAUSE_SECONDS = 0.25  # between attempts to connect
_IDLE_SECONDS = 600.0  # after which a connection that nobody needed is closed


class Pool:
    """Of at most `size` connections. Belongs to the loop in which it is first used; `at_end` is called when that ends."""

    def __init__(self, database: connections.Database, size: int, at_end: Callable[[], None]):
        self._database, self._at_end = database, at_end
        self._free = asyncio.Semaphore(size)
        self._idle: deque[tuple[psycopg.AsyncConnection[Any], float]] = deque()  # with when each was last used; the newest last
        self._with_the_loop: AsyncGenerator[None] | None = None
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection for this caller alone. Raises psycopg.OperationalError if there is none in time."""
        ends_at = time.monotonic() + SECONDS_TO_CONNECT
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + SECONDS_TO_CONNECT):
                await self._free.acquire()
        except TimeoutError as exc:
            raise psycopg.OperationalError("no connection became free in time") from exc
        try:
            connection = self._newest_idle() or await self._connected(ends_at)
            try:
                yield connection
            finally:
                self._take_back(connection)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close what is idle now, and from then on each connection after its use."""
        if self._with_the_loop is None:
            self.finish()
        else:
            await self._with_the_loop.aclose()

    def finish(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop()[0].pgconn.finish()
        self._at_end()

    def _newest_idle(self) -> psycopg.AsyncConnection[Any] | None:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connections.is_dead(connection):
                return connection
            connection.pgconn.finish()
        return None

    async def _connected(self, ends_at: float) -> psycopg.AsyncConnection[Any]:
        """A new connection; a server that is away is asked again until the time is up."""
        if self._with_the_loop is None:
            self._with_the_loop = _closing_with_the_loop(self)
            await anext(self._with_the_loop)
        parameters = await asyncio.to_thread(self._database.parameters)
        while True:
            try:
                return await psycopg.AsyncConnection.connect(**parameters)
            except psycopg.OperationalError:
                if time.monotonic() + _PAUSE_SECONDS >= ends_at:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    def _take_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        now = time.monotonic()
        if self._is_closed or connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.pgconn.finish()  # closed at once: nothing is awaited where a call is cancelled
        else:
            self._idle.append((connection, now))
        while self._idle and self._idle[0][1] < now - _IDLE_SECONDS:
            self._idle.popleft()[0].pgconn.finish()


async def _closing_with_the_loop(pool: Pool) -> AsyncGenerator[None]:
    """Suspended until the loop ends: `asyncio.run`, and whoever ends a loop as it does, closes asynchronous generators last."""
    try:
        yield
    finally:
        pool.finish()
