"""Runs a soak: children that send and receive, connections and processes killed at random, sweeps beside; then the rest is
received, and all is compared with what must be."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from uuid import uuid4

import psycopg

from broker_core import broker, sweeps
from broker_core.semantics.errors import BrokerError, NoSessionAvailable
from broker_core.semantics.types import EntityAddress, MessageState
from broker_core.store.connections import Database, close_all_of_this_thread, using

from .clients import END, work
from .scene import KINDS, LOCK, Scene
from .truth import Findings, examine

APPLICATION = "vitrine-soak"  # how the clients' connections are told from others
SENDERS, RECEIVERS = 8, 16
# Two processes send, four receive; each of the four has a meddler besides.
PROCESSES = (("sender",) * 4,) * 2 + (("receiver",) * 4 + ("meddler",),) * 4
SWEEPS = (
    "expire_messages", "end_locks", "activate_scheduled", "forward_messages", "forget_sessions", "advance_heads",
    "roll_up_counts",
)  # fmt: skip
DRAIN_SECONDS, RECOVERY_SECONDS = 20, 60


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
        self.scene = Scene(f"soak-{uuid4().hex[:8]}", self.kinds)
        self.database = Database(dsn=self.dsn)
        self._dice = random.Random(self.seed)
        # A server that forks children from a clean process: threads, and a server's sockets, are not inherited.
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.soak.clients", "explorer.site.settings"])
        self._children: list = []
        self._started = 0

    def run(self) -> Findings:
        """Load with faults, then the end. Returns what was found."""
        with using(self.database):
            self.scene.make()
            sweeping = threading.Thread(target=self._sweep, daemon=True)
            self._over = threading.Event()
            sweeping.start()
            for roles in PROCESSES:
                self._start(roles)
            self._wreak_havoc()
            self._await_database()
            self._end()
            self._over.set()
            sweeping.join(30)
            self._cross_out_leftovers()
            findings = examine(self.scene, self.dsn, self.folder)
            self._drain()
            findings += examine(self.scene, self.dsn, self.folder, empty=True)
            close_all_of_this_thread()
        findings.did.update(self.done)
        return findings

    def _start(self, roles: tuple[str, ...]) -> None:
        self._started += 1
        database = Database(dsn=f"{self.dsn} application_name={APPLICATION}")
        arguments = (f"c{self._started}", roles, self.scene, database, self.folder, self.seed)
        child = self._processes.Process(target=work, args=arguments, daemon=True)
        child.start()
        self._children.append((child, roles))

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

    def _sweep(self) -> None:
        with using(self.database):
            while not self._over.is_set():
                for name in SWEEPS:
                    try:
                        if hasattr(sweeps, name):
                            getattr(sweeps, name)()
                    except BrokerError:
                        self.done["refused sweeps"] += 1
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

    def _drain(self) -> None:
        """Receive and remove all there is, once its locks have ended: nothing may stay locked or hidden (invariant 5)."""
        ends_at = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < ends_at and self._left():
            for name in ("activate_scheduled", "forward_messages"):
                if hasattr(sweeps, name):
                    getattr(sweeps, name)()
            for path in self.scene.received_from:
                self._drain_entity(self.scene.address(path))
            for path in self.scene.all_paths:
                self._drain_list(self.scene.address(path).dead_letter)
            if "sessions" in self.scene.kinds:
                self._drain_sessions()
            time.sleep(LOCK.total_seconds() / 4)

    def _drain_list(self, address: EntityAddress) -> None:
        if address.path == "topic":
            return
        while broker.receive_and_delete(address, 500):
            pass
        self._complete_deferred(address)

    _drain_entity = _drain_list

    def _complete_deferred(self, address: EntityAddress) -> None:
        for message in broker.peek(address, max_count=500):
            if message.state == MessageState.DEFERRED:
                try:
                    held = broker.receive_deferred(address, [message.sequence_number])
                except BrokerError:
                    continue  # still locked, or expired
                broker.complete(address, [m.lock_token for m in held])

    def _drain_sessions(self) -> None:
        address = self.scene.address("talks")
        while True:
            try:
                session = broker.accept_session(address)
            except NoSessionAvailable:
                break
            while broker.receive_and_delete_from_session(session, 500):
                pass
            broker.close_session(session)
        deferred = [m for m in broker.peek(address, max_count=500) if m.state == MessageState.DEFERRED]
        for session_id in {m.session_id for m in deferred}:
            try:
                session = broker.accept_session(address, session_id)
                numbers = [m.sequence_number for m in deferred if m.session_id == session_id]
                held = broker.receive_deferred(address, numbers, session=session)
                broker.complete(address, [m.lock_token for m in held])
                broker.close_session(session)
            except BrokerError:
                continue

    def _left(self) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            (left,) = connection.execute(
                "SELECT count(*) FROM vitrine_message WHERE entity_id IN (SELECT e.id FROM vitrine_entity AS e"
                " JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = %s)",
                [self.scene.namespace],
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
