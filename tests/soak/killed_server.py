"""kill -9 of the whole database server, at random instants, under processes that send to one queue at the same time.

Senders that meet are committed first and flushed afterwards, and those of one process are combined, as are its settlements
(docs/design.md D3). So what they were told is compared with what is there: each acknowledged message under its number, none
stored twice and no number missing, each acknowledged completion done, once. The control leaves out the flush; it must lose
messages, or the kills prove nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerUnavailable, LockLost, ServerBusy
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.runtime import contention
from broker_core.runtime.gathering import Gathering
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, driver, statements
from broker_core.store.connections import Database, close_all_of_this_thread, using
from explorer.site.embedded_postgres import server

from .journal import Journal, entries

ROOT = Path(__file__).resolve().parent.parent.parent
ROLES = ("thread", "thread", "thread", "loop", "settler", "crowd")  # a process each
TASKS = 3  # of the process with an event loop
CROWD = 8  # threads that send and threads that settle single messages, in one process
JOURNALS = len(ROLES) - 1 + 2 * CROWD
START_SECONDS = 60
MUST_LIVE_WITH = (BrokerUnavailable, ServerBusy, LockLost)


@dataclass
class Outcome:
    """wrong: what must not be, in words. did: how much was done."""

    wrong: list[str] = field(default_factory=list)
    did: Counter = field(default_factory=Counter)

    def tell(self) -> str:
        did = ", ".join(f"{count:,} {what}" for what, count in sorted(self.did.items()))
        return "\n".join([did, *self.wrong[:20]])


@dataclass
class KilledServer:
    """server: the folder of a server whose migrated database is at `dsn`. kills: at most; the control ends with the first that
    loses something. flushes: False for the control."""

    server: Path
    dsn: str
    folder: Path
    kills: int
    seed: int = 0
    flushes: bool = True

    def run(self) -> Outcome:
        outcome = Outcome()
        self._queue = EntityAddress(f"killed-{uuid4().hex[:8]}", "queue")
        with using(Database(dsn=self.dsn)):
            namespaces.create_namespace(self._queue.namespace, Family.SERVICE_BUS)
            entities.create_queue(self._queue, max_delivery_count=2000)
            clients = [self._start(number, role) for number, role in enumerate(ROLES)]
            try:
                for _ in range(self.kills):
                    self._kill_once()
                    outcome.did["kills"] += 1
                    if not self.flushes and self._lost(self._acknowledged()[0], self._there()[0]):
                        break
            finally:
                (self.folder / "end").touch()
                for client in clients:
                    if client.wait(60):
                        outcome.wrong.append("a client crashed")
            self._compare(outcome)
            close_all_of_this_thread()
        return outcome

    def _start(self, number: int, role: str) -> subprocess.Popen:
        arguments = [role, str(number), self._queue.namespace, self.dsn, str(self.folder), str(self.seed), str(int(self.flushes))]
        return subprocess.Popen([sys.executable, "-m", __name__, *arguments], cwd=ROOT)

    def _kill_once(self) -> None:
        """Kill all processes of the server a random while after every client has gone on, and start it again."""
        dice = random.Random(f"{self.seed}-{os.urandom(4).hex()}")
        before = self._sizes()
        ends_at = time.monotonic() + START_SECONDS
        while any(size == before.get(name) for name, size in self._sizes().items()) or len(self._sizes()) < JOURNALS:
            assert time.monotonic() < ends_at, "a client does not go on"
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.3))
        kill_all(self.server)
        server.ensure_running(self.server)

    def _sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.folder.glob("*.journal")}

    def _compare(self, outcome: Outcome) -> None:
        sent, completed, did = self._acknowledged()
        there, gone, present, next_number = self._there()
        lost = self._lost(sent, there)
        outcome.wrong += [f"{number}: {message_id} was acknowledged, {there.get(number)} is there" for number, message_id in lost]
        outcome.wrong += [f"{number} was completed, and is there again" for number in completed.keys() - gone.keys()]
        if sorted(there) != list(range(1, next_number)):
            missing = set(range(1, next_number)).symmetric_difference(there)
            outcome.wrong.append(f"numbers missing or beyond the counter: {sorted(missing)[:10]}")
        left = there.keys() - gone.keys()
        if present != left:
            outcome.wrong.append(f"messages and events differ: {sorted(present.symmetric_difference(left))[:10]}")
        twice = [message_id for message_id, times in Counter(there.values()).items() if times > 1]
        outcome.wrong += [f"{message_id} was stored twice" for message_id in twice]
        for told, completions in (("told to be completed", completed), ("completed", gone)):
            outcome.wrong += [f"{number} was {told} {times} times" for number, times in completions.items() if times > 1]
        outcome.did += Counter({"messages acknowledged": len(sent), "completions acknowledged": len(completed)})
        outcome.did += did + Counter({"acknowledged messages lost": len(lost)})

    def _acknowledged(self) -> tuple[list[tuple[int, str]], Counter[int], Counter[str]]:
        """What clients were told: numbers and ids of sent messages, and completed numbers; and what was done for that."""
        sent, completed, did = [], Counter[int](), Counter[str]()
        for entry in entries(self.folder):
            match entry["kind"]:
                case "sent":
                    sent += zip(entry["numbers"], entry["ids"], strict=True)
                    did["contended sends"] += entry["contended"]
                case "completed":
                    completed.update(entry["numbers"])
                case "combined":
                    did["combined calls"] += entry["calls"]
        return sent, completed, did

    @staticmethod
    def _lost(sent: list[tuple[int, str]], there: dict[int, str]) -> list[tuple[int, str]]:
        return [(number, message_id) for number, message_id in sent if there.get(number) != message_id]

    def _there(self) -> tuple[dict[int, str], Counter[int], set[int], int]:
        """By its events: ids by number, and completed numbers. By its rows: numbers, and the next one."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            (entity_id,) = connection.execute(
                "SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = %s",
                [self._queue.namespace],
            ).fetchone()
            events = "SELECT sequence_number, message_id FROM vitrine_message_event WHERE entity_id = %s AND kind = %s"
            there = dict(connection.execute(events, [entity_id, EventKind.SENT]).fetchall())
            gone = Counter(number for number, _ in connection.execute(events, [entity_id, EventKind.COMPLETED]))
            rows = connection.execute("SELECT sequence_number FROM vitrine_message WHERE entity_id = %s", [entity_id])
            present = {number for (number,) in rows}
            counter = "SELECT next_number FROM vitrine_entity_counter WHERE entity_id = %s"
            return there, gone, present, connection.execute(counter, [entity_id]).fetchone()[0]


def kill_all(folder: Path) -> None:
    """kill -9 of the server's first process and of all its children, none of which can write anything after it."""
    with suppress(psutil.NoSuchProcess):
        postmaster = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
        children = postmaster.children()
        for process in (postmaster, *children):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs([postmaster, *children], timeout=10)


# The clients


class _Client:
    """Writes down what it is told, at once. A server that is away is tried again."""

    def __init__(self, queue: EntityAddress, folder: Path, name: str, seed: int):
        self.queue, self.name, self._end = queue, name, folder / "end"
        self.journal, self.dice, self.count = Journal(folder, name), random.Random(f"{seed}-{name}"), 0

    @property
    def goes_on(self) -> bool:
        return not self._end.exists()

    def batch(self, sizes: tuple[int, ...] = (1, 1, 1, 2, 5, contention.FEW + 5)) -> list[Message]:
        self.count += 1
        size = self.dice.choice(sizes)
        return [Message(b"x" * 200, message_id=f"{self.name}-{self.count}-{i}") for i in range(size)]

    def note(self, batch: list[Message], numbers: list[int]) -> None:
        contended = getattr(_made, "contended", False)
        self.journal.write("sent", numbers=numbers, ids=[message.message_id for message in batch], contended=contended)
        _made.contended = False


_made = threading.local()


def _note_contended(self: driver.Contended, server_version: int) -> tuple:
    _made.contended = True
    return _parts(self, server_version)


_parts = driver.Contended.parts


def send_in_a_thread(client: _Client) -> None:
    while client.goes_on:
        batch = client.batch()
        try:
            client.note(batch, service_bus.send(client.queue, batch))
        except MUST_LIVE_WITH:
            time.sleep(client.dice.uniform(0, 0.02))


def settle_in_a_thread(client: _Client) -> None:
    while client.goes_on:
        try:
            messages = service_bus.receive(client.queue, 10)
            report = service_bus.complete(client.queue, [message.lock_token for message in messages])
            client.journal.write("completed", numbers=[number for _, number in report.settled])
        except MUST_LIVE_WITH:
            time.sleep(client.dice.uniform(0, 0.02))


async def send_in_a_loop(client: _Client) -> None:
    async def task() -> None:
        while client.goes_on:
            batch = client.batch()
            try:
                client.note(batch, await service_bus.send.aio(client.queue, batch))
            except MUST_LIVE_WITH:
                await asyncio.sleep(client.dice.uniform(0, 0.02))

    await asyncio.gather(*(task() for _ in range(TASKS)))
    await aio.close()


def send_singly(client: _Client) -> None:
    while client.goes_on:
        batch = client.batch((1,))
        try:
            client.note(batch, service_bus.send(client.queue, batch))
        except MUST_LIVE_WITH:
            time.sleep(client.dice.uniform(0, 0.02))


def settle_singly(client: _Client) -> None:
    held: list = []
    while client.goes_on:
        try:
            held = held or service_bus.receive(client.queue, 5, max_wait_seconds=0.1)
            while held:
                number = held[-1].sequence_number
                service_bus.complete(client.queue, held.pop().lock_token)
                client.journal.write("completed", numbers=[number])
        except MUST_LIVE_WITH:
            time.sleep(client.dice.uniform(0, 0.02))


def crowd(queue: EntityAddress, folder: Path, seed: int, database: Database) -> None:
    """Threads whose sends, and whose settlements, are combined. At the end, how many were."""
    combined, outcomes = Counter[str](), Gathering._outcomes

    def noted(self: Gathering, key: object, calls: list) -> driver.Steps:
        combined["calls"] += len(calls) * (len(calls) > 1)
        return outcomes(self, key, calls)

    def work(act: Callable[[_Client], None], name: str) -> None:
        with using(database):
            act(_Client(queue, folder, name, seed))
            close_all_of_this_thread()

    Gathering._outcomes = noted
    acts = (send_singly, settle_singly)
    threads = [threading.Thread(target=work, args=(act, f"{act.__name__}-{n}")) for act in acts for n in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Journal(folder, "combined").write("combined", calls=combined["calls"])


def main(role: str, number: str, namespace: str, dsn: str, folder: str, seed: str, flushes: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django

    django.setup()
    driver.Contended.parts = _note_contended
    if not int(flushes):
        statements.SQL["flush"] = statements.SQL["flush_by_commit"] = "SELECT true AS flushed"
    queue, database = EntityAddress(namespace, "queue"), Database(dsn=dsn)
    if role == "crowd":
        crowd(queue, Path(folder), int(seed), database)
    else:
        with using(database):
            alone(role, _Client(queue, Path(folder), f"{role}-{number}", int(seed)))
            close_all_of_this_thread()


def alone(role: str, client: _Client) -> None:
    match role:
        case "thread":
            send_in_a_thread(client)
        case "loop":
            asyncio.run(send_in_a_loop(client))
        case "settler":
            settle_in_a_thread(client)


if __name__ == "__main__":
    main(*sys.argv[1:])
