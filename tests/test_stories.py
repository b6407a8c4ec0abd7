"""One story of each family, for `make test-quick`: a message that fails, is dead-lettered, goes back and is done."""

from datetime import timedelta

from broker_core import queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, EventKind
from broker_core.rabbitmq import Publication
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.broker_state import events, ledger_agrees
from tests.fixtures import *  # noqa: F403

OWNER = 1_000_001  # a connection, as far as messages know it


def kinds(address, number):
    return [EventKind(event.kind) for event in events(address, number)]


def test_service_bus_a_message_fails_twice_is_resubmitted_and_completed(namespace):
    """SB-091, SB-105"""
    queue = EntityAddress(namespace, "orders")
    entities.create_queue(queue, max_delivery_count=2)
    service_bus.send(queue, [Message(b"order 4711")])
    for _ in range(2):
        [message] = service_bus.receive(queue)
        service_bus.abandon(queue, message.lock_token)
    assert service_bus.receive(queue) == []
    [dead_letter] = service_bus.peek(queue.dead_letter)
    assert dead_letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert service_bus.resubmit(queue, [1]) == {1: 2}
    [message] = service_bus.receive(queue)
    service_bus.complete(queue, message.lock_token)
    assert kinds(queue, 2)[-2:] == [EventKind.RECEIVED, EventKind.COMPLETED]
    assert ledger_agrees(queue)


def test_queue_storage_a_message_becomes_poison_is_requeued_and_deleted(account):
    queue = EntityAddress(account, "pictures")
    queue_storage.create_queue(queue, max_dequeue_count=1)
    queue_storage.put(queue, "picture")
    [message] = queue_storage.get(queue, visibility_timeout=timedelta(seconds=30))
    queue_storage.update(queue, message.message_id, message.pop_receipt, visibility_timeout=timedelta(0))
    assert queue_storage.get(queue) == []
    poison = EntityAddress(account, "pictures-poison")
    assert [message.text for message in queue_storage.peek(poison)] == ["picture"]
    assert queue_storage.requeue_poison(poison, [1]) == {1: 2}
    [message] = queue_storage.get(queue)
    queue_storage.delete(queue, message.message_id, message.pop_receipt)
    assert queue_storage.peek(queue) == queue_storage.peek(poison) == []
    assert ledger_agrees(queue) and ledger_agrees(poison)


def test_rabbitmq_a_message_is_rejected_dead_lettered_and_acknowledged(vhost):
    """RMQ-060"""
    letters, dead = EntityAddress(vhost, "letters"), EntityAddress(vhost, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    rabbitmq.declare_queue(letters, arguments=arguments)
    rabbitmq.declare_queue(dead)
    rabbitmq.publish(vhost, [Publication(b"letter", "", "letters")])
    [delivery] = rabbitmq.take(letters, 1, owner_id=OWNER)
    rabbitmq.reject(letters, [delivery.token])
    [delivery] = rabbitmq.take(dead, 1, owner_id=OWNER)
    assert bytes(delivery.body) == b"letter"
    assert delivery.properties.headers["x-first-death-reason"] == "rejected"
    rabbitmq.acknowledge(dead, [delivery.token])
    assert rabbitmq.take(letters, 1, owner_id=OWNER) == rabbitmq.take(dead, 1, owner_id=OWNER) == []
    assert ledger_agrees(letters) and ledger_agrees(dead)
