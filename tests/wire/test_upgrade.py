"""Requests that offer another protocol, as clients do that would like HTTP/2: they are served as if they did not."""

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus.entities import ensure_queue, shared_access
from broker_core.service_bus.rules import sas
from tests.wire.test_pipelining import ASKED, everything

ADDRESS = EntityAddress("upgrades", "orders")
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
FRAMED = {
    "length": (b"Content-Length: 8\r\n", b"precious"),
    "chunks": (b"Transfer-Encoding: chunked\r\n", b"3\r\npre\r\n5;x=y\r\ncious\r\n0\r\n\r\n"),
}
LAST = b"GET /nobody HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def head(transactional_db) -> bytes:
    """Of a send, up to its framing."""
    namespaces.create_namespace(ADDRESS.namespace, Family.SERVICE_BUS)
    ensure_queue(ADDRESS)
    policy = shared_access.find_policies("upgrades", "", "rootmanagesharedaccesskey")[0]
    token = sas.sign("http://localhost/", policy.name, policy.keys[0], 4_000_000_000)
    return f"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n".encode() + OFFER


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("is_split", [False, True], ids=["one piece", "pieces"])
def test_the_body_of_a_request_that_offers_http_2_is_stored(head, listener, framing, is_split):
    """Regression: the parser took the body for that of another protocol; an empty message was stored and acknowledged."""
    header, body = FRAMED[framing]
    request = head + header + b"\r\n" + body
    with listener.connect("SERVICE_BUS_PORT") as connection:
        for piece in [request[:-6], request[-6:]] if is_split else [request]:
            connection.sendall(piece)
        connection.sendall(LAST)
        received = everything(connection)
    assert [answer[:3] for answer in received.split(b"HTTP/1.1 ")[1:]] == [b"201", b"401"]  # for the last one has no token
    (message,) = service_bus.peek(ADDRESS)
    assert (message.body, message.properties) == (b"precious", {})


def test_the_body_is_never_taken_for_a_request(transactional_db, listener):
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with listener.connect() as connection:
        head = b"POST /nobody/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(smuggled)
        connection.sendall(head + OFFER + b"\r\n" + smuggled + LAST)
        received = everything(connection)
    assert received.count(b"HTTP/1.1 ") == 2 and b"smuggled" not in received


@pytest.mark.parametrize("offer", [OFFER, OFFER.replace(b"h2c", b"websocket"), OFFER.replace(b"h2c", b"TLS/1.2")])
def test_pipelined_requests_follow_one_that_offers_another_protocol(transactional_db, listener, offer):
    with listener.connect() as connection:
        connection.sendall(ASKED[:-2] + offer + b"\r\n" + ASKED[:-2] + offer + b"\r\n" + LAST)
        received = everything(connection)
    assert received.count(b"HTTP/1.1 404 ") == received.count(b"HTTP/1.1 ") == 3


def test_a_refused_request_is_no_error_of_the_application(transactional_db, listener, caplog):
    """Regression: the answer to a request whose body was refused meanwhile was written to a connection that had ended."""
    with listener.connect() as connection:
        head = b"POST /nobody/orders/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"1;" + b"a" * 100_000 + b"\r\nx\r\n0\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 431 ")
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize("target", [b"localhost:80", b"/nobody", b"*", b"http://localhost/nobody"])
@pytest.mark.parametrize("offer", [b"", OFFER, OFFER.replace(b"h2c", b"websocket")], ids=["plain", "h2c", "websocket"])
def test_there_are_no_tunnels(transactional_db, listener, target, offer):
    """The parser takes what follows CONNECT for another protocol, too."""
    with listener.connect() as connection:
        connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n" + LAST)
        received = everything(connection)
    assert received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1 ") == 1
