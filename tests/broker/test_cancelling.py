"""A waiting receive that is cancelled ends, whatever happens in that moment."""

import asyncio
import inspect

import pytest

from broker_core import broker
from broker_core.semantics.types import Message
from broker_core.store import aio, connections, statements
from broker_core.store.driver import Atomically
from broker_core.store.statements import call


@pytest.mark.parametrize("turns", range(4))
async def test_receive_that_is_cancelled_while_a_wake_up_arrives_ends(queue, turns):
    task = asyncio.create_task(broker.receive.aio(queue, max_wait_seconds=60))
    try:
        while not (waiting := [event for events in aio.office()._waiting.values() for event in events if event._waiters]):
            await asyncio.sleep(0.01)
        waiting[0].set()
        for _ in range(turns):  # of the loop, between the wake-up and the receive's next step
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
    finally:
        broker.send(queue, [Message()])  # frees a receive that goes on
        await asyncio.wait([task])
        await aio.close()


async def test_the_steps_of_a_cancelled_call_are_ended_with_it(broker_database):
    ended = []

    def inner():
        try:
            yield call("wait_for_it")
        finally:
            ended.append("inner")

    def outer():
        try:
            yield Atomically(inner())
        finally:
            ended.append("outer")

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(statements.SQL, "wait_for_it", "SELECT pg_sleep(30)")
        task = asyncio.create_task(aio.run(steps := outer()))
        while not await _sleeps():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task}, timeout=20)
    assert task.cancelled() and ended == ["inner", "outer"] and inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED
    await aio.close()


async def _sleeps():
    text = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%' AND state = 'active'"
    return bool(await asyncio.to_thread(lambda: connections.current().execute(text).fetchall()))
