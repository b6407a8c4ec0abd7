"""Two processes with 32 consumers each on one queue: nothing is delivered twice, and nobody is starved (RMQ-110, RMQ-145)."""

import json
import subprocess
import sys
import textwrap
from collections import Counter
from uuid import uuid4

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Publication
from tests.eventually import eventually
from tests.rabbitmq.shortcuts import ledger_agrees, present

from .conftest import ROOT

CONSUMERS, MESSAGES = 32, 1_500

# It consumes until it reads a line, and prints which of its consumers got which messages. Prefetches differ.
CHILD = textwrap.dedent("""
    import asyncio, json, os, sys
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django
    django.setup()
    from broker_core import rabbitmq
    from broker_core.store import aio
    from broker_core.store.connections import Database, using

    dsn, vhost, count, no_ack = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "no_ack"

    async def consuming(connection, prefetch):
        channel = connection.channel()
        await channel.qos.aio(prefetch)
        await channel.consume.aio("q", no_ack=no_ack)
        return channel, prefetch

    async def consume(channel, prefetch, got):
        while True:
            for delivery in await channel.deliveries.aio(4, max_wait_seconds=60):
                assert no_ack or channel.outstanding <= prefetch
                got.append(int(delivery.body))
                if not no_ack:
                    await channel.ack.aio(delivery.delivery_tag)

    async def main():
        connections = [await rabbitmq.connect.aio(vhost, "child") for _ in range(4)]
        got = [[] for _ in range(count)]
        channels = [await consuming(connections[n % 4], 1 + n % 3) for n in range(count)]
        tasks = [asyncio.create_task(consume(*channels[n], got[n])) for n in range(count)]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise result
        for n, (channel, _) in enumerate(channels):  # what was delivered to a call that was cancelled
            got[n] += [int(delivery.body) for delivery in await channel.deliveries.aio(100)]
        for connection in connections:
            await rabbitmq.connections.connections.close.aio(connection)
        await aio.close()
        print(json.dumps(got), flush=True)

    with using(Database(dsn=dsn)):
        asyncio.run(main())
""")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ack", "no_ack"])
def test_consumers_of_two_processes_share_a_queue(on_cluster, dsn, mode):
    vhost = f"v-{uuid4().hex[:8]}"
    rabbitmq.create_vhost(vhost)
    queue = rabbitmq.declare_queue(EntityAddress(vhost, "q")).address
    program = [sys.executable, "-c", CHILD, dsn, vhost, str(CONSUMERS), mode]
    children = [subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [child.stdout.readline() for child in children] == ["ready\n"] * 2
        for at in range(0, MESSAGES, 50):
            rabbitmq.publish(vhost, [Publication(b"%d" % n, routing_key="q") for n in range(at, at + 50)])
        eventually(lambda: not present(queue), seconds=120)
        document = [json.loads(child.communicate("\n", timeout=60)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    got = Counter(n for child in document for consumer in child for n in consumer)
    for child in document:
        assert all(child), f"consumers without a message: {[n for n, consumer in enumerate(child) if not consumer]}"
    assert got == Counter(range(MESSAGES)) and ledger_agrees(queue)
