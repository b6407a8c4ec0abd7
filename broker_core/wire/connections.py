"""The connections to the ports of a listener: how many there may be, and the end of those whose peer does not read.

Knows no protocol. A connection is counted when it is accepted, before a TLS handshake and before anything is allocated for it.
"""

from __future__ import annotations

import time
from asyncio import Transport
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

from .peers import network_of


@dataclass(frozen=True)
class Limits:
    """most, most_per_address: connections, for IPv6 of a /64 network; 0: unlimited. handshake_seconds: for a TLS handshake, the
    head of an HTTP request, or the header of AMQP. unread_bytes: of output that waits for the peer, from which nothing more is
    read from it; unread_seconds: after which the connection ends."""

    most: int = 1_000
    most_per_address: int = 200
    handshake_seconds: float = 10.0
    unread_bytes: int = 2**20
    unread_seconds: float = 60.0

    @classmethod
    def of_settings(cls) -> Limits:
        return cls(
            getattr(settings, "LISTEN_CONNECTIONS", cls.most),
            getattr(settings, "LISTEN_CONNECTIONS_PER_ADDRESS", cls.most_per_address),
            getattr(settings, "LISTEN_HANDSHAKE_SECONDS", cls.handshake_seconds),
            getattr(settings, "LISTEN_UNREAD_KB", cls.unread_bytes // 1024) * 1024,
            getattr(settings, "LISTEN_UNREAD_SECONDS", cls.unread_seconds),
        )


class Refusal(StrEnum):
    """Why a connection was refused or ended."""

    TOO_MANY = "too many connections"
    TOO_MANY_OF_ADDRESS = "too many connections from one address"
    HANDSHAKE = "no complete handshake or request in time"
    UNREAD = "output not read in time"


class TooManyConnections(Exception):
    """A connection is refused. reason: which limit."""

    def __init__(self, reason: Refusal):
        super().__init__(reason)
        self.reason = reason


class Connections:
    """The connections of a listener. refused: how many were refused or ended, by the reason."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.refused: Counter[Refusal] = Counter()
        self._open: set[Connection] = set()
        self._of_network: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: object) -> bool:
        return connection in self._open

    def admit(self, address: str) -> Connection:
        """A new connection from this address. Raises TooManyConnections."""
        limits, network = self.limits, network_of(address)
        if limits.most and len(self._open) >= limits.most:
            raise self._refuse(Refusal.TOO_MANY)
        if limits.most_per_address and self._of_network[network] >= limits.most_per_address:
            raise self._refuse(Refusal.TOO_MANY_OF_ADDRESS)
        connection = Connection(self, address)
        self._open.add(connection)
        self._of_network[network] += 1
        return connection

    def _refuse(self, reason: Refusal) -> TooManyConnections:
        self.refused[reason] += 1
        return TooManyConnections(reason)

    def remove(self, connection: Connection) -> None:
        """A connection has ended; has no effect if that was said before."""
        if connection in self._open:
            self._open.remove(connection)
            network = network_of(connection.address)
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]

    def end_unread(self, now: float) -> None:
        """End the connections whose output has waited for too long. now: as time.monotonic(). Call it every few seconds."""
        for connection in list(self._open):
            since = connection.unread_since(now)
            if since is not None and now - since >= self.limits.unread_seconds:
                self.refused[Refusal.UNREAD] += 1
                connection.abort()


class Connection:
    """One connection. Its protocol says when writing pauses and resumes, and when it has ended.

    on_shut_down: ends it with the notice of its protocol; None: it has none, and is aborted.
    """

    __slots__ = ("__weakref__", "_all", "_transport", "_unread_since", "address", "on_shut_down")

    def __init__(self, connections: Connections, address: str):
        self._all, self.address = connections, address
        self.on_shut_down: Callable[[], None] | None = None
        self._transport: Transport | None = None
        self._unread_since: float | None = None

    @property
    def limits(self) -> Limits:
        return self._all.limits

    @property
    def is_open(self) -> bool:
        return self in self._all

    def opened(self, transport: Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=self.limits.unread_bytes)

    def writing_paused(self) -> None:
        self._unread_since = time.monotonic()

    def writing_resumed(self) -> None:
        self._unread_since = None

    def unread_since(self, now: float) -> float | None:
        """Since when the peer has not read what it should: with writing paused, or while the connection is being closed."""
        if self._unread_since is None and self._transport is not None and self._transport.is_closing():
            self._unread_since = now
        return self._unread_since

    def refused(self, reason: Refusal) -> None:
        """Count that the connection is ended for this reason."""
        self._all.refused[reason] += 1

    def shut_down(self) -> None:
        """End it, as its protocol does."""
        (self.on_shut_down or self.abort)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def closed(self) -> None:
        self._all.remove(self)
        self._transport = self.on_shut_down = None  # no circle of references
