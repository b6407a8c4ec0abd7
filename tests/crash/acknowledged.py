"""Clients that send and complete messages one at a time, from many threads and tasks of several processes, while the database
server is killed. They note what they are told; `findings` compares that with what is there."""

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from uuid import uuid4

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerError, LockLost
from broker_core.common.types import EntityAddress, EventKind, Message
from broker_core.service_bus import entities
from broker_core.store import aio, connections
from broker_core.store.connections import Database, using
from explorer.site.embedded_postgres import server
from tests.looking import entity_id, ledger_agrees

END = "end"
THREADS, TASKS, SETTLERS = 8, 8, 8  # of each process
BODY = b"x" * 200


def make_queue() -> EntityAddress:
    address = EntityAddress("acknowledged", f"q-{uuid4().hex[:8]}")
    namespaces.ensure_namespace(address.namespace)
    entities.create_queue(address, max_size_in_megabytes=5120)
    return address


def run_under_kills(cluster: Path, dsn: str, folder: Path, *, kills: int, processes: int = 2, seed: int = 0) -> Counter:
    """Run clients on a new queue, kill the server so many times, and compare. Returns what was done and, as "wrong: ...", what is
    wrong."""
    queue, dice = make_queue(), random.Random(seed)
    forkserver = get_context("forkserver")  # a clean process: threads and connections are not inherited
    forkserver.set_forkserver_preload(["tests.crash.acknowledged"])
    children = [forkserver.Process(target=work, args=(dsn, queue, folder, f"p{n}"), daemon=True) for n in range(processes)]
    for child in children:
        child.start()
    try:
        _await_acknowledgements(folder, 0)
        for _ in range(kills):
            time.sleep(dice.uniform(0.05, 0.6))
            os.kill(int((cluster / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
            server.ensure_running(cluster)
            _await_acknowledgements(folder, _size(folder))
    finally:
        (folder / END).touch()
        for child in children:
            child.join(30)
    connections.close_all()
    return findings(queue, folder) + Counter(kills=kills, crashed=sum(child.exitcode != 0 for child in children))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.notes"))


def _await_acknowledgements(folder: Path, size: int) -> None:
    """Wait until the clients are told something again, by a server that is up."""
    ends_at = time.monotonic() + 60
    while _size(folder) < size + 4000:
        assert time.monotonic() < ends_at, "the clients do not go on"
        time.sleep(0.02)


# The clients


class Notes:
    """What one client was told, line by line. A line is written before the client goes on."""

    def __init__(self, folder: Path, name: str):
        self._file = (folder / f"{name}.notes").open("a", buffering=1)

    def write(self, *words: object) -> None:
        self._file.write(" ".join(map(str, words)) + "\n")


def work(dsn: str, queue: EntityAddress, folder: Path, name: str) -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    django.setup()
    ends, crashed = threading.Event(), []

    def client(act, *args) -> None:
        try:
            with using(Database(dsn=dsn)):
                act(ends, queue, *args)
        except BaseException as exc:
            crashed.append(exc)
            raise

    clients = [(_send, Notes(folder, f"{name}-thread-{n}"), f"{name}-thread-{n}") for n in range(THREADS)]
    clients += [(_complete, Notes(folder, f"{name}-settler-{n}")) for n in range(SETTLERS)]
    clients.append((_send_in_tasks, folder, f"{name}-task"))
    threads = [threading.Thread(target=client, args=each, daemon=True) for each in clients]
    for thread in threads:
        thread.start()
    while not (folder / END).exists() and parent_process().is_alive():
        time.sleep(0.05)
    ends.set()
    for thread in threads:
        thread.join(20)
    os._exit(len(crashed) + sum(thread.is_alive() for thread in threads))


def _send(ends: threading.Event, queue: EntityAddress, notes: Notes, name: str) -> None:
    count = 0
    while not ends.is_set():
        count += 1
        try:
            [number] = service_bus.send(queue, [Message(BODY, message_id=f"{name}-{count}")])
            notes.write("sent", number, f"{name}-{count}")
        except BrokerError:
            notes.write("unsure", f"{name}-{count}")
            time.sleep(0.05)


def _send_in_tasks(ends: threading.Event, queue: EntityAddress, folder: Path, name: str) -> None:
    async def send(who: str, notes: Notes) -> None:
        count = 0
        while not ends.is_set():
            count += 1
            try:
                [number] = await service_bus.send.aio(queue, [Message(BODY, message_id=f"{who}-{count}")])
                notes.write("sent", number, f"{who}-{count}")
            except BrokerError:
                notes.write("unsure", f"{who}-{count}")
                await asyncio.sleep(0.05)

    async def send_all() -> None:
        await asyncio.gather(*[send(f"{name}-{n}", Notes(folder, f"{name}-{n}")) for n in range(TASKS)])
        await aio.close()

    asyncio.run(send_all())


def _complete(ends: threading.Event, queue: EntityAddress, notes: Notes) -> None:
    held: list = []
    while not ends.is_set():
        try:
            held = held or service_bus.receive(queue, 4)
            if not held:
                time.sleep(0.01)
            while held and not ends.is_set():
                message = held.pop()
                notes.write("tried", message.sequence_number)
                with suppress(LockLost):
                    service_bus.complete(queue, message.lock_token)
                    notes.write("completed", message.sequence_number)
        except BrokerError:
            time.sleep(0.05)


# The comparison


def findings(queue: EntityAddress, folder: Path) -> Counter:
    """What the clients were told, against the messages and the events."""
    sent, told, unsure, completed, tried = {}, Counter(), set(), Counter(), set()
    for file in folder.glob("*.notes"):
        for line in file.read_text().splitlines():
            match line.split(" "):
                case ["sent", number, message_id]:
                    sent[message_id] = int(number)
                    told[int(number)] += 1
                case ["unsure", message_id]:
                    unsure.add(message_id)
                case ["completed", number]:
                    completed[int(number)] += 1
                case ["tried", number]:
                    tried.add(int(number))
    query = lambda text: connections.current().execute(text, [entity_id(queue)]).fetchall()  # noqa: E731
    present = {row.sequence_number: row.message_id for row in query("SELECT * FROM vitrine_message WHERE entity_id = %s")}
    events = query("SELECT kind, sequence_number, message_id FROM vitrine_message_event WHERE entity_id = %s")
    stored = {row.message_id: row.sequence_number for row in events if row.kind == EventKind.SENT}
    stored_times = Counter(row.message_id for row in events if row.kind == EventKind.SENT)
    gone = Counter(row.sequence_number for row in events if row.kind == EventKind.COMPLETED)
    wrong = {
        "acknowledged sends that are not stored": [i for i, n in sent.items() if stored.get(i) != n],
        "acknowledged sends without a message": [n for n in sent.values() if n not in present and n not in gone],
        "numbers told to two senders": [n for n, times in told.items() if times > 1],
        "sends stored twice": [i for i, times in stored_times.items() if times > 1],
        "messages that nobody sent": [i for i in stored if i not in sent and i not in unsure],
        "gaps in the numbers": sorted(set(range(1, max(stored.values()) + 1)) - set(stored.values())),
        "acknowledged completions that are not done": [n for n in completed if n in present or n not in gone],
        "messages completed twice": [n for n, times in (gone + completed).items() if completed[n] > 1 or gone[n] > 1],
        "messages completed that nobody tried": [n for n in gone if n not in tried],
    }
    assert ledger_agrees(queue)
    done = Counter(sent=len(sent), unsure=len(unsure), completed=len(completed), tried=len(tried))
    return done + Counter({f"wrong: {what}": len(found) for what, found in wrong.items() if found})


def wrong_of(found: Counter) -> dict[str, int]:
    return {what: count for what, count in found.items() if what.startswith("wrong") or what == "crashed"}
