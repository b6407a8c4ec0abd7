"""Awaited calls on a channel that are cancelled: nothing that they took is lost, nor left with nobody."""

import asyncio

from broker_core import rabbitmq
from broker_core.rabbitmq.connections import channels, connections
from broker_core.store import aio
from tests.broker_state import entity_id
from tests.cancellation import cancelled
from tests.eventually import eventually_aio

from .connected import query, send
from .shortcuts import count, ledger_agrees

ROUNDS = 80


def held(queue):
    return query("SELECT sequence_number FROM vitrine_message WHERE entity_id = %s AND owner_id IS NOT NULL", entity_id(queue))


def on_a_channel(queue, story):
    """Run a story on a channel, which consumes nothing yet."""

    async def steps():
        connection = await rabbitmq.connect.aio(queue.namespace, "tests")
        try:
            return await story(connection.channel())
        finally:
            await connections.close.aio(connection)
            await aio.close()

    return asyncio.run(steps())


def test_deliveries_of_a_cancelled_wait_are_returned_next(fresh_epoch, queue):
    send(queue, *map(str, range(ROUNDS)))

    async def story(channel):
        await channels.consume.aio(channel, "q")
        calls = (channels.deliveries.aio(channel, 1, max_wait_seconds=5) for _ in range(ROUNDS))
        deliveries = [tagged for some in await cancelled(calls) for tagged in some]
        while some := await channels.deliveries.aio(channel, 10):
            deliveries += some
        assert [tagged.delivery_tag for tagged in deliveries] == list(range(1, ROUNDS + 1))
        await channels.ack.aio(channel, multiple=True)
        return [int(tagged.body) for tagged in deliveries]

    assert on_a_channel(queue, story) == list(range(ROUNDS))
    assert held(queue) == [] and ledger_agrees(queue)


def test_a_cancelled_get_requeues_its_message_and_a_cancelled_acknowledgement_completes(fresh_epoch, queue):
    send(queue, *map(str, range(ROUNDS)))

    async def story(channel):
        got = await cancelled(channels.get.aio(channel, "q") for _ in range(ROUNDS))
        assert len(held(queue)) == len(got) == len(channel.unacked)
        await channels.nack.aio(channel, multiple=True)
        taken = [await channels.get.aio(channel, "q") for _ in range(ROUNDS)]
        await cancelled(channels.ack.aio(channel, tagged.delivery_tag) for tagged in taken)
        assert len(held(queue)) == len(channel.unacked) == count(queue) + len(channel.unacked)

    on_a_channel(queue, story)
    assert held(queue) == [] and ledger_agrees(queue)


def test_a_cancelled_wait_ends_immediately(fresh_epoch, queue):
    async def story(channel):
        await channels.consume.aio(channel, "q")
        task = asyncio.create_task(channels.deliveries.aio(channel, 1, max_wait_seconds=60))
        await eventually_aio(lambda: channel.waits)
        task.cancel()
        await asyncio.wait({task}, timeout=20)
        assert task.cancelled() and not channel.waits
        send(queue, "x")
        return [bytes(tagged.body) for tagged in await channels.deliveries.aio(channel, 1)]

    assert on_a_channel(queue, story) == [b"x"]


def open_connections(vhost):
    text = "SELECT c.id FROM vitrine_connection AS c JOIN vitrine_namespace AS n ON n.id = c.namespace_id WHERE n.name = %s"
    return {row.id if hasattr(row, "id") else row[0] for row in query(text, vhost)}


def test_a_connection_opened_for_a_cancelled_call_is_closed(fresh_epoch, vhost):
    async def story():
        found = await cancelled(rabbitmq.connect.aio(vhost, "tests") for _ in range(ROUNDS))
        assert open_connections(vhost) == {connection.id for connection in found}
        for connection in found:
            await connections.close.aio(connection)
        await aio.close()
        return len(found)

    assert asyncio.run(story()) < ROUNDS
    assert open_connections(vhost) == set()


def test_a_connection_whose_closing_is_cancelled_is_closed(fresh_epoch, queue):
    rounds = 30
    send(queue, *map(str, range(rounds)))

    async def story():
        opened = [await rabbitmq.connect.aio(queue.namespace, "tests") for _ in range(rounds)]
        for connection in opened:
            await channels.get.aio(connection.channel(), "q")
        for n, connection in enumerate(opened):
            task = asyncio.create_task(connections.close.aio(connection))
            await asyncio.sleep(n % 10 * 0.0008)
            task.cancel()
            await asyncio.wait({task})
            if connection.closed is None:  # cancelled before it began
                await connections.close.aio(connection)
        await aio.close()

    asyncio.run(story())
    assert open_connections(queue.namespace) == set()
    assert held(queue) == [] and ledger_agrees(queue)


def test_a_channel_whose_closing_is_cancelled_holds_no_messages(fresh_epoch, queue):
    send(queue, *map(str, range(10)))

    async def story():
        connection = await rabbitmq.connect.aio(queue.namespace, "tests")
        for n in range(10):
            channel = connection.channel()
            await channels.consume.aio(channel, "q")
            assert len(await channels.deliveries.aio(channel, 10)) == 10
            task = asyncio.create_task(channels.close.aio(channel))
            await asyncio.sleep(n * 0.0008)
            task.cancel()
            await asyncio.wait({task})
            if channel.closed is None:
                await channels.close.aio(channel)
            assert held(queue) == [] and query("SELECT 1 FROM vitrine_consumer WHERE connection_id = %s", connection.id) == []
        await connections.close.aio(connection)
        await aio.close()

    asyncio.run(story())
