"""The database's processes are stopped (SIGSTOP): connections stay open and nothing answers. Calls end with BrokerUnavailable."""

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from uuid import uuid4

import psutil
import psycopg
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerUnavailable
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections, hangs
from tests.eventually import eventually

from .test_waiting_receivers import all_wait

SECONDS = 5.0  # in which a call must end


@pytest.fixture
def queue(on_cluster):
    name = f"n-{uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    return entities.create_queue(EntityAddress(name, "q")).address


@contextmanager
def stopped(cluster):
    """The postmaster stops first and continues last: meanwhile no process is started, and none that ended is removed."""
    postmaster = psutil.Process(int((cluster / "postmaster.pid").read_text().split()[0]))
    try:
        postmaster.suspend()
        eventually(lambda: postmaster.status() == psutil.STATUS_STOPPED, 5)
        for process in postmaster.children():
            os.kill(process.pid, signal.SIGSTOP)
        yield
    finally:
        for process in postmaster.children():
            os.kill(process.pid, signal.SIGCONT)
        postmaster.resume()


def responds_again():
    """Whether no watch counts the database as hanging."""
    return not any(watch.is_hanging for watch in hangs._watches.values())


async def within(seconds, call):
    async with asyncio.timeout(seconds):
        return await call


@pytest.mark.slow
async def test_calls_of_an_event_loop_time_out_and_work_again_afterwards(queue, cluster):
    await service_bus.send.aio(queue, [Message(b"before")])
    with stopped(cluster):
        sends = [within(SECONDS, service_bus.send.aio(queue, [Message(b"during")])) for _ in range(20)]
        ended = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(exc) for exc in ended} == {BrokerUnavailable}
        with pytest.raises(BrokerUnavailable, match="does not respond"):  # at once, as it is known
            await within(1, service_bus.send.aio(queue, [Message(b"during")]))
    await asyncio.to_thread(eventually, responds_again, 10)
    await service_bus.send.aio(queue, [Message(b"after")])
    bodies = [message.body for message in await service_bus.receive_and_delete.aio(queue, 100, max_wait_seconds=5)]
    assert bodies[0] == b"before" and bodies[-1] == b"after"
    await aio.close()


@pytest.mark.slow
async def test_a_waiting_receive_survives_a_hanging_database(queue, cluster):
    waiting = asyncio.create_task(service_bus.receive.aio(queue, max_wait_seconds=60))
    await asyncio.to_thread(eventually, lambda: all_wait(1), 10)
    with stopped(cluster):
        with pytest.raises(BrokerUnavailable):
            await within(SECONDS, service_bus.send.aio(queue, [Message(b"during")]))
        assert not waiting.done()
    await asyncio.to_thread(eventually, responds_again, 10)
    await service_bus.send.aio(queue, [Message(b"after")])
    assert await within(20, waiting)
    await aio.close()


@pytest.mark.slow
def test_calls_of_threads_time_out_and_work_again_afterwards(queue, cluster, dsn):
    service_bus.send(queue, [Message(b"before")])
    with stopped(cluster):
        ended = []

        def send():
            with connections.using(connections.Database(dsn=dsn)):
                try:
                    service_bus.send(queue, [Message(b"during")])
                except BrokerUnavailable as exc:
                    ended.append(exc)

        threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(ended) == len(threads), SECONDS)
    eventually(responds_again, 10)
    service_bus.send(queue, [Message(b"after")])
    assert service_bus.receive(queue, 1)[0].body == b"before"


@pytest.mark.slow
def test_a_first_connection_times_out(queue, cluster, dsn):
    connections.close_all()
    with stopped(cluster):
        ended = []

        def send():
            with connections.using(connections.Database(dsn=dsn)):
                try:
                    service_bus.send(queue, [Message(b"during")])
                except BrokerUnavailable as exc:
                    ended.append(exc)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        eventually(lambda: ended, SECONDS)
    eventually(responds_again, 10)


@pytest.mark.slow
def test_a_long_statement_of_a_responsive_database_is_not_cancelled(dsn, on_cluster):
    """It takes longer than the patience, as reads for the archive, exports and sweeps do."""
    seconds = hangs.LOOK_SECONDS * 2 + hangs.PATIENCE_SECONDS + 1
    connection = connections.current()
    assert connection.execute("SELECT 1 FROM pg_sleep(%s)", [seconds]).fetchone() == (1,)


@pytest.mark.slow
def test_connections_of_django_time_out(cluster, dsn):
    """Django's connections are registered by a signal, whatever their class."""
    database = connections.Database(dsn=dsn)
    with psycopg.connect(dsn) as connection:
        hangs.watch(connection, database)
        with stopped(cluster):
            ended = []

            def ask():
                try:
                    connection.execute("SELECT 1")
                except psycopg.OperationalError as exc:
                    ended.append(exc)

            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            eventually(lambda: ended, SECONDS)
    eventually(responds_again, 10)


def test_the_watch_ends_with_the_last_connection(dsn):
    database = connections.Database(dsn=f"{dsn} application_name=ends")
    connection = psycopg.connect(dsn)
    hangs.watch(connection, database)
    assert database in hangs._watches
    connection.close()
    del connection
    eventually(lambda: database not in hangs._watches, 10)
