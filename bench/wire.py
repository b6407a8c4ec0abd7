"""The ports of the listener: Queue Storage over HTTP, compared with Azurite and with the Python API on the same database; and the
administration of Service Bus.

The listener is a process of its own (`manage.py listen`), and so is the client (`queue_client`). Messages have 1 KB, and history
is full. Azurite keeps its messages in its memory, and flushes nothing.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import uvloop
from azure.storage.queue import QueueClient

from broker_core import namespaces, queue_storage
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.queue_storage import accounts
from broker_core.service_bus import entities
from broker_core.service_bus.administration import elements
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas
from tests.azurite import server as azurite

from . import measuring, queue_client
from .measuring import TEXT, in_processes, timed
from .queue_client import CONNECTIONS, HOST, Client, Service, Signed

ROOT = Path(__file__).resolve().parent.parent
QUEUE = "orders"
WARM_UP = 200  # messages
FEWER = 5  # times fewer messages for Azurite: its gets take longer the more messages there are
IDLE = 150  # connections
KB, MB = 2**10, 2**20
WORK = ("put", "get and delete")
Rates = tuple[float, float]  # messages per second of each kind of work


def run(report) -> None:
    """Memory of connections, rates against Azurite and the Python API, and the times of queues."""
    logging.getLogger("azure").setLevel(logging.WARNING)
    with _listener() as (ours, listener), queue_client.client() as client, _azurite() as other:
        report.line("rows against Azurite", "measured" if other else "skipped", "" if other else azurite.install() or "")
        _memory(report, client, ours, listener)
        if other is not None:  # before the database has to vacuum what the rates leave
            _official_client(report, ours, other)
        _rates(report, client, ours, other)
        _queues(report, client, ours)
    with _listener("SERVICE_BUS_PORT") as (ours, _):
        _administration(report, ours.port)


# The servers


@contextmanager
def _listener(setting: str = "QUEUE_STORAGE_PORT") -> Iterator[tuple[Service, psutil.Process]]:
    """`manage.py listen` with one port, on the database of the benchmark, and a new account with a queue. setting: names the
    port."""
    listening = socket.create_server((HOST, 0), backlog=1024)
    port, fd = listening.getsockname()[1], listening.fileno()
    command = [sys.executable, "manage.py", "listen", "--socket", f"{setting}={fd}"]
    environment = os.environ | {setting: str(port)}
    name = f"bench{uuid4().hex[:8]}"
    queue_storage.create_account(name)
    queue_storage.create_queue(EntityAddress(name, QUEUE))
    process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[fd], stdout=subprocess.DEVNULL)
    try:
        yield Service(port, name, accounts.get_keys(name).primary_key, QUEUE), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)
        listening.close()
        queue_storage.delete_account(name)


@contextmanager
def _azurite() -> Iterator[Service | None]:
    """Azurite with a queue; None: there is none on this machine."""
    if azurite.install() is not None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="vitrine-azurite-"))
    try:
        with azurite.Server(folder) as server:
            service = Service(urlsplit(server.url).port or 0, azurite.ACCOUNT, server.key, QUEUE)
            _official(service).create_queue()
            yield service
    finally:
        shutil.rmtree(folder)


def _official(service: Service) -> QueueClient:
    credential = {"account_name": service.account, "account_key": service.key}
    return QueueClient(service.url, service.queue, credential=credential)


# Rates. Each round has the same work for each side, one after the other


def _rates(report, client: Client, ours: Service, other: Service | None) -> None:
    """Put, then get and delete, over 32 connections, against Azurite and the Python API."""
    _by_connections(client, ours, WARM_UP)
    count = measuring.scale.over_http
    if other is not None:
        few = count // FEWER
        _by_connections(client, other, WARM_UP)
        rounds = [
            tuple(_by_connections(client, service, few) for service in (ours, other)) for _ in range(2 * measuring.scale.turns)
        ]
        _compare(report, f"over {CONNECTIONS} connections, against Azurite in memory", rounds, 1.5)
    rounds = [
        (_by_connections(client, ours, count), in_processes([lambda: _by_tasks(ours, count)])[0])
        for _ in range(measuring.scale.turns)
    ]
    _compare(report, f"over {CONNECTIONS} connections, against the Python API from {CONNECTIONS} tasks", rounds, 0.25)


def _by_connections(client: Client, service: Service, count: int) -> Rates:
    put = client.call(queue_client.put, service, count, TEXT)
    return count / put, count / client.call(queue_client.get_and_delete, service, count)


def _by_tasks(service: Service, count: int) -> Rates:
    """The same with the Python API, from as many tasks."""
    address = EntityAddress(service.account, service.queue)
    actor = Actor("key", service.account, Right.ALL, f"key:{service.account}@{HOST}", namespace=service.account)

    async def put() -> None:
        await queue_storage.put.aio(address, TEXT, actor=actor)

    async def get_and_delete() -> None:
        [message] = await queue_storage.get.aio(address, actor=actor)
        await queue_storage.delete.aio(address, message.message_id, message.pop_receipt, actor=actor)

    async def seconds(work: Callable[[], Awaitable[None]], count: int) -> float:
        left = iter(range(count))

        async def repeat() -> None:
            for _ in left:
                await work()

        began = time.perf_counter()
        await asyncio.gather(*[repeat() for _ in range(CONNECTIONS)])
        return time.perf_counter() - began

    async def both() -> Rates:
        for work in (put, get_and_delete):
            await seconds(work, WARM_UP)
        return count / await seconds(put, count), count / await seconds(get_and_delete, count)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as in the listener
        return runner.run(both())


def _official_client(report, ours: Service, other: Service) -> None:
    """azure-storage-queue in one thread."""
    services = [_official(service) for service in (ours, other)]
    for service in services:
        _in_one_thread(service, 10)
    rounds = [
        tuple(_in_one_thread(service, measuring.scale.by_sdk) for service in services) for _ in range(2 * measuring.scale.turns)
    ]
    _compare(report, "with azure-storage-queue in one thread, against Azurite", rounds, 1.0)


def _in_one_thread(service: QueueClient, count: int) -> Rates:
    def get_and_delete() -> None:
        message = service.receive_message()
        assert message is not None
        service.delete_message(message)

    put, _ = timed(lambda: [service.send_message(TEXT) for _ in range(count)])
    got, _ = timed(lambda: [get_and_delete() for _ in range(count)])
    return count / put, count / got


def _compare(report, what: str, rounds: Sequence[tuple[Rates, ...]], target: float) -> None:
    """For each kind of work a row with the median ratio of the first side to the second, and a line with the spread."""
    for place, work in enumerate(WORK):
        pairs = [(first[place], second[place]) for first, second in rounds]
        ratios = sorted(a / b for a, b in pairs)
        report.row(f"HTTP {work} {what}", statistics.median(ratios), "times", target)
        ours, others = (statistics.median(side) for side in zip(*pairs, strict=True))
        report.line("", f"{ours:,.0f}/s", f"against {others:,.0f}/s; {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds")


# Queues


def _queues(report, client: Client, ours: Service) -> None:
    """The 95th percentiles of creating a queue, and of a page of half of all queues, on one connection."""
    count = measuring.scale.queues
    signed = Signed(ours)
    created = client.call(queue_client.repeated, ours, [signed.create(f"single-{n:05}") for n in range(100)], 201)
    client.call(queue_client.create_queues, ours, [f"queue-{n:05}" for n in range(count)])
    page = signed.request("GET", "/", [("comp", "list"), ("maxresults", str(count // 2))])
    listed = client.call(queue_client.repeated, ours, [page] * 40, 200)
    report.row("create queue: 95th percentile", _p95(created) * 1000, "ms", 100, at_most=True)
    report.line("", f"{statistics.median(created) * 1000:.3g} ms", "median")
    report.row(f"a page of {count // 2:,} of {count:,} queues: 95th percentile", _p95(listed) * 1000, "ms", 100, at_most=True)
    report.line("", f"{statistics.median(listed) * 1000:.3g} ms", "median")


# The administration of Service Bus, on one connection


def _administration(report, port: int) -> None:
    """The 95th percentiles of creating a queue, and of a page of 100 of all queues; and the time of a topic with many
    subscriptions, each with a rule, which is to grow with their number only."""
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    policy = shared_access.get_policy(namespace, shared_access.ROOT_POLICY)
    token = sas.sign(f"http://{HOST}:{port}/", policy.name, policy.primary_key, int(time.time()) + 3600)
    count, subscriptions = measuring.scale.queues, measuring.scale.subscriptions[-1]
    with closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:

        def request(method: str, path: str, body: bytes = b"") -> float:
            began = time.perf_counter()
            connection.request(method, path, body, {"Authorization": token})
            response = connection.getresponse()
            response.read()
            assert response.status in (200, 201), response.status
            return time.perf_counter() - began

        for n in range(count):
            entities.create_queue(EntityAddress(namespace, f"queue-{n:05}"))
        request("PUT", "/news", _entry("Topic"))
        taken = [_subscribe(request, n) for n in range(subscriptions)]
        created = [request("PUT", f"/single-{n:05}", _entry("Queue")) for n in range(100)]  # last: beside all the others
        listed = [request("GET", f"/$Resources/queues?$skip={n * count // 40}&$top=100") for n in range(40)]
    report.row("administration: create queue: 95th percentile", _p95(created) * 1000, "ms", 100, at_most=True)
    report.line("", f"{statistics.median(created) * 1000:.3g} ms", "median")
    report.row(
        f"administration: a page of 100 of {count:,} queues: 95th percentile", _p95(listed) * 1000, "ms", 100, at_most=True
    )
    report.line("", f"{statistics.median(listed) * 1000:.3g} ms", "median")
    half = subscriptions // 2
    grown = sum(taken[half:]) / sum(taken[:half])
    report.row("administration: the second half of a topic's subscriptions and rules, against the first", grown, "times")
    report.line(f"a topic with {subscriptions:,} subscriptions, each with a rule", f"{sum(taken):.3g} s", "")


def _subscribe(request: Callable[[str, str, bytes], float], number: int) -> float:
    """A subscription with a rule of its own."""
    path = f"/news/Subscriptions/s-{number:05}"
    sql = f"<Filter i:type='SqlFilter'><SqlExpression>a = {number}</SqlExpression></Filter>"
    return request("PUT", path, _entry("Subscription")) + request("PUT", f"{path}/Rules/own", _entry("Rule", sql))


def _entry(kind: str, inner: str = "") -> bytes:
    declared = f"xmlns='{elements.SERVICE_BUS}' xmlns:i='{elements.INSTANCE}'"
    description = f"<{kind}Description {declared}>{inner}</{kind}Description>"
    return f"<entry xmlns='{elements.ATOM}'><content>{description}</content></entry>".encode()


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


# Memory


def _memory(report, client: Client, ours: Service, listener: psutil.Process) -> None:
    """What an idle connection takes that has had a request, and whether connections that have come and gone leave anything."""
    client.call(queue_client.hold, ours, 1)
    before = listener.memory_info().rss
    client.call(queue_client.hold, ours, IDLE)
    held = listener.memory_info().rss
    client.call(queue_client.let_go)
    report.row("memory of the listener for an idle connection", (held - before) / IDLE / KB, "KB", 100, at_most=True)
    count = measuring.scale.visits
    client.call(queue_client.come_and_go, ours, count // 5)
    early = listener.memory_info().rss
    client.call(queue_client.come_and_go, ours, count)
    late = listener.memory_info().rss
    name = f"memory of the listener after {count:,} further connections, in times of that before"
    report.row(name, late / early, "times", 1.05, at_most=True)
    report.line("", f"{late / MB:.0f} MB", f"against {early / MB:.0f} MB")
