"""Each sweep: before, at and after the instant; twice at once; and nothing of it needed for correctness (docs/design.md D5)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction

from broker_core import service_bus, sweeps
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import ExpiryMode, HistoryLevel
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections, driver
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.broker_state import bodies, entity_id, events, ledger_agrees, now

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def expire():
    return sweeps.expire_messages(pause=lambda _: None)


@pytest.mark.parametrize("dead_lettering", [False, True])
def test_expired_messages_are_removed_at_their_expiry(make_queue, step, dead_lettering):
    """SB-033, SB-034."""
    queue = make_queue(dead_lettering_on_message_expiration=dead_lettering)
    for seconds in (4, 5, 6):
        service_bus.send(queue, [Message(str(seconds).encode(), time_to_live=seconds * SECOND)])
    step(5 * SECOND)
    expire()
    assert bodies(service_bus.peek(queue)) == ["6"]
    assert bodies(service_bus.peek(queue.dead_letter)) == (["4", "5"] if dead_lettering else [])
    kind, reason = (10, "TTLExpiredException") if dead_lettering else (11, "TTLExpiredException")
    assert [(e.kind, e.reason) for e in events(queue) if e.sequence_number < 3 and e.kind != 1] == [(kind, reason)] * 2
    assert ledger_agrees(queue)


@pytest.mark.parametrize("statement", ["expire", "expire_by_default"])
@pytest.mark.parametrize(("unflushed", "commits"), [(True, "off"), (False, "on")])
def test_only_sweeps_commit_without_waiting_for_the_disk(queue, statement, unflushed, commits):
    own = connections.current()
    values = {"entity_id": entity_id(queue), "subqueue": 0, "max_count": 5, "properties": None, "from_number": 0}
    with own.transaction():
        own.execute(SQL[statement], values | {"unflushed": unflushed})
        assert own.execute("SHOW synchronous_commit").fetchone() == (commits,)
    assert own.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_a_sweep_in_a_callers_transaction_does_not_change_its_commit(make_queue, step):
    queue = make_queue(default_message_time_to_live=MINUTE)
    service_bus.send(queue, [Message(b"by default"), Message(b"by its own", time_to_live=SECOND)])
    step(MINUTE)
    with transaction.atomic(), connections.callers_transaction():
        assert expire() == {"expired": 2}
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)


def test_messages_that_expire_by_the_default_are_found_behind_any_number_of_others(make_queue, step):
    """SB-921: 1,200 locked ones at the head do not hide the expired ones behind them."""
    queue = make_queue(default_message_time_to_live=MINUTE, lock_duration=timedelta(minutes=5))
    service_bus.send(queue, [Message(b"held")] * 1200)
    held = service_bus.receive(queue, 1200)
    service_bus.send(queue, [Message(b"waits")] * 700)
    step(MINUTE)
    expire()
    assert set(bodies(service_bus.peek(queue, max_count=5000))) == {"held"}
    assert len(service_bus.complete(queue, [m.lock_token for m in held]).settled) == 1200


def test_sweeps_visit_only_entities_with_possibly_due_messages(make_queue, step):
    """An empty queue has nothing that can have expired, whatever would live by its default."""
    queue = make_queue(default_message_time_to_live=MINUTE)

    def ask():
        return (yield call("entities_with_due", namespace=queue.namespace))

    def due():
        return [(row.scheduled, row.locks, row.expired) for row in run(ask()) if row.entity_id == entity_id(queue)]

    assert due() == []
    service_bus.send(queue, [Message(b"a", scheduled_enqueue_at=now(queue) + SECOND)])
    assert due() == []
    step(SECOND)
    assert due() == [(True, False, False)]
    service_bus.receive(queue)
    assert due() == [(False, False, True)]  # perhaps: only who looks knows
    step(MINUTE)
    assert due() == [(False, True, True)]
    expire()
    sweeps.end_locks()
    assert due() == []


def test_expiry_on_activity_waits_for_a_receiver(make_queue, step):
    """SB-030, SB-902."""
    queue = make_queue(expiry_mode=ExpiryMode.ON_ACTIVITY)
    service_bus.send(queue, [Message(b"a", time_to_live=SECOND)])
    step(timedelta(hours=1))
    expire()
    assert bodies(service_bus.peek(queue)) == ["a"]
    service_bus.receive(queue)
    assert service_bus.peek(queue) == []


def test_expired_locks_are_ended(make_queue, step):
    """SB-070, SB-090, SB-091: in the queue and in its dead-letter queue."""
    queue = make_queue(max_delivery_count=2)
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    service_bus.abandon(queue, [m.lock_token for m in service_bus.receive(queue, 2)[:1]])
    service_bus.receive(queue)  # a again, its last allowed delivery
    sweeps.end_locks()
    assert [m.delivery_count for m in service_bus.peek(queue)] == [1, 0]
    step(MINUTE)
    sweeps.end_locks()
    assert [(m.body, m.delivery_count) for m in service_bus.peek(queue)] == [(b"b", 1)]
    assert [m.dead_letter_reason for m in service_bus.peek(queue.dead_letter)] == ["MaxDeliveryCountExceeded"]
    assert [e.kind for e in events(queue, 1)] == [1, 4, 7, 4, 12, 10]
    service_bus.receive(queue.dead_letter)
    step(MINUTE)
    sweeps.end_locks()
    (dead,) = service_bus.receive(queue.dead_letter)
    assert dead.delivery_count == 0  # SB-089
    assert ledger_agrees(queue)


def test_a_renewed_lock_is_not_ended(queue, step):
    service_bus.send(queue, [Message(b"a")])
    (held,) = service_bus.receive(queue)
    step(MINUTE - SECOND)
    service_bus.renew(queue, [held.lock_token])
    step(2 * SECOND)
    sweeps.end_locks()
    assert service_bus.complete(queue, [held.lock_token]).settled


def test_scheduled_messages_become_active_in_order_of_their_schedule(queue, step):
    """SB-047."""
    at = now(queue)
    service_bus.send(
        queue, [Message(t.encode(), scheduled_enqueue_at=at + s * SECOND) for t, s in (("c", 3), ("a", 1), ("b", 2), ("d", 9))]
    )
    step(3 * SECOND)
    sweeps.activate_scheduled()
    assert [(m.body, m.sequence_number) for m in service_bus.receive(queue, 9)] == [(b"a", 5), (b"b", 6), (b"c", 7)]
    assert [(e.kind, e.details) for e in events(queue, 2)][-1] == (3, {"to": 5})
    assert ledger_agrees(queue)


def test_two_concurrent_sweeps_process_each_message_once(make_queue, step):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    service_bus.send(queue, [Message(b"x", time_to_live=SECOND)] * 3000)
    step(MINUTE)
    barrier = threading.Barrier(3)

    def work():
        barrier.wait()
        for sweep in (expire, sweeps.end_locks, sweeps.activate_scheduled, sweeps.advance_heads, sweeps.roll_up_counts):
            sweep()
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(service_bus.peek(queue.dead_letter, max_count=5000)) == 3000
    assert sum(e.kind == 10 for e in events(queue)) == 3000
    assert ledger_agrees(queue)


def test_idleness_is_measured_only_by_the_namespaces_clock(make_queue, step):
    """A namespace whose clock was stopped a day ago: what the database's clock showed at a change does not count."""
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    connections.current().execute(
        "UPDATE vitrine_entity SET updated_at = updated_at + interval '1 day' WHERE id = %s", [entity_id(queue)]
    )
    step(timedelta(minutes=6))
    assert sweeps.delete_idle_entities() == {"deleted": [str(queue)]}


def test_an_idle_queue_is_deleted_and_reading_does_not_count_as_activity(make_queue, step):
    """SB-190, SB-194."""
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    step(timedelta(minutes=4))
    service_bus.send(queue, [Message(b"a")])  # activity
    step(timedelta(minutes=5))
    entities.get_queue(queue)
    sweeps.delete_idle_entities()
    assert bodies(service_bus.peek(queue)) == ["a"]  # activity is written every 20 s at most: never early
    step(timedelta(minutes=5, seconds=21))
    sweeps.delete_idle_entities()
    with pytest.raises(EntityNotFound):
        service_bus.peek(queue)


def test_a_waiting_receiver_keeps_its_queue(make_queue, step):
    """SB-195."""
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    waiter = threading.Thread(
        target=lambda: (service_bus.receive(queue, max_wait_seconds=1.5), connections.close_all_of_this_thread())
    )
    step(timedelta(minutes=6))
    waiter.start()
    until = lambda: connections.current().execute(  # noqa: E731
        "SELECT waiting_until > clock_timestamp() FROM vitrine_entity_activity WHERE entity_id = %s", [entity_id(queue)]
    )
    while not until().fetchone()[0]:
        pass
    step(timedelta(minutes=6))
    sweeps.delete_idle_entities()
    entities.get_queue(queue)
    waiter.join()


def test_scheduled_messages_prevent_idle_deletion(make_queue, step):
    """SB-918."""
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    service_bus.send(queue, [Message(b"a", scheduled_enqueue_at=now(queue) + timedelta(hours=2))])
    step(timedelta(hours=1))
    sweeps.delete_idle_entities()
    assert bodies(service_bus.peek(queue)) == ["a"]


def test_the_messages_of_a_deleted_queue_end_with_an_event(queue):
    """SB-240."""
    service_bus.send(queue, [Message(b"a")] * 700)
    number = entity_id(queue)
    entities.delete_queue(queue)
    sweeps.remove_deleted_entities()
    recorded_kinds = connections.current().execute(
        "SELECT kind, count(*) AS n FROM vitrine_message_event WHERE entity_id = %s GROUP BY 1 ORDER BY 1", [number]
    )
    assert [tuple(row) for row in recorded_kinds] == [(1, 700), (16, 700)]
    assert connections.current().execute("SELECT count(*) FROM vitrine_message WHERE entity_id = %s", [number]).fetchone()[0] == 0


def test_counts_are_folded_while_queues_are_removed_and_messages_are_sent(make_queue, monkeypatch):
    """Design D9. No two of them wait for each other: a deadlock would be told here, and not be tried again."""
    monkeypatch.setattr(driver, "_TRIES", 1)
    busy = make_queue()
    deltas = """
        INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
        SELECT e, 0, 10, now() + i * interval '1 s', 1, 4 FROM unnest(%s::bigint[]) AS e, generate_series(1, 40) AS i
         ORDER BY random()"""

    def write():
        for _ in range(5):
            service_bus.send(busy, [Message()] * 4)
            service_bus.complete(busy, [message.lock_token for message in service_bus.receive(busy, 2)])

    def forget():
        return sum(sweeps.remove_deleted_entities()["entities"] for _ in range(2))

    def all_at_once(*works):
        began = threading.Barrier(len(works))

        def begin(work):
            try:
                began.wait()
                return work()
            finally:
                connections.close_all_of_this_thread()

        with ThreadPoolExecutor() as threads:
            return list(threads.map(begin, works))

    for _ in range(12):
        gone = [make_queue() for _ in range(12)]
        ids = [entity_id(queue) for queue in gone]
        for _ in range(2):  # the second time, sums of them are there already
            sweeps.roll_up_counts()
            connections.current().execute(deltas, [ids])
        for queue in gone:
            entities.delete_queue(queue)
        all_at_once(sweeps.roll_up_counts, forget, write, sweeps.roll_up_counts)
        forget()
        left = "SELECT count(*) FROM vitrine_entity_activity WHERE entity_id = ANY (%s)"
        assert connections.current().execute(left, [ids]).fetchone()[0] == 0
    assert ledger_agrees(busy)


@pytest.mark.parametrize(
    ("level", "kinds"), [(HistoryLevel.OFF, []), (HistoryLevel.LIFECYCLE, [1, 6]), (HistoryLevel.FULL, [1, 4, 7, 4, 5, 6])]
)
def test_the_history_level_determines_the_recorded_events(make_queue, level, kinds):
    """Design D7."""
    queue = make_queue(history_level=level)
    service_bus.send(queue, [Message(b"a")])
    service_bus.abandon(queue, [service_bus.receive(queue)[0].lock_token])
    (held,) = service_bus.receive(queue)
    service_bus.renew(queue, [held.lock_token])
    service_bus.complete(queue, [held.lock_token])
    assert [e.kind for e in events(queue)] == kinds


def test_an_incorrect_ledger_is_found_reported_and_repaired(queue):
    """Design D9."""
    service_bus.send(queue, [Message(b"a")])
    connections.current().execute(
        "INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n) VALUES (%s, 0, 0, 5)", [entity_id(queue)]
    )
    differences = [d for d in sweeps.check_ledger()["differences"] if d["entity"] == str(queue)]
    assert differences == [{"entity": str(queue), "list": [0, 0], "ledger": 6, "present": 1}]
    assert ledger_agrees(queue)


def test_bounds_are_raised_only_where_messages_were_removed(make_queue):
    idle, busy = make_queue(), make_queue()
    for queue in (idle, busy):
        service_bus.send(queue, [Message(b"x")] * 3)
    service_bus.complete(busy, [message.lock_token for message in service_bus.receive(busy, 2)])
    text = "SELECT head, xmin::text FROM vitrine_queue_head WHERE entity_id = %s AND subqueue = 0"

    def bound(queue):
        return connections.current().execute(text, [entity_id(queue)]).fetchone()

    before = bound(idle)
    sweeps.advance_heads()
    assert bound(busy)[0] == 3 and bound(idle) == before
    assert sweeps.advance_heads() == {"heads": 0}
    service_bus.complete(busy, [message.lock_token for message in service_bus.receive(busy, 5)])
    assert sweeps.advance_heads() == {"heads": 1} and bound(busy)[0] == 4
