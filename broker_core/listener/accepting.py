"""Accepts the connections of a listening socket.

Connections over a limit are refused before anything is allocated for them, those with TLS before their handshake: a server of
asyncio knows a connection only after it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from socket import SHUT_WR, socket

from broker_core.wire.connections import Connection, Connections, Refusal, TooManyConnections

MOST_AT_ONCE = 64  # connections accepted in one turn of the loop
PAUSE_SECONDS = 1.0  # when the process has no free file descriptors
LINGER_SECONDS = 1.0  # a refused connection stays open, so that the client can read why
MOST_LINGERING = 100
_log = logging.getLogger(__name__)


class Acceptor:
    """The accepting of one socket, from `start` to `close`.

    protocol: makes the asyncio protocol of a connection, which says when it has ended. refusal: the bytes that a client without
    TLS is sent if its connection is refused.
    """

    def __init__(
        self,
        listening: socket,
        connections: Connections,
        protocol: Callable[[Connection], asyncio.BaseProtocol],
        *,
        context: ssl.SSLContext | None = None,
        refusal: Callable[[Refusal], bytes] = lambda reason: b"",
    ):
        self._listening, self._connections, self._protocol = listening, connections, protocol
        self._context, self._refusal = context, refusal
        self._opening: set[asyncio.Task[None]] = set()
        self._lingering = 0
        self._is_closed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept nothing more. The socket is closed; other processes that have it are not concerned."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listening)
            self._listening.close()

    async def wait_closed(self) -> None:
        """Wait for the handshakes that have begun."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                _log.error("No connection can be accepted: %s", problem)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE_SECONDS, self._go_on)
                return
            accepted.setblocking(False)
            self._admit(accepted, peer[0])

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening, self._accept)

    def _admit(self, accepted: socket, address: str) -> None:
        try:
            connection = self._connections.admit(address)
        except TooManyConnections as refused:
            _log.warning("A connection was refused: %s (%s)", refused.reason, address)
            self._refuse(accepted, refused.reason)
            return
        task = self._loop.create_task(self._open(accepted, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket, connection: Connection) -> None:
        seconds = connection.limits.handshake_seconds if self._context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(connection), accepted, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except OSError as problem:  # also ssl.SSLError, and a handshake that takes too long
            connection.refused(Refusal.HANDSHAKE)
            connection.closed()
            accepted.close()
            _log.info("A TLS handshake with %s failed: %s", connection.address, problem)
        except BaseException:
            connection.closed()
            accepted.close()
            raise

    def _refuse(self, accepted: socket, reason: Refusal) -> None:
        if self._context is not None or self._lingering >= MOST_LINGERING:
            accepted.close()
            return
        try:
            accepted.send(self._refusal(reason))
            accepted.shutdown(SHUT_WR)
        except OSError:
            accepted.close()
            return
        self._lingering += 1
        self._loop.call_later(LINGER_SECONDS, self._end_refused, accepted)

    def _end_refused(self, accepted: socket) -> None:
        self._lingering -= 1
        accepted.close()
