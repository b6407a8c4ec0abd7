"""Waiting for what another thread, process or server brings about, which no clock of the broker's can bring."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 5.0, why: str = "") -> T:
    """The condition's first true value. Fails with its last one when the time is up."""
    ends_at = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends_at, f"{why or condition} does not hold after {seconds} s: {value!r}"
        time.sleep(0.01)
    return value


async def eventually_aio(condition: Callable[[], T | Awaitable[T]], seconds: float = 5.0, why: str = "") -> T:
    """The same, while the event loop goes on; the condition may be a coroutine function."""
    ends_at = time.monotonic() + seconds
    while True:
        found = condition()
        value = cast(T, await found if inspect.isawaitable(found) else found)
        if value:
            return value
        assert time.monotonic() < ends_at, f"{why or condition} does not hold after {seconds} s: {value!r}"
        await asyncio.sleep(0.01)
