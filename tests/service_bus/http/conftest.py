"""An entity on the living site, seen by an HTTP client that holds the namespace's key."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from uuid import uuid4

import httpx
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas

CLIENT = httpx.Client(timeout=30, limits=httpx.Limits(max_connections=100))


@dataclass(frozen=True)
class HttpEntity:
    """site: the site's root URL. Requests carry a token for the whole namespace unless one is given."""

    site: str
    address: EntityAddress
    key: str
    policy: str = shared_access.ROOT_POLICY

    @property
    def url(self) -> str:
        return f"{self.site}/servicebus/{self.address}"

    def token(self, uri: str | None = None, *, key: str | None = None, policy: str | None = None, seconds: int = 600) -> str:
        uri = uri or f"{self.site}/servicebus/{self.address.namespace}"
        return sas.sign(uri, policy or self.policy, key or self.key, int(time.time()) + seconds)

    def headers(self, **headers: str) -> dict[str, str]:
        return {"authorization": self.token()} | headers

    def request(self, method: str, url: str = "", *, headers: dict | None = None, **more) -> httpx.Response:
        url = url if url.startswith("http") else self.url + url
        return CLIENT.request(method, url, headers=self.headers(**headers or {}), **more)

    def send(self, body: bytes = b"x", **headers: str) -> httpx.Response:
        return self.request("POST", "/messages", headers=headers, content=body)

    def lock(self, timeout: float = 0) -> httpx.Response:
        return self.request("POST", f"/messages/head?timeout={timeout}")

    def take(self, timeout: float = 0) -> httpx.Response:
        return self.request("DELETE", f"/messages/head?timeout={timeout}")

    def stored(self) -> list:
        return service_bus.peek(self.address)

    @property
    def dead_letters(self) -> HttpEntity:
        return replace(self, address=self.address.dead_letter)

    def subscription(self, name: str) -> HttpEntity:
        return replace(self, address=self.address.subscription(name))


def maker(site: str, create):
    def make(path: str = "orders", *, namespace: str | None = None, **settings) -> HttpEntity:
        namespace = namespaces.ensure_namespace(namespace or f"http-{uuid4().hex[:8]}", Family.SERVICE_BUS).name
        address = EntityAddress(namespace, path)
        create(address, **settings)
        return HttpEntity(site, address, shared_access.get_policy(namespace, shared_access.ROOT_POLICY).primary_key)

    return make


@pytest.fixture
def make_queue(live_site):
    """Make queues, each in a namespace of its own unless one is named."""
    return maker(live_site, entities.create_queue)


@pytest.fixture
def make_topic(live_site):
    """Make topics, without subscriptions, each in a namespace of its own unless one is named."""
    return maker(live_site, entities.create_topic)


@pytest.fixture
def queue(make_queue) -> HttpEntity:
    return make_queue()
