"""The HTTP front end against the Python API on the same database: 1 KB bodies, full history.

The server is a separate process, as in `make up`; the clients are plain sockets, so that the server is measured.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import uvicorn
from psycopg.conninfo import make_conninfo

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.http import application
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

SECONDS = 3.0  # of each measurement
CONNECTIONS = (1, 32)
WAITING = 20_000  # messages in the queue for the receivers
BODY = os.urandom(1024)
_DSN = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey")


def run(report) -> None:
    """Requests per second over HTTP, and their ratio to calls per second of the Python API on one connection."""
    address = EntityAddress("bench-http", f"q-{uuid4().hex[:8]}")
    namespaces.ensure_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address, max_size_in_megabytes=5120)
    try:
        python = _python_api(address)
        with _Server() as server:
            client = _Client(server.port, address)
            for count in CONNECTIONS:
                _report(report, count, python, asyncio.run(client.rates(count)))
    finally:
        entities.delete_queue(address)


def _report(report, count: int, python: tuple[float, float], http: tuple[float, float]) -> None:
    for work, alone, rate in zip(("send", "receive + complete"), python, http, strict=True):
        name = f"HTTP {work}, {count} connection{'s' if count > 1 else ''}"
        report.row(name, rate, "messages/s", None)
        report.row(f"{name}, against the Python API on one", rate / alone, "times", None)


def _python_api(address: EntityAddress) -> tuple[float, float]:
    """Messages sent per second, and received and completed per second, one at a time on one connection."""

    def receive_and_complete():
        (message,) = service_bus.receive(address)
        service_bus.complete(address, message.lock_token)

    sent = _rate(lambda: service_bus.send(address, [Message(BODY)]))
    for _ in range(WAITING // 100):
        service_bus.send(address, [Message(BODY)] * 100)
    return sent, _rate(receive_and_complete, most=WAITING)


def _rate(work: Callable[[], object], most: int = 10**9) -> float:
    work()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS and count < most:
        work()
        count += 1
    return count / (time.perf_counter() - began)


class _Client:
    """Keep-alive connections with a minimal HTTP implementation."""

    def __init__(self, port: int, address: EntityAddress):
        self._port, self._path = port, f"/servicebus/{address}/messages"
        key = shared_access.get_policy(address.namespace, shared_access.ROOT_POLICY).primary_key
        token = sas.sign(
            f"http://localhost/servicebus/{address.namespace}", shared_access.ROOT_POLICY, key, int(time.time()) + 3600
        )
        self._common = f"Host: localhost\r\nAuthorization: {token}\r\n"
        self._send = self._request("POST", self._path, BODY)
        self._receive = self._request("POST", f"{self._path}/head?timeout=0")

    async def rates(self, count: int) -> tuple[float, float]:
        opened = [await asyncio.open_connection("localhost", self._port) for _ in range(count)]
        try:
            return await self._rate(opened, self._send_one), await self._rate(opened, self._receive_and_complete)
        finally:
            for _, writer in opened:
                writer.close()

    async def _rate(self, opened: list, work: Callable[..., Awaitable[bool]]) -> float:
        ends, began = time.perf_counter() + SECONDS, time.perf_counter()

        async def repeat(reader, writer) -> int:
            count = 0
            while time.perf_counter() < ends and await work(reader, writer):
                count += 1
            return count

        counts = await asyncio.gather(*[repeat(*connection) for connection in opened])
        return sum(counts) / (time.perf_counter() - began)

    async def _send_one(self, reader, writer) -> bool:
        status, _ = await self._exchange(reader, writer, self._send)
        assert status == 201, status
        return True

    async def _receive_and_complete(self, reader, writer) -> bool:
        status, location = await self._exchange(reader, writer, self._receive)
        if status == 204:
            return False
        status, _ = await self._exchange(reader, writer, self._request("DELETE", location))
        assert status == 200, status
        return True

    def _request(self, method: str, target: str, body: bytes = b"") -> bytes:
        head = f"{method} {target} HTTP/1.1\r\n{self._common}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _exchange(self, reader, writer, request: bytes) -> tuple[int, str]:
        """Send a request. Returns the status and the path of Location."""
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        await reader.readexactly(int(fields.get("content-length", 0)))
        return int(head.split(" ", 2)[1]), fields.get("location", "").partition("localhost")[2]


class _Server:
    """uvicorn in a separate process, on a free port."""

    def __enter__(self) -> _Server:
        listening = socket.create_server(("localhost", 0), backlog=128)
        self.port = listening.getsockname()[1]
        parameters = connections.current_database().parameters()
        dsn = make_conninfo(**{name: parameters[name] for name in _DSN if parameters.get(name)})
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(listening, dsn), daemon=True)
        self._process.start()
        return self

    def __exit__(self, *exc) -> None:
        self._process.terminate()
        self._process.join(10)


def _serve(listening: socket.socket, dsn: str) -> None:
    with connections.using(connections.Database(dsn=dsn)):
        uvicorn.Server(uvicorn.Config(application, log_level="warning", access_log=False)).run(sockets=[listening])
