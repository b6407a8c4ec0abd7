"""A send over HTTP beside anonymous pages: the site as a process, one client that sends, another process that asks for pages."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from statistics import quantiles
from urllib.parse import urlsplit

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities

from .http import _Client
from .live import site

SENDS_ALONE = 300
PAGES = 300  # at once
ROUNDS = 3
PATHS = ("/no-such-page", "/sign-in/")


def run(report) -> None:
    """The p95 of a send alone and beside PAGES requests at once, and their ratio, each path on a server of its own."""
    address = EntityAddress("bench-beside", "q")
    namespaces.ensure_namespace(address.namespace, Family.SERVICE_BUS)
    entities.ensure_queue(address, max_size_in_megabytes=5120)
    for path in PATHS:
        with site() as (url, _):
            port = urlsplit(url).port
            client = _Client(port, address)
            asyncio.run(_sends(client, port, SENDS_ALONE))  # prepares statements
            alone = _p95(asyncio.run(_sends(client, port, SENDS_ALONE)))
            beside, answers = _beside(client, port, path)
        report.row(f"send beside {PAGES} x GET {path}: p95 alone", alone * 1000, "ms", None)
        report.row(f"send beside {PAGES} x GET {path}: p95", _p95(beside) * 1000, "ms", None)
        report.row(f"send beside {PAGES} x GET {path}: worst", max(beside) * 1000, "ms", None)
        report.row(f"send beside {PAGES} x GET {path}: p95 against alone", _p95(beside) / alone, "times", 3, at_most=True)
        for status, count in sorted(answers.items()):
            report.row(f"send beside {PAGES} x GET {path}: answers {status}", count, "pages", None)


def _beside(client: _Client, port: int, path: str) -> tuple[list[float], Counter[int]]:
    """Seconds of the sends made while the pages are asked for, and the pages' statuses."""
    context = multiprocessing.get_context("spawn")
    answers, asking = context.Queue(), context.Event()
    pages = context.Process(target=_ask, args=(port, path, answers, asking), daemon=True)
    pages.start()
    asking.wait(30)
    took = asyncio.run(_sends(client, port, 10**6, answers.empty))
    statuses = answers.get()
    pages.join()
    return took, statuses


def _p95(took: list[float]) -> float:
    return quantiles(took, n=20)[-1] if len(took) > 1 else took[0]


async def _sends(client: _Client, port: int, most: int, goes_on=lambda: True) -> list[float]:
    reader, writer = await asyncio.open_connection("localhost", port)
    took = []
    while len(took) < most and goes_on():
        began = time.perf_counter()
        await client._send_one(reader, writer)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    writer.close()
    return took


def _ask(port: int, path: str, answers, asking) -> None:
    """Ask for the page PAGES times at once, ROUNDS times; the process of the other client."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    async def ask() -> int:
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1])

    async def ask_all() -> list[int]:
        return [status for _ in range(ROUNDS) for status in await asyncio.gather(*[ask() for _ in range(PAGES)])]

    asking.set()
    answers.put(Counter(asyncio.run(ask_all())))
