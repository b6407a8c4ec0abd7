"""The broker's own connections to Postgres.

Its hot statements want plans of their own (generic, by index), short transactions and parameters in binary; Django's connection
has neither and may be inside a caller's transaction. So each thread has one connection here, made from the parameters of a Django
database alias or from a DSN; it ends with the thread. Each asyncio process has one pool (docs/design.md D12). No connection
crosses a fork.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

# Generic plans and no sequential scans: a statement first planned on an empty queue must not keep that plan (core D4). A page
# costs the same wherever it is: else, before a first ANALYZE, a list that an index has in order is fetched whole and sorted
# for its first row.
# A lock wait ends with a clear error instead of piling up clients.
SESSION_OPTIONS = (
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c random_page_cost=1.1 -c jit=off -c timezone=UTC "
    "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"
)
PREPARE_AFTER = 5
_DJANGO_ONLY = {"context", "cursor_factory", "prepare_threshold", "server_side_binding", "pool", "isolation_level", "assume_role"}


@dataclass(frozen=True, slots=True)
class Database:
    """Where the broker lives: a Django database alias, or outside Django a DSN."""

    alias: str = "default"
    dsn: str = ""

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments for psycopg.connect."""
        if self.dsn:
            found = {"conninfo": self.dsn}
        else:
            from django.db import connections

            found = {k: v for k, v in connections[self.alias].get_connection_params().items() if k not in _DJANGO_ONLY}
        own = f"{found.get('options', '')} {SESSION_OPTIONS}".strip()
        return {**found, "options": own, "autocommit": True, "prepare_threshold": PREPARE_AFTER, "row_factory": namedtuple_row}


DEFAULT = Database()
_database: ContextVar[Database] = ContextVar("vitrine_database", default=DEFAULT)
_callers: ContextVar[str | None] = ContextVar("vitrine_callers_transaction", default=None)
_open: set[psycopg.Connection] = set()
_at_close: list[Callable[[], None]] = []


class _OfThread(threading.local):
    """This thread's connections by database, each with the process that opened it."""

    def __init__(self) -> None:
        self.held = _Held()


class _Held(dict[Database, tuple[psycopg.Connection, int]]):
    """Goes with its thread, and closes what is in it."""

    def close(self) -> None:
        while self:
            connection, pid = self.popitem()[1]
            if pid == os.getpid():
                _forget(connection)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # then `close_all` has closed them, and modules are no longer whole
            self.close()


_this_thread = _OfThread()


@contextmanager
def using(database: Database) -> Iterator[None]:
    """Run broker calls inside the block against another database than Django's default."""
    token = _database.set(database)
    try:
        yield
    finally:
        _database.reset(token)


@contextmanager
def callers_transaction(alias: str = "default") -> Iterator[None]:
    """Run synchronous broker calls inside the block on Django's own connection, within its open transaction.

    A send then holds its entity's counter until that transaction ends, and other senders wait (docs/design.md D3).
    """
    token = _callers.set(alias)
    try:
        yield
    finally:
        _callers.reset(token)


def current_database() -> Database:
    return _database.get()


def current() -> psycopg.Connection:
    """This thread's connection, opened or replaced as needed. Raises psycopg.OperationalError if the server cannot be reached."""
    alias = _callers.get()
    if alias is not None:
        return _djangos(alias)
    database = _database.get()
    held = _this_thread.held
    connection, pid = held.get(database, (None, 0))
    if connection is not None and pid == os.getpid() and not is_dead(connection):
        return connection
    if connection is not None and pid == os.getpid():
        _forget(connection)
    connection = psycopg.connect(**database.parameters())
    held[database] = (connection, os.getpid())
    _open.add(connection)
    return connection


def in_callers_transaction() -> bool:
    return _callers.get() is not None


def after_callers_commit(act: Callable[[], None]) -> None:
    """Do this once the caller's transaction is committed, not at all if it is not."""
    from django.db import transaction

    transaction.on_commit(act, using=_callers.get())


def close_all() -> None:
    """Close what this process holds open, in every thread: before a fork, at exit, before a test database is dropped."""
    for act in _at_close:
        act()
    for connection in list(_open):
        _forget(connection)
    _this_thread.held.close()


atexit.register(close_all)


def at_close(act: Callable[[], None]) -> None:
    """Let `close_all` do this, too: for those who hold a connection of their own."""
    _at_close.append(act)


def close_all_of_this_thread() -> None:
    """Close this thread's connections, before it ends or waits for long."""
    _this_thread.held.close()


def _forget(connection: psycopg.Connection) -> None:
    _open.discard(connection)
    connection.close()


def _djangos(alias: str) -> psycopg.Connection:
    from django.db import connections

    wrapper = connections[alias]
    wrapper.ensure_connection()
    if wrapper.in_atomic_block and wrapper.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        # Django begins with its first statement. Were ours that one, a transaction block of psycopg's would end by committing.
        wrapper.connection.execute("SELECT 1")
    return wrapper.connection


def is_dead(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether the server has closed an idle connection: then its socket is readable. Nothing is sent, so nothing can be lost."""
    if connection.closed:
        return True
    try:
        # A server that stops says so first: its words are read, then the end behind them.
        while connection.pgconn.status == psycopg.pq.ConnStatus.OK:
            readable = select.poll()  # takes any descriptor; select() those below 1,024
            readable.register(connection.pgconn.socket, select.POLLIN)
            if not readable.poll(0):
                return False
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        pass
    return True
