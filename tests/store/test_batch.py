"""Several statements in one transaction and one round trip (Batch), by both drivers: all of them or none."""

import asyncio
import os
import signal
import socket
import threading

import psycopg
import pytest
from psycopg import pq

from broker_core.common.errors import BrokerUnavailable
from broker_core.store import aio, connections, driver
from broker_core.store.driver import Atomically, Batch
from tests.eventually import eventually

INSERT, COUNT = (
    "INSERT INTO batch_test VALUES (%(n)s::int) RETURNING n",
    "SELECT count(*) AS n, %(n)s::int AS given FROM batch_test",
)


@pytest.fixture
def table(broker_database):
    connections.current().execute("CREATE TABLE batch_test (n int UNIQUE DEFERRABLE INITIALLY DEFERRED, CHECK (n > 0))")
    yield
    connections.current().execute("DROP TABLE batch_test")
    connections.close_all_of_this_thread()


def stored():
    return [row.n for row in connections.current().execute("SELECT n FROM batch_test ORDER BY n").fetchall()]


async def in_loop(steps):
    try:
        return await aio.run(steps)
    finally:
        await aio.close()


@pytest.fixture(params=["threads", "tasks"])
def run(request):
    """Runs a step, or steps of one, by a driver."""

    def one(step):
        return (yield step)

    def by_thread(step):
        return driver.run(one(step))

    return by_thread if request.param == "threads" else lambda step: asyncio.run(in_loop(one(step)))


def test_each_statement_returns_its_rows_and_sees_the_effects_of_earlier_statements(table, named, run):
    for n in (1, 2, 3):  # prepared at the first
        assert run(Batch((named(INSERT, n=n), named(COUNT, n=7)))) == [[(n,)], [(n, 7)]]


def test_a_batch_is_one_transaction(table, named, run):
    text = "INSERT INTO batch_test VALUES (%(n)s::int) RETURNING pg_current_xact_id()::text AS xid"
    [first], [second] = run(Batch((named(text, n=1), named(text, n=2))))
    assert first == second


@pytest.mark.parametrize("bad", [0, 1])
def test_a_refused_statement_undoes_the_others(table, named, run, bad):
    values = [5, 6]
    values[bad] = 0
    with pytest.raises(psycopg.errors.CheckViolation):
        run(Batch(tuple(named(INSERT, n=n) for n in values)))
    assert stored() == []
    assert run(Batch((named(INSERT, n=1), named(INSERT, n=2)))) == [[(1,)], [(2,)]]


def test_a_commit_that_fails_is_reported(table, named, run):
    """The constraint is checked by the commit, after all rows were sent."""
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(Batch((named(INSERT, n=1), named(INSERT, n=1))))
    assert stored() == []
    assert run(Batch((named(INSERT, n=1), named(COUNT, n=0)))) == [[(1,)], [(1, 0)]]


def test_within_a_transaction_a_batch_is_part_of_it(table, named, run):
    def steps():
        rows = yield Batch((named(INSERT, n=1), named(COUNT, n=0)))
        raise RuntimeError(rows)

    with pytest.raises(RuntimeError, match="n=1"):
        run(Atomically(steps()))
    assert stored() == []


def test_statements_that_require_a_cursor_run_in_the_same_transaction(table, named, run):
    """A statement whose parameter has no known type is not prepared."""
    odd = named("SELECT jsonb_build_object('n', %(n)s) AS found", n=1)
    assert run(Batch((named(INSERT, n=1), odd))) == [[(1,)], [({"n": 1},)]]
    with pytest.raises(psycopg.errors.CheckViolation):
        run(Batch((named(INSERT, n=2), odd, named(INSERT, n=0))))
    assert stored() == [1]


def test_deallocated_statements_are_prepared_again(table, named):
    run = lambda: driver.run(iterated(Batch((named(INSERT, n=len(stored()) + 1), named(COUNT, n=0)))))  # noqa: E731
    run()
    connections.current().execute("DEALLOCATE ALL")
    assert run() == [[(2,)], [(2, 0)]]


def iterated(step):
    return (yield step)


def test_a_lost_connection_is_reported_as_an_unknown_outcome(table, named, run):
    die = named("SELECT pg_terminate_backend(pg_backend_pid()), %(n)s::int AS n", n=1)
    with pytest.raises(BrokerUnavailable):
        run(Batch((named(INSERT, n=1), die)))
    assert stored() == []
    assert run(Batch((named(INSERT, n=1), named(COUNT, n=0)))) == [[(1,)], [(1, 0)]]


def test_a_server_that_dies_silently_is_an_operational_error(table, named):
    connection = connections.current()
    steps = connection.direct.execute_all([named(COUNT, n=1), named("SELECT pg_sleep(%(n)s::int)", n=30)])
    wanted, sleeps = (
        next(steps),
        "SELECT FROM pg_stat_activity WHERE pid = %s AND query LIKE 'SELECT pg_sleep%%' AND state = 'active'",
    )
    pid = connection.info.backend_pid
    with psycopg.connect(**connections.Database().parameters()) as other:
        while not other.execute(sleeps, [pid]).fetchall():
            wanted = steps.send(wanted) if connection.readable.poll(10) or wanted != 1 else wanted
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as under_libpq:
            under_libpq.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError):
            while True:
                steps.send(1)
        other.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_an_interrupted_batch_leaves_no_connection_in_use(table, named):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    connection = connections.current()
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            driver.run(iterated(Batch((named(INSERT, n=1), named("SELECT pg_sleep(%(n)s::int)", n=20)))))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stored() == []
    assert connection.closed or connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


async def test_a_cancelled_batch_is_rolled_back_and_its_connection_stays_usable(table, named):
    task = asyncio.create_task(
        aio.run(iterated(Batch((named(INSERT, n=1), named("SELECT pg_sleep(%(n)s::int), 'batch'", n=60)))))
    )
    active = "SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%batch%' AND state = 'active'"

    def is_active():
        with psycopg.connect(**connections.Database().parameters()) as other:
            return bool(other.execute(active).fetchall())

    await asyncio.to_thread(eventually, is_active)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(aio.loop_resources().pool._idle) == 1
    assert await aio.run(iterated(Batch((named(INSERT, n=2), named(COUNT, n=0))))) == [[(2,)], [(1, 0)]]
    await aio.close()
