"""Expiry, the hint that gets begin at, and clocks that go back."""

import time
from datetime import timedelta

import psycopg
import pytest

from broker_core import namespaces, queue_storage, sweeps
from broker_core.common.types import EventKind
from broker_core.queue_storage import approximate_count, get, getting, peek, put, put_all, tidying, update_queue
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.broker_state import entity_id, events, ledger_agrees

SECOND = timedelta(seconds=1)
GRACE = 60 * SECOND


def texts(messages):
    return [message.text for message in messages]


def rows(address):
    query = "SELECT sequence_number FROM vitrine_message WHERE entity_id = %s ORDER BY 1"
    return [row[0] for row in connections.current().execute(query, [entity_id(address)])]


def hint(address):
    query = "SELECT visible_from FROM vitrine_queue_head WHERE entity_id = %s AND subqueue = 0"
    return connections.current().execute(query, [entity_id(address)]).fetchone()[0]


def due(address):
    """The queue's row, if a sweep is to look at it; else None."""

    def steps():
        rows = yield call("entities_with_due", namespace=None)
        return next((row for row in rows if row.entity_id == entity_id(address) and tidying.is_due(row)), None)

    return run(steps())


def sweep(address):
    """What a sweep does to one queue. Returns how many messages went."""
    row = due(address)
    return run(tidying.expire(row, time.monotonic() + 10, lambda _: None)) if row else 0


@pytest.fixture
def refreshed_by_each_get(monkeypatch):
    """Gets look from the beginning each time, as they do now and then."""
    monkeypatch.setattr(getting, "REFRESH_EVERY", 0.0)
    monkeypatch.setattr(getting, "REST_FACTOR", 0)


# Expiry


def test_a_message_expires_exactly_at_its_expiry(queue, step):
    put(queue, "a", time_to_live=10 * SECOND)
    step(10 * SECOND - timedelta(microseconds=1))
    assert texts(peek(queue)) == ["a"]
    step(timedelta(microseconds=1))
    assert (peek(queue), get(queue), approximate_count(queue)) == ([], [], 0)


def test_an_expired_message_is_kept_for_the_grace_then_removed_by_a_sweep(make_queue, step):
    for grace in (GRACE, 5 * SECOND):
        address = make_queue(expiry_grace=grace)
        put_all(address, [*"ab"], time_to_live=10 * SECOND)
        put(address, "held", visibility_timeout=9000 * SECOND, time_to_live=9001 * SECOND)
        step(10 * SECOND + grace - timedelta(microseconds=1))
        assert (sweep(address), rows(address)) == (0, [1, 2, 3])
        step(timedelta(microseconds=1))
        assert (sweep(address), rows(address)) == (2, [3])
        assert EventKind(events(address, 1)[-1].kind) is EventKind.EXPIRED
        assert ledger_agrees(address)


def test_a_get_removes_messages_past_their_grace_without_a_sweep(queue, step):
    put_all(queue, ["x"] * 3, time_to_live=10 * SECOND)
    step(10 * SECOND + GRACE)
    assert get(queue) == []
    assert rows(queue) == []
    assert ledger_agrees(queue)


def test_an_expired_lease_leaves_nothing_in_the_counts(queue, step):
    from broker_core import reads

    put(queue, "a", time_to_live=10 * SECOND)
    get(queue, visibility_timeout=3600 * SECOND)
    step(10 * SECOND + GRACE)
    assert reads.counts(queue).locked == 1
    sweep(queue)
    counts = reads.counts(queue)
    assert (counts.active, counts.locked) == (0, 0)
    assert ledger_agrees(queue)


def test_leases_that_ended_early_leave_nothing_in_the_ledger(queue):
    """Else each get with a lease of a week would be kept, and counted over, for a week."""
    instants = "SELECT n FROM vitrine_count_base WHERE entity_id = %s AND until IS NOT NULL"
    put_all(queue, ["x"] * 3)
    for rolled_up in (False, True):
        (got,) = get(queue, visibility_timeout=timedelta(days=7))
        if rolled_up:
            sweeps.roll_up_counts()
            assert [row.n for row in connections.current().execute(instants, [entity_id(queue)])] == [1]
        queue_storage.delete(queue, got.message_id, got.pop_receipt)
        sweeps.roll_up_counts()
        assert connections.current().execute(instants, [entity_id(queue)]).fetchall() == []
    assert ledger_agrees(queue)


# The hint


def test_the_hint_advances_as_messages_are_taken(queue, step, refreshed_by_each_get):
    put(queue, "a")
    step(10 * SECOND)
    second = put(queue, "b")
    get(queue)
    assert hint(queue) == second.visible_at
    get(queue)
    step(5 * SECOND)
    get(queue)
    assert hint(queue) == second.visible_at + 5 * SECOND


def test_a_message_committed_below_the_hint_is_found_by_a_get_with_too_few_results(queue, step):
    _commit_below_the_hint(queue, step)
    assert texts(get(queue)) == ["late"]


def test_a_message_committed_below_the_hint_is_found_periodically_under_load(queue, step, refreshed_by_each_get):
    _commit_below_the_hint(queue, step)
    put_all(queue, ["new"] * 10)
    assert "late" in texts(get(queue)) + texts(get(queue)) + texts(get(queue))


def test_a_peek_sees_a_message_committed_below_the_hint(queue, step):
    _commit_below_the_hint(queue, step)
    assert texts(peek(queue, 32)) == ["late"]


def _commit_below_the_hint(queue, step):
    """Another process puts, and commits only when the clock and the hint have gone on."""
    put(queue, "first")
    get(queue, visibility_timeout=3600 * SECOND)
    params = {"entity_id": entity_id(queue), "actor": "t", "holder": "t", "bodies": [b"late"], "bytes": 4}
    params = call("storage_put", **params, visibility=timedelta(0), time_to_live=None).params
    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(SQL["storage_put"], params)
        step(10 * SECOND)
        run(getting._refresh_hint(entity_id(queue)))
        below = hint(queue)
    assert below > peek_all(queue)[0].visible_at


def peek_all(queue):
    query = "SELECT visible_at FROM vitrine_message WHERE entity_id = %s AND message_id IS NOT NULL AND body = 'late'"
    return connections.current().execute(query, [entity_id(queue)]).fetchall()


def test_a_clock_set_back_hides_no_message(account, queue, step):
    step(timedelta(days=1))
    get(queue)
    namespaces.resume_clock(account)  # a day back
    put(queue, "a")
    assert texts(get(queue)) == ["a"]


def test_a_higher_dequeue_limit_makes_spent_messages_available(make_queue, step):
    address = make_queue(max_dequeue_count=1, poison_queue="grave-yard")
    put(address, "a")
    get(address, visibility_timeout=SECOND)
    step(SECOND)
    update_queue(address, max_dequeue_count=2)
    assert texts(get(address)) == ["a"]


def test_scans_from_the_beginning_are_rare_while_they_are_expensive(queue, monkeypatch):
    """Dead index entries that an old transaction keeps are walked rarely, not with every get of an empty queue."""
    looks = []
    monkeypatch.setattr(getting, "CHEAP_REFRESH", -1.0)
    monkeypatch.setattr(getting, "REST_FACTOR", 10_000)
    look = getting._refresh_hint
    monkeypatch.setattr(getting, "_refresh_hint", lambda queue_id: (looks.append(queue_id), (yield from look(queue_id)))[1])
    for _ in range(5):
        assert get(queue) == []
    assert len(looks) == 1


# The indexes that statements use


@pytest.mark.parametrize("name", ["storage_get", "storage_peek", "storage_refresh_hint", "storage_move_spent", "storage_poison"])
def test_visible_messages_are_found_by_their_index(queue, name):
    put_all(queue, ["x"] * 200)
    put_all(queue, ["x"] * 2000, visibility_timeout=60 * SECOND)
    connection = connections.current()
    connection.execute("ANALYZE vitrine_message")
    params = {
        "entity_id": entity_id(queue), "max_count": 1, "from_start": False, "holder": "h", "visibility": SECOND, "target_id": 1,
        "actor": "a", "reason": "r", "time_to_live": SECOND,
    }  # fmt: skip
    params = call(name, **params).params
    connection.execute("SET plan_cache_mode = force_generic_plan")
    with connection.transaction(force_rollback=True):
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN ANALYZE {SQL[name]}", params, prepare=True))
    assert "vitrine_message_visible" in plan
    assert "rows=2200" not in plan and "rows=2000" not in plan, plan


def test_many_invisible_messages_do_not_slow_a_get(make_queue):
    """10,000 invisible messages slow a get by less than a fifth: by the pages it touches, which no other load disturbs."""
    few, many = make_queue(), make_queue()
    put_all(many, ["x"] * 10_000, visibility_timeout=3600 * SECOND)
    touched = []
    for address in (few, many):
        put_all(address, ["x"] * 320)
        get(address, 32)
        touched.append(_pages_of_a_get(address))
    assert touched[1] <= touched[0] * 1.2, touched


def _pages_of_a_get(address):
    params = {"entity_id": entity_id(address), "max_count": 32, "from_start": False, "holder": "h", "visibility": SECOND}
    params = call("storage_get", **params).params
    connection = connections.current()
    with connection.transaction(force_rollback=True):
        (plan,) = connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + SQL["storage_get"], params).fetchone()[0]
    return plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]


def test_dead_index_entries_are_not_scanned_repeatedly(queue):
    """After thousands of puts, gets and deletes a get of an empty queue touches no more pages than before."""
    put(queue, "a")
    get(queue)
    before = _pages_of_a_get(queue)
    for _ in range(30):
        put_all(queue, ["x"] * 100)
        while held := get(queue, 32):
            queue_storage.delete_all(queue, held)
    run(getting._refresh_hint(entity_id(queue)))
    assert _pages_of_a_get(queue) <= before + 20


def test_advancing_heads_and_roll_ups_change_no_result(queue, step):
    put_all(queue, [*"abc"])
    get(queue, 2)
    sweeps.advance_heads()
    sweeps.roll_up_counts()
    step(30 * SECOND)
    assert sorted(texts(get(queue, 3))) == ["a", "b", "c"]
    assert sweeps.check_ledger()["differences"] == []


def test_a_sweep_of_all_entities_expires_and_moves(make_queue, step):
    plain, poisoned, idle = make_queue(), make_queue(max_dequeue_count=1), make_queue()
    put(plain, "a", time_to_live=SECOND)
    put(poisoned, "b")
    get(poisoned)
    put(idle, "c")
    assert due(idle) is None
    step(SECOND + GRACE)
    assert sweeps.expire_messages(pause=lambda _: None)["expired"] >= 2
    assert (rows(plain), rows(poisoned), rows(idle)) == ([], [], [1])
