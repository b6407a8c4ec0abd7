"""Runs a soak: children that send and receive, connections and processes killed at random, sweeps beside; then the rest is
received, and all is compared with what must be."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path

import psycopg

from broker_core.common.errors import BrokerError
from broker_core.store.connections import Database, close_all_of_this_thread, using
from broker_core.sweeps import registry

from .clients import END, work
from .families import KINDS, parts_of
from .findings import Findings
from .scene import LOCK

APPLICATION = "vitrine-soak"  # how the clients' connections are told from others
SENDERS, RECEIVERS = 8, 16
# Two processes send, four receive; each of the four has a meddler besides. The families take the threads in turns.
PROCESSES = (("sender",) * 4,) * 2 + (("receiver",) * 4 + ("meddler",),) * 4
SWEEPS = (
    "expire_messages", "end_locks", "activate_scheduled", "forward_messages", "forget_sessions", "advance_heads",
    "roll_up_counts", "end_connections", "delete_idle_entities", "remove_deleted_entities",
)  # fmt: skip
RUN = {sweep.name: sweep.run for sweep in registry.SWEEPS}
OFTEN = tuple(name for name in reversed(SWEEPS) if name != "advance_heads")  # which asks for each queue there is
START_SECONDS, DRAIN_SECONDS, RECOVERY_SECONDS = 30, 30, 60


@dataclass
class Soak:
    """seconds: of load. dsn: of a migrated database. faults: what is done to it now and then, called with the soak."""

    dsn: str
    folder: Path
    seconds: float
    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    faults: tuple[Callable[[Soak], None], ...] = ()
    done: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.parts = parts_of(self.kinds)
        self.database = Database(dsn=self.dsn)
        self._dice = random.Random(self.seed)
        # A server that forks children from a clean process: threads, and a server's sockets, are not inherited.
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.soak.clients", "tests.soak.families", "explorer.site.settings"])
        self._children: list = []
        self._started = 0
        self._crashes: list[str] = []

    def run(self) -> Findings:
        """Load with faults, then the end. Returns what was found."""
        with using(self.database):
            for part in self.parts:
                part.scene.make()
                (self.folder / part.family).mkdir()
            self._over = threading.Event()
            sweeping = [threading.Thread(target=self._sweep, args=(names,), daemon=True) for names in (SWEEPS, OFTEN)]
            for thread in sweeping:
                thread.start()
            for roles in PROCESSES:
                self._start(roles)
            self._await_clients()
            self._wreak_havoc()
            self._await_database()
            self._end()
            self._over.set()
            for thread in sweeping:
                thread.join(30)
            self._cross_out_leftovers()
            for part in self.parts:
                part.come_to_rest()
            findings = self._examine()
            self._drain()
            findings += self._examine(empty=True)
            close_all_of_this_thread()
        findings.did.update(self.done)
        findings.wrong += dict.fromkeys(self._crashes)
        return findings

    def _start(self, roles: tuple[str, ...]) -> None:
        self._started += 1
        database = Database(dsn=f"{self.dsn} application_name={APPLICATION}")
        arguments = (f"c{self._started}", self._started, roles, self.parts, database, self.folder, self.seed)
        child = self._processes.Process(target=work, args=arguments, daemon=True)
        child.start()
        self._children.append((child, roles))

    def _await_clients(self) -> None:
        """The load counts from when all clients have begun."""
        ends_at = time.monotonic() + START_SECONDS
        while len(list(self.folder.glob("*/*.journal"))) < sum(map(len, PROCESSES)) and time.monotonic() < ends_at:
            time.sleep(0.05)

    def _wreak_havoc(self) -> None:
        """Faults in turn, at random moments; whoever died is replaced. The time that a fault itself takes is not counted."""
        faults = cycle(self.faults or (terminate_connections, kill_a_process))
        left = self.seconds
        while left > 0:
            pause = self._dice.uniform(0.2, 1.0)
            time.sleep(pause)
            left -= pause
            if left > 0:
                next(faults)(self)
            for child, roles in list(self._children):
                if not child.is_alive():
                    self._children.remove((child, roles))
                    self._start(roles)

    def _end(self) -> None:
        (self.folder / END).touch()
        for child, _ in self._children:
            child.join(30)
            if child.is_alive():
                child.kill()
                self.done["children that did not end"] += 1

    def _sweep(self, names: tuple[str, ...]) -> None:
        with using(self.database):
            while not self._over.is_set():
                for name in names:
                    try:
                        RUN[name]()
                    except BrokerError as refusal:
                        self.done["refused sweeps"] += 1
                        if not refusal.retryable:
                            self._crashes.append(f"the sweep {name} was refused: {refusal}")
                    except Exception:
                        self._crashes.append(f"the sweep {name} crashed: {traceback.format_exc()}")
                time.sleep(0.02)
                self.done["rounds of sweeps"] += 1
            close_all_of_this_thread()

    def _await_database(self) -> None:
        """A database that the last fault has killed recovers first."""
        ends_at = time.monotonic() + RECOVERY_SECONDS
        while True:
            try:
                return psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.1)

    def _cross_out_leftovers(self) -> None:
        """A client that is gone may have left a statement that is still running: wait until none is."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state <> 'idle'"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for _ in range(100):
                if not connection.execute(query, [APPLICATION]).fetchone()[0]:
                    return
                time.sleep(0.05)
        self.done["statements that did not end"] += 1

    # The rest

    def _examine(self, *, empty: bool = False) -> Findings:
        findings = Findings()
        for part in self.parts:
            findings += part.examine(self.dsn, self.folder / part.family, empty=empty)
        return findings

    def _drain(self) -> None:
        """Receive and remove all there is, once its locks have ended: nothing may stay locked or hidden (invariant 5)."""
        ends_at = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < ends_at and self._left():
            for part in self.parts:
                part.drain()
            time.sleep(LOCK.total_seconds() / 4)

    def _left(self) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            (left,) = connection.execute(
                "SELECT count(*) FROM vitrine_message WHERE entity_id IN (SELECT e.id FROM vitrine_entity AS e"
                " JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = ANY (%s))",
                [[part.scene.namespace for part in self.parts]],
            ).fetchone()
        return left

    # For faults

    def children(self) -> list:
        return [child for child, _ in self._children if child.is_alive()]

    def choose(self, things: list):
        return self._dice.choice(things)


def terminate_connections(soak: Soak) -> None:
    """End a third of the clients' connections, whatever they are doing."""
    with psycopg.connect(soak.dsn, autocommit=True) as connection:
        (count,) = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s AND random() < 0.33",
            [APPLICATION],
        ).fetchone()
    soak.done["connections terminated"] += count


def kill_a_process(soak: Soak) -> None:
    """kill -9 of one child, which is replaced."""
    if children := soak.children():
        os.kill(soak.choose(children).pid, signal.SIGKILL)
        soak.done["processes killed"] += 1
