"""The epoch of this process, kept by a lease and an advisory lock, and the notices that other processes send to what it owns.

A dedicated database connection holds the lock and renews the lease from a thread. It bypasses poolers, which share sessions. A
killed process loses the lock at once; a stopped or disconnected process loses its lease. A lost epoch is not repaired: the
process acquires a new epoch, and what the old one owned, such as the connections of clients, is lost.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Protocol

import psycopg

from broker_core.common.types import Actor
from broker_core.store import connections
from broker_core.store.failures import translated
from broker_core.store.statements import SQL

log = logging.getLogger(__name__)
LEASE = timedelta(seconds=15)  # real time
RENEW_SECONDS = 5.0
CHANNEL = "vitrine_process"


class Owned(Protocol):
    """What lives as long as the process, such as a connection."""

    def receive_notice(self, notice: str) -> None:
        """Receive a notice from another process. Called from the keeper thread."""

    def wake(self) -> None:
        """Wake the calls that wait: it is lost. Called from the keeper thread."""


class Process:
    """One epoch of this process.

    lost: why it ended; None while it is valid. owned: by kind and id, such as "connection 17".
    """

    def __init__(self, database: connections.Database):
        with translated(), ExitStack() as on_failure:
            self._keeper = psycopg.connect(**database.parameters())
            on_failure.callback(self._keeper.close)
            self.epoch: int = self.run("register_process", label=Actor.local().name)[0].epoch
            self._keeper.execute(f"LISTEN {CHANNEL}")
            on_failure.pop_all()
        self.database = database
        self.is_fresh = True  # dead processes have not been recovered yet
        self.lost: str | None = None
        self.owned: weakref.WeakValueDictionary[str, Owned] = weakref.WeakValueDictionary()
        self._valid_until = time.monotonic() + LEASE.total_seconds()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._keep, name=f"vitrine-epoch-{self.epoch}", daemon=True)
        self._thread.start()

    @property
    def why_lost(self) -> str | None:
        """Why this epoch can no longer be used; None if it can."""
        if self.lost is None and time.monotonic() > self._valid_until:
            return "its process was stopped for longer than its lease"
        return self.lost

    def leave(self, why: str) -> None:
        """End the epoch: its lock is free when this returns."""
        self.lost = self.lost or why
        self._wake.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def disown(self) -> None:
        """In a forked child: keep the session with the parent, even if the parent is killed while the child lives."""
        self.lost = "it belongs to the process that this one was forked from"
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._keeper.pgconn.socket)
        os.close(nothing)

    def _keep(self) -> None:
        """The keeper thread: renews the lease, dispatches notices, and detects the end of the session."""
        renew_at = time.monotonic() + RENEW_SECONDS
        why = "its process has left"
        try:
            while self.lost is None:
                if (left := renew_at - time.monotonic()) <= 0:
                    self._renew()
                    for look in _at_renewal:
                        look(self)
                    renew_at = time.monotonic() + RENEW_SECONDS
                elif not self._wait_for_event(left):
                    continue
                for notification in self._keeper.notifies(timeout=0):
                    self._dispatch(notification.payload)
        except psycopg.Error as exc:
            why = f"the database has ended the session of its process ({str(exc).strip().splitlines()[0]})"
        except _DeclaredDead:
            why = "its process was declared dead"
        except Exception:
            log.exception("Keeping epoch %s failed", self.epoch)
            why = "its process cannot keep its lease"
        if self.lost is None:
            log.warning("Epoch %s is over: %s", self.epoch, why)
            self.lost = why
        self._woken.close()
        self._keeper.close()
        for reference in self.owned.valuerefs():  # other threads may add to it meanwhile
            if (owned := reference()) is not None:
                owned.wake()

    def _renew(self) -> None:
        began = time.monotonic()
        if not self.run("renew_lease", epoch=self.epoch):
            raise _DeclaredDead
        self._valid_until = began + LEASE.total_seconds()

    def _wait_for_event(self, seconds: float) -> bool:
        """Wait for a notification, the end of the session, or leave()."""
        readable = select.poll()
        readable.register(self._keeper.pgconn.socket, select.POLLIN)
        readable.register(self._woken, select.POLLIN)
        return bool(readable.poll(seconds * 1000))

    def _dispatch(self, payload: str) -> None:
        kind, number, notice = payload.split(" ", 2)
        if (owned := self.owned.get(f"{kind} {number}")) is not None:
            try:
                owned.receive_notice(notice)
            except Exception:  # an error of one must not affect others
                log.exception("%s %s failed to process the notice %r", kind, number, notice)

    def run(self, name: str, **params: Any) -> list[Any]:
        """Run a statement on the session of the epoch. Only in the keeper thread."""
        return self._keeper.execute(SQL[name], params | {"lease": LEASE}).fetchall()


class _DeclaredDead(Exception):
    """This process was declared dead."""


_processes: dict[connections.Database, Process] = {}
_joining = threading.Lock()
_at_renewal: list[Callable[[Process], None]] = []
_forked_from: list[Process] = []  # keeps a reference, so that their sessions are not closed here


def at_renewal(look: Callable[[Process], None]) -> None:
    """Call this in the keeper thread after each renewal of the lease."""
    _at_renewal.append(look)


def current() -> Process | None:
    """This process's valid epoch in the current database, if any."""
    process = _processes.get(connections.current_database())
    return process if process is not None and process.why_lost is None else None


def join() -> Process:
    """This process's epoch in the current database, acquired now if it has no valid one.

    Blocks while connecting. Raises BrokerUnavailable if the database cannot be reached.
    """
    with _joining:
        if (process := current()) is not None:
            return process
        database = connections.current_database()
        if (old := _processes.pop(database, None)) is not None:
            old.leave("its process was stopped for longer than its lease")
        _processes[database] = process = Process(database)
        return process


def leave_all() -> None:
    """End all epochs of this process. What they owned is ended by the next recovery."""
    while _processes:
        _processes.popitem()[1].leave("its process closed its connections to the database")


def _reset_after_fork() -> None:
    global _joining
    _joining = threading.Lock()
    for process in _processes.values():
        process.disown()
        _forked_from.append(process)
    _processes.clear()


connections.at_close(leave_all)
os.register_at_fork(after_in_child=_reset_after_fork)
