"""The AMQP port: the first 8 bytes of a connection, its protocol header, choose the front end.

A header that no front end has is answered with the header of a protocol that is served, and the connection is closed, as AMQP 1.0
(section 2.2) and 0-9-1 (section 4.2.2) require. While no front end is registered, the answer names a protocol other than the one
that was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from broker_core.wire.connections import Connection, Refusal

HEADER_BYTES = 8
AMQP_1_0 = b"AMQP\x00\x01\x00\x00"
AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
LINGER_SECONDS = 1.0  # input is discarded for this long after the answer, so that the client can read it
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AmqpFrontEnd:
    """headers: the protocol headers that it accepts, the first of which answers unknown ones. open: makes the protocol of a
    connection, which uses the connection as its class requires; its `data_received` gets all bytes, the header too."""

    headers: Sequence[bytes]
    open: Callable[[Connection], asyncio.Protocol]


class ProtocolChoice(asyncio.Protocol):
    """A connection until its header is complete."""

    def __init__(self, front_ends: Sequence[AmqpFrontEnd], connection: Connection):
        self._front_ends, self._connection = front_ends, connection
        self._received = b""
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.opened(self._transport)
        seconds = self._connection.limits.handshake_seconds
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._connection.closed()

    def pause_writing(self) -> None:
        self._connection.writing_paused()

    def resume_writing(self) -> None:
        self._connection.writing_resumed()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._received += data
        if len(self._received) >= HEADER_BYTES:
            self._deadline.cancel()
            self._choose(self._received[:HEADER_BYTES])

    def _choose(self, header: bytes) -> None:
        for front_end in self._front_ends:
            if header in front_end.headers:
                protocol = front_end.open(self._connection)
                self._transport.set_protocol(protocol)
                protocol.connection_made(self._transport)
                protocol.data_received(self._received)
                return
        self._answer(header)

    def _answer(self, header: bytes) -> None:
        _log.info("A client of %s asked for the protocol %r, which is not served", self._connection.address, header)
        self._is_answered, self._received = True, b""
        self._transport.write(self._served(header))
        if self._transport.can_write_eof():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()

    def _served(self, header: bytes) -> bytes:
        if self._front_ends:
            return self._front_ends[0].headers[0]
        return AMQP_1_0 if header == AMQP_0_9_1 else AMQP_0_9_1

    def _is_late(self) -> None:
        self._connection.refused(Refusal.HANDSHAKE)
        self._transport.abort()
