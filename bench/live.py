"""The latency from a committed send to the changed row in a browser, and the cost of 50 viewers for the web process.

The site is a separate process, as in `make up`; the browser runs on the same machine, so both read the same clock.

The second part decided for pushing fragments (50 viewers, two busy cores, November 2026). Processor time of the web process and
PostgreSQL together, for each fragment that reached a viewer:

                                           pushed by the feed    fetched by the page when it is told of a change
    50 viewers of one queue                3 ms                  42 ms
    50 viewers of different queues         27 ms                 44 ms

A fetch authenticates again, opens its own database connections, and renders the fragment for only one viewer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median, quantiles
from urllib.parse import quote
from uuid import uuid4

import psutil
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from broker_core import namespaces, service_bus
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests import browser

SAMPLES = 60
P95_MS = 250
BUSY_PER_SECOND = 100
VIEWERS = 50
SETTLE_SECONDS, WATCHED_SECONDS = 8, 20
MOST_OF_A_PROCESSOR = 0.7
_WATCH = """() => {
    window.seen = {};
    new MutationObserver(() => {
        const now = performance.timeOrigin + performance.now();
        for (const row of document.querySelectorAll("#rows tr")) window.seen[row.id] ??= now;
    }).observe(document.getElementById("messages").parentNode, { childList: true, subtree: true });
}"""


def run(report) -> None:
    """Milliseconds until a sent message is a row in the browser: on a quiet broker, and with traffic on another queue."""
    address = EntityAddress(f"bench-{uuid4().hex[:8]}", "watched")
    other = EntityAddress(address.namespace, "busy")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    for queue in (address, other):
        entities.create_queue(queue)
    user = get_user_model().objects.create_superuser(f"bench-{uuid4().hex[:8]}")
    many = [EntityAddress(address.namespace, f"seen-{number}") for number in range(VIEWERS)]
    try:
        with site() as (url, process):
            with open_page(url, f"/entities/{address}", user) as page:
                _report_delays(report, "quiet", _delays(page, address))
                with traffic([other]):
                    _report_delays(report, f"{BUSY_PER_SECOND} messages/s elsewhere", _delays(page, address))
            for queue in many:
                entities.create_queue(queue)
                service_bus.send(queue, [Message(b"x" * 100, message_id=f"order-{number}") for number in range(50)])
            for name, seen in (("one queue", many[:1]), (f"{VIEWERS} queues", many)):
                with traffic(seen):
                    _report_cost(report, name, asyncio.run(_watched(url, process, cookie_of(user), seen)))
    finally:
        user.delete()
        for queue in (address, other, *many):
            with suppress(EntityNotFound):
                entities.delete_queue(queue)


def _report_delays(report, how: str, delays: list[float]) -> None:
    report.row(f"committed send to changed row, p50, {how}", median(delays), "ms", None)
    report.row(f"committed send to changed row, p95, {how}", quantiles(delays, n=20)[-1], "ms", P95_MS, at_most=True)


def _report_cost(report, of_what: str, cost: tuple[float, float, float]) -> None:
    processor, kilobytes, frames = cost
    report.row(
        f"{VIEWERS} viewers of {of_what}: processor time of the web process", processor, "s/s", MOST_OF_A_PROCESSOR, at_most=True
    )
    report.row(f"{VIEWERS} viewers of {of_what}: sent over all sockets", kilobytes, "KB/s", None)
    report.row(f"{VIEWERS} viewers of {of_what}: frames to each", frames, "/s", None)


async def _watched(url: str, process: psutil.Process, cookie: str, queues: list[EntityAddress]) -> tuple[float, float, float]:
    """Per second: seconds of processor time, kilobytes on the wire, and frames to each viewer."""
    received = {"bytes": 0, "frames": 0}

    class Counting(ClientConnection):
        def data_received(self, data: bytes) -> None:
            received["bytes"] += len(data)
            super().data_received(data)

    async def look(queue: EntityAddress) -> None:
        async with viewer(url, f"/entities/{queue}", cookie, Counting) as socket:
            async for frame in socket:
                received["frames"] += "fragments" in json.loads(frame)

    tasks = [asyncio.create_task(look(queues[number % len(queues)])) for number in range(VIEWERS)]
    await asyncio.sleep(SETTLE_SECONDS)
    received.update(bytes=0, frames=0)
    before, began = process.cpu_times(), time.monotonic()
    await asyncio.sleep(WATCHED_SECONDS)
    after, took = process.cpu_times(), time.monotonic() - began
    broken = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not broken, broken[0]
    used = after.user + after.system - before.user - before.system
    return used / took, received["bytes"] / took / 1000, received["frames"] / took / VIEWERS


def viewer(url: str, page: str, cookie: str, connection: type[ClientConnection] = ClientConnection) -> connect:
    """The socket of somebody who looks at a page."""
    return connect(
        f"{url.replace('http', 'ws', 1)}/live/?page={quote(page, safe='')}", origin=Origin(url), create_connection=connection,
        additional_headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}, max_size=None,
    )  # fmt: skip


def _delays(page, address: EntityAddress) -> list[float]:
    delays = []
    for _ in range(SAMPLES):
        time.sleep(random.uniform(0.05, 0.35))  # so that samples are not synchronised with the feed
        [number] = service_bus.send(address, [Message(b"x")])
        committed = time.time() * 1000
        script = "(end) => Object.entries(window.seen).find(([id]) => id.endsWith(end))?.[1] ?? false"
        seen = page.wait_for_function(script, arg=f"-0-{number}", timeout=10_000).json_value()
        delays.append(seen - committed)
        service_bus.receive_and_delete(address)
    return delays


@contextmanager
def traffic(queues: list[EntityAddress]) -> Iterator[None]:
    done = threading.Event()

    def keep_busy() -> None:
        for address in itertools.cycle(queues):
            if done.wait(1 / BUSY_PER_SECOND):
                return
            service_bus.send(address, [Message(b"x")])
            service_bus.receive_and_delete(address)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    yield
    done.set()
    thread.join()


@contextmanager
def site() -> Iterator[tuple[str, psutil.Process]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "explorer.site.web", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env={**os.environ, "CONNECTIONS_PER_ADDRESS": "0"})
    try:
        url = f"http://127.0.0.1:{port}"
        _await(url)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(15)


def _await(url: str) -> None:
    ends_at = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=2)
            return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.1)


@contextmanager
def open_page(url: str, path: str, user):
    from playwright.sync_api import sync_playwright

    session = cookie_of(user)
    path = browser.find()
    if path is None:
        raise SystemExit("This measurement needs a browser. To install one: .venv/bin/python -m tests.browser")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        context = launched.new_context()
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])
        page = context.new_page()
        page.goto(url + path)
        page.wait_for_selector('#live[data-live="live"]')
        page.evaluate(_WATCH)
        yield page
        launched.close()


def cookie_of(user) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value
