"""Notices a database that accepts connections and statements but does not respond: its processes are stopped, or the network
drops packets. Nothing else would end the wait for it: a statement timeout is the server's, and the connection is intact.

One thread per database watches the process's connections. When a statement takes long, it asks the database for a sign of life
on a connection of its own. Without one within PATIENCE_SECONDS, the sockets of all statements in progress are shut down, so that
their callers get psycopg.OperationalError, and new statements are refused at once until the database responds again. Statements
that take long on a database that responds are left alone.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

if TYPE_CHECKING:
    from .connections import Database

LOOK_SECONDS = 0.5  # a statement in progress at two checks in a row takes long
PATIENCE_SECONDS = 3  # with both, the longest time until a hang is noticed is 4 s
_SLICES = 12  # of the patience, so that a process that was itself stopped does not take that time for the database's
_log = logging.getLogger(__name__)


class _Watch:
    """The watch of one database in this process; its thread ends when there are no connections left."""

    def __init__(self, database: Database):
        self._is_hanging = False
        self._database = database
        self._connections: dict[int, weakref.ref[Any]] = {}
        self._own: psycopg.Connection | None = None
        threading.Thread(target=self._run, name="vitrine-hangs", daemon=True).start()

    @property
    def is_hanging(self) -> bool:
        return self._is_hanging

    @is_hanging.setter
    def is_hanging(self, value: bool) -> None:
        if value and not self._is_hanging:
            _log.error("the database has not responded for %d s; its statements in progress are given up", PATIENCE_SECONDS)
        elif self._is_hanging and not value:
            _log.warning("the database responds again")
        self._is_hanging = value

    def add(self, connection: Any) -> None:
        key = id(connection)
        self._connections[key] = weakref.ref(connection, lambda _: self._connections.pop(key, None))

    def close(self) -> None:
        """Close the watch's own connection."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _run(self) -> None:
        before: set[int] = set()
        while not self._is_over():
            time.sleep(LOOK_SECONDS)
            busy = self._busy()
            if self.is_hanging or before & busy.keys():
                self.is_hanging = not self._responds()
            if self.is_hanging:
                for connection in self._busy().values():
                    _shut_down(connection)
            if self.is_hanging or not busy:
                self.close()
            before = set(busy)

    def _is_over(self) -> bool:
        with _lock:
            if self._connections or self.is_hanging:
                return False
            if _watches.get(self._database) is self:
                del _watches[self._database]
        self.close()
        return True

    def _busy(self) -> dict[int, Any]:
        """The connections with a statement in progress."""
        connections = ((key, reference()) for key, reference in list(self._connections.items()))
        return {key: connection for key, connection in connections if connection is not None and _is_busy(connection)}

    def _responds(self) -> bool:
        """Whether the database responds, be it with a refusal."""
        began = time.monotonic()
        try:
            if self._own is None or self._own.closed:
                self._own = psycopg.connect(**self._database.parameters() | {"connect_timeout": PATIENCE_SECONDS})
            pgconn = self._own.pgconn
            pgconn.send_query(b"SELECT 1")
            pgconn.flush()
            return _answers(pgconn)
        except psycopg.errors.ConnectionTimeout:
            return time.monotonic() - began > PATIENCE_SECONDS + 1  # this process was stopped meanwhile: ask at the next check
        except Exception:  # refused, or closed meanwhile
            return True


def _answers(pgconn: psycopg.pq.abc.PGconn) -> bool:
    readable = select.poll()
    readable.register(pgconn.socket, select.POLLIN)
    if not any(readable.poll(PATIENCE_SECONDS * 1000 / _SLICES) for _ in range(_SLICES)):
        return False
    while pgconn.get_result() is not None:
        pass
    return True


def _is_busy(connection: Any) -> bool:
    return bool(connection.pgconn.transaction_status == TransactionStatus.ACTIVE)


def _shut_down(connection: Any) -> None:
    """End the connection's socket, as if the server had: calls that wait for it are woken."""
    pgconn = connection.pgconn
    with suppress(OSError, psycopg.Error):
        descriptor = pgconn.socket
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            if pgconn.status == ConnStatus.OK and pgconn.socket == descriptor:  # else it was closed, and the number reused
                duplicate.shutdown(socket.SHUT_RDWR)


_watches: dict[Database, _Watch] = {}
_lock = threading.Lock()


def watch(connection: Any, database: Database) -> None:
    """Watch the statements of a psycopg connection, in whichever thread or event loop they run."""
    with _lock:
        _watch_of(database).add(connection)


def _watch_of(database: Database) -> _Watch:
    """The watch of a database, started if there is none. Call it with the lock."""
    if database not in _watches:
        _watches[database] = _Watch(database)
    return _watches[database]


def refuse_if_hanging(database: Database) -> None:
    """Raise psycopg.OperationalError if the database is known not to respond."""
    watch = _watches.get(database)
    if watch is not None and watch.is_hanging:
        raise psycopg.OperationalError(f"no response within {PATIENCE_SECONDS} s")


def note_timeout(database: Database) -> None:
    """A connection could not be made in time: refuse further statements until the database responds."""
    with _lock:
        _watch_of(database).is_hanging = True


def close() -> None:
    """Close the connections of the watches."""
    for watch in list(_watches.values()):
        watch.close()


def _reset_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _of_parent.extend(_watches.values())  # unused: to close their connections would end them in the parent too
    _watches.clear()


_of_parent: list[_Watch] = []
os.register_at_fork(after_in_child=_reset_after_fork)
