"""Records the clients of this process in the database: once a second at most, in one statement, and only what has changed.

The rows belong to the epoch of the process (runtime/processes.py) and are not shown when it ends. A process joins one when it has
a client. The epoch is that of the default database, whichever databases the clients use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.runtime import processes
from broker_core.store import aio, connections
from broker_core.store.driver import Blocking, Steps
from broker_core.store.statements import call
from broker_core.wire.clients import MOST_PATH, Client, Link, Registry, registry, shown

SECONDS = 1.0
RATE_SECONDS = 5  # that a rate is an average of, at a record a second
DEAD_SECONDS = 10.0  # between two looks at what dead processes have left
KIND = "client"  # in processes.Process.owned, and in close_client
_log = logging.getLogger(__name__)


class _Meter:
    """The rates of two counters: the averages over the last records."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int, int]] = deque(maxlen=RATE_SECONDS + 1)

    def read(self, at: float, messages: int, amount: int) -> tuple[float, float]:
        """Messages and bytes a second; zero if nothing was counted."""
        self._readings.append((at, messages, amount))
        began, messages_then, amount_then = self._readings[0]
        seconds = max(at - began, SECONDS)
        return round((messages - messages_then) / seconds, 2), round((amount - amount_then) / seconds, 1)


class _Recorded:
    """What was written of a client or link."""

    __slots__ = ("meter", "row")

    def __init__(self) -> None:
        self.meter = _Meter()
        self.row: Mapping[str, Any] | None = None

    def changed(self, row: Mapping[str, Any]) -> bool:
        return row != self.row


class _Owned:
    """A client, for notices from other processes."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop):
        self._client, self._loop = client, loop

    def receive_notice(self, notice: str) -> None:
        kind, _, reason = notice.partition(" ")
        if kind == "closed":
            self._loop.call_soon_threadsafe(self._client.close, reason)

    def wake(self) -> None:
        """The epoch is over: clients stay connected, and are recorded in the next one."""


class Recorder:
    """Records a registry's clients. Its methods run on the event loop that serves the clients."""

    def __init__(self, registry: Registry):
        self._registry = registry
        self._process: processes.Process | None = None
        self._clients: dict[int, _Recorded] = {}
        self._links: dict[int, _Recorded] = {}
        self._owned: dict[int, _Owned] = {}
        self._task: asyncio.Task | None = None
        self._looked_at = float("-inf")

    def start(self) -> None:
        """Record from now on, until `stop`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, close the clients that are left, and remove what was recorded."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        for client in list(self._registry.clients.values()):
            client.close("the server is being stopped")
        if self._process is not None and self._process.why_lost is None:
            try:
                with connections.using(connections.DEFAULT):
                    await aio.run(_remove(self._process.epoch))
            except BrokerError as exc:
                _log.warning("The clients of this process were not removed: %s", exc)
        self._forget()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self.record()
            except BrokerError as exc:
                _log.debug("Clients were not recorded: %s", exc)
            except Exception:
                _log.exception("Clients were not recorded")

    async def record(self) -> None:
        """Write what has changed since the last call."""
        self._registry.end_idle(time.time())
        if not self._registry.clients and not self._clients:
            return
        with connections.using(connections.DEFAULT):
            process = processes.current() or await aio.run(_join())
            if process is not self._process:
                self._forget()
                self._process = process
            await self._write(process)
            await self._remove_the_dead()

    async def _write(self, process: processes.Process) -> None:
        at, now = time.monotonic(), time.time()
        clients = dict(self._registry.clients)
        links = {link.number: (client, link) for client in clients.values() for link in list(client.links.values())}
        self._own(process, clients)
        rows = {number: self._client_row(client, at) for number, client in clients.items()}
        link_rows = {number: self._link_row(client, link, at) for number, (client, link) in links.items()}
        changed = {number: row for number, row in rows.items() if self._clients[number].changed(row)}
        changed_links = {number: row for number, row in link_rows.items() if self._links[number].changed(row)}
        ended, ended_links = self._clients.keys() - rows.keys(), self._links.keys() - link_rows.keys()
        if not (changed or changed_links or ended or ended_links):
            return
        written = await aio.run(
            _write(
                epoch=process.epoch,
                clients=json.dumps([_with_ages(clients[number], row, now) for number, row in changed.items()]),
                links=json.dumps([dict(row) for row in changed_links.values()]),
                ended=list(ended),
                ended_links=list(ended_links),
            )
        )
        if not written:
            await asyncio.to_thread(process.leave, "its process was declared dead")  # it may wait for the thread that keeps it
            return
        for recorded, done, gone in ((self._clients, changed, ended), (self._links, changed_links, ended_links)):
            for number, row in done.items():
                recorded[number].row = row
            for number in gone:
                del recorded[number]

    def _client_row(self, client: Client, at: float) -> Mapping[str, Any]:
        recorded = self._clients.setdefault(client.number, _Recorded())
        messages, size = client.messages_in + client.messages_out, client.bytes_in + client.bytes_out
        messages_per_second, bytes_per_second = recorded.meter.read(at, messages, size)
        return {
            "number": client.number, "protocol": client.protocol, "peer": client.peer, "port": client.port,
            "is_tls": client.is_tls, "product": client.product, "version": client.version, "description": client.description,
            "actor": client.actor, "holder": client.holder, "namespace": client.namespace, "last_at": client.last_at,
            "last_request": shown(client.last_request), "messages_in": client.messages_in, "messages_out": client.messages_out,
            "bytes_in": client.bytes_in, "bytes_out": client.bytes_out, "messages_per_second": messages_per_second,
            "bytes_per_second": bytes_per_second,
        }  # fmt: skip

    def _link_row(self, client: Client, link: Link, at: float) -> Mapping[str, Any]:
        recorded = self._links.setdefault(link.number, _Recorded())
        rate, _ = recorded.meter.read(at, link.messages, 0)
        return {
            "client": client.number, "number": link.number, "channel": link.channel, "name": link.name,
            "namespace": shown(link.address.namespace, MOST_PATH), "path": shown(link.address.path, MOST_PATH),
            "subqueue": int(link.address.subqueue),
            "direction": str(link.direction), "mode": link.mode, "credit": link.credit, "unsettled": link.unsettled,
            "messages": link.messages, "messages_per_second": rate,
        }  # fmt: skip

    def _own(self, process: processes.Process, clients: Mapping[int, Client]) -> None:
        """Register new clients for notices, and forget those that have ended."""
        for number in self._owned.keys() - clients.keys():
            del self._owned[number]
        for number in clients.keys() - self._owned.keys():
            self._owned[number] = owned = _Owned(clients[number], asyncio.get_running_loop())
            process.owned[f"{KIND} {process.epoch}-{number}"] = owned

    async def _remove_the_dead(self) -> None:
        if time.monotonic() - self._looked_at > DEAD_SECONDS:
            self._looked_at = time.monotonic()
            await aio.run(remove_the_dead())

    def _forget(self) -> None:
        self._process = None
        for what in (self._clients, self._links, self._owned):
            what.clear()


def remove_the_dead() -> Steps[None]:
    """Remove the clients of processes that have ended without removing them."""
    yield call("mark_dead_processes")
    yield call("remove_clients_of_the_dead")


def _with_ages(client: Client, row: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The row for the statement: the clocks of process and database may differ, so it has ages instead of instants."""
    ages = {"age": max(0.0, now - client.since), "idle": max(0.0, now - client.last_at)}
    return {name: value for name, value in row.items() if name != "last_at"} | ages


def _join() -> Steps[processes.Process]:
    return (yield Blocking(processes.join))


def _write(**params: Any) -> Steps[bool]:
    return bool((yield call("record_clients", **params)))


def _remove(epoch: int) -> Steps[None]:
    yield call("remove_clients", epoch=epoch)


recorder = Recorder(registry)
