"""Asyncio clients with the calls of the synchronous ones, so that both are told the same stories."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

SECONDS = 60  # for a call


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def made(loop: asyncio.AbstractEventLoop, make: Any, *args: Any, **options: Any) -> Blocking:
    """make(...), called in the loop, which the transports of clients want."""

    async def call() -> Any:
        return make(*args, **options)

    return Blocking(asyncio.run_coroutine_threadsafe(call(), loop).result(SECONDS), loop)


class Blocking:
    """An asyncio client with the calls of the synchronous one: its coroutines run in a loop of another thread."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop):
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return (lambda *args, **options: self._done(found(*args, **options))) if callable(found) else found

    def _done(self, outcome: Any) -> Any:
        if inspect.isawaitable(outcome):
            outcome = asyncio.run_coroutine_threadsafe(_awaited(outcome), self._loop).result(SECONDS)
        elif hasattr(outcome, "by_page"):
            return Pages(outcome, self._loop)
        is_client = isinstance(outcome, AbstractAsyncContextManager)
        return Blocking(outcome, self._loop) if is_client else outcome


class Pages:
    """What an asyncio client returns by page."""

    def __init__(self, items: Any, loop: asyncio.AbstractEventLoop):
        self._items, self._loop = items, loop

    def __iter__(self) -> Any:
        return iter(asyncio.run_coroutine_threadsafe(_collected(self._items), self._loop).result(SECONDS))

    def by_page(self, *args: Any) -> list[list[Any]]:
        async def pages() -> list[list[Any]]:
            return [await _collected(page) async for page in self._items.by_page(*args)]

        return asyncio.run_coroutine_threadsafe(pages(), self._loop).result(SECONDS)


async def _awaited(outcome: Any) -> Any:
    return await outcome


async def _collected(items: Any) -> list[Any]:
    return [item async for item in items]
