"""Bodies within bounds: refused before Django collects them, and before anybody is signed in."""

import asyncio

import httpx
import pytest
from django.conf import settings
from django.urls import reverse

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from explorer.site import bodies

from .test_web_server import serve

MEGABYTE = 2**20


def parts(megabytes: int):
    for _ in range(megabytes):
        yield b"a" * MEGABYTE


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from serve(tmp_path_factory.mktemp("web"), ["-m", "explorer.site.web"], PATH_PREFIX="/tools/vitrine")


@pytest.mark.parametrize("path", ["/sign-in/", "/admin/login/", "/send/demo/orders", "/no/such/page", "/healthz"])
@pytest.mark.parametrize("prefix", ["/tools/vitrine", ""])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_of_an_anonymous_client_is_refused_before_it_is_read(server, path, prefix, chunked):
    """Regression: Django wrote all of it to the disk, and only then looked at the form's proof."""
    content = parts(50) if chunked else b"a" * (50 * MEGABYTE)
    answer = httpx.post(f"{server.url}{prefix}{path}", content=content, timeout=20)
    assert answer.status_code == 413
    assert "Request too large" in answer.text and "The limit is 2 MB" in answer.text
    assert answer.headers["Connection"] == "close"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_form_below_the_limit_is_processed(server):
    assert httpx.post(f"{server.url}/sign-in/", content=b"a" * (2 * MEGABYTE)).status_code == 403


@pytest.mark.parametrize(("declared", "sent"), [(b"3000000", 0), (None, 3)])
@pytest.mark.asyncio
async def test_no_more_than_the_limit_reaches_the_application(declared, sent):
    events = [{"type": "http.request", "body": b"a" * MEGABYTE, "more_body": n < 9} for n in range(10)]
    taken = []

    async def app(scope, receive, send):
        if "vitrine.body_limit" in scope:
            await send({"type": "http.response.start", "status": 413, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        while (event := await receive())["type"] == "http.request":
            taken.append(event)

    async def receive():
        return events.pop(0)

    answer = []

    async def send(event):
        answer.append(event)

    headers = [(b"content-length", declared)] if declared else [(b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/sign-in/", "headers": headers}
    await asyncio.wait_for(bodies.bounded_bodies(app)(scope, receive, send), 5)
    assert len(taken) == max(sent - 1, 0)
    assert [event["type"] for event in answer] == ["http.response.start", "http.response.body", "http.response.body"]
    assert events == []


@pytest.mark.asyncio
async def test_a_client_that_expects_100_continue_is_not_asked_for_a_large_body():
    async def app(scope, receive, send):
        await send({"type": "http.response.body", "body": b"no"})

    async def nothing():
        raise AssertionError("the body was asked for")

    async def send(event):
        pass

    headers = [(b"content-length", b"3000000"), (b"expect", b"100-continue")]
    await bodies.bounded_bodies(app)({"type": "http", "method": "POST", "path": "/", "headers": headers}, nothing, send)


def test_pages_with_their_own_limit_exist():
    of_queues = {"explorer:send": ["demo", "q"], "explorer:messages_import": ["demo", "q"]}
    arguments = {**of_queues, "explorer:rabbitmq_definitions": ["demo"], "explorer:configuration": []}
    assert {reverse(name, args=arguments[name]) for name in settings.BODY_LIMITS}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("role", "status"), [("operator", 302), (None, 413)])
def test_a_signed_in_user_may_send_a_large_file(live_site, client, person, role, status):
    address = EntityAddress(namespaces.ensure_namespace("large", Family.SERVICE_BUS, tier="premium").name, "q")
    entities.create_queue(address, max_message_size_in_kilobytes=10 * 1024)
    cookies = {}
    if role:
        client.force_login(person(role))
        cookies = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    cookies[settings.CSRF_COOKIE_NAME] = token = "a" * 32
    url = f"{live_site}{reverse('explorer:send', args=['large', 'q'])}"
    form = {"csrfmiddlewaretoken": token, "copies": "1"}
    answer = httpx.post(url, data=form, files={"body_file": b"x" * (5 * MEGABYTE)}, cookies=cookies, timeout=30)
    assert answer.status_code == status, answer.text
    assert [len(message.body) for message in service_bus.peek(address)] == ([5 * MEGABYTE] if role else [])
