"""The limits of the listener's connections, tried with bytes: their number, handshakes, and output that is not read."""

import asyncio
import gc
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from weakref import WeakSet

import pytest

from broker_core.listener.amqp import AMQP_0_9_1, AMQP_1_0
from broker_core.management.commands import listen
from tests.eventually import eventually
from tests.listener.test_amqp_port import all_bytes

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOO_MANY, TOO_MANY_OF_ADDRESS = "too many connections", "too many connections from one address"
HANDSHAKE, UNREAD = "no complete handshake or request in time", "output not read in time"


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def answer_to(connection: socket.socket, request: bytes = GET) -> bytes:
    connection.sendall(request)
    return connection.recv(65536)


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection, in whatever way."""
    try:
        return all_bytes(connection)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    ("limit", "status", "reason"),
    [
        ("LISTEN_CONNECTIONS_PER_ADDRESS", b"429", TOO_MANY_OF_ADDRESS),
        ("LISTEN_CONNECTIONS", b"503", TOO_MANY),
    ],
)
def test_connections_over_a_limit_are_refused_on_all_ports_and_counted(serve, settings, limit, status, reason):
    setattr(settings, limit, 3)
    listener = serve(hello)
    with ExitStack() as stack:
        kept = [stack.enter_context(listener.connect(port)) for port in ("AMQP_PORT", "AMQP_PORT", "QUEUE_STORAGE_PORT")]
        assert answer_to(kept[2]).startswith(b"HTTP/1.1 200 ")  # and so all three were accepted
        with listener.connect("QUEUE_STORAGE_PORT") as refused:
            assert rest_of(refused).startswith(b"HTTP/1.1 " + status)
        with listener.connect("AMQP_PORT") as refused:
            assert rest_of(refused) == b""
        assert listener.state.refused == {reason: 2}
        assert answer_to(kept[2]).startswith(b"HTTP/1.1 200 ")
        kept[0].sendall(AMQP_0_9_1)
        assert rest_of(kept[0]) == AMQP_1_0
        eventually(lambda: is_served(listener))  # when the server has seen that it ended


def is_served(listener, port="QUEUE_STORAGE_PORT", context=None) -> bool:
    with listener.connect(port) as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        return answer_to(connection).startswith(b"HTTP/1.1 200 ")


def test_zero_means_that_connections_are_not_limited(serve, settings):
    settings.LISTEN_CONNECTIONS = settings.LISTEN_CONNECTIONS_PER_ADDRESS = 0
    listener = serve(hello)
    with ExitStack() as stack:
        connections = [stack.enter_context(listener.connect("QUEUE_STORAGE_PORT")) for _ in range(250)]
        assert all(answer_to(connection).startswith(b"HTTP/1.1 200 ") for connection in connections)


@pytest.mark.parametrize(("most", "soft", "expected"), [(1000, 256, 1200), (9000, 256, 4096), (0, 256, 4096), (1000, 2000, None)])
def test_the_process_may_open_as_many_files_as_it_has_connections(monkeypatch, most, soft, expected):
    import resource

    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    listen._allow_connections(most)
    assert raised == ([] if expected is None else [(expected, 4096)])


def test_connections_are_counted_before_their_tls_handshake(serve, settings, with_tls):
    settings.LISTEN_CONNECTIONS = 2
    listener = serve(hello, with_tls=True)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(listener.connect("QUEUE_STORAGE_TLS_PORT"))
        with listener.connect("QUEUE_STORAGE_TLS_PORT") as refused:
            assert rest_of(refused) == b""
        assert listener.state.refused == {TOO_MANY: 1}


@pytest.fixture
def hurried(settings):
    settings.LISTEN_HANDSHAKE_SECONDS = 1


def test_a_silent_or_half_amqp_header_ends_the_connection(serve, hurried):
    listener = serve(hello)
    with listener.connect("AMQP_PORT") as silent, listener.connect("AMQP_PORT") as half:
        half.sendall(b"AMQP\x00")
        assert rest_of(silent) == rest_of(half) == b""
    assert listener.state.refused == {HANDSHAKE: 2}


def test_a_silent_or_half_request_ends_the_connection(serve, hurried):
    listener = serve(hello)
    with listener.connect("QUEUE_STORAGE_PORT") as silent, listener.connect("QUEUE_STORAGE_PORT") as half:
        half.sendall(GET[:-2])
        assert rest_of(silent) == b""
        assert all_bytes(half).startswith(b"HTTP/1.1 408 ")
    assert listener.state.refused == {HANDSHAKE: 2}


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01", GET], ids=["silent", "half", "no TLS"])
def test_a_tls_handshake_that_is_not_completed_ends_the_connection(serve, hurried, with_tls, sent):
    listener = serve(hello, with_tls=True)
    with listener.connect("QUEUE_STORAGE_TLS_PORT") as connection:
        connection.sendall(sent)
        assert not rest_of(connection).startswith(b"HTTP")
    eventually(lambda: listener.state.refused == {HANDSHAKE: 1})
    assert is_served(listener, "QUEUE_STORAGE_TLS_PORT", with_tls.context)


class Large:
    """Answers of a megabyte. begun: requests so far."""

    def __init__(self):
        self.begun = 0

    async def __call__(self, scope, receive, send):
        self.begun += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1048576")]})
        await send({"type": "http.response.body", "body": bytes(2**20)})


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "TLS"])
def test_output_that_is_not_read_pauses_reading_and_then_ends_the_connection(serve, settings, certificate, with_tls):
    settings.LISTEN_UNREAD_SECONDS = 1
    settings.TLS_CERTIFICATE, settings.TLS_KEY, context = certificate.chain, certificate.key, certificate.context
    large = Large()
    listener = serve(large, with_tls=with_tls)
    port = "QUEUE_STORAGE_TLS_PORT" if with_tls else "QUEUE_STORAGE_PORT"
    with listener.connect(port) as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost") if with_tls else plain
        sent = threading.Thread(target=send_until_refused, args=[connection, GET * 200_000])
        sent.start()
        eventually(lambda: listener.state.refused == {UNREAD: 1}, 20)
        sent.join(20)
        assert not sent.is_alive()
        assert large.begun < 30  # what fits into the buffers of the kernel, and a megabyte
    assert is_served(listener, port, context if with_tls else None)


def send_until_refused(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def test_a_connection_that_is_closed_ends_although_its_peer_does_not_read(serve, settings):
    settings.LISTEN_UNREAD_SECONDS = 1
    settings.LISTEN_UNREAD_KB = 16 * 1024  # writing is not paused
    listener = serve(Large())
    with listener.connect("QUEUE_STORAGE_PORT") as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(GET * 9 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        eventually(lambda: listener.state.refused == {UNREAD: 1}, 20)


def test_pipelined_requests_wait_unparsed_and_all_are_answered(serve):
    """Thousands of them in one packet took a turn of the loop of a tenth of a second, and a kilobyte of memory each."""
    most = 0

    async def observed(scope, receive, send):
        nonlocal most
        most = max(most, *(len(connection.pipeline) for connection in listener._listener._servers[0].server_state.connections))
        await hello(scope, receive, send)

    listener = serve(observed)
    count = 5_000
    with listener.connect("QUEUE_STORAGE_PORT") as connection:
        sending = threading.Thread(target=connection.sendall, args=[GET * count])
        sending.start()
        received = b""
        while received.count(b"hello") < count:
            received += connection.recv(2**20)
        sending.join()
    assert 0 < most < 300


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "TLS"])
def test_a_connection_that_ended_in_an_error_leaves_nothing_in_memory(serve, certificate, settings, with_tls):
    """Regression: the timer of its idle time held it for 75 s, that is, thousands of connections that come and go."""
    settings.TLS_CERTIFICATE, settings.TLS_KEY, context = certificate.chain, certificate.key, certificate.context
    served = WeakSet()

    async def observed(scope, receive, send):
        served.update(listener._listener._servers[0].server_state.connections)
        await hello(scope, receive, send)

    listener = serve(observed, with_tls=with_tls)
    with listener.connect("QUEUE_STORAGE_TLS_PORT" if with_tls else "QUEUE_STORAGE_PORT") as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost") if with_tls else plain
        assert answer_to(connection).startswith(b"HTTP/1.1 200 ")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # with a reset
    eventually(lambda: gc.collect() >= 0 and not served)


class Slow:
    """An application that answers when it may end."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    async def __call__(self, scope, receive, send):
        self.begun.set()
        await asyncio.to_thread(self.may_end.wait, 30)
        await hello(scope, receive, send)


def test_requests_that_have_begun_are_finished_and_nothing_new_is_accepted(serve):
    slow = Slow()
    listener = serve(slow)
    with listener.connect("QUEUE_STORAGE_PORT") as connection:
        connection.sendall(GET)
        assert slow.begun.wait(10)
        listener.ask_to_stop()
        eventually(lambda: not is_accepted(listener))
        slow.may_end.set()
        assert rest_of(connection).startswith(b"HTTP/1.1 200 ")
    listener.stop()


def test_requests_that_have_begun_have_time_although_the_listener_was_asked_to_stop(serve, monkeypatch):
    from broker_core.listener import server

    monkeypatch.setattr(server, "CANCELLED_SECONDS", 0.01)
    slow = Slow()
    listener = serve(slow)
    with listener.connect("QUEUE_STORAGE_PORT") as connection:
        connection.sendall(GET)
        assert slow.begun.wait(10)
        listener.ask_to_stop()
        assert not listener.has_ended(0.5)
        slow.may_end.set()
        assert rest_of(connection).startswith(b"HTTP/1.1 200 ")


def is_accepted(listener) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", listener.port("QUEUE_STORAGE_PORT")), timeout=1):
            return True
    except OSError:
        return False


def test_requests_that_wait_for_long_are_told_that_the_server_stops(serve, monkeypatch):
    from broker_core.listener import server

    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.2)
    begun = threading.Event()

    async def waits(scope, receive, send):
        begun.set()
        await asyncio.Event().wait()

    listener = serve(waits)
    with listener.connect("QUEUE_STORAGE_PORT") as connection:
        connection.sendall(GET)
        assert begun.wait(10)
        listener.ask_to_stop()
        answer = rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 503 ") and answer.endswith(b"The server is being stopped. Try again.")
