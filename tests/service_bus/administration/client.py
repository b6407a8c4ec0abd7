"""Requests of the administration API: with a token, and entries as clients write them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from xml.etree import ElementTree

import httpx

from broker_core.service_bus.rules import sas

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
NAMES = {"a": ATOM, "s": SERVICE_BUS, "c": COUNTS, "i": INSTANCE}
TYPE = f"{{{INSTANCE}}}type"
UPDATE = {"If-Match": "*"}


def entry(description: str, inner: str = "") -> bytes:
    """An entry with a description of this name. inner: its elements, in the prefixes i (instance) and x (schema)."""
    declared = f'xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}" xmlns:x="{SCHEMA}"'
    content = f'<content type="application/xml"><{description} {declared}>{inner}</{description}></content>'
    return f'<entry xmlns="{ATOM}">{content}</entry>'.encode()


def queue(inner: str = "") -> bytes:
    return entry("QueueDescription", inner)


def topic(inner: str = "") -> bytes:
    return entry("TopicDescription", inner)


def subscription(inner: str = "") -> bytes:
    return entry("SubscriptionDescription", inner)


def rule(inner: str = "") -> bytes:
    return entry("RuleDescription", inner)


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def root(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    @property
    def description(self) -> ElementTree.Element:
        """The description in an entry."""
        (found,) = self.root.find("a:content", NAMES)
        return found

    @property
    def names(self) -> list[str]:
        """The elements of the description in their order, without namespaces."""
        return [child.tag.rpartition("}")[2] for child in self.description]

    @property
    def titles(self) -> list[str]:
        """Of the entries of a feed."""
        return [found.text for found in self.root.findall("a:entry/a:title", NAMES)]

    @property
    def links(self) -> dict[str, str]:
        return {link.get("rel"): link.get("href") for link in self.root.findall("a:link", NAMES)}

    @property
    def detail(self) -> str:
        """Of an Error document."""
        return self.root.findtext("Detail")

    def text(self, name: str) -> str | None:
        """Of an element of the description."""
        return self.description.findtext(f"s:{name}", namespaces=NAMES)

    def values(self, names: str) -> list[str | None]:
        return [self.text(name) for name in names.split()]


class Client:
    """Signs each request with a policy of a namespace."""

    def __init__(self, port: int, policy: str, key: str):
        self.base = f"http://127.0.0.1:{port}"
        self._policy, self._key = policy, key
        self._http = httpx.Client(base_url=self.base, timeout=30)

    def close(self) -> None:
        self._http.close()

    def token(self, path: str = "", seconds: float = 600) -> str:
        return sas.sign(f"{self.base}{path}", self._policy, self._key, int(time.time() + seconds))

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        given = {"Authorization": self.token(), "Content-Type": "application/atom+xml"} | (headers or {})
        answer = self._http.request(method, path, content=body, headers={name: text for name, text in given.items() if text})
        return Reply(answer.status_code, answer.headers, answer.content)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.send("GET", path, headers=headers)

    def create(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        return self.send("PUT", path, body, headers)

    def update(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        return self.send("PUT", path, body, UPDATE | (headers or {}))

    def delete(self, path: str) -> Reply:
        return self.send("DELETE", path)
