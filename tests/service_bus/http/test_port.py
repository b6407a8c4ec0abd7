"""The port of Service Bus over sockets: as the listener serves it."""

from __future__ import annotations

import http.client
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import StringIO
from pathlib import Path

import httpx
import pytest
from django.core.management import call_command

from broker_core import clients, namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from tests.broker_state import has_waiting_receiver
from tests.eventually import eventually
from tests.wire.listening import listening

pytestmark = pytest.mark.django_db(transaction=True)

PORT = "SERVICE_BUS_PORT"
CURL = EntityAddress("demo", "curl")


@pytest.fixture
def base(transactional_db):
    namespaces.create_namespace(CURL.namespace, Family.SERVICE_BUS)
    entities.create_queue(CURL)
    with listening((PORT,)) as served:
        yield f"http://localhost:{served.port(PORT)}"


def token(url: str, **options) -> str:
    printed = StringIO()
    call_command("sas_token", url, stdout=printed, **options)
    return printed.getvalue().strip()


def test_the_documented_commands_send_and_receive(base):
    page = (Path(__file__).resolve().parents[3] / "docs/http.md").read_text()
    commands = re.findall(r"^curl .*localhost:5300.*$", page, re.MULTILINE)
    [signed] = re.findall(r"sas_token (http://localhost:5300\S+) --namespace demo", page)
    authorization = token(signed.replace("http://localhost:5300", base), namespace="demo")
    answers = []
    for command in commands:
        words = shlex.split(command.replace("http://localhost:5300", base).replace("$TOKEN", authorization))
        answers.append(subprocess.run([*words, "-s"], check=True, capture_output=True, text=True, timeout=30).stdout)
    assert [answer.split()[1] for answer in answers] == ["201", "200"] and answers[1].endswith("hello")


def test_a_receive_that_waits_ends_with_401_when_its_key_is_replaced(base):
    policy = shared_access.create_policy("demo", "app", listen=True)
    headers = {"authorization": token(base, namespace="demo", policy=policy.name)}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(httpx.post, f"{base}/curl/messages/head?timeout=30", headers=headers, timeout=30)
        eventually(lambda: has_waiting_receiver(CURL))
        shared_access.regenerate_key("demo", "app")
        response = waiting.result(30)
    assert response.status_code == 401 and "SubCode=40103. The key of the policy 'app' was replaced" in response.text
    service_bus.send(CURL, [service_bus.Message(b"for others")])
    assert [message.body for message in service_bus.receive(CURL)] == [b"for others"]


def test_a_receive_that_waits_is_answered_when_an_operator_closes_its_client(base):
    headers = {"authorization": token(base, namespace="demo"), "user-agent": "billing/2.1"}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(httpx.post, f"{base}/curl/messages/head?timeout=30", headers=headers, timeout=30)
        row = eventually(lambda: next((row for row in clients.clients() if row.product == "billing"), None), 10)
        assert [(link.address, link.direction, link.mode) for link in row.links] == [(CURL, "receives", "peek-lock")]
        assert clients.close_client(row.id, "it holds too much")
        response = waiting.result(30)
    assert response.status_code == 503 and "SubCode=50005. The connection was closed: it holds too much" in response.text
    assert response.headers["vitrine-retryable"] == "true"


ODD_TOKENS = {
    "none": b"",
    "empty": b"Authorization: \r\n",
    "bearer": b"Authorization: Bearer abc\r\n",
    "no fields": b"Authorization: SharedAccessSignature\r\n",
    "doubled field": b"Authorization: SharedAccessSignature sr=a&sr=b&sig=c&se=9999999999&skn=d\r\n",
    "not ASCII": "Authorization: SharedAccessSignature sr=größe&sig=ß&se=9999999999&skn=ä\r\n".encode(),
    "not UTF-8": b"Authorization: SharedAccessSignature sr=\xff&sig=\xfe&se=9999999999&skn=\xfd\r\n",
    "NUL in the name": b"Authorization: SharedAccessSignature sr=a&sig=b&se=9999999999&skn=%00\r\n",
    "surrogate": b"Authorization: SharedAccessSignature sr=%ED%A0%80&sig=%ED%A0%80&se=9999999999&skn=%ED%A0%80\r\n",
    "expiry": b"Authorization: SharedAccessSignature sr=a&sig=b&se=1e9&skn=d\r\n",
    "full-width digits": "Authorization: SharedAccessSignature sr=a&sig=b&se=１２３&skn=d\r\n".encode(),
    "long name": b"Authorization: SharedAccessSignature sr=a&sig=b&se=9999999999&skn=" + b"n" * 50_000 + b"\r\n",
}
ODD_PATHS = [
    *("/../curl/messages", "//messages", "/curl//messages", "/./messages", "/%2e%2e/curl/messages", "/curl%2F/messages"),
    *(
        "/curl%00/messages",
        "/%FF/messages",
        "/curl%3F/messages",
        "/curl%23/messages",
        "/%ED%A0%80/messages",
        "/curl/%00/messages",
    ),
    *(f"/{'x' * 10_000}/messages", f"{'/x' * 5_000}/messages", "/curl/messages/1/%00", "/curl/Subscriptions/x/messages/head"),
]


@pytest.fixture
def _no_limit_of_failures(settings):
    settings.FAILED_AUTHENTICATIONS = settings.FAILED_AUTHENTICATION_DELAY_SECONDS = 0


@pytest.mark.usefixtures("_no_limit_of_failures")
def test_odd_tokens_and_paths_are_refused_and_the_connection_stays(base):
    signed = f"Authorization: {token(base, namespace='demo')}\r\n".encode()
    with closing(http.client.HTTPConnection(base.removeprefix("http://"))) as connection:
        connection.connect()
        for name, header in ODD_TOKENS.items():
            assert _status(connection, "/curl/messages", header) == 401, name
        for path in ODD_PATHS:
            assert _status(connection, path, signed) in (400, 404, 410), path
        assert _status(connection, "/curl/messages", signed + b"Authorization: Bearer second\r\n") == 401
        assert _status(connection, "/curl/messages", signed) == 201


def _status(connection: http.client.HTTPConnection, path: str, headers: bytes) -> int:
    """Of a POST, whose bytes are written as they are."""
    host = f"{connection.host}:{connection.port}"
    connection.sock.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n".encode() + headers + b"\r\nx")
    response = http.client.HTTPResponse(connection.sock, method="POST")
    response.begin()
    response.read()
    return response.status


def test_health_is_answered_without_a_key(base):
    assert httpx.get(f"{base}/health").json() == {"status": "healthy", "message": "Service is healthy."}
    head = httpx.head(f"{base}/health")
    assert (head.status_code, head.content) == (200, b"")
