"""A minimal client of Queue Storage's REST API in a process of its own: kept-alive connections, little work for each request.

It costs a fraction of what the official clients do, so that the servers are measured. Each request is signed with the account's
key; only the text of a delete differs from call to call.
"""

from __future__ import annotations

import asyncio
import hmac
import multiprocessing
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httptools
import uvloop

from broker_core.wire.http.dates import write_rfc1123

CONNECTIONS = 32
VERSION = "2021-12-02"
HOST = "127.0.0.1"
_MESSAGE = re.compile(rb"<MessageId>([^<]+)</MessageId>.*<PopReceipt>([^<]+)</PopReceipt>", re.DOTALL)


@dataclass(frozen=True)
class Service:
    """An account of a queue service on this machine, and a queue in it."""

    port: int
    account: str
    key: str
    queue: str = ""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/{self.account}"


class Signed:
    """Requests to one service, all with the date of their making: they are valid for 15 minutes."""

    def __init__(self, service: Service):
        self._service, self._key = service, b64decode(service.key)
        self._headers = f"x-ms-date:{write_rfc1123(datetime.now(UTC))}\nx-ms-version:{VERSION}\n"

    def request(self, method: str, path: str = "", query: Sequence[tuple[str, str]] = (), body: bytes = b"") -> bytes:
        """path: below the account. query: in the order of its names, the values not yet encoded."""
        path = f"/{self._service.account}{path}"
        kind, length = ("application/xml", str(len(body))) if body else ("", "")
        signed_query = "".join(f"\n{name}:{value}" for name, value in query)
        text = f"{method}\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\n{self._headers}/{self._service.account}{path}{signed_query}"
        signature = b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode()
        sent_query = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
        target = f"{path}?{sent_query}" if query else path
        head = [
            f"{method} {target} HTTP/1.1",
            f"Host: {HOST}:{self._service.port}",
            f"Authorization: SharedKey {self._service.account}:{signature}",
            *([f"Content-Type: {kind}"] if kind else []),
            f"Content-Length: {length or 0}",
        ]
        return ("\r\n".join(head) + "\r\n" + self._headers.replace("\n", "\r\n") + "\r\n").encode() + body

    def put(self, text: str) -> bytes:
        body = f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>".encode()
        return self.request("POST", f"/{self._service.queue}/messages", body=body)

    def get(self) -> bytes:
        return self.request("GET", f"/{self._service.queue}/messages")

    def delete(self, message_id: str, receipt: str) -> bytes:
        return self.request("DELETE", f"/{self._service.queue}/messages/{message_id}", [("popreceipt", receipt)])

    def create(self, queue: str) -> bytes:
        return self.request("PUT", f"/{queue}")


class Connection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._body: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        answer.set_result((self._parser.get_status_code(), b"".join(self._body)))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    async def exchange(self, request: bytes, expected: int) -> bytes:
        """The body of the answer, which must have this status."""
        self._body.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        status, body = await self._answer
        assert status == expected, (status, body[:500])
        return body


async def connected(service: Service, count: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Connection, HOST, service.port))[1] for _ in range(count)]


async def _each(service: Service, count: int, work: Callable[[Connection], Awaitable[bool]]) -> float:
    """Seconds in which CONNECTIONS connections do something `count` times, as long as it returns True."""
    connections = await connected(service, CONNECTIONS)
    left = iter(range(count))

    async def repeat(connection: Connection) -> None:
        for _ in left:
            if not await work(connection):
                raise RuntimeError("the queue became empty too soon")

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, connections))
    took = time.perf_counter() - began
    for connection in connections:
        connection.transport.close()
    return took


async def put(service: Service, count: int, text: str) -> float:
    """Seconds to put so many messages."""
    request = Signed(service).put(text)

    async def one(connection: Connection) -> bool:
        await connection.exchange(request, 201)
        return True

    return await _each(service, count, one)


async def get_and_delete(service: Service, count: int) -> float:
    """Seconds to get and delete so many messages, one by one."""
    signed = Signed(service)
    request = signed.get()

    async def one(connection: Connection) -> bool:
        found = _MESSAGE.search(await connection.exchange(request, 200))
        if found:
            await connection.exchange(signed.delete(found[1].decode(), found[2].decode()), 204)
        return found is not None

    return await _each(service, count, one)


async def create_queues(service: Service, names: list[str]) -> float:
    signed, left = Signed(service), iter(names)

    async def one(connection: Connection) -> bool:
        await connection.exchange(signed.create(next(left)), 201)
        return True

    return await _each(service, len(names), one)


async def repeated(service: Service, requests: list[bytes], expected: int) -> list[float]:
    """The seconds of each of these requests, on one connection, after a first one that is not counted."""
    [connection] = await connected(service, 1)
    took = []
    for request in requests:
        began = time.perf_counter()
        await connection.exchange(request, expected)
        took.append(time.perf_counter() - began)
    connection.transport.close()
    return took[1:]


async def come_and_go(service: Service, count: int) -> None:
    """So many connections, a few at a time, each with a request."""
    request = Signed(service).request("GET", "/", [("comp", "list"), ("maxresults", "1")])
    for _ in range(0, count, CONNECTIONS):
        connections = await connected(service, CONNECTIONS)
        await asyncio.gather(*[connection.exchange(request, 200) for connection in connections])
        for connection in connections:
            connection.transport.close()


_held: list[Connection] = []


async def hold(service: Service, count: int) -> None:
    """Open so many connections and keep them, after a request on each."""
    request = Signed(service).get()
    for connection in await connected(service, count):
        await connection.exchange(request, 200)
        _held.append(connection)


async def let_go() -> None:
    while _held:
        _held.pop().transport.close()


class Client:
    """The process. `call` runs one of the functions above in it and returns its result."""

    def __init__(self, pipe: Any):
        self._pipe = pipe

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        self._pipe.send((function, arguments))
        result = self._pipe.recv()
        if isinstance(result, Exception):
            raise result
        return result


@contextmanager
def client() -> Iterator[Client]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield Client(ours)
    finally:
        ours.send(None)
        process.join(10)


def _serve(pipe: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while work := pipe.recv():
            function, arguments = work
            try:
                pipe.send(runner.run(function(*arguments)))
            except Exception as exc:
                pipe.send(RuntimeError(f"{function.__name__}: {exc!r}"))
