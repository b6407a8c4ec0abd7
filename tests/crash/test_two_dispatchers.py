"""Processes whose calls wait for the same lists: nothing is received twice, and nobody starves."""

import json
import subprocess
import sys
import textwrap
from collections import Counter
from uuid import uuid4

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

from .conftest import ROOT

RECEIVERS, PROCESSES, MESSAGES, SESSIONS = 32, 2, 1500, 20

# Its receivers complete what they get, until one gets "end"; it prints which of them got what. arguments: dsn, queue, how
RECEIVE = textwrap.dedent("""
    import asyncio, json, os, sys, threading
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django
    django.setup()
    from broker_core import service_bus
    from broker_core.common.errors import NoSessionAvailable
    from broker_core.common.types import EntityAddress
    from broker_core.store import aio, connections
    from broker_core.store.connections import Database, using

    dsn, namespace, path, how, count = sys.argv[1:]
    queue, got = EntityAddress(namespace, path), [[] for _ in range(int(count))]

    async def receive(n):
        while True:
            found = await service_bus.receive.aio(queue, n % 3 + 1, max_wait_seconds=4)
            if not found:
                return
            got[n] += [message.body.decode() for message in found]
            report = await service_bus.complete.aio(queue, [message.lock_token for message in found])
            assert not report.lost

    async def receive_from_sessions(n):
        while True:
            try:
                session = await service_bus.accept_session.aio(queue, max_wait_seconds=4, max_count=3)
            except NoSessionAvailable:
                return
            found = session.messages
            while found:
                got[n] += [message.body.decode() for message in found]
                await service_bus.complete.aio(queue, [message.lock_token for message in found])
                found = await service_bus.receive_from_session.aio(session, 3)
            await service_bus.close_session.aio(session)

    async def main():
        await asyncio.gather(*({"messages": receive, "sessions": receive_from_sessions}[how](n) for n in range(int(count))))

    def in_thread(n):
        with using(Database(dsn=dsn)):
            while found := service_bus.receive_and_delete(queue, n % 3 + 1, max_wait_seconds=4):
                got[n] += [message.body.decode() for message in found]
            connections.close_all_of_this_thread()

    with using(Database(dsn=dsn)):
        print("ready", flush=True)
        if how == "threads":
            threads = [threading.Thread(target=in_thread, args=(n,)) for n in range(int(count))]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        else:
            asyncio.run(main())
    print(json.dumps(got), flush=True)
""")


@pytest.fixture
def receive(on_cluster, dsn):
    """receive(queue, how, receivers, send): what each receiver of each process got, while `send` sends."""
    started = []

    def run(queue, how, receivers, send):
        for _ in range(PROCESSES):
            program = [sys.executable, "-c", RECEIVE, dsn, queue.namespace, queue.path, how, str(receivers)]
            started.append(subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        for each in started:
            assert each.stdout.readline() == "ready\n"
        send()
        return [got for each in started for got in json.loads(each.stdout.readline())]

    yield run
    for each in started:
        each.kill()
        each.communicate()


def make_queue(**settings):
    queue = EntityAddress(f"n-{uuid4().hex[:8]}", "orders")
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    entities.create_queue(queue, **settings)
    return queue


def send_all(queue, sessions=0):
    """Singly and in batches, so that there is now nothing, now a lot."""
    bodies = [str(n) for n in range(MESSAGES)]
    at = 0
    while at < MESSAGES:
        size = (1, 1, 3, 40)[at % 4]
        batch = bodies[at : at + size]
        service_bus.send(queue, [Message(b.encode(), session_id=f"s{int(b) % sessions}" if sessions else None) for b in batch])
        at += size


@pytest.mark.slow
@pytest.mark.parametrize(("how", "receivers"), [("messages", RECEIVERS), ("threads", 8)])
def test_each_message_is_received_once_and_every_receiver_gets_messages(receive, how, receivers):
    queue = make_queue()
    got = receive(queue, how, receivers, lambda: send_all(queue))
    counted = Counter(body for each in got for body in each)
    assert set(counted.values()) == {1} and len(counted) == MESSAGES
    assert all(got), [len(each) for each in got]
    assert not service_bus.peek(queue)


@pytest.mark.slow
def test_messages_of_a_session_are_received_in_order(receive):
    """SB-114."""
    queue = make_queue(requires_session=True)
    got = receive(queue, "sessions", RECEIVERS, lambda: send_all(queue, SESSIONS))
    counted = Counter(body for each in got for body in each)
    assert set(counted.values()) == {1} and len(counted) == MESSAGES
    for each in got:  # a receiver may have a session several times, later ones with later messages
        for session in range(SESSIONS):
            numbers = [int(body) for body in each if int(body) % SESSIONS == session]
            assert numbers == sorted(numbers)
    assert not service_bus.peek(queue)
