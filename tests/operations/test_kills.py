"""Workers are killed while they run an operation, at random points, beside a receiver: nothing is lost, nothing doubled."""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker_core import operations as core
from broker_core import reads, service_bus, sweeps
from broker_core.operations import Kind, State
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.operations import runner

from .test_kinds import OTTO, start

MESSAGES = int(os.environ.get("OPERATION_MESSAGES", "4000"))
KILLS = int(os.environ.get("OPERATION_KILLS", "20"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def short_leases(monkeypatch):
    """The next worker begins at once after a kill."""
    for module in (core.records, core.batches):
        monkeypatch.setattr(module, "LEASE", timedelta(milliseconds=1))
    monkeypatch.setattr(runner, "BATCH", 40)
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr("explorer.operations.control.submit", lambda _: None)


SPAWNER = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import django
django.setup()
from broker_core import operations as core
from broker_core.operations import batches, records
from broker_core.store.connections import Database, using
from explorer.operations import runner

records.LEASE = batches.LEASE = timedelta(milliseconds=1)
runner.BATCH = 40
print("ready", flush=True)
for line in sys.stdin:                       # it has no connection, so a fork shares none
    operation_id, seconds = line.split()
    begun, beginning = os.pipe()
    child = os.fork()
    if not child:
        claim = core.claim
        core.claim = lambda *given: (claim(*given), os.write(beginning, b"x"))[0]
        with using(Database(dsn=sys.argv[1])):
            runner.run(core.find(int(operation_id)), seconds=None)
        os._exit(0)
    os.close(beginning)
    os.read(begun, 1)
    os.close(begun)
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("killed", flush=True)
"""


@pytest.fixture
def spawner(broker_database):
    """A process that runs operations in processes which it kills."""
    dsn = connections.current().info.dsn
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "explorer.site.settings"}
    program = [sys.executable, "-c", SPAWNER, dsn]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(program, cwd=ROOT, env=environment, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


class Killer:
    """Kills workers after random times, which it adapts to the machine, so that some batches are done and some are not."""

    def __init__(self, spawner, seed):
        self._spawner, self._random, self._longest = spawner, random.Random(seed), 0.2
        self.met = 0

    def run(self, operation) -> None:
        """Run an operation in a process of its own, and kill it soon."""
        before = core.find(operation.id)
        self._spawner.stdin.write(f"{operation.id} {self._random.random() * self._longest}\n")
        assert self._spawner.stdout.readline() == "killed\n"
        after = core.find(operation.id)
        met = (before.done, before.undone) != (after.done, after.undone)
        self._longest *= 0.7 if met else 1.6
        self.met += met


class Receiver(threading.Thread):
    """Receives and completes, now and then a few messages."""

    def __init__(self, queue):
        super().__init__(daemon=True)
        self.queue, self.ending, self.ids = queue, threading.Event(), []

    def run(self):
        while not self.ending.wait(0.05):
            for message in service_bus.receive(self.queue, 3):
                service_bus.complete(self.queue, [message.lock_token])
                self.ids.append(message.message_id)
        connections.close_all_of_this_thread()


def stored(address):
    rows = connections.current().execute(
        "SELECT message_id FROM vitrine_message WHERE entity_id = %s", [reads.entity(address).id]
    )
    return [row.message_id for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.MOVE, Kind.PURGE])
def test_killed_workers_neither_lose_nor_duplicate_messages(queue, make_queue, spawner, short_leases, kind):
    killer, other = Killer(spawner, f"{kind}"), make_queue()
    for first in range(0, MESSAGES, 500):
        service_bus.send(queue, [Message(b"x", message_id=str(first + n)) for n in range(500)])
    everything = Counter(str(n) for n in range(MESSAGES))
    operation = start(kind, queue, options={"to": other.path} if kind is Kind.MOVE else None)
    receiver = Receiver(queue)
    receiver.start()
    kills = 0
    while kills < KILLS // 2 and core.find(operation.id).is_open:
        killer.run(operation)
        kills += 1
    killed_at = core.find(operation.id)
    runner.run(operation, seconds=None)
    done = core.find(operation.id)
    receiver.ending.set()
    receiver.join()
    assert killer.met and 0 < killed_at.done < done.done, "the kills met nothing"
    assert done.state is State.DONE and done.done + done.skipped + len(receiver.ids) >= MESSAGES
    gone = Counter(receiver.ids)
    hidden = MESSAGES - sum(gone.values()) - len(stored(queue)) - len(stored(other)) if kind is Kind.PURGE else 0
    assert (hidden if kind is Kind.PURGE else len(stored(other))) == done.done
    if kind is Kind.MOVE:
        assert Counter(stored(queue)) + Counter(stored(other)) + gone == everything
    undo_with_kills(killer, done)
    assert Counter(stored(queue)) + Counter(stored(other)) + gone == everything
    assert core.find(done.id).undone == done.done and not stored(other)
    assert sweeps.check_ledger()["differences"] == []


def undo_with_kills(killer, done) -> None:
    core.change(done, "undo", actor=OTTO)
    for _ in range(KILLS - KILLS // 2):
        killer.run(done)
    runner.run(done, seconds=None)
    assert core.find(done.id).state is State.UNDONE
