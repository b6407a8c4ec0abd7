"""Whole requests in this process: bytes go through the HTTP parser, its limits, the application and the database, and the bytes
of the answers come back. Only the socket is missing.

What stands for a port's applications (`Served`) fills in what a changed request needs to come further: signatures, dates, ids.
In all of them, LENGTH is replaced by the length of the body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from xml.parsers import expat

import uvicorn
from uvicorn.server import ServerState

from broker_core.wire.asgi import Application
from broker_core.wire.bounded_http import BoundedHttp
from broker_core.wire.http import clients

HTTP_REFUSALS = (400, 408, 429, 431)  # of what is no request of HTTP; these close the connection
LOOK_SECONDS = 0.05  # between two looks whether a request waits for messages
Scope = Mapping[str, Any]


class Finding(AssertionError):
    """The server has done what it must not."""


class Transport(asyncio.Transport):
    """The server's side of a connection without a socket."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 10_001)})
        self.written = bytearray()
        self.is_closed = False

    def write(self, data) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = write_eof = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@dataclass
class Response:
    """headers: by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Served(Protocol):
    """What a port serves, and how it answers."""

    @property
    def application(self) -> Application: ...

    async def fill(self, data: bytes) -> bytes:
        """The bytes with what stands for signatures, dates and ids replaced by these."""
        ...

    def check(self, scope: Scope | None, response: Response) -> None:
        """Raise Finding for a response that is not as documented. scope: of its request; None: it is of none."""
        ...


class Requests:
    """Sends requests to an application in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, served: Served):
        self._loop, self._served, self._errors = loop, served, _Errors()
        self._config = uvicorn.Config(
            self._noting_scope,
            interface="asgi3",
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        self._config.load()
        self._scopes: list[Scope] = []

    def __call__(self, data: bytes) -> list[Response]:
        """Send the bytes on a connection of their own; returns the answers. Raises Finding."""
        with self._errors:
            return self._loop.run_until_complete(self._exchange(data))

    async def _exchange(self, data: bytes) -> list[Response]:
        length = len(data.partition(b"\r\n\r\n")[2])
        data = await self._served.fill(data.replace(b"LENGTH", str(length).encode(), 1))
        state, transport = ServerState(), Transport()
        protocol = BoundedHttp(self._config, state, {}, self._loop)
        self._scopes.clear()
        protocol.connection_made(transport)
        protocol.data_received(data)
        while state.tasks:
            if protocol._in_message or _waits():  # the end of the request, or a message, is missing and never comes
                protocol.connection_lost(None)
            await asyncio.wait(set(state.tasks), timeout=LOOK_SECONDS)
        if protocol in state.connections:
            protocol.connection_lost(None)
        found = _read(bytes(transport.written), [scope["method"] for scope in self._scopes])
        for scope, response in zip([*self._scopes, *[None] * len(found)], found, strict=False):
            self._served.check(scope, response)
        return found

    async def _noting_scope(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self._scopes.append(scope)
        await self._served.application(scope, receive, send)


def _waits() -> bool:
    """Whether a request waits for messages."""
    return any(client.waiting for client in clients._clients.values())


class _Errors(logging.Handler):
    """Turns what the server logs as an error into a finding."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)

    def __enter__(self) -> None:
        self.seen.clear()
        logging.getLogger().addHandler(self)

    def __exit__(self, *exc: object) -> None:
        logging.getLogger().removeHandler(self)
        if self.seen and exc[0] is None:
            record = self.seen[0]
            raise Finding(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)


def _read(data: bytes, methods: list[str]) -> list[Response]:
    """The responses in the bytes that were sent. methods: of their requests; what follows is not of the application."""
    found: list[Response] = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        if not separator:
            raise Finding(f"a response without an end: {head[:200]!r}")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in lines)}
        status = int(line.split()[1])
        if status == 100:
            continue
        method = methods[len(found)] if len(found) < len(methods) else ""
        length = 0 if method == "HEAD" or status == 204 else int(headers["content-length"])
        if length > len(data):
            raise Finding(f"a response of {length} bytes has {len(data)}")
        found.append(Response(status, headers, data[:length]))
        data = data[length:]
    return found


def well_formed(response: Response) -> list[str]:
    """The names of the elements of a body, in their order."""
    names: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: names.append(name)
    try:
        parser.Parse(response.body, True)
    except expat.ExpatError as problem:
        raise Finding(f"{problem}: {response}") from problem
    return names


def require(holds: object, response: Response) -> None:
    if not holds:
        raise Finding(str(response))
