"""Deleted entities are soft-deleted, and can be restored for 30 minutes with their messages (docs/design.md D21)."""

import threading
from datetime import timedelta

import pytest

from broker_core import namespaces, operations, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.errors import EntityNotFound, LockLost, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind, State
from broker_core.rabbitmq import Publication
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import Rule, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.broker_state import bounds_hold
from tests.fixtures import account, broker_database, make_queue, namespace, queue, vhost  # noqa: F401 - fixtures

ADA = Actor("user", "ada", Right.ALL)
LATER = "UPDATE vitrine_soft_deleted SET until = now() - interval '1 s'"


def delete(address):
    number = operations.new_number()
    entities.delete_entity(address, operation_id=number, actor=ADA)
    return number


def restore(address, number, actor=ADA):
    return operations.restore(address.namespace, number, actor=actor)


def sweep():
    return sweeps.remove_deleted_entities()


def test_a_restored_queue_has_its_messages_and_numbers(queue):  # noqa: F811
    service_bus.send(queue, [Message(b"1"), Message(b"2"), Message(b"3")])
    [first] = service_bus.receive(queue)
    service_bus.dead_letter(queue, first.lock_token, "invalid")
    entity_id = reads.entity(queue).id
    number = delete(queue)
    sweep()
    operation = restore(queue, number)
    assert (operation.state, operation.done, operation.undone) == (State.UNDONE, 3, 3)
    entity = reads.entity(queue)
    assert entity.id == entity_id and (entity.counts.active, entity.counts.dead_letter) == (2, 1)
    assert service_bus.send(queue, [Message(b"4")]) == [4]
    assert [message.body for message in service_bus.receive(queue, 5)] == [b"2", b"3", b"4"]
    assert sweeps.check_ledger()["differences"] == []
    assert bounds_hold(queue)


def test_clients_see_it_as_deleted_at_once_and_its_name_is_free(queue):  # noqa: F811
    service_bus.send(queue, [Message(b"old")])
    [locked] = service_bus.receive(queue)
    before = reads.entity(queue).id
    delete(queue)
    for call in (
        lambda: service_bus.send(queue, [Message()]),
        lambda: service_bus.receive(queue),
        lambda: service_bus.complete(queue, locked.lock_token),
        lambda: reads.entity(queue),
    ):
        with pytest.raises(EntityNotFound):
            call()
    entities.create_queue(queue)
    assert reads.entity(queue).id != before and service_bus.receive(queue) == []


def test_locks_held_at_deletion_have_ended_and_count_as_failed(queue):  # noqa: F811
    service_bus.send(queue, [Message()])
    [locked] = service_bus.receive(queue)
    restore(queue, delete(queue))
    with pytest.raises(LockLost):
        service_bus.complete(queue, locked.lock_token)
    [again] = service_bus.receive(queue)
    assert again.delivery_count == locked.delivery_count + 1 == 1
    assert sweeps.check_ledger()["differences"] == []


def test_sessions_are_unlocked(make_queue):  # noqa: F811
    address = make_queue(requires_session=True)
    service_bus.send(address, [Message(b"a", session_id="s")])
    service_bus.accept_session(address, "s")
    restore(address, delete(address))
    assert service_bus.accept_session(address, "s", max_count=1).messages[0].body == b"a"


def test_time_to_live_goes_on(queue):  # noqa: F811
    namespaces.pause_clock(queue.namespace)
    service_bus.send(queue, [Message(b"short", time_to_live=timedelta(minutes=5)), Message(b"long")])
    number = delete(queue)
    namespaces.step_clock(queue.namespace, timedelta(minutes=6))
    restore(queue, number)
    assert [message.body for message in service_bus.receive(queue, 5)] == [b"long"]


def test_after_its_time_it_is_removed_and_cannot_be_restored(queue):  # noqa: F811
    service_bus.send(queue, [Message()])
    number = delete(queue)
    assert sweep() == {"messages": 0, "entities": 0}, "its time is not over"
    connections.current().execute(LATER)
    connections.current().execute("UPDATE vitrine_operation SET kept_until = now() - interval '1 s' WHERE id = %s", [number])
    with pytest.raises(NotAllowed, match="could be restored for 30 minutes"):
        restore(queue, number)
    assert sweep() == {"messages": 1, "entities": 1}


def test_it_is_not_restored_while_another_entity_has_the_name(queue):  # noqa: F811
    number = delete(queue)
    entities.create_queue(queue)
    with pytest.raises(NotAllowed, match="another entity has this name now"):
        restore(queue, number)
    entities.delete_queue(queue)
    assert restore(queue, number).state is State.UNDONE


def test_it_is_restored_once(queue):  # noqa: F811
    number = delete(queue)
    restore(queue, number)
    with pytest.raises(NotAllowed, match="already undone"):
        restore(queue, number)


def test_restoring_requires_the_right_to_manage(queue):  # noqa: F811
    number = delete(queue)
    with pytest.raises(NotAuthorized):
        restore(queue, number, actor=Actor("user", "otto", Right.BROWSE | Right.OPERATE))


def test_a_deletion_of_a_program_is_final(queue):  # noqa: F811
    service_bus.send(queue, [Message()])
    entities.delete_queue(queue)
    assert sweep() == {"messages": 1, "entities": 1}


def test_a_topic_returns_with_its_subscriptions_rules_and_keys(namespace):  # noqa: F811
    news = EntityAddress(namespace, "news")
    entities.create_topic(news)
    red = entities.create_subscription(news.subscription("red"), rule=Rule("red", compile_filter("color = 'red'"))).address
    shared_access.create_policy(news, "reader", send=False, listen=True)
    service_bus.send(news, [Message(b"1", properties={"color": "red"}), Message(b"2")])
    number = delete(news)
    sweep()
    restore(news, number)
    service_bus.send(news, [Message(b"3", properties={"color": "red"}), Message(b"4")])
    assert [message.body for message in service_bus.receive(red, 5)] == [b"1", b"3"]
    assert [policy.name for policy in shared_access.list_policies(news)] == ["reader"]


def test_a_subscription_is_not_restored_without_its_topic(namespace):  # noqa: F811
    news = EntityAddress(namespace, "news")
    entities.create_topic(news)
    entities.create_subscription(news.subscription("all"))
    number = delete(news.subscription("all"))
    topic = delete(news)
    with pytest.raises(NotAllowed, match="its topic 'news' was deleted"):
        restore(news, number)
    restore(news, topic)
    restore(news, number)
    service_bus.send(news, [Message(b"1")])
    assert len(service_bus.receive(news.subscription("all"))) == 1


def test_what_was_discarded_before_can_be_undone_after_the_restoration(queue):  # noqa: F811
    service_bus.send(queue, [Message()])
    number = delete(queue)
    [operation] = operations.newest(entity_id=operations.find(number).entity_id, undoable=True)
    assert (operation.kind, operation.can_be_undone) == (Kind.DELETE, True)
    restore(queue, number)
    assert operations.newest(entity_id=operation.entity_id, undoable=True) == []


def test_deleting_the_namespace_gives_it_up(queue):  # noqa: F811
    service_bus.send(queue, [Message()])
    number = delete(queue)
    assert [operation.id for operation in operations.newest(undoable=True)] == [number]
    namespaces.delete_namespace(queue.namespace)
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    assert not operations.newest(undoable=True), "also in a new namespace of this name"
    with pytest.raises(NotAllowed, match="could be restored for 30 minutes"):
        restore(queue, number)
    assert sweep() == {"messages": 1, "entities": 1}


def test_a_storage_queue(account):  # noqa: F811
    letters = EntityAddress(account, "letters")
    queue_storage.create_queue(letters)
    queue_storage.put(letters, "1")
    queue_storage.put(letters, "later", visibility_timeout=timedelta(hours=1))
    [got] = queue_storage.get(letters)
    number = operations.new_number()
    queue_storage.delete_queue(letters, operation_id=number, actor=ADA)
    sweep()
    restore(letters, number)
    [again] = queue_storage.get(letters, 5)
    assert (again.text, again.dequeue_count) == ("1", 2) and again.pop_receipt != got.pop_receipt
    assert sweeps.check_ledger()["differences"] == []


def test_a_queue_of_rabbitmq_returns_with_its_bindings(vhost):  # noqa: F811
    tasks = EntityAddress(vhost, "tasks")
    rabbitmq.declare_queue(tasks)
    rabbitmq.declare_exchange(vhost, "jobs", "direct")
    rabbitmq.bind_queue(vhost, "tasks", "jobs", "build")
    rabbitmq.publish(vhost, [Publication(b"1", "jobs", "build"), Publication(b"2", "jobs", "build")])
    channel = rabbitmq.connect(vhost).channel()
    channel.get("tasks")
    number = operations.new_number()
    rabbitmq.delete_queue(tasks, operation_id=number, actor=ADA)
    sweep()
    restore(tasks, number)
    rabbitmq.publish(vhost, [Publication(b"3", "jobs", "build")])
    taken = rabbitmq.take(tasks, 5, no_ack=True)
    assert [(delivery.body, delivery.redelivered) for delivery in taken] == [(b"1", True), (b"2", False), (b"3", False)]
    assert sweeps.check_ledger()["differences"] == []


def test_an_exclusive_queue_cannot_be_restored(vhost):  # noqa: F811
    connection, own = rabbitmq.connect(vhost), EntityAddress(vhost, "own")
    rabbitmq.declare_queue(own, exclusive=True, owner_id=connection.id)
    number = operations.new_number()
    rabbitmq.delete_queue(own, owner_id=connection.id, operation_id=number)
    assert operations.find(number) is None


def test_deleting_and_restoring_while_messages_are_received_loses_none(queue):  # noqa: F811
    """Receivers complete what they get; each message is completed once, or is there at the end."""
    numbers = service_bus.send(queue, [Message(str(number).encode()) for number in range(200)])
    completed, is_over = [], threading.Event()

    def receive():
        while not is_over.is_set():
            try:
                for message in service_bus.receive(queue, 3):
                    service_bus.complete(queue, message.lock_token)
                    completed.append(message.sequence_number)
            except (EntityNotFound, LockLost):
                continue
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        restore(queue, delete(queue))
    is_over.set()
    for thread in threads:
        thread.join()
    left = [message.sequence_number for message in reads.list_messages(queue).rows]
    assert len(completed) == len(set(completed)) and not set(completed) & set(left)
    assert reads.entity(queue).counts.active == len(numbers) - len(completed)
    assert sweeps.check_ledger()["differences"] == []
