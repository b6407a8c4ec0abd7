"""Duplicate detection (SB-130 to SB-137)."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from broker_core import service_bus
from broker_core.common.errors import MessageTooLarge
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.broker_state import bodies, entity_id, events, ledger_agrees, now

MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue(make_queue):
    return make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=10 * MINUTE)


def named(body, message_id="id", **more):
    return Message(body, message_id=message_id, **more)


def test_a_duplicate_is_accepted_dropped_and_recorded_on_the_original(queue):
    """SB-130, SB-131, SB-931: by its id alone."""
    assert service_bus.send(queue, [named(b"first")]) == [1]
    assert service_bus.send(queue, [named(b"other body", properties={"n": 1})]) == [None]
    assert service_bus.send(queue, [named(b"next", "another")]) == [2]
    assert bodies(service_bus.receive(queue, 5)) == ["first", "next"]
    (told,) = [event for event in events(queue) if event.kind == 19]
    assert told.sequence_number == 1 and ledger_agrees(queue)


def test_the_window_begins_with_the_first_message_and_ends(queue, step):
    """SB-132: later duplicates do not extend it, and completing the first does not end it."""
    service_bus.send(queue, [named(b"1")])
    (message,) = service_bus.receive(queue, 1)
    service_bus.complete(queue, [message.lock_token])
    step(9 * MINUTE)
    assert service_bus.send(queue, [named(b"2")]) == [None]
    step(MINUTE)
    assert service_bus.send(queue, [named(b"3")]) == [2]
    assert service_bus.send(queue, [named(b"4")]) == [None]


def test_a_new_window_applies_immediately(queue, step):
    """SB-137."""
    service_bus.send(queue, [named(b"1")])
    step(MINUTE)
    entities.update_queue(queue, duplicate_detection_history_time_window=timedelta(seconds=30))
    assert service_bus.send(queue, [named(b"2")]) == [2]


def test_messages_without_their_own_id_are_never_duplicates(queue):
    """SB-134."""
    assert service_bus.send(queue, [Message(b"a"), Message(b"a")]) == [1, 2]


def test_duplicates_within_a_batch_are_dropped_and_the_other_messages_stored(queue):
    """SB-135, SB-924: no number is lost."""
    assert service_bus.send(queue, [named(b"a", "1"), named(b"b", "1"), named(b"c", "2"), named(b"d", "1")]) == [1, None, 2, None]
    assert bodies(service_bus.receive(queue, 5)) == ["a", "c"]


def test_scheduled_messages_are_checked_when_they_are_sent(queue, step):
    """SB-050, SB-136: in both directions."""
    later = now(queue) + MINUTE
    assert service_bus.send(queue, [named(b"scheduled", "1", scheduled_enqueue_at=later)]) == [1]
    assert service_bus.send(queue, [named(b"plain", "1")]) == [None]
    assert service_bus.send(queue, [named(b"plain", "2")]) == [2]
    assert service_bus.send(queue, [named(b"scheduled", "2", scheduled_enqueue_at=later)]) == [None]
    step(2 * MINUTE)
    assert sorted(bodies(service_bus.receive(queue, 5))) == ["plain", "scheduled"]


def test_a_refused_send_records_no_id(queue):
    """SB-137: what rolls back the send rolls back its ids."""
    with pytest.raises(MessageTooLarge):
        service_bus.send(queue, [named(b"x" * (256 * 1024 + 1))])
    assert service_bus.send(queue, [named(b"small")]) == [1]


def test_a_topic_detects_duplicates_for_all_its_subscriptions(namespace):
    """SB-133."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic, requires_duplicate_detection=True)
    where = topic.subscription("s")
    entities.create_subscription(where)
    assert service_bus.send(topic, [named(b"a"), named(b"b")]) == [1, None]
    assert service_bus.send(topic, [named(b"c")]) == [None]
    assert bodies(service_bus.receive(where, 5)) == ["a"]


def test_the_sweep_removes_ids_outside_the_window(queue, step):
    service_bus.send(queue, [named(b"x", str(i)) for i in range(20)])
    step(11 * MINUTE)
    service_bus.send(queue, [named(b"x", "new")])
    assert service_bus.sweeps.forget_seen_ids()["forgotten"] >= 20
    left = connections.current().execute("SELECT message_id FROM vitrine_seen_id WHERE entity_id = %s", [entity_id(queue)])
    assert [row[0] for row in left] == ["new"]


def test_the_sweep_neither_waits_for_nor_removes_an_id_in_use(queue, step):
    """SB-132, SB-137: a send of it is under way, inside a transaction of its caller's."""
    service_bus.send(queue, [named(b"old"), named(b"old", "other")])
    step(11 * MINUTE)
    with ThreadPoolExecutor(1) as other, connections.current().transaction():
        assert service_bus.send(queue, [named(b"anew")]) == [3]
        assert other.submit(service_bus.sweeps.forget_seen_ids).result(5)["forgotten"] >= 1  # the other one
    assert service_bus.send(queue, [named(b"duplicate")]) == [None]
