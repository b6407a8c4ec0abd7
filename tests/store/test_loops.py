"""An event loop may end at any moment: no call of `close()`, and no waiting for calls that are still under way."""

import asyncio
import gc
import threading

import pytest

from broker_core import service_bus
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from tests.eventually import eventually


def run_within(seconds, main):
    """asyncio.run in a thread of its own, so that a loop that does not end fails the test instead of stopping all."""
    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()


def connected():
    """How many sessions the database has."""
    rows = (
        connections.current().execute("SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    )
    return rows[0].n


@pytest.mark.parametrize("turn", range(25))
def test_a_loop_ends_despite_pending_receives(queue, turn):
    async def main():
        for _ in range(40):
            asyncio.create_task(service_bus.receive.aio(queue, max_wait_seconds=60))
        await asyncio.sleep(0.01 * turn)

    run_within(10, main)


def test_no_connection_remains_after_the_end_of_a_loop(queue):
    service_bus.send(queue, [Message(b"a")])
    before = connected()

    async def main():
        (message,) = await service_bus.receive.aio(queue, max_wait_seconds=5)
        await service_bus.complete.aio(queue, message.lock_token)
        asyncio.create_task(service_bus.receive.aio(queue, max_wait_seconds=60))
        await asyncio.gather(*(service_bus.peek.aio(queue) for _ in range(20)))
        assert connected() > before

    run_within(10, main)
    gc.collect()  # a connection that was just being opened ends with psycopg's last reference to it
    eventually(lambda: connected() <= before, 15)  # the connection for wake-ups ends some time after the last wait


def test_a_loop_may_be_used_again_after_aio_close(queue):
    async def main():
        await service_bus.peek.aio(queue)
        await aio.close()
        assert await service_bus.send.aio(queue, [Message(b"a")]) == [1]

    run_within(10, main)


def test_calls_beyond_the_number_of_connections_wait(queue):
    async def main():
        sent = await asyncio.gather(*(service_bus.send.aio(queue, [Message(b"a")]) for _ in range(10 * aio.POOL_SIZE)))
        assert sorted(number for (number,) in sent) == list(range(1, 10 * aio.POOL_SIZE + 1))

    run_within(30, main)
