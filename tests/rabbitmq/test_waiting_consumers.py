"""Consumers whose calls wait: what wakes them, whom one statement serves, and what follows when they go (RMQ-145, RMQ-151).

Nothing here waits for a timer: the checks that find what nobody reported are off.
"""

import asyncio
import random
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.connections import connections as opening
from broker_core.rabbitmq.connections import fetching
from broker_core.rabbitmq.messages import delivering, delivery, local_consumers, publishing
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.runtime import wake_ups
from broker_core.store import aio, connections
from tests.broker_state import entity_id, ledger_agrees
from tests.eventually import eventually

from .connected import bodies, query, send

LONG = 30
AT_ONCE = {"properties": rabbitmq.Properties(expiration="0")}
GIVEN_BACK = "SELECT 1 FROM vitrine_message WHERE entity_id = %s AND lock_token IS NULL AND last_received_at IS NOT NULL"


@pytest.fixture
def no_timers(monkeypatch):
    """Only events wake a waiting call."""
    for name in ("SECONDS_BETWEEN_SCANS", "SECONDS_BETWEEN_LOOKS"):
        monkeypatch.setattr(fetching, name, 10 * LONG)
    monkeypatch.setattr(wake_ups, "SECONDS_BETWEEN_CHECKS", 10 * LONG)
    wake_ups.wake_ups().stop()
    yield
    wake_ups.wake_ups().stop()  # its thread has read the patched value


@contextmanager
def counted(monkeypatch):
    """The statements of RabbitMQ's messages inside the block, by name."""
    counts = Counter()
    for module in (delivering, delivery, publishing):
        for way in {"call", "ending"} & vars(module).keys():

            def counting(name, /, *entity, plain=getattr(module, way), **params):
                counts[name] += 1
                return plain(name, *entity, **params)

            monkeypatch.setattr(module, way, counting)
    yield counts
    monkeypatch.undo()


class Waiting:
    """A thread in which a channel waits for deliveries. found: what it got, or why its call failed."""

    def __init__(self, channel, max_count=10):
        self.found = None
        self._thread = threading.Thread(target=self._wait, args=(channel, max_count))
        self._thread.start()
        eventually(lambda: channel.waits or not self._thread.is_alive())

    def _wait(self, channel, max_count):
        try:
            self.found = channel.deliveries(max_count, max_wait_seconds=LONG)
        except AmqpError as refusal:
            self.found = refusal
        finally:
            connections.close_all_of_this_thread()

    def result(self):
        self._thread.join(LONG / 2)
        assert not self._thread.is_alive(), "nothing woke it"
        return self.found


def settled(channel):
    """Wait until the first look of a waiting call, which finds nothing, is over."""

    def is_over(dispatcher):
        is_due = dispatcher._is_due and any(listener.capacity() for listener in dispatcher._listeners)
        return not is_due and not dispatcher._is_running

    eventually(lambda: channel.dispatchers and all(map(is_over, channel.dispatchers)))


@pytest.fixture
def waiting_channel(no_timers, connection, queue):
    """A channel with a prefetch of one, which holds one of two messages."""
    send(queue, "a", "b")
    channel = connection.channel()
    channel.qos(1)
    channel.consume("q", tag="t")
    assert bodies(channel.deliveries(5)) == "a"
    return channel


def test_an_acknowledgement_frees_capacity_immediately(waiting_channel):
    waiting = Waiting(waiting_channel)
    settled(waiting_channel)
    waiting_channel.ack(1)
    assert bodies(waiting.result()) == "b"


@pytest.mark.parametrize("settle", ["nack", "reject", "recover"])
def test_a_requeued_message_is_delivered_next_immediately(waiting_channel, settle):
    """RMQ-116"""
    waiting = Waiting(waiting_channel)
    settled(waiting_channel)
    getattr(waiting_channel, settle)(*(() if settle == "recover" else (1,)))
    assert [(d.body, d.redelivered) for d in waiting.result()] == [(b"a", True)]


def test_a_changed_channel_prefetch_applies_immediately(no_timers, connection, queue):
    """RMQ-141"""
    send(queue, "a", "b")
    channel = connection.channel()
    channel.qos(1, global_=True)
    channel.consume("q")
    assert bodies(channel.deliveries(5)) == "a"
    waiting = Waiting(channel)
    settled(channel)
    channel.qos(2, global_=True)
    assert bodies(waiting.result()) == "b"


def test_a_consumer_added_while_its_channel_waits_is_served_immediately(no_timers, connection, queue):
    channel = connection.channel()
    send(channel.declare_queue("other").address, "x")
    channel.consume("q")
    waiting = Waiting(channel)
    settled(channel)
    channel.consume("other")
    assert bodies(waiting.result()) == "x"


def test_messages_requeued_by_another_channel_are_delivered_immediately(no_timers, connection, queue):
    send(queue, "a")
    holding, channel = connection.channel(), connection.channel()
    holding.get("q")
    channel.consume("q")
    waiting = Waiting(channel)
    settled(channel)
    holding.close()
    assert [(d.body, d.redelivered) for d in waiting.result()] == [(b"a", True)]


def test_the_next_single_active_consumer_takes_over_immediately(no_timers, connection):
    """RMQ-148"""
    address = connection.channel().declare_queue("sac", arguments={"x-single-active-consumer": True}).address
    active, next_ = connection.channel(), connection.channel()
    active.consume("sac", tag="1")
    next_.consume("sac", tag="2")
    waiting = Waiting(next_)
    settled(next_)
    send(address, "a")
    assert bodies(active.deliveries(1)) == "a"
    send(address, "b")
    active.close()
    assert [(d.body, d.redelivered) for d in waiting.result()] == [(b"a", True), (b"b", False)]


def test_closing_a_channel_ends_its_wait(no_timers, connection, queue):
    channel = connection.channel()
    channel.consume("q")
    waiting = Waiting(channel)
    channel.close()
    assert isinstance(waiting.result(), AmqpError)


def test_closing_a_connection_as_an_operator_ends_its_waits(no_timers, connection, queue):
    channel = connection.channel()
    channel.consume("q")
    waiting = Waiting(channel)
    rabbitmq.force_close(connection.id, "for a test")
    assert "for a test" in str(waiting.result())


def test_the_consumers_of_a_deleted_queue_end_immediately(no_timers, connection, queue):
    """RMQ-146"""
    channel = connection.channel()
    channel.consume("q", tag="t")
    waiting = Waiting(channel)
    settled(channel)
    rabbitmq.delete_queue(queue)
    assert (waiting.result(), channel.cancelled, channel.is_open) == ([], ["t"], True)


def test_one_statement_serves_the_consumers_of_several_channels_in_turns(no_timers, connection, queue, monkeypatch):
    """RMQ-145"""
    channels = [connection.channel() for _ in range(4)]
    for channel in channels:
        channel.qos(2)
        channel.consume("q")
    calls = [Waiting(channel) for channel in channels]
    for channel in channels:
        settled(channel)
    with counted(monkeypatch) as statements:
        rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"%d" % n, routing_key="q") for n in range(8)])
        received_bodies = sorted(bodies(waiting.result()) for waiting in calls)
    assert received_bodies == ["04", "15", "26", "37"] and statements["rabbit_take"] == 1
    held = query("SELECT count(DISTINCT consumer_id) AS n FROM vitrine_message WHERE owner_id = %s", connection.id)
    assert held[0].n == 4 and ledger_agrees(queue)


def test_consumers_with_and_without_acknowledgement_are_served_in_one_round(no_timers, connection, queue):
    """RMQ-114, RMQ-145"""
    first, second = connection.channel(), connection.channel()
    first.consume("q", no_ack=True)
    second.consume("q")
    calls = [Waiting(channel) for channel in (first, second)]
    for channel in (first, second):
        settled(channel)
    rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"%d" % n, routing_key="q") for n in range(4)])
    assert sorted(int(body) for waiting in calls for body in bodies(waiting.result())) == [0, 1, 2, 3]
    assert (len(first.unacked), len(second.unacked)) == (0, 2) and ledger_agrees(queue)


def test_higher_priorities_are_served_first_among_channels_that_wait(no_timers, connection, queue):
    """RMQ-145"""
    low, high = connection.channel(), connection.channel()
    for channel, priority in ((low, 0), (high, 5)):
        channel.qos(2)
        channel.consume("q", priority=priority)
    calls = [Waiting(channel) for channel in (low, high)]
    for channel in (low, high):
        settled(channel)
    rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"%d" % n, routing_key="q") for n in range(3)])
    assert [bodies(waiting.result()) for waiting in calls] == ["2", "01"]


def test_a_call_gets_at_most_the_requested_number_of_messages(no_timers, connection, queue):
    first, second = connection.channel(), connection.channel()
    for channel in (first, second):
        channel.consume("q")
    calls = [Waiting(first, 1), Waiting(second, 2)]
    for channel in (first, second):
        settled(channel)
    rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"%d" % n, routing_key="q") for n in range(9)])
    assert sorted(len(waiting.result()) for waiting in calls) == [1, 2]
    assert rabbitmq.get_queue(queue).messages == 6 and not first.buffered and not second.buffered


def test_a_prefetch_of_one_needs_two_statements_for_each_message(no_timers, fresh_epoch, queue, monkeypatch):
    """RMQ-151: one takes it, one acknowledges it; no poll is between them."""
    count = 50
    rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"x", routing_key="q")] * count)

    async def story():
        connection = await rabbitmq.connect.aio(queue.namespace, "tests")
        channel = connection.channel()
        await channel.qos.aio(1)
        await channel.consume.aio("q")
        done, acknowledging = 0, []
        while done < count:
            deliveries = await channel.deliveries.aio(10, max_wait_seconds=LONG)
            assert len(deliveries) == 1 and channel.outstanding == 1
            acknowledging.append(asyncio.create_task(channel.ack.aio(deliveries[0].delivery_tag)))
            done += 1
        await asyncio.gather(*acknowledging)
        await opening.close.aio(connection)
        await aio.close()

    with counted(monkeypatch) as statements:
        asyncio.run(story())
    assert statements["rabbit_take"] <= count + 2 and statements["rabbit_acknowledge"] <= count
    assert rabbitmq.get_queue(queue).messages == 0 and ledger_agrees(queue)


def test_waiting_channels_poll_the_database_about_twice_a_second(fresh_epoch, vhost, monkeypatch):
    """However many they are."""
    counts = Counter()
    drivers = (wake_ups, fetching, fetching.tidying, delivering)
    for module in drivers:
        plain = module.call

        def counting(name, /, plain=plain, **params):
            counts[name] += 1
            return plain(name, **params)

        monkeypatch.setattr(module, "call", counting)

    async def story():
        connection = await rabbitmq.connect.aio(vhost, "tests")
        waiting = []
        for n in range(40):
            channel = connection.channel()
            await channel.declare_queue.aio(f"q{n % 20}")
            await channel.consume.aio(f"q{n % 20}")
            waiting.append(asyncio.create_task(channel.deliveries.aio(1, max_wait_seconds=3.5)))
        await asyncio.sleep(1)
        counts.clear()
        await asyncio.sleep(2)
        asked = counts.copy()
        await asyncio.gather(*waiting)
        await opening.close.aio(connection)
        await aio.close()
        return asked

    asked = asyncio.run(story())
    assert 0 < sum(asked.values()) <= 8, asked


# Settlements and publications of several channels


def run_on_channels(vhost, count, story):
    """Run a story on channels of connections of their own."""

    async def steps():
        opened = [await rabbitmq.connect.aio(vhost, "tests") for _ in range(count)]
        try:
            return await story([connection.channel() for connection in opened])
        finally:
            for connection in opened:
                await opening.close.aio(connection)
            await aio.close()

    return asyncio.run(steps())


def test_a_burst_of_acknowledgements_takes_few_statements_and_separate_refusals(fresh_epoch, queue, monkeypatch):
    """RMQ-112"""
    rabbitmq.publish(queue.namespace, [rabbitmq.Publication(b"x", routing_key="q")] * 60)

    async def story(channels):
        good, bad = channels
        for channel in channels:
            await channel.consume.aio("q")
            assert len(await channel.deliveries.aio(30)) == 30
        with counted(monkeypatch) as statements:
            acks = [channel.ack.aio(tag) for tag in range(1, 31) for channel in channels]
            results = await asyncio.gather(*acks[:40], bad.ack.aio(99), *acks[40:], return_exceptions=True)
        refused = [result for result in results if result is not None]
        assert {str(refusal) for refusal in refused} == {"PRECONDITION_FAILED - unknown delivery tag 99"}
        assert len(refused) == 1 + 10  # the channel is closed, so what it acknowledges afterwards is refused as well
        assert good.is_open and not good.unacked and not bad.is_open
        assert statements["rabbit_acknowledge"] <= 4

    run_on_channels(queue.namespace, 2, story)
    assert rabbitmq.get_queue(queue).messages == 10 and ledger_agrees(queue)


def test_publications_of_several_connections_take_few_statements_and_keep_their_order(fresh_epoch, queue, monkeypatch):
    """RMQ-110"""

    async def story(channels):
        with counted(monkeypatch) as statements:
            calls = [
                channel.publish.aio([rabbitmq.Publication(b"%d %d" % (which, n), routing_key="q")])
                for n in range(20)
                for which, channel in enumerate(channels)
            ]
            refused = channels[0].connection.channel().publish.aio([rabbitmq.Publication(b"", exchange="none")])
            *results, refusal = await asyncio.gather(*calls, refused, return_exceptions=True)
        assert isinstance(refusal, AmqpError) and statements["rabbit_publish"] <= 9  # of 60
        return [published.queues for [published] in results]

    numbers = run_on_channels(queue.namespace, 3, story)
    assert sorted(numbers) == [(("q", n),) for n in range(1, 61)]
    words = [delivery.body.decode().split() for delivery in rabbitmq.take(queue, 60, no_ack=True)]
    for which in "012":
        assert [int(n) for w, n in words if w == which] == list(range(20))


# Consumers that disappear


def test_messages_taken_for_a_cancelled_consumer_are_returned_as_undelivered(no_timers, connection, queue, monkeypatch):
    """RMQ-119: the consumer is cancelled after the statement that took a message for it, and before it has the message."""
    channel = connection.channel()
    channel.consume("q", tag="t")
    waiting = Waiting(channel)
    settled(channel)
    take_for = delivering.take_for

    def and_cancel(plan):
        taken = yield from take_for(plan)
        local = channel.consumers.pop("t", None)
        if local is not None:
            fetching.registry.drop(local)
        return taken

    monkeypatch.setattr(delivering, "take_for", and_cancel)
    send(queue, "a")
    eventually(lambda: query(GIVEN_BACK, entity_id(queue)))
    eventually(lambda: channel.outstanding == channel.promised == channel.sought == 0)
    assert not channel.buffered
    monkeypatch.undo()
    assert [(d.body, d.redelivered) for d in rabbitmq.take(queue, 5, no_ack=True)] == [(b"a", False)]
    channel.close()
    waiting.result()
    assert ledger_agrees(queue)


@pytest.mark.parametrize("no_ack", [False, True])
def test_consumers_that_disappear_at_any_instant_lose_no_messages(fresh_epoch, queue, no_ack):
    """Calls are cancelled, consumers cancelled and channels closed while messages arrive; each is got once, or is there."""
    rounds, dice, got = 120, random.Random(7), Counter()

    async def client(connection):
        """Consumes until its channel is closed."""
        channel = connection.channel()
        tag = await channel.consume.aio("q", no_ack=no_ack)
        with suppress(AmqpError):
            while channel.is_open:
                task = asyncio.create_task(channel.deliveries.aio(3, max_wait_seconds=LONG))
                _, unfinished = await asyncio.wait({task}, timeout=dice.random() * 0.01)
                if unfinished:
                    match dice.randrange(4):
                        case 0:
                            task.cancel()
                        case 1:
                            await channel.cancel.aio(tag)
                            task.cancel()
                            await asyncio.wait({task})
                            tag = await channel.consume.aio("q", no_ack=no_ack)
                        case 2 if not no_ack:  # what is deleted already would be lost with the channel
                            await channel.close.aio()
                await asyncio.wait({task})
                if task.cancelled() or task.exception() is not None:
                    continue
                for delivery in task.result():
                    if not no_ack:
                        await channel.ack.aio(delivery.delivery_tag)
                    got[int(delivery.body)] += 1
        return channel

    async def story():
        connection = await rabbitmq.connect.aio(queue.namespace, "tests")
        clients = [asyncio.create_task(client(connection)) for _ in range(6)]
        for n in range(rounds):
            await rabbitmq.publish.aio(queue.namespace, [rabbitmq.Publication(b"%d" % n, routing_key="q")])
            for at, task in enumerate(clients):
                if task.done():
                    await task
                    clients[at] = asyncio.create_task(client(connection))
        drained = asyncio.get_running_loop().time() + 20
        while sum(got.values()) < rounds and asyncio.get_running_loop().time() < drained:
            for at, task in enumerate(clients):
                if task.done():
                    await task
                    clients[at] = asyncio.create_task(client(connection))
            await asyncio.sleep(0.01)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await opening.close.aio(connection)
        await aio.close()

    asyncio.run(story())
    assert got == Counter(range(rounds))
    assert query("SELECT 1 FROM vitrine_message WHERE entity_id = %s", entity_id(queue)) == []
    assert rabbitmq.get_queue(queue).messages == 0 and ledger_agrees(queue)


@pytest.mark.parametrize("of_all", [False, True])
def test_a_running_poll_does_not_use_the_capacity_for_a_zero_ttl_message(no_timers, connection, queue, monkeypatch, of_all):
    """RMQ-016: nor does the consumer get more than its prefetch if the look finds something, which goes back."""
    channel = connection.channel()
    channel.qos(1, global_=of_all)
    channel.consume("q")
    waiting = Waiting(channel)
    settled(channel)
    take_for = delivering.take_for

    def meanwhile(plan):
        monkeypatch.undo()
        thread = threading.Thread(target=lambda: (send(queue, "now", **AT_ONCE), connections.close_all_of_this_thread()))
        thread.start()
        thread.join()
        return (yield from take_for(plan))

    monkeypatch.setattr(delivering, "take_for", meanwhile)
    send(queue, "later")
    assert bodies(waiting.result()) == "now"
    eventually(lambda: query(GIVEN_BACK, entity_id(queue)))
    assert channel.outstanding == 1 and not channel.buffered
    channel.ack(1)
    assert [(d.body, d.redelivered) for d in channel.deliveries(5)] == [(b"later", False)]


def test_turns_respect_the_number_requested_by_a_channel():
    class Fake:
        credit = 4

    channel: Any = Fake()
    consumers = [local_consumers.Consumer(n, channel, EntityAddress("v", "q"), 1, "", n > 1, 0, 0, True) for n in (1, 2)]
    assert local_consumers.in_turns(consumers, 9, lambda _: 3) == [consumers[0], consumers[1], consumers[0]]
