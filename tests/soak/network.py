"""Network clients under faults: what each was promised, and whether it is kept. Threads of this process; servers are killed.

A client notes a text before it sends it, and that it was accepted when the answer says so. Without an answer it is unknown
whether a request was carried out, and it is not made again: each text is sent once.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree

from broker_core import namespaces, queue_storage, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules import sas as storage_sas
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas
from explorer.site.embedded_postgres import server
from tests.eventually import eventually
from tests.wire.listening import ListenerProcess

from .killed_server import Outcome

PORTS = ("QUEUE_STORAGE_PORT", "SERVICE_BUS_PORT")
UNAVAILABLE = 503  # while the database is away; the request may have been carried out
PAUSE_SECONDS = 0.02  # before a client that had no answer connects again


@dataclass
class Promises:
    """What the clients of one queue know. sent, accepted: texts. ending, ended: texts whose removal was asked for, and confirmed.

    wrong: in words.
    """

    sent: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    did: Counter = field(default_factory=Counter)

    def compare(self, there: Iterable[str]) -> list[str]:
        """What is wrong, now that these texts are in the queue."""
        found = Counter(there)
        lost = self.accepted - found.keys() - self.ending
        return [
            *self.wrong,
            *(f"{text} was accepted and is lost" for text in lost),
            *(f"{text} was removed and is there" for text in self.ended & found.keys()),
            *(f"{text} is there {count} times" for text, count in found.items() if count > 1),
            *(f"{text} was never sent" for text in found.keys() - self.sent),
        ]


class NetworkClient(ABC):
    """A thread with a connection. It sends, or receives and removes, until it is told to end."""

    def __init__(self, name: str, port: int, promises: Promises, *, sends: bool):
        self.name, self.port, self.promises = name, port, promises
        self._act = self._send if sends else self._receive
        self._connection: http.client.HTTPConnection | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._count = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(40)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._act()
            except (OSError, http.client.HTTPException):  # nobody is there, or the answer was cut off
                self.promises.did["requests without an answer"] += 1
                if self._connection is not None:
                    self._connection.close()
                time.sleep(PAUSE_SECONDS)
            except Exception:
                self.promises.wrong.append(traceback.format_exc())
                return

    def _send(self) -> None:
        self._count += 1
        text = f"{self.name}-{self._count}"
        self.promises.sent.add(text)
        if self.put(text):
            self.promises.accepted.add(text)
            self.promises.did["accepted"] += 1

    def _receive(self) -> None:
        if (received := self.get()) is None:
            return
        text, what = received
        if text in self.promises.ended:
            self.promises.wrong.append(f"{text} was removed and was received again")
        self.promises.ending.add(text)
        if self.remove(what):
            self.promises.ended.add(text)
            self.promises.did["removed"] += 1

    def ask(self, method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._connection.request(method, url, body, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status == UNAVAILABLE:
            self.promises.did["refusals while the database was away"] += 1
        return answer.status, answer.headers, read

    def expect(self, status: int, *expected: int) -> None:
        """Note a status that is neither expected nor that of a database which is away."""
        if status not in (*expected, UNAVAILABLE):
            self.promises.wrong.append(f"{self.name} got the status {status}")

    @abstractmethod
    def put(self, text: str) -> bool:
        """Whether the server has accepted it."""

    @abstractmethod
    def get(self) -> tuple[str, str] | None:
        """The text of a message, and what names it to `remove`."""

    @abstractmethod
    def remove(self, what: str) -> bool:
        """Whether the server has removed it for good."""


class StorageClient(NetworkClient):
    """Of Queue Storage, with a shared access signature. url: of the queue's messages."""

    def __init__(self, *args, account: str, key: str, **kwargs):
        super().__init__(*args, **kwargs)
        query = {"sv": "2026-02-06", "ss": "q", "srt": "o", "sp": "apd", "se": "2099-01-01T00:00:00Z", "sig": "-"}
        signed = storage_sas.signed(storage_sas.parse(list(query.items())), key, account=account, queue=None)
        self._url, self._query = f"/{account}/orders/messages", storage_sas.as_query(signed)

    def put(self, text: str) -> bool:
        body = f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"
        status, *_ = self.ask("POST", f"{self._url}?{self._query}", body.encode())
        self.expect(status, 201)
        return status == 201

    def get(self) -> tuple[str, str] | None:
        status, _, body = self.ask("GET", f"{self._url}?visibilitytimeout=2&{self._query}")
        self.expect(status, 200)
        found = ElementTree.fromstring(body).find("QueueMessage") if status == 200 else None
        if found is None:
            return None
        receipt = quote(found.findtext("PopReceipt") or "", safe="")
        return found.findtext(
            "MessageText"
        ) or "", f"{self._url}/{found.findtext('MessageId')}?popreceipt={receipt}&{self._query}"

    def remove(self, what: str) -> bool:
        status, *_ = self.ask("DELETE", what)
        self.expect(status, 204, 400, 404)  # it was received again since
        return status == 204


class ServiceBusClient(NetworkClient):
    """Of Service Bus' REST API. base: the path of the queue. resource: what the token is for."""

    def __init__(self, *args, base: str, resource: str, policy: str, key: str, **kwargs):
        super().__init__(*args, **kwargs)
        self._base, self._token = base, sas.sign(resource, policy, key, int(time.time()) + 3600)

    def put(self, text: str) -> bool:
        status, *_ = self.ask("POST", f"{self._base}/messages", text.encode(), Authorization=self._token)
        self.expect(status, 201)
        return status == 201

    def get(self) -> tuple[str, str] | None:
        status, headers, body = self.ask("POST", f"{self._base}/messages/head?timeout=1", Authorization=self._token)
        self.expect(status, 201, 204)
        location = headers.get("Location") or ""
        return (body.decode(), f"/{location.split('/', 3)[3]}") if status == 201 else None

    def remove(self, what: str) -> bool:
        status, *_ = self.ask("DELETE", what, Authorization=self._token)
        self.expect(status, 200, 404)
        return status == 200


def wait_for_progress(promises: Promises, seconds: float = 60) -> None:
    """Until messages were accepted and removed since now, so that a fault meets clients at work."""
    before, ends_at = promises.did.copy(), time.monotonic() + seconds
    while any(promises.did[what] < before[what] + 3 for what in ("accepted", "removed")):
        assert time.monotonic() < ends_at, f"no progress: {promises.did}"
        assert not promises.wrong, promises.wrong[:3]
        time.sleep(0.02)


# What the clients work on, and what is done to their servers


def kill_the_database(folder: Path) -> None:
    """kill -9 of its first process; then it is started again, as `up` would."""
    os.kill(int((folder / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    server.ensure_running(folder)


def texts_of_storage(address: EntityAddress) -> list[str]:
    """All messages of a storage queue, once what clients received is visible again."""
    texts: list[str] = []

    def all_are_read() -> bool:
        texts.extend(message.text for message in queue_storage.get(address, 32, visibility_timeout=timedelta(hours=1)))
        return len(texts) == queue_storage.approximate_count(address)

    eventually(all_are_read, 60)
    return texts


def texts_of_service_bus(address: EntityAddress) -> list[str]:
    texts: list[str] = []
    start = 1
    while messages := service_bus.peek(address, start, 200):
        texts += [bytes(message.body).decode() for message in messages]
        start = messages[-1].sequence_number + 1
    return texts


class Scene(ABC):
    """A queue with its clients, and what they were promised."""

    address: EntityAddress
    promises: Promises
    clients: Sequence[NetworkClient]

    @abstractmethod
    def texts(self) -> list[str]:
        """All messages that are in the queue."""


class Storage(Scene):
    """Clients of a storage queue on a listener."""

    def __init__(self, port: int):
        self.address, self.promises = EntityAddress(f"net{uuid4().hex[:8]}", "orders"), Promises()
        queue_storage.create_account(self.address.namespace)
        queue_storage.create_queue(self.address)
        key = accounts.get_keys(self.address.namespace).primary_key
        self.clients = [
            StorageClient(f"storage-{n}", port, self.promises, sends=n < 3, account=self.address.namespace, key=key)
            for n in range(5)
        ]

    def texts(self) -> list[str]:
        return texts_of_storage(self.address)


class ServiceBus(Scene):
    """Clients of a Service Bus queue: on a listener at its root, or on the web server below /servicebus."""

    def __init__(self, port: int, *, at_root: bool):
        self.address, self.promises = EntityAddress(f"net-{uuid4().hex[:8]}", "orders"), Promises()
        namespace = self.address.namespace
        namespaces.create_namespace(namespace, Family.SERVICE_BUS)
        entities.create_queue(self.address, max_delivery_count=2000)
        policy = shared_access.get_policy(namespace, shared_access.ROOT_POLICY)
        base = "/orders" if at_root else f"/servicebus/{namespace}/orders"
        resource = f"http://127.0.0.1{base}"
        self.clients = [
            ServiceBusClient(
                f"bus-{n}",
                port,
                self.promises,
                sends=n < 3,
                base=base,
                resource=resource,
                policy=policy.name,
                key=policy.primary_key,
            )
            for n in range(5)
        ]

    def texts(self) -> list[str]:
        return texts_of_service_bus(self.address)


def run(scenes: Sequence[Scene], faults: Iterable[Callable[[], None]]) -> Outcome:
    """Each fault in turn, while the clients of all scenes work; then what is there is compared with what they were promised."""
    clients = [client for scene in scenes for client in scene.clients]
    for client in clients:
        client.start()
    try:
        for fault in faults:
            for scene in scenes:
                wait_for_progress(scene.promises)
            fault()
        for scene in scenes:
            wait_for_progress(scene.promises)
    finally:
        for client in clients:
            client.end()
    outcome = Outcome()
    for scene in scenes:
        outcome.wrong += scene.promises.compare(scene.texts())
        outcome.did += scene.promises.did
    if not outcome.did["requests without an answer"]:
        outcome.wrong.append("the faults met no request")
    return outcome


def kill_servers(folder: Path, kills: int, seed: int) -> Outcome:
    """Kill a listener and its database at random under clients of all its ports. folder: of the database server."""
    dice = random.Random(seed)
    with closing(ListenerProcess(PORTS, DATABASE_URL=server.url(folder), **dict.fromkeys(PORTS, "1"))) as listener:
        scenes = [Storage(listener.port("QUEUE_STORAGE_PORT")), ServiceBus(listener.port("SERVICE_BUS_PORT"), at_root=True)]
        listener.start()

        def kill() -> None:
            listener.kill()
            listener.start()

        outcome = run(scenes, [dice.choice((kill, lambda: kill_the_database(folder))) for _ in range(kills)])
    outcome.did["kills of a listener or its database"] += kills
    return outcome
