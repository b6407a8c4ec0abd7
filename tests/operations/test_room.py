"""What operations add to a namespace needs room in it, as a send does; what only replaces messages does not (SB-012)."""

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core import operations as core
from broker_core.common.errors import NamespaceFull, StorageFull
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind, State
from broker_core.rabbitmq import Publication, ToExchange, ToQueue
from broker_core.runtime import room
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer import operations
from explorer.operations.starting import start_import

OTTO = Actor("user", "otto", Right.ALL)
MB = 2**20
LARGE = 250_000

pytestmark = pytest.mark.usefixtures("fresh_room_check")


def start(kind, address, tab, family=Family.SERVICE_BUS, **how):
    return operations.start(kind, operations.selection(address, family, tab), actor=OTTO, **how)


def make_full(namespace):
    namespaces.update_namespace(namespace, max_size_in_megabytes=1)
    room.forget_rooms()


def dead(queue, count=5, size=LARGE):
    """Dead letters with the numbers 1 to count."""
    service_bus.send(queue, [Message(b"x" * size) for _ in range(count)])
    for message in service_bus.receive(queue, count):
        service_bus.dead_letter(queue, [message.lock_token], "Refused")


def rabbits(vhost, *names):
    """Queues, of which the first is full of messages."""
    addresses = [EntityAddress(vhost, name) for name in names]
    for address in addresses:
        rabbitmq.declare_queue(address)
    rabbitmq.publish(vhost, [Publication(b"x" * LARGE, routing_key=names[0]) for _ in range(5)])
    return addresses


def test_a_file_of_messages_is_refused_before_its_lines_are_stored(queue, full_disk):
    lines = {1: '{"message": {"body": "x"}}'}
    service_bus.send(queue, [Message(b"x" * LARGE) for _ in range(5)])
    make_full(queue.namespace)
    with pytest.raises(NamespaceFull):
        start_import(reads.entity(queue), lines, file="a.jsonl", actor=OTTO)
    namespaces.update_namespace(queue.namespace, max_size_in_megabytes=0)
    full_disk(60 * MB)
    with pytest.raises(StorageFull):
        start_import(reads.entity(queue), lines, file="a.jsonl", actor=OTTO)
    assert core.newest(entity_id=reads.entity(queue).id) == [] and reads.entity(queue).counts.active == 5


def test_a_file_of_messages_fails_when_the_namespace_is_full_and_can_be_resumed(queue, monkeypatch):
    """The lines were stored while there was room."""
    with monkeypatch.context() as patched:
        patched.setattr(operations.starting, "submit", lambda operation: None)
        patched.setattr(operations.starting, "DIRECT", 0)
        waits = start_import(reads.entity(queue), {1: '{"message": {"body": "x"}}'}, file="a.jsonl", actor=OTTO)
    service_bus.send(queue, [Message(b"x" * LARGE) for _ in range(5)])
    make_full(queue.namespace)
    operations.runner.run(waits, seconds=None)
    failed = core.find(waits.id)
    assert failed.state is State.FAILED and "has reached its size of 1 MB" in failed.message
    service_bus.receive_and_delete(queue, 5)
    room.forget_rooms()
    operations.change(failed, "resume", actor=OTTO)
    operations.runner.run(failed, seconds=None)
    assert core.find(waits.id).state is State.DONE and reads.entity(queue).counts.active == 1


def test_dead_letters_of_a_full_namespace_are_resubmitted_unless_they_become_larger(queue):
    dead(queue)
    make_full(queue.namespace)
    for larger in ({"body": b"y"}, {"properties": {"again": True}}):
        with pytest.raises(NamespaceFull):
            service_bus.resubmit(queue, [1], **larger)
    assert service_bus.resubmit(queue, [1]) == {1: 6}
    assert start(Kind.RESUBMIT, queue, "dead-letter").done == 4, "kept originals are not counted"


def test_repairs_need_room_for_the_new_bodies(queue):
    dead(queue)
    make_full(queue.namespace)
    failed = start(Kind.REPAIR, queue, "dead-letter", options={"body": "y"})
    assert failed.state is State.FAILED and "has reached its size" in failed.message
    assert reads.entity(queue).counts.dead_letter == 5


def test_kept_originals_need_the_reserve_of_the_disk_but_plain_moves_and_undos_do_not(queue, make_queue, full_disk):
    other = make_queue()
    dead(queue, 3, size=1)
    full_disk(10**9)
    done = start(Kind.RESUBMIT, queue, "dead-letter")
    full_disk(60 * MB)
    assert operations.change(done, "undo", actor=OTTO).undone == 3
    for kind, options in ((Kind.RESUBMIT, {}), (Kind.MOVE, {"to": other.path})):
        failed = start(kind, queue, "dead-letter", options=options)
        assert failed.state is State.FAILED and "40 MB more are free" in failed.message
    assert reads.entity(queue).counts.dead_letter == 3
    assert len(service_bus.move(queue.dead_letter, [1], other.path)[0]) == 1
    assert service_bus.resubmit(queue, [2])
    assert start(Kind.PURGE, queue, "dead-letter").done == 1


def test_a_move_within_a_full_namespace_is_refused_only_where_it_may_multiply(queue, make_queue):
    other, topic = make_queue(), EntityAddress(queue.namespace, "topic")
    entities.create_topic(topic)
    dead(queue)
    make_full(queue.namespace)
    with pytest.raises(NamespaceFull):
        service_bus.move(queue.dead_letter, [1], topic.path)
    assert service_bus.move(queue.dead_letter, [1], other.path) == ({1: [(reads.entity(other).id, 1)]}, {})
    assert reads.entity(queue).counts.dead_letter == 4


def test_storage_messages_move_within_a_full_account(account):
    a, b = EntityAddress(account, "aaa"), EntityAddress(account, "bbb")
    for address in (a, b):
        queue_storage.create_queue(address)
    for _ in range(30):
        queue_storage.put(a, "x" * 40_000)
    make_full(account)
    assert start(Kind.MOVE, a, "all", Family.QUEUE_STORAGE, options={"to": "bbb"}).done == 30


def test_rabbitmq_messages_move_within_a_full_vhost_unless_they_multiply(vhost):
    first, second, _ = rabbits(vhost, "first", "second", "third")
    rabbitmq.declare_exchange(vhost, "many", "fanout")
    rabbitmq.bind_queue(vhost, "second", "many")
    make_full(vhost)
    assert rabbitmq.move(first, ToExchange("many"), [1]).count == 1
    rabbitmq.bind_queue(vhost, "third", "many")
    with pytest.raises(NamespaceFull):
        rabbitmq.move(first, ToExchange("many"), [2])
    assert rabbitmq.move(first, ToQueue("second"), [2]).arrived == {"second": 1}
    assert (reads.entity(first).counts.active, reads.entity(second).counts.active) == (3, 2)
