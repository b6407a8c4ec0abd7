"""Calls that are cancelled at whatever moment."""

import asyncio
import random
from contextlib import suppress
from typing import Any


async def cancelled(calls, *, seconds=0.008, meanwhile=None):
    """Cancel each call a while after its beginning, every other one by a timeout. What those returned that were quicker.

    seconds: the longest while, to begin with; after a call that was cancelled it is longer, else shorter, so that some are
    and others are not, however fast the machine is. meanwhile: what is done in a thread while each call is under way.
    """
    chance = random.Random(7)
    results: list[Any] = []
    for n, call in enumerate(calls):
        had = len(results)
        task = asyncio.create_task(_timed(call, chance.uniform(0, seconds)) if n % 2 else call)
        other = asyncio.create_task(asyncio.to_thread(meanwhile)) if meanwhile else asyncio.sleep(0)
        if not n % 2:
            await asyncio.sleep(chance.uniform(0, seconds))
            task.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            results.append(await task)
        await other
        seconds *= 1.2 if len(results) == had else 0.85
    return results


async def _timed(call, seconds):
    return await asyncio.wait_for(call, seconds)
