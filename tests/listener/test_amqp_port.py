"""The AMQP port: the first 8 bytes choose the protocol."""

import asyncio
import socket
from contextlib import suppress

import pytest

from broker_core.listener.amqp import AMQP_0_9_1, AMQP_1_0, AmqpFrontEnd

SASL = b"AMQP\x03\x01\x00\x00"


def all_bytes(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (AMQP_0_9_1, AMQP_1_0),
        (AMQP_1_0, AMQP_0_9_1),
        (SASL, AMQP_0_9_1),
        (b"AMQP\x01\x01\x08\x00", AMQP_0_9_1),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", AMQP_0_9_1),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), AMQP_0_9_1),
    ],
    ids=["0-9-1", "1.0", "SASL", "0-8", "HTTP", "TLS"],
)
def test_a_protocol_that_is_not_served_is_answered_with_a_header_and_the_connection_is_closed(serve, sent, answer):
    with serve().connect("AMQP_PORT") as connection:
        connection.sendall(sent)
        assert all_bytes(connection) == answer


def test_a_header_may_come_byte_by_byte(serve):
    with serve().connect("AMQP_PORT") as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in AMQP_0_9_1:
            connection.sendall(bytes([byte]))
        assert all_bytes(connection) == AMQP_1_0


class Echo(asyncio.Protocol):
    """A front end of the tests: sends back all it gets, and says goodbye."""

    def __init__(self, connection):
        self.connection = connection
        connection.on_shut_down = self.say_goodbye

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def say_goodbye(self):
        self.transport.write(b"goodbye")
        self.transport.close()

    def connection_lost(self, exc):
        self.connection.closed()


@pytest.fixture
def echo(serve):
    return serve(amqp=[AmqpFrontEnd([AMQP_1_0, SASL], Echo)])


@pytest.mark.parametrize("header", [AMQP_1_0, SASL])
def test_a_front_end_gets_all_bytes_of_the_headers_that_it_accepts(echo, header):
    with echo.connect("AMQP_PORT") as connection:
        connection.sendall(header + b"open")
        assert connection.recv(100) == header + b"open"
        connection.sendall(b"more")
        assert connection.recv(100) == b"more"


def test_other_headers_are_answered_with_the_one_that_is_served(echo):
    with echo.connect("AMQP_PORT") as connection:
        connection.sendall(AMQP_0_9_1)
        assert all_bytes(connection) == AMQP_1_0


def test_connections_end_with_the_notice_of_their_protocol_when_the_listener_stops(echo):
    with echo.connect("AMQP_PORT") as served, echo.connect("AMQP_PORT") as undecided:
        served.sendall(AMQP_1_0)
        assert served.recv(100) == AMQP_1_0
        undecided.sendall(b"AMQ")
        echo.stop()
        assert all_bytes(served) == b"goodbye"
        with suppress(ConnectionResetError):
            assert all_bytes(undecided) == b""


class Polite(Echo):
    """One whose connection ends when the client has answered the notice."""

    is_ending = False

    def say_goodbye(self):
        self.is_ending = True
        self.transport.write(b"goodbye")

    def data_received(self, data):
        super().data_received(data)
        if self.is_ending:
            self.transport.close()


def test_a_client_has_time_to_answer_the_notice_of_its_protocol(serve):
    listener = serve(amqp=[AmqpFrontEnd([AMQP_1_0], Polite)])
    with listener.connect("AMQP_PORT") as connection:
        connection.sendall(AMQP_1_0)
        assert connection.recv(100) == AMQP_1_0
        listener.ask_to_stop()
        assert connection.recv(100) == b"goodbye"
        assert not listener.has_ended(0.5)
        connection.sendall(b"goodbye, too")
        assert all_bytes(connection) == b"goodbye, too"
    listener.stop()


def test_a_client_with_tls_gets_the_answer_too(serve, with_tls):
    plain = serve(settings=["AMQPS_PORT"]).connect("AMQPS_PORT")
    with with_tls.context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(AMQP_0_9_1)
        assert all_bytes(connection) == AMQP_1_0
