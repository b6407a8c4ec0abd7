"""The traffic that the sweep adds up is exact against the events, at each step, per entity and namespace (docs/design.md D9)."""

import random
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from broker_core import queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, EventKind, HistoryLevel
from broker_core.reads import Times
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.broker_state import entity_id, now
from tests.rabbitmq import shortcuts

SECOND = timedelta(seconds=1)
K = EventKind
COUNTED = {  # the columns, by the events that they count
    "sent": {K.SENT, K.SCHEDULED},
    "received": {K.RECEIVED, K.RECEIVED_AND_DELETED},
    "completed": {K.COMPLETED, K.RECEIVED_AND_DELETED},
    "dead_lettered": {K.DEAD_LETTERED, K.MOVED},
    "expired": {K.EXPIRED},
    "abandoned": {K.ABANDONED},
}


def execute(sql, *params):
    return connections.current().execute(sql, params)


def fold():
    sweeps.roll_up_counts()


def stored(traffic_id, step=3600):
    """The traffic of an entity, or of a namespace by its negative id, by the start of the interval."""
    rows = execute("SELECT * FROM vitrine_traffic WHERE entity_id = %s AND step = %s", traffic_id, step).fetchall()
    return {row.bucket: row for row in rows}


def total(rows, column):
    return sum(getattr(row, column) for row in rows.values())


def namespace_id(name):
    return execute("SELECT id FROM vitrine_namespace WHERE name = %s", name).fetchone()[0]


def by_events(address):
    """The same columns, counted from the events of an entity, by their ten seconds."""
    rows = execute(
        "SELECT date_bin('10 s', recorded_at, 'epoch') AS bucket, kind, count(*) AS n FROM vitrine_message_event"
        " WHERE entity_id = %s GROUP BY 1, 2",
        entity_id(address),
    )
    results = {}
    for row in rows:
        for column, kinds in COUNTED.items():
            if row.kind in kinds:
                results[row.bucket, column] = results.get((row.bucket, column), 0) + row.n
        if row.kind == K.ACTIVATED:  # it was counted when it was scheduled
            results[row.bucket, "sent"] = results.get((row.bucket, "sent"), 0) - row.n
    return {at: n for at, n in results.items() if n}


def of_traffic(address):
    rows = stored(entity_id(address), 10)
    return {(at, column): n for at, row in rows.items() for column in COUNTED if (n := getattr(row, column))}


def service_bus_life(make_queue, step, seed):
    chance = random.Random(seed)
    queue = make_queue(max_delivery_count=3, dead_lettering_on_message_expiration=True)
    for _ in range(30):
        match chance.randrange(8):
            case 0 | 1 | 2:
                service_bus.send(queue, [Message(b"x", time_to_live=chance.choice([None, 5 * SECOND]))] * chance.randint(1, 5))
            case 3:
                service_bus.receive_and_delete(queue, chance.randint(1, 3))
            case 4:
                step(chance.randint(1, 90) * SECOND)
                sweeps.end_locks()
                sweeps.expire_messages(pause=lambda _: None)
            case 5:
                service_bus.send(queue, [Message(b"later", scheduled_enqueue_at=now(queue) + 20 * SECOND)])
                sweeps.activate_scheduled()
            case 6:
                for message in service_bus.receive(queue.dead_letter, 1):
                    service_bus.complete(queue.dead_letter, [message.lock_token])
            case 7:
                held = service_bus.receive(queue, 4)
                step(chance.randint(0, 3) * SECOND)
                for message in held:
                    settle = chance.choice(
                        [
                            service_bus.complete,
                            service_bus.complete,
                            service_bus.abandon,
                            service_bus.dead_letter,
                            service_bus.defer,
                        ]
                    )
                    settle(queue, [message.lock_token])
        if chance.random() < 0.2:
            fold()
    return queue


@pytest.mark.parametrize("seed", range(4))
def test_the_traffic_of_a_service_bus_queue_agrees_with_its_events(make_queue, step, seed):
    queue = service_bus_life(make_queue, step, seed)
    fold()
    assert of_traffic(queue) == by_events(queue)
    counts = reads.counts(queue)
    for of_step in (10, 60, 3600):
        rows = stored(entity_id(queue), of_step)
        assert all(at.timestamp() % of_step == 0 for at in rows)
        assert total(rows, "active_change") == counts.active
        assert total(rows, "dead_change") == counts.dead_letter
        for column in COUNTED:
            assert total(rows, column) == total(stored(entity_id(queue), 10), column)


def test_the_traffic_of_storage_and_rabbitmq_queues_agrees_with_their_events(account, vhost):
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs)
    for text in "abc":
        queue_storage.put(jobs, text)
    for message in queue_storage.get(jobs, 2):
        queue_storage.delete(jobs, message.message_id, message.pop_receipt)
    letters = shortcuts.declare(vhost, "letters", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = shortcuts.declare(vhost, "dead")
    shortcuts.send(letters, *"abcd")
    first, second, third = (shortcuts.get(letters) for _ in range(3))
    rabbitmq.acknowledge(letters, [first.token])
    rabbitmq.requeue(letters, [second.token])
    rabbitmq.reject(letters, [third.token])
    fold()
    for address in (jobs, letters, dead):
        assert of_traffic(address) == by_events(address)
    assert total(stored(entity_id(letters)), "dead_lettered") == 1
    assert total(stored(-namespace_id(vhost)), "sent") == 5  # the dead letter came into a queue, too


def test_times_are_those_of_the_completed_messages(queue, step):
    service_bus.send(queue, [Message(b"x")] * 3)
    step(4 * SECOND)
    held = service_bus.receive(queue, 2)
    step(2 * SECOND)
    service_bus.complete(queue, [message.lock_token for message in held])
    service_bus.receive_and_delete(queue, 1)
    fold()
    for row in (*stored(entity_id(queue), 10).values(), *stored(-namespace_id(queue.namespace)).values()):
        assert (row.waiting_sum, row.waiting_max, sum(row.waiting)) == pytest.approx((14, 6, 3))
        assert (row.processing_sum, row.processing_max, sum(row.processing)) == pytest.approx((4, 2, 3))
    [point] = [p for p in reads.traffic(queue) if p.completed]
    assert point.waiting.maximum == 6 * SECOND
    assert 5 * SECOND < point.waiting.percentile(0.95) <= 6 * SECOND
    assert point.processing.percentile(0.3) < timedelta(milliseconds=1)
    fold()
    assert sum(stored(entity_id(queue), 10).popitem()[1].waiting) == 3  # once


def test_a_late_transaction_is_neither_missed_nor_counted_twice(make_queue):
    late, early = make_queue(), make_queue()
    for queue in (late, early):
        service_bus.send(queue, [Message(b"x")])

    def counted(queue):
        return sum(sum(row.waiting) for row in stored(entity_id(queue)).values())

    with psycopg.connect(**connections.current_database().parameters()) as other:
        other.execute("BEGIN")
        other.execute(
            "INSERT INTO vitrine_message_event (at, entity_id, sequence_number, subqueue, kind, enqueued_at, first_received_at,"
            " last_received_at) VALUES (now(), %s, 1, 0, 6, now(), now(), now())",
            [entity_id(late)],
        )
        service_bus.receive_and_delete(early)
        fold()
        assert (counted(late), counted(early)) == (0, 0)  # the later transaction waits for the earlier one
        other.execute("COMMIT")
    fold()
    fold()
    assert (counted(late), counted(early)) == (1, 1)


def test_a_transaction_with_more_events_than_a_batch_does_not_stop_the_rest(queue, monkeypatch):
    monkeypatch.setattr(sweeps, "ROLL_UP_BATCH", 3)
    for _ in range(3):
        service_bus.send(queue, [Message(b"x")] * 10)
        service_bus.receive_and_delete(queue, 10)
    fold()
    assert sum(sum(row.waiting) for row in stored(entity_id(queue)).values()) == 30


def test_a_namespace_counts_copies_and_not_messages_of_its_topics(namespace):
    news = EntityAddress(namespace, "news")
    entities.create_topic(news)
    for name in ("all", "more"):
        entities.create_subscription(news.subscription(name))
    service_bus.send(news, [Message(b"x")] * 3)
    fold()
    assert total(stored(entity_id(news)), "sent") == 3
    assert total(stored(-namespace_id(namespace)), "sent") == 6
    assert total(stored(-namespace_id(namespace)), "active_change") == 6
    assert sum(p.sent for p in reads.namespace_traffic(namespace)) == 6


@pytest.mark.parametrize("minutes", [5, 60, 1440, 7 * 1440, 90 * 1440])
def test_each_range_includes_folded_and_unfolded_counts(queue, minutes):
    service_bus.send(queue, [Message(b"x")] * 5)
    service_bus.receive_and_delete(queue, 2)
    fold()
    service_bus.send(queue, [Message(b"x")] * 4)
    for points in (reads.traffic(queue, minutes), reads.namespace_traffic(queue.namespace, minutes)):
        assert len(points) <= 180
        assert len(points) * points[0].seconds >= minutes * 60
        assert (sum(p.sent for p in points), sum(p.completed for p in points)) == (9, 2)
        assert points[0].active == 0
        assert points[-1].active == 7
        assert points[-1].partial
        assert not points[0].partial
    assert reads.recent_traffic([entity_id(queue)])[entity_id(queue)].sent[-2:] in ((0, 9), (9, 0), (5, 4))


def test_traffic_is_retained_for_a_day_a_week_and_90_days(queue):
    service_bus.send(queue, [Message(b"x")])
    fold()
    number = entity_id(queue)
    for step, days in ((10, 1), (60, 7), (3600, 90)):
        for age in (timedelta(days=days) - timedelta(minutes=1), timedelta(days=days) + timedelta(seconds=2 * step)):
            at = int((datetime.now(UTC) - age).timestamp()) // step * step
            execute("INSERT INTO vitrine_traffic (entity_id, step, bucket) VALUES (%s, %s, to_timestamp(%s))", number, step, at)
    fold()
    assert [len(stored(number, step)) for step in (10, 60, 3600)] == [2, 2, 2]


def test_messages_of_a_deleted_queue_leave_the_totals_at_its_deletion(make_queue):
    gone, kept = make_queue(), make_queue()
    service_bus.send(gone, [Message(b"x")] * 3)
    service_bus.send(kept, [Message(b"x")] * 2)
    number = entity_id(gone)
    entities.delete_queue(gone)
    sweeps.remove_deleted_entities()
    rows = stored(-namespace_id(kept.namespace))
    assert (total(rows, "sent"), total(rows, "active_change")) == (5, 2)
    assert stored(number) == {}
    points = reads.namespace_traffic(kept.namespace)
    assert (points[0].active, points[-1].active) == (0, 2)


def test_a_queue_without_history_has_counts_and_no_times(make_queue):
    queue = make_queue(history_level=HistoryLevel.OFF)
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive_and_delete(queue)
    fold()
    rows = stored(entity_id(queue))
    assert (total(rows, "sent"), total(rows, "completed")) == (1, 1)
    assert all(row.waiting == [] for row in rows.values())


def test_percentiles_are_computed_from_the_histogram():
    none, half = Times(), Times(total=1.0, most=0.4, classes=(5, 0, 0, 5))
    assert (none.percentile(0.95), none.mean, none.maximum, none.count) == (None, None, None, 0)
    assert half.count == 10
    assert half.percentile(0.5) == timedelta(milliseconds=1)
    assert half.percentile(1) == timedelta(seconds=2**1.5 / 1000)  # the end of the class from 2 to 2.83 ms
    assert Times(classes=(0, 0, 1), most=0.0015).percentile(0.95) == timedelta(seconds=0.0015)  # never above the maximum
    assert (half + Times(total=1.0, most=0.6, classes=(0, 0, 0, 0, 2))).classes == (5, 0, 0, 5, 2)


def test_the_age_of_the_oldest_message_is_known_for_each_interval(make_queue):
    queue = make_queue()
    service_bus.send(queue, [Message(b"x"), Message(b"y")])
    fold()
    execute(
        "UPDATE vitrine_traffic SET bucket = bucket - interval '10 min', oldest_at = oldest_at - interval '10 min'"
        " WHERE entity_id = %s AND step < 3600",
        entity_id(queue),
    )
    for minutes in (5, 30):  # sent before the first interval, or within the range
        ages = [point.oldest for point in reads.traffic(queue, minutes)]
        assert timedelta(minutes=10) <= ages[-1] < timedelta(minutes=12)
        assert ages == sorted(ages) and (minutes == 5 or ages[0] == timedelta())
    service_bus.receive_and_delete(queue, 1)
    fold()
    assert reads.traffic(queue)[-1].oldest < timedelta(minutes=1)
    service_bus.receive_and_delete(queue, 1)
    assert reads.traffic(queue)[-1].oldest == timedelta()
    assert {point.oldest for point in reads.namespace_traffic(queue.namespace)} == {None}


def test_after_an_empty_queue_the_age_is_that_of_the_next_message(queue):
    """Also before the fold, and when the queue was empty within one interval."""
    service_bus.send(queue, [Message(b"a")])
    fold()
    make_older(queue, timedelta(minutes=60))
    service_bus.receive_and_delete(queue, 1)
    fold()
    make_older(queue, timedelta(minutes=30))
    service_bus.send(queue, [Message(b"b")])
    for minutes in (15, 30, 90, 180):
        assert reads.traffic(queue, minutes)[-1].oldest < timedelta(minutes=5)
    fold()
    for minutes in (15, 30, 90, 180):
        ages = [point.oldest for point in reads.traffic(queue, minutes)]
        assert ages[-1] < timedelta(minutes=5) and max(ages) < timedelta(minutes=61)


def test_a_fold_records_the_oldest_message_for_each_interval(queue):
    service_bus.send(queue, [Message(b"a")])
    execute("UPDATE vitrine_count_delta SET at = at - interval '10 min' WHERE entity_id = %s", entity_id(queue))
    execute("UPDATE vitrine_message SET enqueued_at = enqueued_at - interval '10 min' WHERE entity_id = %s", entity_id(queue))
    service_bus.send(queue, [Message(b"b")])
    fold()
    assert all(row.oldest_at is not None for row in stored(entity_id(queue), 10).values())
    service_bus.receive_and_delete(queue, 1)
    execute("UPDATE vitrine_count_delta SET at = at - interval '5 min' WHERE entity_id = %s", entity_id(queue))
    service_bus.send(queue, [Message(b"c")])
    fold()
    first, unknown, *_, last = [row.oldest_at for _, row in sorted(stored(entity_id(queue), 10).items())]
    assert first < last and unknown is None  # whether the first message, the second or none was there then


def test_with_delayed_messages_the_age_agrees_with_the_overview(account):
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs)
    queue_storage.put(jobs, "later", visibility_timeout=timedelta(hours=1))
    make_older_messages(jobs)
    fold()
    assert reads.traffic(jobs)[-1].oldest is None and reads.entity(jobs).oldest_active_age is None
    queue_storage.put(jobs, "now")
    for _ in range(2):
        assert reads.traffic(jobs)[-1].oldest < timedelta(minutes=5)
        assert reads.entity(jobs).oldest_active_age < timedelta(minutes=5)
        fold()


def make_older(address, age):
    """What is known of an entity's past, as if it were older."""
    execute(
        "UPDATE vitrine_traffic SET bucket = bucket - %s, oldest_at = oldest_at - %s WHERE entity_id = %s",
        age,
        age,
        entity_id(address),
    )


def make_older_messages(address):
    execute("UPDATE vitrine_message SET enqueued_at = enqueued_at - interval '2 h' WHERE entity_id = %s", entity_id(address))
