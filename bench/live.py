"""From a committed send to the changed row in an open browser: the whole way, feed, rendering, socket and morph included.

The site is a process of its own, as under `make up`; the browser runs on the same machine, so both read the same clock.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from uuid import uuid4

from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.service_bus import entities

SAMPLES = 60
P95_MS = 300
BUSY_PER_SECOND = 100
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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
    namespaces.create_namespace(address.namespace)
    for queue in (address, other):
        entities.create_queue(queue)
    user = get_user_model().objects.create_superuser(f"bench-{uuid4().hex[:8]}")
    try:
        with _site() as url, _open_page(url, f"/entities/{address}", user) as page:
            _tell(report, "quiet", _delays(page, address))
            with _traffic(other):
                _tell(report, f"{BUSY_PER_SECOND} messages/s elsewhere", _delays(page, address))
    finally:
        user.delete()
        for queue in (address, other):
            entities.delete_queue(queue)


def _tell(report, how: str, delays: list[float]) -> None:
    report.row(f"committed send to changed row, p50, {how}", median(delays), "ms", None)
    report.row(f"committed send to changed row, p95, {how}", quantiles(delays, n=20)[-1], "ms", P95_MS, at_most=True)


def _delays(page, address: EntityAddress) -> list[float]:
    delays = []
    for _ in range(SAMPLES):
        time.sleep(random.uniform(0.05, 0.35))  # so that no sample keeps step with the feed
        [number] = service_bus.send(address, [Message(b"x")])
        committed = time.time() * 1000
        script = "(end) => Object.entries(window.seen).find(([id]) => id.endsWith(end))?.[1] ?? false"
        seen = page.wait_for_function(script, arg=f"-0-{number}", timeout=10_000).json_value()
        delays.append(seen - committed)
        service_bus.receive_and_delete(address)
    return delays


@contextmanager
def _traffic(address: EntityAddress) -> Iterator[None]:
    done = threading.Event()

    def keep_busy() -> None:
        while not done.wait(1 / BUSY_PER_SECOND):
            service_bus.send(address, [Message(b"x")])
            service_bus.receive_and_delete(address)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    yield
    done.set()
    thread.join()


@contextmanager
def _site() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "explorer.site.web", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env={**os.environ, "CONNECTIONS_PER_ADDRESS": "0"})
    try:
        url = f"http://127.0.0.1:{port}"
        _await(url)
        yield url
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
def _open_page(url: str, path: str, user):
    from playwright.sync_api import sync_playwright

    client = Client()
    client.force_login(user)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    found = next(filter(None, map(shutil.which, _BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context()
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])
        page = context.new_page()
        page.goto(url + path)
        page.wait_for_selector('#live[data-live="live"]')
        page.evaluate(_WATCH)
        yield page
        browser.close()
