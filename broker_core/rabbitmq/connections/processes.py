"""The epoch of this process, kept by a lease and an advisory lock.

A dedicated database connection holds the lock and renews the lease from a thread. It bypasses poolers, which share sessions. A
killed process loses the lock at once; a stopped or disconnected process loses its lease. A lost epoch is not repaired: the
process acquires a new epoch, and the connections of the old one are lost. A connection that the process no longer refers to,
or could not end in the database, is reassigned to a dead process, so that recovery ends it.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Protocol

import psycopg

from broker_core.common.types import Actor
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store import connections
from broker_core.store.failures import translated
from broker_core.store.statements import SQL

log = logging.getLogger(__name__)
LEASE = timedelta(seconds=15)  # real time
RENEW_SECONDS = 5.0
CHANNEL = "vitrine_connection"


class ConnectionLost(AmqpError):
    """The connection ended, but not by its client; its messages were requeued. Connect again."""

    def __init__(self, name: str, why: str):
        super().__init__("CONNECTION_FORCED", f"connection '{name}' is lost: {why}; its messages were requeued, connect again")
        self.name, self.why = name, why


class Owned(Protocol):
    """A connection kept alive by a process."""

    id: int

    def receive_notice(self, notice: str) -> None:
        """Receive a notice from another process. Called from the keeper thread."""

    def wake(self) -> None:
        """Wake the calls that wait: the connection is lost. Called from the keeper thread."""


class Process:
    """One epoch of this process. lost: why it ended; None while it is valid."""

    def __init__(self, database: connections.Database):
        with translated(), ExitStack() as on_failure:
            self._keeper = psycopg.connect(**database.parameters())
            on_failure.callback(self._keeper.close)
            self.epoch: int = self._run("register_process", label=Actor.local().name).epoch
            self._keeper.execute(f"LISTEN {CHANNEL}")
            on_failure.pop_all()
        self.database = database
        self.is_fresh = True  # dead processes have not been recovered yet
        self.lost: str | None = None
        self.owned: weakref.WeakValueDictionary[int, Owned] = weakref.WeakValueDictionary()
        self._unknown_before: set[int] = set()  # connections of this epoch unknown here at the last check
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
        """The keeper thread: renews the lease, dispatches notices to connections, and detects the end of the session."""
        renew_at = time.monotonic() + RENEW_SECONDS
        why = "its process has left"
        try:
            while self.lost is None:
                if (left := renew_at - time.monotonic()) <= 0:
                    self._renew()
                    self._release_forgotten()
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
        for connection in list(self.owned.values()):
            connection.wake()

    def _renew(self) -> None:
        began = time.monotonic()
        if self._run("renew_lease", epoch=self.epoch) is None:
            raise _DeclaredDead
        self._valid_until = began + LEASE.total_seconds()

    def _release_forgotten(self) -> None:
        """Reassign connections that were unknown here in two consecutive checks: one that is being opened is known by the
        second."""
        registered = {row.id for row in self._keeper.execute(SQL["connections_of"], {"epoch": self.epoch})}
        unknown = registered - set(self.owned)
        if forgotten := unknown & self._unknown_before:
            self._run("reassign_to_dead_process", connection_ids=list(forgotten), label=Actor.local().name)
        self._unknown_before = unknown - forgotten

    def _wait_for_event(self, seconds: float) -> bool:
        """Wait for a notification, the end of the session, or leave()."""
        readable = select.poll()
        readable.register(self._keeper.pgconn.socket, select.POLLIN)
        readable.register(self._woken, select.POLLIN)
        return bool(readable.poll(seconds * 1000))

    def _dispatch(self, payload: str) -> None:
        connection_id, _, notice = payload.partition(" ")
        if (connection := self.owned.get(int(connection_id))) is not None:
            try:
                connection.receive_notice(notice)
            except Exception:  # an error of one connection must not affect others
                log.exception("Connection %s failed to process the notice %r", connection_id, notice)

    def _run(self, name: str, **params: Any) -> Any:
        return self._keeper.execute(SQL[name], params | {"lease": LEASE}).fetchone()


class _DeclaredDead(Exception):
    """This process was declared dead."""


_processes: dict[connections.Database, Process] = {}
_joining = threading.Lock()
_forked_from: list[Process] = []  # keeps a reference, so that their sessions are not closed here


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
    """End all epochs of this process. Messages held by their connections are requeued by the next recovery."""
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
