"""A database that has no connection to give, makes a statement wait, meets two crosswise, or whose clock steps back: a clear
refusal that says whether trying again helps, a bounded retry, or nothing at all; never something half done."""

import threading
from contextlib import ExitStack
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerUnavailable, LockLost, ServerBusy
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.site.embedded_postgres import server
from tests.broker_state import bodies, entity_id, ledger_agrees, now
from tests.eventually import eventually

from .conftest import MAX_CONNECTIONS

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(on_cluster):
    address = EntityAddress(f"t-{uuid4().hex[:8]}", "queue")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    return address


@pytest.fixture
def another(dsn):
    """A connection of somebody else, in a transaction that is rolled back."""
    with psycopg.connect(dsn) as connection:
        yield connection
        connection.rollback()


def in_a_thread(act, dsn):
    """Start an act on a connection of its own. A function that waits for its answer, or raises what it raised."""
    results = {}

    def run():
        with connections.using(connections.Database(dsn=dsn)):
            try:
                results["answer"] = act()
            except Exception as exc:
                results["raised"] = exc
            connections.close_all_of_this_thread()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def answer():
        thread.join(20)
        assert not thread.is_alive(), "it goes on for ever"
        if "raised" in results:
            raise results["raised"]
        return results["answer"]

    return answer


def until_it_waits(another, count=1):
    """Until so many statements of others wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid()"

    def they_wait():
        another.execute("SELECT pg_stat_clear_snapshot()")
        return another.execute(query).fetchone()[0] >= count

    eventually(they_wait)


@pytest.mark.slow
def test_a_database_without_a_free_connection_is_reported_as_busy(queue, dsn):
    with ExitStack() as taken:
        with pytest.raises(psycopg.OperationalError, match="too many clients|remaining connection slots"):
            for _ in range(MAX_CONNECTIONS + 1):
                taken.enter_context(psycopg.connect(dsn))
        with pytest.raises(ServerBusy, match="no free connections") as refused:
            in_a_thread(lambda: service_bus.send(queue, [Message(b"refused")]), dsn)()
        assert refused.value.retryable
        assert service_bus.send(queue, [Message(b"who has a connection goes on")]) == [1]
    assert in_a_thread(lambda: service_bus.send(queue, [Message(b"free again")]), dsn)() == [2]
    assert bodies(service_bus.peek(queue)) == ["who has a connection goes on", "free again"]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_a_wait_for_a_lock_ends_with_busy_and_nothing_is_stored(queue, another, limit):
    assert connections.current().execute("SHOW lock_timeout").fetchone()[0] == "10s"  # no client waits longer
    another.execute("UPDATE vitrine_entity_counter SET next_number = next_number WHERE entity_id = %s", [entity_id(queue)])
    connections.current().execute(f"SET {limit} = '100ms'")
    with pytest.raises(ServerBusy) as refused:
        service_bus.send(queue, [Message(b"waits")])
    assert refused.value.retryable
    another.rollback()
    assert service_bus.send(queue, [Message(b"goes on, without a gap")]) == [1]
    assert ledger_agrees(queue)


def test_receivers_skip_locked_rows(queue, another):
    service_bus.send(queue, [Message(b"first"), Message(b"second")])
    another.execute("SELECT 1 FROM vitrine_message WHERE entity_id = %s AND sequence_number = 1 FOR UPDATE", [entity_id(queue)])
    connections.current().execute("SET lock_timeout = '100ms'")
    assert bodies(service_bus.receive(queue, 5)) == ["second"]
    another.rollback()
    assert bodies(service_bus.receive(queue, 5)) == ["first"]


def deadlocked(queue, another, dsn, settle):
    """`settle` has message 1 and waits for 2; somebody else has 2 and waits for 1. The database ends `settle`, for the other is
    more patient. Returns what waits for its answer."""
    another.execute("SET LOCAL deadlock_timeout = '60s'")
    another.execute(_TAKE, [entity_id(queue), 2])

    def patient():
        connections.current().execute("SET deadlock_timeout = '700ms'")
        return settle()

    answer = in_a_thread(patient, dsn)
    until_it_waits(another)
    another.execute(_TAKE, [entity_id(queue), 1])
    return answer


_TAKE = "SELECT 1 FROM vitrine_message WHERE entity_id = %s AND sequence_number = %s FOR UPDATE"


def test_a_deadlock_is_retried_transparently(queue, another, dsn, cluster):
    service_bus.send(queue, [Message(b"1"), Message(b"2")])
    tokens = [m.lock_token for m in service_bus.receive(queue, 2)]
    before = (cluster / "log").read_text().count("deadlock detected")
    answer = deadlocked(queue, another, dsn, lambda: service_bus.complete(queue, tokens))
    another.rollback()
    assert [token for token, _ in answer().settled] == tokens
    assert (cluster / "log").read_text().count("deadlock detected") > before
    assert service_bus.peek(queue) == [] and ledger_agrees(queue)


def test_a_deadlock_inside_the_callers_transaction_is_raised(queue, another, dsn):
    """There the whole transaction is over, so only the caller can try again."""
    service_bus.send(queue, [Message(b"1"), Message(b"2")])
    tokens = [m.lock_token for m in service_bus.receive(queue, 2)]

    def settle():
        with connections.current().transaction():
            service_bus.complete(queue, tokens)

    answer = deadlocked(queue, another, dsn, settle)
    with pytest.raises(ServerBusy, match="Deadlock") as refused:
        answer()
    assert refused.value.retryable
    another.rollback()
    assert [token for token, _ in service_bus.complete(queue, tokens).settled] == tokens
    assert ledger_agrees(queue)


def test_a_terminated_connection_is_replaced(queue, another):
    service_bus.send(queue, [Message(b"a")])
    pid = connections.current().info.backend_pid
    another.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    assert bodies(service_bus.receive(queue)) == ["a"]
    assert connections.current().info.backend_pid != pid


def test_a_database_that_is_down_is_reported_and_used_again_when_it_is_back(queue, dsn, cluster):
    service_bus.send(queue, [Message(b"a")])
    server.stop(cluster)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="does not respond") as refused:
            service_bus.send(queue, [Message(b"b")])
        assert refused.value.retryable
    server.ensure_running(cluster)
    assert service_bus.send(queue, [Message(b"c")]) == [2]
    assert bodies(service_bus.peek(queue)) == ["a", "c"]


def step_back(queue, by):
    """What a step of the server's clock does to statements: each takes its time from the namespace's clock alone."""
    connections.current().execute(
        "UPDATE vitrine_namespace SET clock_base_at = clock_timestamp() - %s, clock_base_real = clock_timestamp(), clock_rate = 1"
        " WHERE name = %s",
        [by, queue.namespace],
    )


def test_a_clock_that_steps_back_only_lengthens_locks_and_times_to_live(queue):
    """A lock, or a life, is then longer than was promised, by as much as the clock lost, and never shorter: no message has two
    holders (invariant 3). Numbers, and so order, do not depend on the clock."""
    service_bus.send(queue, [Message(b"held"), Message(b"given back"), Message(b"short", time_to_live=timedelta(minutes=1))])
    held, given_back = service_bus.receive(queue, 2)
    before = now(queue)
    step_back(queue, HOUR)
    assert now(queue) < before
    assert service_bus.send(queue, [Message(b"sent after")]) == [4]
    service_bus.abandon(queue, [given_back.lock_token])
    assert bodies(service_bus.receive(queue, 5)) == ["given back", "short", "sent after"]
    report = service_bus.renew(queue, [held.lock_token])
    assert report.settled and report.locked_until < before  # from now on it ends by the new clock
    namespaces.step_clock(queue.namespace, timedelta(minutes=2))
    with pytest.raises(LockLost):
        service_bus.complete(queue, [held.lock_token]).require_all()
    assert bodies(service_bus.receive(queue, 5)) == ["held", "given back", "short", "sent after"]
    namespaces.step_clock(queue.namespace, HOUR)
    assert bodies(service_bus.receive(queue, 5)) == ["held", "given back", "sent after"]
    assert ledger_agrees(queue)


def test_a_scheduled_message_waits_for_the_namespaces_clock(queue):
    scheduled = now(queue) + timedelta(minutes=1)
    service_bus.send(queue, [Message(b"later", scheduled_enqueue_at=scheduled)])
    step_back(queue, HOUR)
    namespaces.step_clock(queue.namespace, timedelta(minutes=59))
    assert service_bus.receive(queue) == []
    namespaces.step_clock(queue.namespace, timedelta(minutes=3))
    assert bodies(service_bus.receive(queue)) == ["later"]
