"""The web server as a process on loopback: what a connection may cost before its request is complete."""

import http.client
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pytest

from broker_core.wire.bounded_http import HEAD_SECONDS, MAX_HEAD_BYTES
from explorer.site.logs import MOST_LINES
from tests.eventually import eventually

from .vitrine import ROOT, environment, free_port

CONNECTIONS = 20
MEGABYTE = 2**20


class Server:
    def __init__(self, port: int):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=HEAD_SECONDS + 20)

    def answers(self) -> float:
        """How many seconds the sign-in page takes, which needs no database."""
        begun = time.monotonic()
        assert httpx.get(f"{self.url}/sign-in/", timeout=30).status_code == 200
        return time.monotonic() - begun


def serve(tmp_path, command: list[str], *, log=None, log_level: str = "error", **settings: str):
    port = free_port()
    env = environment(tmp_path, DATABASE_URL="postgresql://nobody@127.0.0.1:1/none", **settings)
    command = [sys.executable, *command, "--port", str(port), f"--log-level={log_level}"]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=log)
    try:
        eventually(lambda: _is_up(port), 30)
        yield Server(port)
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from serve(tmp_path_factory.mktemp("web"), ["-m", "explorer.site.web"], CONNECTIONS_PER_ADDRESS=str(CONNECTIONS))


def _is_up(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            received += part
    return received


def answer_to_much(connection: socket.socket, start: bytes, *, megabytes: int) -> bytes:
    """The answer to `start` and as many letters as the server takes."""
    connection.sendall(start)
    with suppress(OSError):
        for _ in range(megabytes):
            connection.sendall(b"a" * MEGABYTE)
    return answer_of(connection)


@contextmanager
def other_requests(server: Server):
    """Requests of another client meanwhile; afterwards the longest took less than two seconds."""
    done, took = threading.Event(), [server.answers()]

    def ask():
        while not done.is_set():
            took.append(server.answers())

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert max(took) < 2, took


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"GET / HTTP/1.1\r\n"]
    + [b"POST /sign-in/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: "],
    ids=["request line", "header value", "header name", "trailer"],
)
def test_a_request_head_of_100_megabytes_is_refused_early_without_delaying_others(server, start):
    """Regression: httptools collects it quadratically, and every other request waited for over a minute."""
    begun = time.monotonic()
    with other_requests(server), server.connect() as connection:
        answer = answer_to_much(connection, start, megabytes=100)
    assert time.monotonic() - begun < 5
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 403 "))  # the form's own refusal comes before its trailer


@pytest.mark.parametrize("name", [b"X-Header", b"Cookie"])
def test_many_headers_of_more_than_64_kb_are_refused(server, name):
    with server.connect() as connection:
        connection.sendall(
            b"GET /sign-in/ HTTP/1.1\r\nHost: localhost\r\n" + (name + b": " + b"v" * 1000 + b"\r\n") * 70 + b"\r\n"
        )
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"at most 64 KB" in answer


def test_a_request_head_below_the_limit_is_served(server):
    cookie = "c=" + "v" * (MAX_HEAD_BYTES - 1000)
    assert httpx.get(f"{server.url}/sign-in/", headers={"Cookie": cookie}).status_code == 200


def test_the_limits_apply_to_each_request_of_a_connection(server):
    with httpx.Client() as client:
        for _ in range(5):
            assert client.get(f"{server.url}/sign-in/", headers={"X-Header": "v" * 30000}).status_code == 200
            assert client.post(f"{server.url}/sign-in/", content=b"x" * 100000).status_code == 403


def test_pipelined_requests_are_answered_in_turn(server):
    request = b"GET /sign-in/ HTTP/1.1\r\nHost: localhost\r\nX-Header: " + b"v" * 30000 + b"\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(request * 4 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer_of(connection).count(b"HTTP/1.1 200 OK") == 5


@pytest.mark.slow
def test_slow_and_silent_clients_are_disconnected_without_delaying_others(server):
    """A byte a second prolongs nothing."""
    with other_requests(server):
        slow, silent, kept, blank = [server.connect() for _ in range(4)]
        begun = time.monotonic()
        kept.sendall(b"GET /sign-in/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(15) == b"HTTP/1.1 200 OK"
        kept.sendall(b"GET /again")
        blank.sendall(b"\r\n")
        with suppress(OSError):
            for byte in b"GET /sign-in/ HTTP/1.1\r\nHost: localhost\r\n":
                slow.sendall(bytes([byte]))
                time.sleep(0.5)
                if time.monotonic() - begun > HEAD_SECONDS + 3:
                    break
        assert b" 408 " in answer_of(kept)
        assert answer_of(silent) == b""
        assert b" 408 " in answer_of(blank)
        assert b" 408 " in answer_of(slow)
        assert time.monotonic() - begun < HEAD_SECONDS + 6


def test_the_connections_of_an_address_are_limited(server):
    held = [server.connect() for _ in range(CONNECTIONS)]
    with server.connect() as one_more:
        assert b" 429 " in answer_of(one_more)
    for connection in held:
        connection.close()
    eventually(server.answers, 5)


@pytest.mark.slow
def test_a_client_that_pauses_keeps_its_connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/sign-in/")
    assert connection.getresponse().read()
    used = connection.sock
    time.sleep(6)  # uvicorn would close it after 5
    connection.request("GET", "/sign-in/")
    assert connection.getresponse().status == 200 and connection.sock is used
    connection.close()


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /sign-in/ HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", b"400"),
        (b"GET /sign-in/ HTTP/1.0\r\nHost: localhost\r\nHost: evil\r\n", b"400"),
        (b"GET /sign-in/ HTTP/1.1\r\n", b"400"),
        (b"GET /live/ HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\n", b"503"),  # HTTP/1.0 has none; the database of this server is away
    ],
)
def test_a_request_must_have_exactly_one_host(server, request_head, status):
    with server.connect() as connection:
        connection.sendall(request_head + b"\r\n")
        assert answer_of(connection).split(b" ")[1] == status


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """A server that gives a body half a second, and less than a second for each further part."""
    code = "import broker_core.wire.bounded_http as b, explorer.site.web as w, sys; b.BODY_SECONDS = 0.5; w.main(sys.argv[1:])"
    yield from serve(tmp_path_factory.mktemp("web"), ["-c", code])


@pytest.mark.parametrize("path", [b"/sign-in/", b"/no/such/page", b"/servicebus/demo/q/messages"])
@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_an_endless_body_is_refused(impatient, path, framing):
    """Regression: a byte a second held a connection for ever."""
    with impatient.connect() as connection:
        connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\n")
        answer = b""
        connection.settimeout(0.1)
        with suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"1\r\na\r\n" if b"chunked" in framing else b"a")
                with suppress(TimeoutError):
                    part = connection.recv(4096)
                    answer += part
                    if not part:
                        break
        assert answer.split(b" ")[1] in (b"408", b"401") and (b"KB of the request's body" in answer or b"401" in answer)


def test_a_body_that_keeps_arriving_does_not_time_out(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"POST /sign-in/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 700000\r\n\r\n")
        for _ in range(7):
            connection.sendall(b"a" * 100_000)
            time.sleep(0.2)
        assert connection.recv(15) == b"HTTP/1.1 403 Fo"


def test_a_body_awaiting_100_continue_does_not_time_out(impatient):
    request = b"POST /servicebus/demo/q/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    with impatient.connect() as connection:
        connection.sendall(request)
        assert connection.recv(12) in (b"HTTP/1.1 401", b"HTTP/1.1 503")


def test_malformed_requests_do_not_fill_the_log(tmp_path):
    """By the whole server: uvicorn configures its logger, and then the site does."""
    with (tmp_path / "log").open("w") as log:
        for server in serve(tmp_path, ["-m", "explorer.site.web"], log=log, log_level="warning"):
            for _ in range(40):
                with server.connect() as connection:
                    connection.sendall(b"BAD\r\n\r\n")
                    assert b" 400 " in answer_of(connection)
    assert (tmp_path / "log").read_text().count("Invalid HTTP request") == MOST_LINES
