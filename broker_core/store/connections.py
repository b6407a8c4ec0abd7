"""The broker's own connections to Postgres, and the database of each namespace.

`database_of` alone decides which database holds a namespace (docs/scale.md). A use case runs in the database of its namespace;
other code names the namespace with `of`, or a database with `using`.

Hot statements need generic index plans, short transactions and binary parameters. Django's connection offers none of these and
may be inside a caller's transaction. Each thread therefore has one connection here, made from the parameters of a Django database
alias or from a DSN; it is closed with the thread, or left to other threads. Each event loop has one pool (docs/design.md D12). No
connection crosses a fork.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.errors import NotAllowed

from . import hangs
from .direct import PreparedStatements

# Generic plans, and no sequential or bitmap scans: a plan made for an empty queue must not be kept (docs/design.md D4). With such
# scans, after a VACUUM of the empty table, or before its first ANALYZE, each receive would read its whole list and sort it,
# although an index has it in order. lock_timeout: a lock wait ends with a clear error instead of queueing clients.
SESSION_OPTIONS = (
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c random_page_cost=1.1 "
    "-c jit=off -c timezone=UTC "
    "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"
)
PREPARE_AFTER = 5
CONNECT_SECONDS = 4  # for a server that does not respond
MAX_IDLE = 8  # connections that threads left to others, in each database
_SECONDS_TO_CANCEL = 2.0
_DJANGO_ONLY = {"context", "cursor_factory", "prepare_threshold", "server_side_binding", "pool", "isolation_level", "assume_role"}


class Database(NamedTuple):  # part of the keys of caches, which a tuple's hash makes quick
    """The broker's database: a Django database alias or, outside Django, a DSN."""

    alias: str = "default"
    dsn: str = ""

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments for psycopg.connect."""
        if self.dsn:
            params: dict[str, Any] = {"conninfo": self.dsn}
        else:
            from django.db import connections

            params = {k: v for k, v in connections[self.alias].get_connection_params().items() if k not in _DJANGO_ONLY}
        if "connect_timeout" not in params and "connect_timeout" not in self.dsn:
            params["connect_timeout"] = CONNECT_SECONDS
        own = f"{params.get('options', '')} {SESSION_OPTIONS}".strip()
        return {**params, "options": own, "autocommit": True, "prepare_threshold": PREPARE_AFTER, "row_factory": namedtuple_row}


DEFAULT = Database()
_elsewhere: dict[str, Database] = {}  # the namespaces that are not in DEFAULT, in lower case
_chosen: ContextVar[Database | None] = ContextVar("vitrine_chosen_database", default=None)  # by `using`, for all namespaces
_database: ContextVar[Database] = ContextVar("vitrine_database", default=DEFAULT)
_callers: ContextVar[str | None] = ContextVar("vitrine_callers_transaction", default=None)
_open: set[Connection] = set()
_of_parent: list[Connection] = []
_idle: defaultdict[Database, deque[Connection]] = defaultdict(deque)  # left to other threads
_at_close: list[Callable[[], None]] = []
_pid = os.getpid()


def _note_fork() -> None:
    """In a forked child: keep the parent's connections, unused. To close one would end it in the parent too."""
    global _pid
    _pid = os.getpid()
    _of_parent.extend(_open)
    _open.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_note_fork)


class Connection(psycopg.Connection[Any]):
    """A connection of a thread."""

    def __init__(self, pgconn: psycopg.pq.abc.PGconn, **how: Any):
        super().__init__(pgconn, **how)
        self.direct, self.readable = PreparedStatements(pgconn), _readable(pgconn)


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """A connection of an event loop."""

    def __init__(self, pgconn: psycopg.pq.abc.PGconn, **how: Any):
        super().__init__(pgconn, **how)
        self.direct, self.readable = PreparedStatements(pgconn), _readable(pgconn)


def _readable(pgconn: psycopg.pq.abc.PGconn) -> select.poll:
    """Tells whether the connection's socket can be read. It accepts any descriptor; select() only those below 1,024."""
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    return poll


class _ThreadConnections(dict[Database, tuple[Connection, int]]):
    """One thread's connections by database, each with the process that opened it. Closes them when the thread ends."""

    def close(self) -> None:
        while self:
            connection, pid = self.popitem()[1]
            if pid == os.getpid():  # a fork ends the other threads before it calls `_note_fork`
                _forget(connection)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # at exit `close_all` has closed them, and modules may be torn down already
            self.close()


class _ThreadLocal(threading.local):
    def __init__(self) -> None:
        self.connections = _ThreadConnections()


_this_thread = _ThreadLocal()


def assign(aliases: Mapping[str, str]) -> None:
    """Set the Django database aliases of the namespaces that are not in the default database: the setting
    VITRINE_NAMESPACE_DATABASES. Raises ValueError for an unknown alias."""
    from django.db import connections

    for namespace, alias in aliases.items():
        if alias not in connections:
            raise ValueError(
                f"VITRINE_NAMESPACE_DATABASES puts the namespace {namespace!r} into {alias!r}, which is not in DATABASES. "
                f"Use one of {', '.join(connections)}."
            )
    _elsewhere.clear()
    _elsewhere.update({namespace.lower(): Database(alias) for namespace, alias in aliases.items()})


def database_of(namespace: str) -> Database:
    """The database that holds a namespace: its entities, messages and history; inside `using`, that one."""
    return _chosen.get() or assigned_database(namespace)


def assigned_database(namespace: str) -> Database:
    """The database that holds a namespace, also inside `using`. Others may have one of this name that is not in use."""
    return _elsewhere.get(namespace.lower(), DEFAULT)


def databases() -> tuple[Database, ...]:
    """All databases that hold namespaces; inside `using`, or a caller's transaction, that one."""
    if (alias := _callers.get()) is not None:
        return (Database(alias),)
    chosen = _chosen.get()
    return (chosen,) if chosen else tuple(dict.fromkeys((DEFAULT, *_elsewhere.values())))


def are_several() -> bool:
    """Whether any namespace is in another database than the default one."""
    return bool(_elsewhere)


@contextmanager
def of(namespace: str | None) -> Iterator[None]:
    """Run the block in the database of this namespace. None: in the current database."""
    if namespace is None:
        yield
        return
    database, alias = database_of(namespace), _callers.get()
    if alias is not None and database != Database(alias):
        raise NotAllowed(
            f"The namespace '{namespace}' is in the database '{database.alias}', but the open transaction is in '{alias}'. "
            f"Use callers_transaction('{database.alias}') inside a transaction of that database."
        )
    token = _database.set(database)
    try:
        yield
    finally:
        _database.reset(token)


def require_same_database(namespace: str) -> None:
    """Raise NotAllowed if a namespace is in another database than the operation that concerns it: no transaction spans two."""
    if database_of(namespace) != _database.get():
        raise NotAllowed(
            f"The namespace '{namespace}' is in the database '{database_of(namespace).alias}', but this operation runs in "
            f"'{_database.get().alias}'. Run one operation for each database."
        )


@contextmanager
def using(database: Database) -> Iterator[None]:
    """Run the broker calls inside the block against this database, whatever their namespaces."""
    chosen, token = _chosen.set(database), _database.set(database)
    try:
        yield
    finally:
        _database.reset(token)
        _chosen.reset(chosen)


@contextmanager
def callers_transaction(alias: str = "default") -> Iterator[None]:
    """Run synchronous broker calls inside the block on Django's own connection, within its open transaction.

    A send then locks its entity's counter until that transaction ends, and other senders wait (docs/design.md D3).
    """
    token = _callers.set(alias)
    try:
        yield
    finally:
        _callers.reset(token)


def current_database() -> Database:
    """The database of the operation that runs now."""
    return _database.get()


def current() -> psycopg.Connection:
    """This thread's connection, opened or replaced as needed. Raises psycopg.OperationalError if the server cannot be reached."""
    alias = _callers.get()
    if alias is not None:
        return _django_connection(alias)
    database = _database.get()
    own = _this_thread.connections
    connection, pid = own.get(database, (None, 0))
    if connection is not None and pid == _pid:
        if not is_dead(connection):
            hangs.refuse_if_hanging(database)
            return connection
        _forget(connection)
    hangs.refuse_if_hanging(database)
    connection = _left_by_another(database) or _connect(database)
    own[database] = (connection, _pid)
    _open.add(connection)
    return connection


def _connect(database: Database) -> Connection:
    try:
        connection = Connection.connect(**database.parameters())
    except psycopg.errors.ConnectionTimeout:
        hangs.note_timeout(database)
        raise
    hangs.watch(connection, database)
    return connection


def leave_to_other_threads() -> None:
    """Give up this thread's connections before the thread ends, so that the next one need not open its own. A web server starts a
    thread for each request, and a large statement takes 25 ms longer on a new connection, which has read nothing of the
    catalog."""
    own = _this_thread.connections
    while own:
        database, (connection, pid) = own.popitem()
        if pid != _pid:
            continue
        is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if is_idle and len(_idle[database]) < MAX_IDLE:
            _idle[database].append(connection)
        else:
            _forget(connection)


def _left_by_another(database: Database) -> Connection | None:
    """The connection that another thread left last."""
    with suppress(IndexError):
        while True:
            connection = _idle[database].pop()
            if not is_dead(connection):
                return connection
            _forget(connection)
    return None


def in_callers_transaction() -> bool:
    return _callers.get() is not None


def after_callers_commit(callback: Callable[[], None]) -> None:
    """Call this after the caller's transaction commits; never if it rolls back."""
    from django.db import transaction

    transaction.on_commit(callback, using=_callers.get())


def close_all() -> None:
    """Close the process's connections in all threads: before a fork, at exit, before a test database is dropped."""
    for callback in _at_close:
        callback()
    hangs.close()
    for connection in list(_open):
        _forget(connection)
    _this_thread.connections.close()


atexit.register(close_all)


def at_close(callback: Callable[[], None]) -> None:
    """Have `close_all` call this too: for modules with a connection of their own."""
    _at_close.append(callback)


def close_all_of_this_thread() -> None:
    """Close this thread's connections, before the thread ends or waits for a long time."""
    _this_thread.connections.close()


def abandon(connection: Connection) -> None:
    """Cancel what the connection is doing, and close it: its result will not be read."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_SECONDS_TO_CANCEL)
    _forget(connection)


def _forget(connection: Connection) -> None:
    _open.discard(connection)
    connection.close()


def _django_connection(alias: str) -> psycopg.Connection:
    from django.db import connections

    wrapper = connections[alias]
    wrapper.ensure_connection()
    if wrapper.in_atomic_block and wrapper.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        # Django sends BEGIN with its first statement. Without one, psycopg's transaction block would commit at its end.
        wrapper.connection.execute("SELECT 1")
    return wrapper.connection


def is_dead(connection: Connection | AsyncConnection) -> bool:
    """Whether the server has closed an idle connection: its socket is then readable. Sends nothing."""
    try:
        # A server that shuts down sends a message first: read it, then the end of the stream behind it.
        while connection.pgconn.status == psycopg.pq.ConnStatus.OK:
            if not connection.readable.poll(0):
                return False
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        pass
    return True
