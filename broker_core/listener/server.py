"""Serves the front ends in one event loop until it is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Protocol, cast
from weakref import WeakSet

import uvicorn

from broker_core.clients import recorder
from broker_core.store import aio
from broker_core.wire.asgi import Application
from broker_core.wire.bounded_http import BoundedHttp, refusal
from broker_core.wire.connections import Connection, Connections, Limits, Refusal

from . import ports
from .accepting import Acceptor
from .amqp import AmqpFrontEnd, ProtocolChoice
from .ports import Port
from .status import Listening, OpenPort, keep_recorded

DRAIN_SECONDS = 5  # for requests that are being answered when the process is asked to stop
CANCELLED_SECONDS = 2  # for those that are cancelled then
LOOK_SECONDS = 1.0  # between two looks at the connections whose peer does not read
STOPPING = b"The server is being stopped. Try again."


class Server(Protocol):
    """What serves one port."""

    async def until_stopped(self) -> None:
        """Serve until it is asked to stop, and what has begun is finished."""

    def stop(self, *, at_once: bool) -> None:
        """Accept nothing more, and end. at_once: do not wait for what has begun."""


class HttpServer(uvicorn.Server):
    """One application on one socket. The listener accepts and handles signals, not uvicorn."""

    def __init__(
        self, application: Application, listening: socket.socket, connections: Connections, context: ssl.SSLContext | None
    ):
        config = uvicorn.Config(
            _answers_when_cancelled(application),
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            date_header=False,
            proxy_headers=False,  # with them, a client on this machine could claim any address, and TLS
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        super().__init__(config)
        self._acceptor = Acceptor(listening, connections, self._protocol, context=context, refusal=_http_refusal)

    async def until_stopped(self) -> None:
        await self.serve()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=CANCELLED_SECONDS)

    def stop(self, *, at_once: bool) -> None:
        self.should_exit = True
        self.force_exit = at_once

    @contextmanager
    def capture_signals(self):
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self._acceptor.start()
        self.servers = [cast(asyncio.base_events.Server, self._acceptor)]  # it is closed like one
        self.started = True

    def _protocol(self, connection: Connection) -> BoundedHttp:
        return BoundedHttp(self.config, self.server_state, {}, connection=connection)


class AmqpServer:
    """The AMQP front ends on one socket."""

    def __init__(
        self,
        front_ends: Sequence[AmqpFrontEnd],
        listening: socket.socket,
        connections: Connections,
        context: ssl.SSLContext | None,
    ):
        self._front_ends = front_ends
        self._connections: WeakSet[Connection] = WeakSet()
        self._acceptor = Acceptor(listening, connections, self._protocol, context=context)
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()

    async def until_stopped(self) -> None:
        self._acceptor.start()
        await self._stopping.wait()
        self._acceptor.close()
        for connection in self._open():
            connection.shut_down()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._open() and not self._at_once.is_set():
                    await asyncio.sleep(0.05)
        for connection in self._open():
            connection.abort()

    def stop(self, *, at_once: bool) -> None:
        self._stopping.set()
        if at_once:
            self._at_once.set()

    def _open(self) -> list[Connection]:
        return [connection for connection in self._connections if connection.is_open]

    def _protocol(self, connection: Connection) -> ProtocolChoice:
        self._connections.add(connection)
        return ProtocolChoice(self._front_ends, connection)


class Listener:
    """One listener process. sockets: by the setting of their port. problems: of ports that could not be opened."""

    def __init__(self, open_ports: Sequence[Port], sockets: Mapping[str, socket.socket], problems: Sequence[str] = ()):
        context = ports.tls_context() if any(port.is_tls for port in open_ports) else None
        self._connections = Connections(Limits.of_settings())
        self._servers: list[Server] = [
            _server(port, sockets[port.setting], self._connections, context if port.is_tls else None) for port in open_ports
        ]
        self._ports = [OpenPort(port.title, sockets[port.setting].getsockname()[1]) for port in open_ports]
        self._problems = list(problems)
        self._stopping = asyncio.Event()

    def state(self) -> Listening:
        return Listening(self._ports, self._problems, {str(reason): count for reason, count in self._connections.refused.items()})

    async def run(self, *, recorded: bool = False) -> None:
        """Serve until SIGTERM or SIGINT, or `stop`. Requests that have begun are finished. recorded: the database is told what
        this listener serves, for the explorer."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, self.stop)
        async with _beside(self._end_unread(), *([keep_recorded(self.state)] if recorded else [])):
            serving = [asyncio.create_task(server.until_stopped()) for server in self._servers]
            stopping = asyncio.create_task(self._stopping.wait())
            recorder.start()
            try:
                await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
                if not self._stopping.is_set():  # a server has ended by itself
                    self.stop()
                await asyncio.gather(recorder.stop(), *serving)  # the first ends the requests that wait for messages
            finally:
                stopping.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCELLED_SECONDS):
                await aio.close()

    def stop(self) -> None:
        """Accept nothing new, and end when what has begun is finished. A second call ends at once."""
        at_once = self._stopping.is_set()
        self._stopping.set()
        for server in self._servers:
            server.stop(at_once=at_once)

    async def _end_unread(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._connections.end_unread(time.monotonic())


@asynccontextmanager
async def _beside(*work) -> AsyncIterator[None]:
    """Run these coroutines during the block."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _server(port: Port, listening: socket.socket, connections: Connections, context: ssl.SSLContext | None) -> Server:
    if callable(port.serves):
        return HttpServer(port.serves, listening, connections, context)
    return AmqpServer(port.serves, listening, connections, context)


def _http_refusal(reason: Refusal) -> bytes:
    if reason is Refusal.TOO_MANY_OF_ADDRESS:
        return refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many connections from this address.")
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections.")


def _answers_when_cancelled(application: Application) -> Application:
    """The application, whose requests answer 503 if they are cancelled because the server stops, such as those that wait for a
    message."""

    async def wrapped(scope, receive, send) -> None:
        has_begun = False

        async def noticed(message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await application(scope, receive, noticed)
        except asyncio.CancelledError:
            if has_begun:
                raise
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(STOPPING)), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": STOPPING})

    return wrapped
