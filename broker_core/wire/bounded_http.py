"""Limits of HTTP connections: the size of a request's head, the time for it and for the body, idle time, and the connections per
address. A request has exactly one Host header (RFC 9112, section 3.2).

uvicorn's httptools protocol has no such limits: it collects a request line of any length, in quadratic time.
"""

from __future__ import annotations

from asyncio import TimerHandle
from http import HTTPStatus

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .http.clients import CONNECTION

MAX_HEAD_BYTES = 64 * 1024  # request line and headers
HEAD_SECONDS = 10.0  # from the connection, or the first byte of a further request, to the end of the head
BODY_SECONDS = 20.0  # in which LEAST_BODY_BYTES of a body must arrive, or its end
LEAST_BODY_BYTES = 64 * 1024
IDLE_SECONDS = 75  # between two requests. With uvicorn's 5 s, clients often send while the connection is being closed
LINGER_SECONDS = 1.0  # input is discarded for this long after a refusal, so that the client can read the response


class _Refused(Exception):
    """Raised in a parser callback to stop the parser."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. `settings.CONNECTIONS_PER_ADDRESS`: the maximum for an address; 0: unlimited."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = IDLE_SECONDS
        self._pending = 0  # bytes received since the last complete head or body data
        self._head_bytes = 0
        self._in_message = False  # between the end of a head and the end of its message
        self._refused = False
        self._host_problem = ""
        self._body_bytes = 0  # since the last look
        self._deadline: TimerHandle | None = None
        self._next_look: TimerHandle | None = None  # at the body

    # Connections

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        if self._is_one_too_many():
            self._write_refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many connections from this address.")
            transport.close()
        else:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._end_looks()
        super().connection_lost(exc)
        # Without this circle of references, the memory of a connection is free at once.
        self.scope = None  # type: ignore[assignment]

    def _is_one_too_many(self) -> bool:
        limit = settings.CONNECTIONS_PER_ADDRESS
        if not limit or self.client is None or len(self.connections) <= limit:
            return False
        clients = (getattr(other, "client", None) for other in self.connections)  # WebSockets are among them
        return sum(client is not None and client[0] == self.client[0] for client in clients) > limit

    # Bytes

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._in_message:
            self._start_deadline()
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MAX_HEAD_BYTES and not self._refused:
            self._refuse_size()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._start_deadline()
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers after a body are counted and dropped: uvicorn would add them to the headers."""
        self._count(len(name) + len(value) + 4)
        if not self._in_message:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending, self._in_message = 0, True
        self._end_deadline()
        self._host_problem = _host_problem(self.headers, self.parser.get_http_version())
        if self._host_problem:
            raise _Refused
        super().on_headers_complete()
        self._start_looks()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending, self._in_message = 0, False
        self._end_looks()
        super().on_message_complete()

    def _count(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refused

    # Time

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.pipeline or (self.cycle is not None and not self.cycle.response_complete):
            self._start_deadline()  # an earlier request of this connection is still being answered
        elif self._pending:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The request's head was not complete within {HEAD_SECONDS:.0f} seconds.")
        else:
            self.transport.close()

    def _start_looks(self) -> None:
        self._body_bytes = 0
        self._next_look = self.loop.call_later(BODY_SECONDS, self._look_at_body)

    def _end_looks(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def _look_at_body(self) -> None:
        """Refuse a body that arrives too slowly. A body for which the application is not ready has time."""
        self._next_look = None
        if self.transport.is_closing():
            return
        waits = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if waits or self._body_bytes >= LEAST_BODY_BYTES:
            self._start_looks()
        elif self.cycle.response_started:
            self.transport.close()
        else:
            self.cycle.disconnected = True  # the application receives no more
            self.cycle.message_event.set()
            text = f"Less than {LEAST_BODY_BYTES // 1024} KB of the request's body arrived within {BODY_SECONDS:.0f} seconds."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """Called when the parser stops, also for `_Refused`."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_size()
        elif self._host_problem:
            self._refuse(HTTPStatus.BAD_REQUEST, self._host_problem)
        else:
            super().send_400_response(msg)

    def _refuse_size(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request line and headers must have at most {MAX_HEAD_BYTES // 1024} KB.",
        )

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._refused = True
        self._end_deadline()
        self._write_refusal(status, text)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _write_refusal(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)


def _host_problem(headers: list[tuple[bytes, bytes]], http_version: str) -> str:
    """Why the Host header is refused; empty: it is not. Only HTTP/1.0 may lack one."""
    count = sum(name == b"host" for name, _ in headers)
    if count > 1:
        return f"The request has {count} Host headers; send exactly one."
    return "" if count or http_version == "1.0" else "The request has no Host header; send exactly one."
