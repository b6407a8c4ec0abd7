"""The oldest message of each state of an entity (reads.oldest_messages), in all families."""

import sys
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, reads, service_bus
from broker_core.common.errors import EntityNotFound, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import StoredState
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.fixtures import account, broker_database, make_queue, namespace, vhost  # noqa: F401 - fixtures
from tests.rabbitmq.shortcuts import declare, send, take

MINUTE = timedelta(minutes=1)


def found(address):
    """By state: the number of the oldest message, and how many minutes ago, or ahead if negative, its instant is."""
    now = reads.now(address.namespace).now
    return {row.state: (row.sequence_number, (now - row.at) / MINUTE) for row in reads.oldest_messages(address)}


def a_minute_passes(address, minutes=1):
    namespaces.step_clock(address.namespace, timedelta(minutes=minutes))


@pytest.fixture
def orders(make_queue):  # noqa: F811
    return make_queue(lock_duration=timedelta(minutes=5))


def test_active_messages_age_from_their_enqueueing(orders):
    assert found(orders) == {}
    service_bus.send(orders, [Message()])
    a_minute_passes(orders)
    service_bus.send(orders, [Message()])
    a_minute_passes(orders)
    assert found(orders) == {StoredState.ACTIVE: (1, 2)}


def test_a_locked_message_ages_from_its_receive_and_a_renewal_changes_nothing(orders):
    service_bus.send(orders, [Message()] * 3)
    [first] = service_bus.receive(orders, 1)
    a_minute_passes(orders)
    service_bus.receive(orders, 1)
    service_bus.renew(orders, [first.lock_token])
    a_minute_passes(orders)
    assert found(orders) == {StoredState.ACTIVE: (3, 2), StoredState.LOCKED: (1, 2)}
    a_minute_passes(orders, 10)
    assert found(orders) == {StoredState.ACTIVE: (1, 12)}, "no lock lasts so long"


def test_of_scheduled_messages_the_next_one_is_meant(orders):
    now = reads.now(orders.namespace).now
    service_bus.send(orders, [Message(scheduled_enqueue_at=now + minutes * MINUTE) for minutes in (9, 5, 7)])
    assert found(orders) == {StoredState.SCHEDULED: (2, -5)}


def test_deferred_and_dead_lettered_messages_and_their_locks_are_told_apart(orders):
    service_bus.send(orders, [Message()] * 4)
    a_minute_passes(orders)
    later, bad, worse, _ = service_bus.receive(orders, 4)
    service_bus.dead_letter(orders, [worse.lock_token], "Broken")
    a_minute_passes(orders)
    service_bus.dead_letter(orders, [bad.lock_token], "Broken")
    service_bus.defer(orders, [later.lock_token])
    a_minute_passes(orders)
    assert found(orders) == {
        StoredState.LOCKED: (4, 2), StoredState.DEFERRED: (1, 3), StoredState.DEAD_LETTER: (3, 2),
    }  # fmt: skip
    service_bus.receive_deferred(orders, [1])
    service_bus.receive(orders.dead_letter, 1)
    assert found(orders)[StoredState.LOCKED] == (4, 2), "a locked deferred message or dead letter is in another list"


def test_dead_letters_that_cannot_be_forwarded_are_a_state_of_their_own(make_queue):  # noqa: F811
    graveyard = make_queue()
    queue = make_queue(forward_dead_lettered_messages_to=graveyard.path)
    entities.delete_queue(graveyard)
    service_bus.send(queue, [Message()])
    [message] = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [message.lock_token], "why")
    a_minute_passes(queue)
    assert {state: at for state, (_, at) in found(queue).items()} == {StoredState.TRANSFER_DEAD_LETTER: 1}


def test_a_topic_has_scheduled_messages_and_a_subscription_has_its_copies(namespace):  # noqa: F811
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    due = reads.now(namespace).now + 5 * MINUTE
    service_bus.send(topic, [Message(), Message(scheduled_enqueue_at=due)])
    assert {state: at for state, (_, at) in found(topic).items()} == {StoredState.SCHEDULED: -5}
    assert set(found(topic.subscription("all"))) == {StoredState.ACTIVE}


def test_a_storage_queue_has_visible_leased_delayed_and_expired_messages(account):  # noqa: F811
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs, expiry_grace=timedelta(hours=1))
    queue_storage.put(jobs, "short", time_to_live=2 * MINUTE)
    queue_storage.put_all(jobs, ["one", "two", "three"])
    queue_storage.put(jobs, "later", visibility_timeout=30 * MINUTE)
    queue_storage.put(jobs, "soon", visibility_timeout=20 * MINUTE)
    first = queue_storage.get(jobs, 2, visibility_timeout=10 * MINUTE)
    assert len(first) == 2
    a_minute_passes(jobs)
    queue_storage.get(jobs, 1, visibility_timeout=10 * MINUTE)
    assert {state: at for state, (_, at) in found(jobs).items()} == {
        StoredState.ACTIVE: 1, StoredState.LOCKED: 1, StoredState.SCHEDULED: -19,
    }  # fmt: skip
    a_minute_passes(jobs, 2)
    assert {state: at for state, (_, at) in found(jobs).items()} == {
        StoredState.ACTIVE: 3, StoredState.LOCKED: 3, StoredState.SCHEDULED: -17, StoredState.EXPIRED: 1,
    }  # fmt: skip


def test_a_rabbitmq_queue_has_ready_unacknowledged_and_expired_messages(vhost):  # noqa: F811
    mail = declare(vhost, "mail", message_ttl=10 * 60_000)
    send(mail, "a", "b")
    take(mail, 1)
    a_minute_passes(mail)
    assert found(mail) == {StoredState.ACTIVE: (2, 1), StoredState.LOCKED: (1, 1)}
    send(mail, "c", expiration="60000")
    a_minute_passes(mail, 2)
    assert found(mail) == {StoredState.ACTIVE: (2, 3), StoredState.LOCKED: (1, 3), StoredState.EXPIRED: (3, 1)}
    a_minute_passes(mail, 10)
    assert found(mail) == {StoredState.LOCKED: (1, 13), StoredState.EXPIRED: (3, 11)}, "an unacknowledged one does not expire"


def test_a_state_of_none_of_the_examined_messages_is_left_out(orders, monkeypatch):
    service_bus.send(orders, [Message()] * 4)
    service_bus.receive(orders, 3)
    monkeypatch.setattr(sys.modules["broker_core.reads.oldest_messages"], "EXAMINED", 2)
    assert set(found(orders)) == {StoredState.LOCKED}


def test_it_requires_the_right_to_browse_and_an_entity(orders):
    with pytest.raises(NotAuthorized):
        reads.oldest_messages(orders, actor=Actor("user", "nobody", Right(0)))
    with pytest.raises(EntityNotFound):
        reads.oldest_messages(EntityAddress(orders.namespace, "nothing"))
