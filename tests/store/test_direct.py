"""The direct path returns what a cursor returns, refuses what a cursor refuses, and leaves no connection in an unknown state.

It is built on internals of psycopg: when a new version changes them, these tests tell.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from datetime import UTC, date, datetime, timedelta
from inspect import signature
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import pq
from psycopg._py_transformer import Transformer
from psycopg.generators import _execute as _generators_execute
from psycopg.rows import _make_nt, namedtuple_row
from psycopg.waiting import Ready, Wait

from broker_core import service_bus
from broker_core.common.errors import BrokerUnavailable, InvalidArgument, ServerBusy
from broker_core.common.types import SubQueue
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections, direct, driver, statements
from broker_core.store.direct import NotDirect
from broker_core.store.driver import Atomically
from broker_core.store.notifications import WAKE_CHANNEL, Notifications
from broker_core.store.statements import SQL, Statement
from tests.eventually import eventually

# Statements that the server cannot prepare without the types of their parameters, or with a type that is not written here.
BY_CURSOR = {"renew_session", "close_session", "history_next_slice"} | {
    "feed", "read_events", "read_events_since", "history_archived_rows", "history_finish_slice", "history_forget_entities",
    "history_forget_days",
    # With the conditions of a filter, which are arrays of many types.
    "read_messages", "search_messages", "search_events", "search_events_of",
}  # fmt: skip


@pytest.fixture
def connection(db):
    connections.close_all_of_this_thread()
    return connections.current()


def run(step):
    def steps():
        return (yield step)

    return driver.run(steps())


async def run_in_loop(step):
    def steps():
        return (yield step)

    return await aio.run(steps())


def directly(connection, sql, **params):
    return connection.wait(connection.direct.execute(sql, params))


def by_cursor(connection, sql, **params):
    with psycopg.Cursor(connection, row_factory=namedtuple_row) as cursor:
        cursor.execute(sql, params, binary=True)
        return cursor.fetchall() if cursor.rownumber is not None else []


def test_psycopg_has_the_internals_used_by_the_direct_path():
    """If this fails after an update of psycopg, read its changes, adapt store/direct.py, and then widen requirements.txt."""
    assert signature(_make_nt).parameters.keys() == {"enc", "names"}
    assert (int(Wait.R), int(Wait.W), int(Ready.R), int(Ready.W)) == (1, 2, 1, 2)
    parameters: dict[Any, list[str]] = {
        Transformer.set_loader_types: ["self", "types", "format"],
        Transformer.set_pgresult: ["self", "result", "set_loaders", "format"],
        Transformer.load_rows: ["self", "row0", "row1", "make_row"],
        _generators_execute: ["pgconn"],
    }
    for function, names in parameters.items():
        assert list(signature(function).parameters) == names, function
    assert list(signature(psycopg.Connection.wait).parameters)[:2] == ["self", "gen"]
    assert list(signature(psycopg.Connection.__init__).parameters)[:2] == ["self", "pgconn"]


VALUES = {
    "bool": [True, False],
    "bytea": [b"", b"\x00\xff", bytearray(b"a"), memoryview(b"b")],
    "float8": [0.5, -1e300, 7],
    "int2": [0, -1, SubQueue.DEAD_LETTER, 2**15 - 1, -(2**15)],
    "int4": [2**31 - 1, -(2**31)],
    "int8": [2**63 - 1, -(2**63)],
    "interval": [timedelta(), timedelta(days=-3, seconds=5, microseconds=7), timedelta(days=400)],
    "jsonb": ['{"a": [1, "ä"]}', "null"],
    "text": ["", "ä€😀", "null", '"{,}"'],
    "timestamptz": [datetime(1999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1, 1, 1, tzinfo=UTC)],
    "uuid": [uuid4(), UUID(int=0)],
    "varchar": ["x"],
}  # fmt: skip


def test_every_written_type_is_covered_by_these_tests():
    assert set(VALUES) == set(direct._SCALARS)


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_sent_as_by_a_cursor(connection, kind):
    for value in [*VALUES[kind], None]:
        sql = f"SELECT %(v)s::{kind} AS v, %(v)s::{kind}::text AS shown, 10 %% 4 AS rest"
        assert directly(connection, sql, v=value) == by_cursor(connection, sql, v=value), value


@pytest.mark.parametrize("kind", VALUES)
def test_a_list_is_sent_as_by_a_cursor(connection, kind):
    sql = f"SELECT %(v)s::{kind}[] AS v, %(v)s::{kind}[]::text AS shown"
    same = [value for value in VALUES[kind] if type(value) is type(VALUES[kind][0])]  # a cursor takes no others in a list
    for values in (same, [*same, None], [None], [], None):
        assert directly(connection, sql, v=values) == by_cursor(connection, sql, v=[*values] if values else values)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[("int8", v) for v in (True, 1.0, "1", 2**63)],
        *[("int2", v) for v in (2**15, False)],
        *[("bool", v) for v in (1, "yes", None.__class__)],
        *[("text", v) for v in (b"a", 1, "\ud800")],
        *[("bytea", v) for v in ("a", 5, [1])],
        *[("timestamptz", v) for v in (datetime(2026, 1, 1), "yesterday", date(2026, 1, 1))],
        *[("interval", v) for v in (5, "5 s")],
        *[("uuid", v) for v in ("x", str(UUID(int=5)))],
        *[("float8", v) for v in (True, "1")],
        *[("jsonb", v) for v in ({}, b"{}")],
        *[("int8[]", v) for v in ((1, 2), 1, [True], ["1"], [[1]], {1})],
        *[("text[]", v) for v in ("ab", [b"a"])],
    ],
)
def test_a_value_of_another_class_is_left_to_the_cursor(connection, kind, value):
    with pytest.raises(NotDirect):
        directly(connection, f"SELECT %(v)s::{kind}", v=value)
    assert connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


def test_a_missing_parameter_is_left_to_the_cursor(connection):
    with pytest.raises(NotDirect):
        directly(connection, "SELECT %(v)s::int4")


def test_every_statement_is_prepared_from_its_text_alone(connection):
    """One that is not would run, but slowly."""
    assert {name for name, sql in SQL.items() if connection.wait(connection.direct._prepare(sql)) is None} == BY_CURSOR


def test_rows_equal_those_of_a_cursor(connection):
    columns = "n, n::text AS t, ARRAY[n] AS a, now() AS at, '{\"a\": 1}'::jsonb AS j, NULL::uuid AS u"
    sql = f"SELECT {columns} FROM generate_series(1, %(n)s) AS n"
    rows, expected = directly(connection, sql, n=3), by_cursor(connection, sql, n=3)
    assert [row._replace(at=None) for row in rows] == [row._replace(at=None) for row in expected]
    assert rows[0]._fields == expected[0]._fields and type(rows[0]) is type(expected[0])
    assert rows[0].at.tzinfo is expected[0].at.tzinfo
    assert directly(connection, sql, n=0) == []
    assert directly(connection, "CREATE TEMPORARY TABLE made (n int)") == []


def test_the_number_of_prepared_statements_is_limited(connection, monkeypatch):
    monkeypatch.setattr(direct, "MAX_PREPARED", 3)
    for turn in range(2):
        for n in range(5):
            assert directly(connection, f"SELECT %(n)s + {n} AS n", n=turn) == [(turn + n,)]
    count_row = connection.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'vitrine%'").fetchone()
    assert count_row == (3,)


def test_a_deallocated_statement_is_prepared_again(connection):
    for _ in range(2):
        assert directly(connection, "SELECT %(n)s::int4 AS n", n=1) == [(1,)]
        connection.execute("DEALLOCATE ALL")


def test_a_statement_whose_columns_have_changed_is_prepared_again(connection):
    connection.execute("CREATE TEMPORARY TABLE changing (n int)")
    connection.execute("INSERT INTO changing VALUES (1)")
    assert directly(connection, "SELECT * FROM changing") == [(1,)]
    connection.execute("ALTER TABLE changing ADD COLUMN t text DEFAULT 'a'")
    assert directly(connection, "SELECT * FROM changing") == [(1, "a")]


def test_a_statement_in_a_transaction_is_left_to_the_cursor(connection, named):
    count = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'vitrine%'"
    step = named("SELECT %(n)s::int4 AS n", n=5)

    def steps():
        return (yield step)

    assert run(Atomically(steps())) == [(5,)]
    assert connection.execute(count).fetchone() == (0,)
    assert run(step) == [(5,)]
    assert connection.execute(count).fetchone() == (1,)
    with connection.transaction(), pytest.raises(NotDirect):
        directly(connection, step.sql, n=1)


def test_errors_are_those_of_the_server(connection):
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        directly(connection, "SELECT 1 / %(n)s", n=0)
    assert directly(connection, "SELECT 1 / %(n)s AS n", n=1) == [(1,)]


def test_a_result_is_returned_only_if_the_commit_succeeded(connection):
    """A deferred constraint is checked by the commit, after the rows were sent."""
    connection.execute("CREATE TEMPORARY TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    sql = "INSERT INTO late SELECT %(n)s FROM generate_series(1, %(times)s) RETURNING n"
    assert directly(connection, sql, n=1, times=1) == [(1,)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        directly(connection, sql, n=2, times=2)


@pytest.mark.parametrize("sql", ["SELECT pg_terminate_backend(pg_backend_pid()), %(n)s::int4 AS n"])
def test_a_lost_connection_is_an_operational_error(connection, named, sql):
    with pytest.raises(psycopg.OperationalError):
        directly(connection, sql, n=1)
    assert connection.closed
    with pytest.raises(BrokerUnavailable):
        run(named(sql, n=1))
    assert run(named("SELECT 1 AS one")) == [(1,)]


def test_a_server_that_dies_silently_is_an_operational_error(connection, db):
    """As a killed server does it: the socket ends in the middle of an answer."""
    directly(connection, "SELECT %(n)s::int4", n=1)
    steps = connection.direct.execute("SELECT pg_sleep(%(n)s::int4)", {"n": 30})
    pid = connection.info.backend_pid
    next(steps)
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as under_libpq:
        under_libpq.shutdown(socket.SHUT_RDWR)
    with pytest.raises(psycopg.OperationalError):
        while True:
            steps.send(1)
    with psycopg.connect(**connections.Database().parameters()) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])


class SoftTimeLimit(Exception):
    """As Celery's: raised by a signal handler, and no KeyboardInterrupt."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SoftTimeLimit])
def test_an_interrupted_statement_leaves_no_connection_in_use(connection, named, kind):
    def interrupt(*_):
        raise kind

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        began = time.monotonic()
        with pytest.raises(kind):
            run(named("SELECT pg_sleep(%(n)s::int4)", n=20))
        assert time.monotonic() - began < 10
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert run(named("SELECT 1 AS one")) == [(1,)]
    assert connection.closed or connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


def test_an_interrupted_statement_ends_on_the_server(connection, named):
    test_an_interrupted_statement_leaves_no_connection_in_use(connection, named, SoftTimeLimit)
    active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    eventually(lambda: connections.current().execute(active).fetchone() == (0,))


def test_an_interrupted_cursor_statement_closes_its_connection(connection, named):
    def interrupt(*_):
        raise SoftTimeLimit

    def steps():
        yield named("SELECT pg_sleep(%(n)s::int4)", n=20)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(SoftTimeLimit):
            run(Atomically(steps()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert run(named("SELECT 1 AS one")) == [(1,)]


def sleeping():
    """The processes that execute the statement of a test, and are not only preparing it."""
    query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%cancelled here%' AND wait_event = 'PgSleep'"
    with psycopg.connect(**connections.Database().parameters()) as other:
        return other.execute(query).fetchall()


async def test_a_cancellation_without_effect_is_repeated(broker_database, named, monkeypatch):
    """One that arrives before the statement is executed."""
    lost, cancel = [], psycopg.AsyncConnection.cancel_safe

    async def cancel_once_in_vain(self, **options):
        if lost:
            await cancel(self, **options)
        lost.append(self)

    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", cancel_once_in_vain)
    monkeypatch.setattr(direct, "_SECONDS_TO_CANCEL", 0.2)
    task = asyncio.create_task(run_in_loop(named("SELECT pg_sleep(%(n)s::int4), 'cancelled here'", n=60)))
    await asyncio.to_thread(eventually, sleeping)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(eventually, lambda: not sleeping())
    assert len(lost) == 2 and await run_in_loop(named("SELECT 1 AS one")) == [(1,)]
    await aio.close()


async def test_a_cancelled_statement_is_cancelled_on_the_server(broker_database, named):
    sql = "SELECT pg_sleep(%(n)s::int4), 'cancelled here'"
    task = asyncio.create_task(run_in_loop(named(sql, n=60)))
    await asyncio.to_thread(eventually, sleeping)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(eventually, lambda: not sleeping())
    assert len(aio.loop_resources().pool._idle) == 1  # the connection is used on
    assert await run_in_loop(named("SELECT 1 AS one")) == [(1,)]
    await aio.close()


async def test_a_large_batch_is_sent_and_received_in_an_event_loop(broker_database, named):
    """More than the socket's buffers take at once, both ways."""
    bodies = [os.urandom(1_000_000) for _ in range(20)]
    step = named("SELECT b FROM unnest(%(bodies)s::bytea[]) AS b", bodies=bodies)
    assert [row.b for row in await run_in_loop(step)] == bodies
    assert [row.b for row in await asyncio.to_thread(run, step)] == bodies
    await asyncio.to_thread(connections.close_all_of_this_thread)
    await aio.close()


async def test_a_connection_lost_in_an_event_loop_is_replaced(broker_database, named):
    with pytest.raises(BrokerUnavailable):
        await run_in_loop(named("SELECT pg_terminate_backend(pg_backend_pid()), %(n)s::int4", n=1))
    assert await run_in_loop(named("SELECT %(n)s::int4 AS n", n=1)) == [(1,)]
    await aio.close()


def test_a_notification_that_comes_with_an_answer_is_found(connection, named):
    """It is read from the socket with the rows of a statement, before anybody waits for it."""
    listening, (nobody, woken) = Notifications(), socket.socketpair()
    woken.setblocking(False)
    with nobody, woken:
        run(named(f"SELECT pg_notify('{WAKE_CHANNEL}', %(id)s::text)", id="77"))
        began = time.monotonic()
        assert listening.wait(10, woken) == {77}
        assert time.monotonic() - began < 5


def test_notices_reach_their_handlers(connection):
    told = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    directly(connection, "DROP TABLE IF EXISTS no_such_table_here")
    assert told == ['table "no_such_table_here" does not exist, skipping']


def test_values_that_cannot_be_stored_are_named(queue):
    for text in ("a\0b", "\ud800"):
        with pytest.raises(InvalidArgument, match="NUL|surrogate"):
            service_bus.send(queue, [Message(b"a", message_id=text)])
    with pytest.raises(InvalidArgument, match="max_count"):
        service_bus.receive(queue, 2**63)


def test_a_lock_timeout_is_raised(queue, named):
    holder = psycopg.connect(**connections.Database().parameters() | {"autocommit": False})
    try:
        holder.execute("LOCK TABLE vitrine_entity IN ACCESS EXCLUSIVE MODE")
        run(named("SELECT set_config('lock_timeout', '100ms', false)"))
        with pytest.raises(ServerBusy):
            service_bus.send(queue, [Message(b"a")])
    finally:
        holder.close()
        connections.close_all_of_this_thread()


# A contended statement: committed, then flushed, then answered


def execute_behind(
    connection, statement, after="SELECT 1 AS flushed", before="SELECT set_config('synchronous_commit', 'off', true)"
):
    parts = [Statement(text, {}) if isinstance(text, str) else text for text in (before, statement, after)]
    return connection.wait(connection.direct.execute_behind(*parts))


@pytest.fixture
def texts(monkeypatch):
    """Statements by their text: Statement("SELECT 1", {})."""

    class Texts(dict):
        def __missing__(self, name):
            return name

    monkeypatch.setattr(statements, "SQL", Texts(SQL))


@pytest.mark.usefixtures("texts")
class TestBehind:
    def test_the_rows_of_the_second_statement_are_returned(self, connection):
        connection.execute("CREATE TEMPORARY TABLE t (n int)")
        insert = Statement("INSERT INTO t VALUES (%(n)s) RETURNING n, current_setting('synchronous_commit') AS mode", {"n": 5})
        seen = "SELECT current_setting('synchronous_commit') AS mode, count(*) FROM t"
        assert execute_behind(connection, insert, seen) == [(5, "off")]
        assert directly(connection, seen) == [("on", 1)]
        assert connection.pgconn.pipeline_status == pq.PipelineStatus.OFF

    def test_an_error_of_the_first_two_statements_undoes_both(self, connection):
        connection.execute("CREATE TEMPORARY TABLE t (n int)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            execute_behind(connection, "SELECT 1 / 0", before="INSERT INTO t VALUES (1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            execute_behind(connection, "INSERT INTO t VALUES (1)", before="SELECT 1 / (SELECT 0)")
        assert directly(connection, "SELECT count(*) FROM t") == [(0,)]
        assert execute_behind(connection, "SELECT 1 AS one") == [(1,)]

    def test_a_commit_that_fails_is_an_error(self, connection):
        connection.execute("CREATE TEMPORARY TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        twice = "INSERT INTO late SELECT 1 FROM generate_series(1, 2) RETURNING n"
        with pytest.raises(psycopg.errors.UniqueViolation):
            execute_behind(connection, twice)
        assert execute_behind(connection, "SELECT count(*) FROM late") == [(0,)]

    def test_a_flush_that_fails_leaves_the_outcome_unknown(self, connection):
        connection.execute("CREATE TEMPORARY TABLE t (n int)")
        with pytest.raises(psycopg.OperationalError, match="unknown: division by zero"):
            execute_behind(connection, "INSERT INTO t VALUES (1) RETURNING n", after="SELECT 1 / (SELECT 0)")
        assert directly(connection, "SELECT count(*) FROM t") == [(1,)]

    @pytest.mark.parametrize("at", range(3))
    def test_a_lost_connection_is_an_operational_error(self, connection, at):
        parts = ["SELECT 1", "SELECT 2", "SELECT 3"]
        parts[at] = "SELECT pg_terminate_backend(pg_backend_pid())"
        with pytest.raises(psycopg.OperationalError):
            execute_behind(connection, parts[1], parts[2], parts[0])
        assert connection.closed

    @pytest.mark.parametrize("name", range(3))
    def test_a_deallocated_statement_is_prepared_again(self, connection, name):
        connection.execute("CREATE TEMPORARY TABLE t (n int)")
        insert = "INSERT INTO t VALUES (1) RETURNING n"
        assert execute_behind(connection, insert) == [(1,)]
        prepared = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'vitrine%' ORDER BY name"
        connection.execute(f"DEALLOCATE {connection.execute(prepared).fetchall()[name].name}")
        assert execute_behind(connection, insert) == [(1,)]
        assert directly(connection, "SELECT count(*) FROM t") == [(2,)]

    def test_in_a_transaction_the_statements_are_left_to_the_cursor(self, connection):
        with connection.transaction(), pytest.raises(NotDirect):
            execute_behind(connection, "SELECT 1")

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SoftTimeLimit])
    def test_an_interrupted_statement_pair_leaves_no_connection_in_use(self, connection, kind):
        def interrupt(*_):
            raise kind

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(kind):
                run(driver.Contended(Statement("SELECT pg_sleep(20)", {}), None))
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert run(Statement("SELECT 1 AS one", {})) == [(1,)]
