"""Limits of HTTP connections: the size of a request's head, the time for it and for the body, idle time, requests that are
pipelined, output that the peer does not read, and the connections per address. A request has exactly one Host header (RFC 9112,
section 3.2).

uvicorn's httptools protocol has no such limits: it collects a request line of any length, in quadratic time.
"""

from __future__ import annotations

from asyncio import TimerHandle
from http import HTTPStatus
from typing import Any

from django.conf import settings
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .connections import Connection, Refusal
from .http.clients import CONNECTION

MAX_HEAD_BYTES = 64 * 1024  # request line and headers
HEAD_SECONDS = 10.0  # from the connection, or the first byte of a further request, to the end of the head
BODY_SECONDS = 20.0  # in which LEAST_BODY_BYTES of a body must arrive, or its end
LEAST_BODY_BYTES = 64 * 1024
IDLE_SECONDS = 75  # between two requests. With uvicorn's 5 s, clients often send while the connection is being closed
SLICE_BYTES = 8 * 1024  # of input that are parsed at once: pipelined requests of a slice wait, further input stays unparsed
NO_REQUEST = "Invalid HTTP request received."
UPGRADE = b"upgrade"
LINGER_SECONDS = 1.0  # input is discarded for this long after a refusal, so that the client can read the response


_CONTINUE, _IN_CHUNKS = b"HTTP/1.1 100 ", b"\r\ntransfer-encoding: chunked\r\n"  # as uvicorn writes them


class _Refused(Exception):
    """Raised in a parser callback to stop the parser."""


class _Flow(FlowControl):
    """Nothing is read while the peer does not read, or while input waits to be parsed (`held`)."""

    held = False

    def resume_reading(self) -> None:
        if not (self.write_paused or self.held):
            super().resume_reading()


class _Answers:
    """The transport as the requests of a connection see it. The head of an answer is written together with its body, in one
    packet; that of an answer in chunks at once."""

    def __init__(self, transport):
        self._transport = transport
        self._expects_head, self._head = False, b""

    def expect(self) -> None:
        """Another answer begins."""
        self._expects_head = True

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.writelines((self._head, data))
            self._head = b""
        elif self._expects_head and not data.startswith(_CONTINUE):
            self._expects_head = False
            if _IN_CHUNKS in data:
                self._transport.write(data)
            else:
                self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write the head of an answer without a body."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class BoundedHttp(HttpToolsProtocol):
    """One connection.

    connection: of a listener, which has limited and counted it; None: at most `settings.CONNECTIONS_PER_ADDRESS` of this server
    for an address; 0: unlimited.
    """

    def __init__(self, *args, connection: Connection | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = IDLE_SECONDS
        self._connection = connection
        self._head_seconds = HEAD_SECONDS if connection is None else connection.limits.handshake_seconds
        self.flow: _Flow = None  # type: ignore[assignment]
        self._held = b""  # input that waits until earlier requests are answered
        self._pending = 0  # bytes received since the last complete head or body data
        self._head_bytes = 0
        self._in_message = False  # between the end of a head and the end of its message
        self._refused = False
        self._answered: RequestResponseCycle | None = None  # the request whose answer was begun last
        self._answers: _Answers = None  # type: ignore[assignment]
        self._paused: tuple[RequestResponseCycle, Any] | None = None  # a pipelined request, while the peer does not read
        self._host_problem = ""
        self._body_bytes = 0  # since the last look
        self._deadline: TimerHandle | None = None
        self._next_look: TimerHandle | None = None  # at the body

    # Connections

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self.flow, self._answers = _Flow(transport), _Answers(transport)
        if self._connection is not None:
            self._connection.opened(transport)
        if self._is_one_too_many():
            self._write_refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many connections from this address.")
            transport.close()
        else:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._end_looks()
        self._unset_keepalive_if_required()  # uvicorn does not after an error: the connection would stay in memory for as long
        self._held = b""
        if self._connection is not None:
            self._connection.closed()
        self._paused = None
        if self._answered is not None and not self._answered.response_complete:  # uvicorn tells only the request that came last
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        # Without these circles of references, the memory of a connection is free at once.
        self.scope, self._answered = None, None  # type: ignore[assignment]

    def _is_one_too_many(self) -> bool:
        if self._connection is not None:
            return False
        limit = settings.CONNECTIONS_PER_ADDRESS
        if not limit or self.client is None or len(self.connections) <= limit:
            return False
        clients = (getattr(other, "client", None) for other in self.connections)  # WebSockets are among them
        return sum(client is not None and client[0] == self.client[0] for client in clients) > limit

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        if self._connection is not None:
            self._connection.writing_paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection is not None:
            self._connection.writing_resumed()
        if not self.pipeline:
            self.flow.resume_reading()
        if self._paused is not None and not self.transport.is_closing():
            paused, self._paused = self._paused, None
            self._start_asgi_task(*paused)

    # Bytes

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse as much as is answered before the next requests: those of a slice that are pipelined."""
        for start in range(0, len(data), SLICE_BYTES):
            if self._refused or self.transport.is_closing() or self not in self.connections:  # not: it is a WebSocket now
                return
            if self.pipeline:
                self._held = data[start:]
                self.flow.held = True
                self.flow.pause_reading()
                return
            self._parse_slice(data[start : start + SLICE_BYTES])

    def on_response_complete(self) -> None:
        self._answers.flush()
        super().on_response_complete()
        if self._held and not self.pipeline:
            self.loop.call_soon(self._parse_held)

    def _parse_held(self) -> None:
        data, self._held, self.flow.held = self._held, b"", False
        if not self.pipeline:
            self.flow.resume_reading()
        self._parse(data)

    def _parse_slice(self, data: bytes) -> None:
        self._pending += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self.logger.warning(NO_REQUEST)
            self.send_400_response(NO_REQUEST)
        if self._refused or self.transport.is_closing():
            return
        if self._pending > MAX_HEAD_BYTES:
            self._refuse_size()
        elif self._in_message:
            self._start_looks()
        elif self._pending:
            self._start_deadline()

    def _upgrade(self, rest: bytes) -> None:
        """Change to WebSocket; parse any other request again as one without Upgrade (RFC 9110, section 7.8: a server may ignore
        it), as those of clients that would like HTTP/2. The parser takes what follows for another protocol, the body too.

        rest: the bytes after the head."""
        if self._should_upgrade():
            self.handle_websocket_upgrade()
            return
        parser, self.parser = self.parser, HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        head = [b"%s %s HTTP/%s" % (parser.get_method(), self.url, parser.get_http_version().encode())]
        head += [b"%s: %s" % header for header in self.headers if header[0] != UPGRADE]
        self._pending = 0
        self._parse_slice(b"\r\n".join(head) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._pending = max(self._pending, 1)  # the rest of the bytes that ended the message before is not counted
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
        if self._is_to_be_parsed_again():
            return
        if self.parser.should_upgrade() and not self._should_upgrade():  # CONNECT, behind which is no HTTP
            raise _Refused
        self._pending, self._in_message = 0, True
        self._end_deadline()
        self._host_problem = _host_problem(self.headers, self.parser.get_http_version())
        if self._host_problem:
            self._in_message = False
            raise _Refused
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def _is_to_be_parsed_again(self) -> bool:
        """Whether the request asks for another protocol, and not for WebSocket."""
        return self.parser.should_upgrade() and not self._should_upgrade() and any(name == UPGRADE for name, _ in self.headers)

    def on_message_complete(self) -> None:
        if self._is_to_be_parsed_again():
            return
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
            self._deadline = self.loop.call_later(self._head_seconds, self._head_is_late)

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
            return
        if self._connection is not None:
            self._connection.refused(Refusal.HANDSHAKE)
        if self._pending:
            text = f"The request's head was not complete within {self._head_seconds:.0f} seconds."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)
        else:
            self.transport.close()

    def _start_looks(self) -> None:
        if self._next_look is None:
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
        else:
            text = f"Less than {LEAST_BODY_BYTES // 1024} KB of the request's body arrived within {BODY_SECONDS:.0f} seconds."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)

    # Refusals

    def _start_asgi_task(self, cycle: RequestResponseCycle, app) -> None:
        self._answered, cycle.transport = cycle, self._answers  # type: ignore[assignment]
        if self.flow.write_paused:
            self._paused = cycle, app
            return
        self._answers.expect()
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Called when the parser stops, also for `_Refused`."""
        if self._is_answering_another():
            self._close_after_answers()
        elif self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_size()
        elif self._host_problem:
            self._refuse(HTTPStatus.BAD_REQUEST, self._host_problem)
        else:
            self._write_refusal(HTTPStatus.BAD_REQUEST, msg)
            self.transport.close()

    def _refuse_size(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request line and headers must have at most {MAX_HEAD_BYTES // 1024} KB.",
        )

    def _is_answering_another(self) -> bool:
        """Whether earlier requests of this connection are being answered, so that a refusal would be taken for their answer."""
        answered = self._answered
        return answered is not None and not answered.response_complete and not (self._in_message and answered is self.cycle)

    def _close_after_answers(self) -> None:
        """Read no further; finish the answers to the requests before the one that is refused."""
        self._refused, self._held, self.flow.held = True, b"", False
        self._end_deadline()
        self._end_looks()
        if self._in_message:
            self.pipeline.popleft()  # the refused one, which waited for its turn
        last = self.pipeline[0][0] if self.pipeline else self._answered
        assert last is not None
        last.keep_alive = False

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        if self._is_answering_another():
            self._close_after_answers()
            return
        self._refused, self._held, self.flow.held = True, b"", False
        self._end_deadline()
        self._end_looks()
        self._write_refusal(status, text)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _write_refusal(self, status: HTTPStatus, text: str) -> None:
        """Answer what is being received, unless its answer has begun."""
        if self._in_message and self.cycle is not None and self.cycle.scope is self.scope:  # not: its URL cannot be parsed
            self.cycle.disconnected = True  # the application receives and sends no more
            self.cycle.message_event.set()
            if self.cycle.response_started:
                return
        if self._in_message and self.scope.get("method") == "HEAD":
            text = ""
        self.transport.write(refusal(status, text))


def refusal(status: HTTPStatus, text: str) -> bytes:
    """A whole answer, after which the connection ends. text: empty for a request with HEAD, whose answer has no body."""
    body = text.encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def _host_problem(headers: list[tuple[bytes, bytes]], http_version: str) -> str:
    """Why the Host header is refused; empty: it is not. Only HTTP/1.0 may lack one."""
    count = sum(name == b"host" for name, _ in headers)
    if count > 1:
        return f"The request has {count} Host headers; send exactly one."
    return "" if count or http_version == "1.0" else "The request has no Host header; send exactly one."
