"""How answers are written: without a socket, so that each write is seen."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from broker_core.wire.bounded_http import BoundedHttp

OK = b"HTTP/1.1 200 OK\r\n"


class Writes(asyncio.Transport):
    """The server's side of a connection. writes: one for each packet."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 10_001)})
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data):
        self.writes.append(bytes(data))

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def written(application, *requests: bytes) -> list[bytes]:
    """What is written for these bytes, which arrive one after the other."""
    config = uvicorn.Config(
        application, http=BoundedHttp, interface="asgi3", lifespan="off", access_log=False, log_config=None, server_header=False,
        date_header=False,
    )  # fmt: skip
    config.load()
    state, transport = ServerState(), Writes()
    protocol = BoundedHttp(config, state, {}, asyncio.get_running_loop())
    protocol.connection_made(transport)
    for data in requests:
        protocol.data_received(data)
        await asyncio.sleep(0)
    while state.tasks:
        await asyncio.wait(set(state.tasks))
    protocol.connection_lost(None)
    return transport.writes


def request(method: str = "GET", headers: str = "") -> bytes:
    return f"{method} / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n".encode()


def answering(*parts: bytes, status: int = 200, length: int | None = None):
    """An application that sends these parts of a body."""
    given = [] if length is None else [(b"content-length", str(length).encode())]

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": given})
        for place, part in enumerate(parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": place < len(parts)})

    return application


async def test_head_and_body_are_one_packet():
    head = OK + b"content-length: 4\r\n\r\n"
    assert await written(answering(b"body", length=4), request()) == [head + b"body"]
    assert await written(answering(b"bo", b"dy", length=4), request()) == [head + b"bo", b"dy"]


async def test_the_head_of_an_answer_in_chunks_is_not_held_back():
    assert await written(answering(b"bo", b"dy"), request()) == [
        OK + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nbo\r\n", b"2\r\ndy\r\n0\r\n\r\n",
    ]  # fmt: skip


@pytest.mark.parametrize(("method", "status", "line"), [("HEAD", 200, OK), ("GET", 204, b"HTTP/1.1 204 No Content\r\n")])
async def test_an_answer_without_a_body_is_written(method, status, line):
    assert await written(answering(b"", status=status), request(method)) == [line + b"\r\n"]


async def test_pipelined_answers_are_written_in_turn():
    head = OK + b"content-length: 4\r\n\r\n"
    assert await written(answering(b"body", length=4), request() * 2, request("HEAD")) == [head + b"body", head + b"body", head]


async def test_what_was_begun_is_written_before_the_connection_is_closed():
    assert await written(answering(length=4), request()) == [OK + b"content-length: 4\r\n\r\n"]


@pytest.mark.parametrize(("method", "text"), [("POST", b"Invalid HTTP request received."), ("HEAD", b"")])
async def test_the_refusal_of_a_body_is_the_only_answer(method, text):
    """Regression: that of HEAD had a body, which HTTP does not allow (RFC 9110, section 9.3.2)."""

    async def application(scope, receive, send):
        if (await receive())["type"] != "http.disconnect":
            await answering(b"body", length=4)(scope, receive, send)

    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    assert await written(application, request(method, "transfer-encoding: chunked\r\n") + b"zz\r\n") == [
        head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(text) + text
    ]


async def test_a_url_that_cannot_be_parsed_is_refused_behind_another_request():
    head = OK + b"content-length: 4\r\n\r\n"
    unparsable = request().replace(b"GET / ", b"GET http://[/orders ")
    first, refused = await written(answering(b"body", length=4), request(), unparsable)
    assert first == head + b"body" and refused.startswith(b"HTTP/1.1 400 ")
    [refused] = await written(answering(b"body", length=4), unparsable)
    assert refused.startswith(b"HTTP/1.1 400 ")


async def test_100_continue_is_written_before_the_answer():
    async def application(scope, receive, send):
        body = (await receive())["body"]
        await answering(body, length=len(body))(scope, receive, send)

    parts = request("POST", "expect: 100-continue\r\ncontent-length: 4\r\n"), b"body"
    assert await written(application, *parts) == [b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"content-length: 4\r\n\r\nbody"]
