"""The database goes away for a while under calls that wait: they go on by themselves."""

import asyncio
import threading
import time
from uuid import uuid4

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerUnavailable
from broker_core.common.types import EntityAddress, Family
from broker_core.runtime import dispatcher, wake_ups
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from explorer.site.embedded_postgres import server
from tests.eventually import eventually

RECEIVERS, THREADS, AWAY_SECONDS = 500, 8, 4


@pytest.fixture
def queues(on_cluster):
    name = f"n-{uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    return [entities.create_queue(EntityAddress(name, f"q{n}")).address for n in range(5)]


def all_wait(count):
    dispatchers = list(dispatcher._dispatchers.values())
    waiting = sum(len(each._listeners) for each in dispatchers if not each._is_due and not each._is_running)
    return waiting == count and all(each.marked_until for each in wake_ups.wake_ups()._entities.values() if each.pokes)


@pytest.mark.slow
def test_receivers_continue_when_the_database_is_back(queues, cluster, dsn):
    got, failed = [], []

    async def receive(n):
        try:
            got.extend(await service_bus.receive_and_delete.aio(queues[n % len(queues)], max_wait_seconds=120))
        except Exception as exc:
            failed.append(exc)

    async def receive_all():
        await asyncio.gather(*(receive(n) for n in range(RECEIVERS)))
        await aio.close()

    def receive_in_thread(n):
        with connections.using(connections.Database(dsn=dsn)):
            try:
                got.extend(service_bus.receive_and_delete(queues[n % len(queues)], max_wait_seconds=120))
            except Exception as exc:
                failed.append(exc)
            connections.close_all_of_this_thread()

    def in_loop():
        with connections.using(connections.Database(dsn=dsn)):
            asyncio.run(receive_all())

    threads = [threading.Thread(target=in_loop, daemon=True)]
    threads += [threading.Thread(target=receive_in_thread, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    eventually(lambda: all_wait(RECEIVERS + THREADS), 60)
    server.stop(cluster)
    time.sleep(AWAY_SECONDS)
    assert wake_ups.wake_ups().failure is not None and not failed
    server.ensure_running(cluster)
    eventually(lambda: wake_ups.wake_ups().failure is None, 30)
    for queue in queues:
        service_bus.send(queue, [Message(str(n).encode()) for n in range((RECEIVERS + THREADS) // len(queues) + 2)])
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failed and len({(message.body, message.sequence_number) for message in got}) <= len(got) == RECEIVERS + THREADS


@pytest.mark.slow
def test_a_call_that_times_out_while_the_database_is_unavailable_raises(queues, cluster, dsn):
    refused = []

    def receive():
        with connections.using(connections.Database(dsn=dsn)):
            try:
                service_bus.receive(queues[0], max_wait_seconds=8)
            except BrokerUnavailable as exc:
                refused.append(exc)

    thread = threading.Thread(target=receive)
    thread.start()
    eventually(lambda: all_wait(1))
    server.stop(cluster)
    thread.join(30)
    server.ensure_running(cluster)
    assert len(refused) == 1
