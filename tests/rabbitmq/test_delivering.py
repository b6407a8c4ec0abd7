"""Delivering, acknowledging, requeueing, rejecting, purging (RMQ-110 to RMQ-128, RMQ-160)."""

import threading

import pytest

from broker_core import rabbitmq, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind
from broker_core.rabbitmq.connections.connections import connect
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.rules.errors import AmqpError, InvalidPolicy
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import events

from . import shortcuts as r


def test_messages_are_delivered_first_in_first_out(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2, 3)
    assert r.texts(r.take(q, 2)) == ["1", "2"]
    assert r.text(r.get(q)) == "3"
    assert r.get(q) is None and r.take(q, 5) == []


def test_a_get_returns_the_number_of_remaining_messages(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2, 3)
    first = r.get(q)
    assert (r.text(first), first.redelivered, first.exchange, first.routing_key, first.message_count) == ("1", False, "", "q", 2)
    assert rabbitmq.get(q, no_ack=True).message_count == 1


def test_an_acknowledged_message_is_removed_once(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2)
    first, second = r.take(q, 2)
    report = rabbitmq.acknowledge(q, r.tokens(first))
    assert report.settled == ((first.token, 1),) and not report.lost
    assert rabbitmq.acknowledge(q, r.tokens(first)).lost == (first.token,)
    assert r.present(q) == [2] and r.ledger_agrees(q)
    rabbitmq.acknowledge(q, r.tokens(second))
    assert [e.kind for e in events(q, 2)] == [EventKind.SENT, EventKind.RECEIVED, EventKind.COMPLETED]


def test_a_token_of_an_earlier_delivery_settles_nothing(vhost):
    q = r.declare(vhost)
    r.send(q, 1)
    first = r.get(q)
    rabbitmq.requeue(q, r.tokens(first))
    second = r.get(q)
    assert second.token != first.token
    for settle in (rabbitmq.acknowledge, rabbitmq.requeue, rabbitmq.reject):
        assert settle(q, r.tokens(first)).lost == (first.token,)
    assert rabbitmq.acknowledge(q, r.tokens(second)).settled and r.ledger_agrees(q)


def test_acknowledging_in_a_deleted_queue_is_not_an_error(vhost):
    """RMQ-044"""
    q = r.declare(vhost)
    r.send(q, 1)
    held = r.get(q)
    rabbitmq.delete_queue(q)
    assert rabbitmq.acknowledge(q, r.tokens(held)).lost == (held.token,)
    assert rabbitmq.requeue(q, r.tokens(held)).lost == rabbitmq.reject(q, r.tokens(held)).lost == (held.token,)
    r.declare(vhost)  # another one of the name
    r.send(q, 2)
    assert rabbitmq.acknowledge(q, r.tokens(held)).lost == (held.token,)
    assert r.read_out(q) == ["2"]


def test_with_no_ack_a_message_is_removed_on_delivery(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2)
    deliveries = rabbitmq.take(q, 5, no_ack=True)
    assert r.texts(deliveries) == ["1", "2"] and r.tokens(*deliveries) == [None, None]
    assert r.present(q) == [] and r.ledger_agrees(q)
    assert [e.kind for e in events(q, 1)] == [EventKind.SENT, EventKind.RECEIVED_AND_DELETED]


def test_a_requeue_restores_the_position(vhost):
    """RMQ-116: five messages, three taken, the second and the first given back."""
    q = r.declare(vhost)
    r.send(q, 0, 1, 2, 3, 4)
    zero, first, second = r.take(q, 3)
    rabbitmq.requeue(q, r.tokens(first))
    rabbitmq.requeue(q, r.tokens(zero))
    assert r.ledger_agrees(q)
    assert r.read_out(q) == ["0", "1", "3", "4"]
    assert r.present(q) == [second.number]


def test_requeued_messages_keep_their_order(vhost):
    q = r.declare(vhost)
    r.send(q, 0, 1, 2)
    rabbitmq.requeue(q, r.tokens(*reversed(r.take(q, 3))))
    assert r.read_out(q) == ["0", "1", "2"]


def test_a_message_is_marked_as_redelivered_after_any_requeue(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2)
    first = r.get(q)
    rabbitmq.requeue(q, r.tokens(first), counts=False)
    again = r.take(q, 2)
    assert [d.redelivered for d in again] == [True, False]
    assert [d.delivery_count for d in again] == [0, 0]


def test_messages_of_an_ended_connection_are_requeued_in_order(vhost):
    """RMQ-123"""
    q, other = r.declare(vhost), r.declare(vhost, "other")
    r.send(q, 0, 1, 2, 3)
    r.send(other, "x")
    r.take(q, 3)
    r.take(other)
    kept = rabbitmq.take(q, 1, owner_id=r.OWNER + 1)
    assert run(delivering.release_owner(vhost, r.OWNER)) == 4
    assert [(r.text(d), d.redelivered) for d in r.take(q, 5)] == [("0", True), ("1", True), ("2", True)]
    assert r.get(other).redelivered
    assert rabbitmq.acknowledge(q, r.tokens(*kept)).settled
    assert r.ledger_agrees(q) and r.ledger_agrees(other)
    assert [e.kind for e in events(q, 1)][:3] == [EventKind.SENT, EventKind.RECEIVED, EventKind.LOCK_LOST]


def test_releasing_finds_held_messages_among_many(vhost):
    q = r.declare(vhost)
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="q")] * 700)
    r.take(q, 3)
    second = rabbitmq.take(q, 600, owner_id=r.OWNER + 1)
    assert run(delivering.release_owner(vhost, r.OWNER + 1)) == len(second) == 600
    assert run(delivering.release_owner(vhost, r.OWNER + 1)) == 0
    assert run(delivering.release_owner(vhost, r.OWNER)) == 3
    assert r.count(q) == 700 and r.ledger_agrees(q)


def test_only_a_quorum_queue_reports_the_delivery_count(vhost):
    """RMQ-120"""
    for q in (r.declare(vhost, "classic"), r.declare(vhost, "quorum", type="quorum")):
        r.send(q, 1, headers={"mine": "kept"})
        counts = []
        for _ in range(3):
            delivery = r.get(q)
            assert delivery.properties.headers["mine"] == "kept"
            counts.append(delivery.properties.headers.get("x-delivery-count"))
            rabbitmq.requeue(q, r.tokens(delivery))
        assert counts == ([0, 1, 2] if q.path == "quorum" else [None] * 3)


def test_a_consumer_gets_the_delivery_count_from_the_first_return_on(vhost):
    """RMQ-120"""
    q = r.declare(vhost, type="quorum")
    r.send(q, 1)
    counts = []
    for _ in range(3):
        (delivery,) = rabbitmq.take(q, 1, owner_id=r.OWNER)
        counts.append(delivery.properties.headers.get("x-delivery-count"))
        rabbitmq.requeue(q, r.tokens(delivery))
    assert counts == [None, 1, 2]


def test_a_delivery_limit_of_n_allows_n_plus_one_deliveries(vhost):
    """RMQ-121"""
    target = r.declare(vhost, "dead")
    q = r.declare(vhost, type="quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    r.send(q, 1)
    for seen in (0, 1, 2):
        delivery = r.get(q)
        assert delivery.delivery_count == seen
        rabbitmq.requeue(q, r.tokens(delivery))
    assert r.get(q) is None and r.present(q) == [] and r.ledger_agrees(q)
    dead = r.get(target)
    assert (r.deaths(dead)[0].reason, r.deaths(dead)[0].queue) == ("delivery_limit", "q")
    assert "x-delivery-count" not in dead.properties.headers  # RMQ-065


def test_without_a_dead_letter_exchange_the_delivery_limit_drops(vhost):
    q = r.declare(vhost, type="quorum", delivery_limit=0)
    r.send(q, 1)
    report = rabbitmq.requeue(q, r.tokens(r.get(q)))
    assert len(report.settled) == 1
    assert r.present(q) == [] and events(q, 1)[-1].kind == EventKind.DROPPED and events(q, 1)[-1].reason == "delivery_limit"


def test_a_quorum_queue_allows_twenty_returns_by_default(vhost):
    """RMQ-910: none for classic ones; -1 means none."""
    limits = {"classic": None, "quorum": 20, "unlimited": None}
    for name, most in limits.items():
        q = r.declare(
            vhost,
            name,
            type="classic" if name == "classic" else "quorum",
            **({"delivery_limit": -1} if name == "unlimited" else {}),
        )
        r.send(q, 1)
        deliveries = 0
        while deliveries < 25 and (delivery := r.get(q)):
            deliveries += 1
            rabbitmq.requeue(q, r.tokens(delivery))
        assert deliveries == (25 if most is None else most + 1)


def test_a_requeue_that_does_not_count_never_reaches_the_limit(vhost):
    """RMQ-122"""
    q = r.declare(vhost, type="quorum", delivery_limit=1)
    r.send(q, 1)
    for _ in range(4):
        rabbitmq.requeue(q, r.tokens(r.get(q)), counts=False)
    assert r.get(q).delivery_count == 0


def test_rejecting_without_a_dead_letter_exchange_drops(vhost):
    q = r.declare(vhost)
    r.send(q, 1, 2)
    first = r.get(q)
    assert rabbitmq.reject(q, r.tokens(first)).settled == ((first.token, 1),)
    assert rabbitmq.reject(q, r.tokens(first)).lost == (first.token,)
    assert r.present(q) == [2] and r.ledger_agrees(q)
    last = events(q, 1)[-1]
    assert (last.kind, last.reason, last.details) == (EventKind.DROPPED, "rejected", None)


def test_a_purge_keeps_unacknowledged_messages(vhost):
    """RMQ-028: and nothing is dead-lettered."""
    target = r.declare(vhost, "dead")
    q = r.declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="q")] * 600)
    held = r.take(q, 2)
    assert rabbitmq.purge_queue(q) == 598
    assert r.present(q) == [1, 2] and r.count(target) == 0 and r.ledger_agrees(q)
    assert events(q, 3)[-1].kind == EventKind.PURGED
    rabbitmq.requeue(q, r.tokens(*held))
    assert rabbitmq.purge_queue(q) == 2 and rabbitmq.purge_queue(q) == 0


def test_higher_priorities_are_delivered_first(vhost):
    """RMQ-160: above the most is the most, none is 0, first in first out within a level; the property stays as it is."""
    q = r.declare(vhost, max_priority=5)
    for priority in (None, 1, 9, 5, 0, 3):
        r.send(q, priority, priority=priority)
    deliveries = r.take(q, 4)
    assert r.texts(deliveries) == ["9", "5", "3", "1"]
    assert deliveries[0].properties.priority == 9
    rabbitmq.requeue(q, r.tokens(deliveries[1]))
    assert r.read_out(q) == ["5", "None", "0"]


def test_without_the_argument_priorities_are_ignored(vhost):
    """RMQ-161, RMQ-361"""
    q = r.declare(vhost, type="quorum")
    for priority in (1, 9):
        r.send(q, priority, priority=priority)
    assert r.read_out(q) == ["1", "9"]


def test_priorities_cannot_be_set_by_a_policy(vhost):
    """RMQ-162"""
    with pytest.raises(InvalidPolicy, match="not recognised policy settings"):
        r.policy(vhost, max_priority=5)


def test_a_missing_queue_is_not_found(vhost):
    gone = EntityAddress(vhost, "gone")
    for call in (lambda: r.get(gone), lambda: r.take(gone), lambda: rabbitmq.purge_queue(gone)):
        with pytest.raises(AmqpError, match=f"NOT_FOUND - no queue 'gone' in vhost '{vhost}'"):
            call()


def test_a_queue_that_was_deleted_and_declared_again_is_found(vhost):
    q = r.declare(vhost)
    r.send(q, 1)
    assert r.text(r.get(q)) == "1"
    rabbitmq.delete_queue(q)
    with pytest.raises(AmqpError, match="NOT_FOUND"):
        r.get(q)
    r.declare(vhost)
    r.send(q, 2)
    assert r.text(r.get(q)) == "2"


def test_an_exclusive_queue_is_delivered_to_its_connection_alone(vhost):
    q = EntityAddress(vhost, "mine")
    with connect(vhost) as connection:
        connection.channel().declare_queue("mine", exclusive=True)
        r.send(q, 1)  # RMQ-330: anybody may
        for call in (
            lambda: rabbitmq.get(q, owner_id=connection.id + 1),
            lambda: rabbitmq.take(q, owner_id=connection.id + 1),
            lambda: rabbitmq.purge_queue(q),
        ):
            with pytest.raises(AmqpError, match="RESOURCE_LOCKED"):
                call()
        assert r.text(rabbitmq.get(q, owner_id=connection.id)) == "1"


def test_a_delivery_with_acknowledgement_requires_an_owner(vhost):
    with pytest.raises(InvalidArgument, match="^owner_id"):
        rabbitmq.take(r.declare(vhost), 1)


def test_events_name_the_actor(vhost):
    q = r.declare(vhost)
    r.send(q, 1)
    delivery = rabbitmq.get(q, owner_id=r.OWNER, holder="a client")
    rabbitmq.acknowledge(q, r.tokens(delivery), actor=Actor.local("worker"))
    assert [e.actor for e in events(q, 1)][1:] == ["a client", "process:worker"]


def test_two_consumers_never_get_the_same_message(vhost):
    q = r.declare(vhost)
    rabbitmq.publish(vhost, [rabbitmq.Publication(str(i).encode(), routing_key="q") for i in range(400)])
    got, failures = [], []

    def consume(owner):
        try:
            idle = 0
            while idle < 3:
                deliveries = rabbitmq.take(q, 7, owner_id=owner)
                idle = 0 if deliveries else idle + 1
                back, kept = ([], deliveries) if len(deliveries) < 5 else (deliveries[:2], deliveries[2:])
                rabbitmq.requeue(q, r.tokens(*back), counts=False)
                rabbitmq.acknowledge(q, r.tokens(*kept))
                got.extend(r.texts(kept))
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=consume, args=(r.OWNER + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rest = r.read_out(q)
    assert sorted(got + rest, key=int) == [str(i) for i in range(400)]
    assert r.ledger_agrees(q)


def test_effects_of_a_policy_apply_immediately(vhost):
    """What a process remembers of the topology never decides about a limit."""
    q = r.declare(vhost)
    r.send(q, 1, 2, 3)
    r.policy(vhost, max_length=2)
    r.send(q, 4)
    assert r.read_out(q) == ["3", "4"]


def test_held_messages_count_once_in_the_size_of_a_queue(vhost):
    q = r.declare(vhost)
    r.send(q, 12, 345)
    r.take(q, 1)
    assert reads.entity(q).size_bytes == 5 and r.ledger_agrees(q)
