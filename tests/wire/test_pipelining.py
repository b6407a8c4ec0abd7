"""Several requests in one piece, of which the last one is none: earlier ones are answered first."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from broker_core.wire.bounded_http import BoundedHttp
from tests.fuzz.requests import Transport

ASKED = b"GET /nobody/orders/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"  # answered by the database


def everything(connection) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "refused",
    [
        b"|",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 300_000,
        b"POST /nobody/orders/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no request", "no host", "too large", "a bad chunk"],
)
def test_a_refusal_does_not_overtake_the_answers_to_earlier_requests(transactional_db, listener, refused, count):
    with listener.connect() as connection:
        connection.sendall(ASKED * count + refused)
        received = everything(connection)
    _, *answers = received.split(b"HTTP/1.1 ")
    refusal = answers.pop() if len(answers) > count else b""
    assert len(answers) == count
    assert all(answer.startswith(b"404 ") and b"<Code>ResourceNotFound</Code>" in answer for answer in answers)
    assert refusal[:3] in (b"", b"400", b"431")  # only if all answers were complete before it was read


def test_a_request_with_a_bad_chunk_is_refused_when_its_turn_has_come(transactional_db, listener):
    with listener.connect() as connection:
        connection.sendall(b"POST /nobody/orders HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 400 ")


class Connection:
    """A connection without a socket, to an application that counts requests and answers one when it is let.

    has_begun, has_left: requests that were begun, and those whose client was seen to leave."""

    def __init__(self):
        config = uvicorn.Config(self._application, interface="asgi3", http=BoundedHttp, lifespan="off", log_config=None)
        config.load()
        self.transport, self.protocol = Transport(), BoundedHttp(config, ServerState(), {}, asyncio.get_running_loop())
        self.has_begun = self.has_left = 0
        self.let = asyncio.Event()
        self.protocol.connection_made(self.transport)

    async def _application(self, scope, receive, send):
        self.has_begun += 1
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"x"})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.has_left += 1

    async def settle(self):
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_pipelined_request_is_not_begun_while_the_peer_reads_no_answers():
    """Regression: it was answered, and each answer stayed in memory; messages were locked for a client that does not read."""
    connection = Connection()
    connection.let.set()
    connection.protocol.pause_writing()
    connection.protocol.data_received(ASKED * 2)
    await connection.settle()
    assert (connection.has_begun, bytes(connection.transport.written)) == (0, b"")
    connection.protocol.resume_writing()
    await connection.settle()
    assert (connection.has_begun, connection.transport.written.count(b"HTTP/1.1 200 ")) == (2, 2)


async def test_a_request_that_others_follow_learns_that_its_client_has_left(caplog):
    """Regression: only the last request did; the others wrote to the connection that had ended, and logged a traceback."""
    connection = Connection()
    connection.protocol.data_received(ASKED * 3)
    await connection.settle()
    connection.transport.close()
    connection.protocol.connection_lost(None)
    connection.let.set()
    await connection.settle()
    assert (connection.has_begun, connection.has_left, bytes(connection.transport.written)) == (1, 1, b"")
