"""The REST API at the root of a port of its own: the namespace comes from the host or the key, and a key that is revoked ends
what waits for messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import uuid4

import httpx
import pytest

from broker_core import namespaces
from broker_core.common.errors import BrokerUnavailable
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities, tokens
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.http import application_at_root, health
from broker_core.service_bus.rules import sas

pytestmark = pytest.mark.django_db(transaction=True)

LOCALHOST = "http://localhost:5300"


@pytest.fixture
def queue() -> EntityAddress:
    """A queue in a namespace of its own."""
    address = EntityAddress(f"root-{uuid4().hex[:8]}", "orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    return address


@pytest.fixture(autouse=True)
def _nothing_kept():
    tokens._cached.clear()


def client(base: str = LOCALHOST, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(application_at_root), base_url=base, headers=headers, timeout=30)


def token(namespace: str, uri: str = LOCALHOST, policy: str = shared_access.ROOT_POLICY, seconds: float = 600) -> str:
    return signed(shared_access.get_policy(namespace, policy), uri, seconds)


def signed(policy: shared_access.AccessPolicy, uri: str = LOCALHOST, seconds: float = 600) -> str:
    return sas.sign(uri, policy.name, policy.primary_key, int(time.time() + seconds))


async def in_thread(call: Callable, *args, **kwargs):
    return await asyncio.to_thread(call, *args, **kwargs)


@pytest.mark.parametrize("by_host", [False, True])
async def test_every_operation_works_without_a_prefix(queue, by_host):
    base = f"http://{queue.namespace}.localhost:5300" if by_host else LOCALHOST
    authorization = await in_thread(token, queue.namespace, base)
    async with client(base, authorization=authorization) as http:
        assert [(await http.post("/orders/messages", content=b"%d" % n)).status_code for n in range(3)] == [201] * 3
        locked = await http.post("/Orders/messages/head?timeout=0")
        assert (locked.status_code, locked.content) == (201, b"0")
        location = locked.headers["location"]
        assert location.startswith(f"{base}/Orders/messages/1/")
        assert [(await http.request(verb, location)).status_code for verb in ("POST", "PUT")] == [200, 200]
        again = await http.post("/orders/messages/head?timeout=0")
        assert (await http.delete(again.headers["location"])).status_code == 200
        assert (await http.delete("/orders/messages/head?timeout=0")).content == b"1"
        assert (await http.post("/orders/$DeadLetterQueue/messages/head?timeout=0")).status_code == 204


@pytest.mark.parametrize(
    ("path", "status", "sub_code"),
    [
        ("/nowhere/messages", 410, 41000),
        ("/orders", 404, 40400),
        ("/", 404, 40400),
        ("/messages", 404, 40400),
        ("/a//b/messages", 400, 40000),
        ("/orders/messages/1/no-uuid", 400, 40000),
    ],
)
async def test_paths_without_an_entity_are_refused(queue, path, status, sub_code):
    async with client(authorization=await in_thread(token, queue.namespace)) as http:
        response = await http.post(f"http://localhost:5300{path}")
    assert response.status_code == status and f"SubCode={sub_code}." in response.text
    assert "servicebus" not in response.text


@pytest.mark.parametrize(("verb", "body"), [("GET", '{"status":"healthy","message":"Service is healthy."}'), ("HEAD", "")])
async def test_health_is_that_of_the_official_emulator(transactional_db, verb, body):
    async with client() as http:
        response = await http.request(verb, "/health")
    assert response.status_code == 200 and response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.text == body or verb == "HEAD"


async def test_without_the_database_the_health_is_503(transactional_db, monkeypatch):
    async def no_answer(ids):
        raise BrokerUnavailable("down")

    monkeypatch.setattr(health, "_health", health._Health())
    monkeypatch.setattr(health.shared_access.stored_policies, "aio", no_answer)
    async with client() as http:
        response = await http.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "unhealthy")


class Later(datetime):
    """A clock that is ten minutes ahead."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(minutes=10)


@pytest.mark.parametrize("verb", ["POST", "DELETE"])
@pytest.mark.parametrize("end", ["regenerate", "delete", "narrow", "expire"])
async def test_a_receive_that_waits_ends_when_its_key_does(queue, end, verb, monkeypatch):
    monkeypatch.setattr(tokens, "CHECK_SECONDS", 0.05)
    policy = await in_thread(shared_access.create_policy, queue.namespace, "app", listen=True)
    async with client(authorization=signed(policy)) as http:
        waiting = asyncio.create_task(http.request(verb, "/orders/messages/head?timeout=30"))
        others = {"authorization": await in_thread(token, queue.namespace, seconds=6000)}
        other = asyncio.create_task(http.request(verb, "/orders/messages/head?timeout=30", headers=others))
        await _in_use(2)
        match end:
            case "regenerate":
                await in_thread(shared_access.regenerate_key, queue.namespace, "app")
            case "delete":
                await in_thread(shared_access.delete_policy, queue.namespace, "app")
            case "narrow":
                await in_thread(shared_access.update_policy, queue.namespace, "app", send=True, listen=False, manage=False)
            case "expire":
                monkeypatch.setattr(tokens, "datetime", Later)
        response = await waiting
        expected = 40106 if end == "expire" else 40103
        assert response.status_code == 401 and f"SubCode={expected}." in response.text, response.text
        assert not other.done()
        other.cancel()


async def _in_use(number: int) -> None:
    """Wait until so many credentials are in use."""
    while len(getattr(tokens._watches.get(asyncio.get_running_loop()), "_used", ())) < number:
        await asyncio.sleep(0.01)


async def test_other_keys_of_the_policy_and_new_rights_end_nothing(queue, monkeypatch):
    monkeypatch.setattr(tokens, "CHECK_SECONDS", 0.02)
    policy = await in_thread(shared_access.create_policy, queue.namespace, "app", listen=True)
    verified = tokens.Verified(policy, policy.primary_key)
    with tokens.watched(verified) as ended:
        await in_thread(shared_access.regenerate_key, queue.namespace, "app", which="secondary")
        await in_thread(shared_access.update_policy, queue.namespace, "app", send=True, listen=True, manage=True)
        await _look_often(monkeypatch)
        assert not ended.done()


async def _look_often(monkeypatch) -> None:
    """Wait until the credentials in use were looked at three times."""
    seen, look = 0, tokens._end_invalid

    async def counted(used):
        nonlocal seen
        await look(used)
        seen += 1

    monkeypatch.setattr(tokens, "_end_invalid", counted)
    while seen < 3:
        await asyncio.sleep(0.01)
