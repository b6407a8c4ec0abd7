"""What is deleted in the very moment in which something goes to it."""

import threading

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EventKind
from broker_core.rabbitmq import Publication
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store import connections
from tests.broker_state import events
from tests.eventually import eventually

from .connected import query
from .shortcuts import OWNER, declare, present, send


@pytest.fixture
def two(vhost):
    """Two queues of a fan-out, `other` the second."""
    rabbitmq.declare_exchange(vhost, "fan", "fanout")
    first, other = declare(vhost, "first"), declare(vhost, "other")
    for address in (first, other):
        rabbitmq.bind_queue(vhost, address.path, "fan")
    return first, other


def while_deleting(target, act, delete=rabbitmq.delete_queue):
    """What `act` returns, in a thread, which has begun when the target's deletion is committed."""
    found, mine = [], connections.current()
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    thread = threading.Thread(target=lambda: (found.append(act()), connections.close_all_of_this_thread()))
    with mine.transaction():
        delete(target)
        thread.start()
        eventually(lambda: query(waiting, mine.info.backend_pid))
    thread.join(10)
    return found[0]


def test_a_publish_goes_to_the_remaining_queues(vhost, two):
    """RMQ-364"""
    first, other = two
    (published,) = while_deleting(other, lambda: rabbitmq.publish(vhost, [Publication(b"m", "fan")]))
    assert published.queues == (("first", 1),)
    assert present(first) == [1]


def test_a_publish_to_limited_queues_goes_to_the_remaining_queues(vhost, two):
    first, other = two
    limited = declare(vhost, "limited", max_length=1)
    rabbitmq.bind_queue(vhost, "limited", "fan")
    (published,) = while_deleting(other, lambda: rabbitmq.publish(vhost, [Publication(b"m", "fan")]))
    assert sorted(published.queues) == [("first", 1), ("limited", 1)]
    assert present(first) == present(limited) == [1]


def test_a_dead_letter_is_routed_to_the_remaining_queues(vhost, two):
    """RMQ-079: its event tells where it went, or why nowhere."""
    first, other = two
    q = declare(vhost, "q", dead_letter_exchange="fan")
    send(q, "a")
    held = rabbitmq.get(q, owner_id=OWNER)
    while_deleting(other, lambda: rabbitmq.reject(q, [held.token]))
    last = events(q)[-1]
    assert last.kind == EventKind.MOVED and [to["path"] for to in last.details["to"]] == ["first"]
    assert present(first) == [1]


def test_a_dead_letter_whose_only_queue_was_deleted_is_dropped_with_a_reason(vhost, two):
    first, other = two
    rabbitmq.delete_queue(first)
    q = declare(vhost, "q", dead_letter_exchange="fan")
    send(q, "a")
    held = rabbitmq.get(q, owner_id=OWNER)
    while_deleting(other, lambda: rabbitmq.reject(q, [held.token]))
    last = events(q)[-1]
    assert last.kind == EventKind.DROPPED and "does not route it to any queue" in last.details["description"]


def test_connecting_to_a_virtual_host_being_deleted_is_refused(vhost):
    """RMQ-396: a connection to what is no more could not even be closed."""
    send(declare(vhost, "q"), "a")  # its history keeps the row

    def connect():
        with pytest.raises(AmqpError) as refusal:
            rabbitmq.connect(vhost)
        return str(refusal.value)

    refusal = while_deleting(vhost, connect, delete=rabbitmq.delete_vhost)
    assert refusal == f"NOT_ALLOWED - vhost {vhost} not found"
    assert not query("SELECT FROM vitrine_connection")
    assert rabbitmq.recover_dead() == {}


def test_a_connection_closes_while_its_virtual_host_is_being_deleted(vhost):
    """RMQ-396: whoever ends it, too, is not told of a virtual host that was not found."""
    connection = rabbitmq.connect(vhost)
    while_deleting(vhost, connection.close, delete=rabbitmq.delete_vhost)
    assert not query("SELECT FROM vitrine_connection")
