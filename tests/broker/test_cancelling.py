"""A waiting receive that is cancelled ends, whatever happens in that moment."""

import asyncio

import pytest

from broker_core import broker
from broker_core.semantics.types import Message
from broker_core.store import aio


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
