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
from tests.looking import events

from .rabbits import (
    OWNER,
    count,
    deaths,
    declare,
    get,
    ledger_agrees,
    policy,
    present,
    read_out,
    send,
    take,
    text,
    texts,
    tokens,
)


def test_first_in_first_out(vhost):
    q = declare(vhost)
    send(q, 1, 2, 3)
    assert texts(take(q, 2)) == ["1", "2"]
    assert text(get(q)) == "3"
    assert get(q) is None and take(q, 5) == []


def test_a_get_says_what_is_left(vhost):
    q = declare(vhost)
    send(q, 1, 2, 3)
    first = get(q)
    assert (text(first), first.redelivered, first.exchange, first.routing_key, first.message_count) == ("1", False, "", "q", 2)
    assert rabbitmq.get(q, no_ack=True).message_count == 1


def test_what_is_acknowledged_is_gone_once(vhost):
    q = declare(vhost)
    send(q, 1, 2)
    first, second = take(q, 2)
    report = rabbitmq.acknowledge(q, tokens(first))
    assert report.settled == ((first.token, 1),) and not report.lost
    assert rabbitmq.acknowledge(q, tokens(first)).lost == (first.token,)
    assert present(q) == [2] and ledger_agrees(q)
    rabbitmq.acknowledge(q, tokens(second))
    assert [e.kind for e in events(q, 2)] == [EventKind.SENT, EventKind.RECEIVED, EventKind.COMPLETED]


def test_acknowledging_in_a_queue_that_is_gone_is_no_error(vhost):
    """RMQ-044"""
    q = declare(vhost)
    send(q, 1)
    held = get(q)
    rabbitmq.delete_queue(q)
    assert rabbitmq.acknowledge(q, tokens(held)).lost == (held.token,)
    assert rabbitmq.requeue(q, tokens(held)).lost == rabbitmq.reject(q, tokens(held)).lost == (held.token,)
    declare(vhost)  # another one of the name
    send(q, 2)
    assert rabbitmq.acknowledge(q, tokens(held)).lost == (held.token,)
    assert read_out(q) == ["2"]


def test_without_acknowledgement_it_is_removed_when_sent(vhost):
    q = declare(vhost)
    send(q, 1, 2)
    found = rabbitmq.take(q, 5, no_ack=True)
    assert texts(found) == ["1", "2"] and tokens(*found) == [None, None]
    assert present(q) == [] and ledger_agrees(q)
    assert [e.kind for e in events(q, 1)] == [EventKind.SENT, EventKind.RECEIVED_AND_DELETED]


def test_a_requeue_restores_the_position(vhost):
    """RMQ-116: five messages, three taken, the second and the first given back."""
    q = declare(vhost)
    send(q, 0, 1, 2, 3, 4)
    zero, one, two = take(q, 3)
    rabbitmq.requeue(q, tokens(one))
    rabbitmq.requeue(q, tokens(zero))
    assert ledger_agrees(q)
    assert read_out(q) == ["0", "1", "3", "4"]
    assert present(q) == [two.number]


def test_all_requeued_keep_their_order(vhost):
    q = declare(vhost)
    send(q, 0, 1, 2)
    rabbitmq.requeue(q, tokens(*reversed(take(q, 3))))
    assert read_out(q) == ["0", "1", "2"]


def test_redelivered_is_told_after_any_requeue(vhost):
    q = declare(vhost)
    send(q, 1, 2)
    first = get(q)
    rabbitmq.requeue(q, tokens(first), counts=False)
    again = take(q, 2)
    assert [d.redelivered for d in again] == [True, False]
    assert [d.delivery_count for d in again] == [0, 0]


def test_what_a_connection_holds_comes_back_in_order(vhost):
    """RMQ-123"""
    q, other = declare(vhost), declare(vhost, "other")
    send(q, 0, 1, 2, 3)
    send(other, "x")
    take(q, 3)
    take(other)
    kept = rabbitmq.take(q, 1, owner_id=OWNER + 1)
    assert run(delivering.release_owner(vhost, OWNER)) == 4
    assert [(text(d), d.redelivered) for d in take(q, 5)] == [("0", True), ("1", True), ("2", True)]
    assert get(other).redelivered
    assert rabbitmq.acknowledge(q, tokens(*kept)).settled
    assert ledger_agrees(q) and ledger_agrees(other)
    assert [e.kind for e in events(q, 1)][:3] == [EventKind.SENT, EventKind.RECEIVED, EventKind.LOCK_LOST]


def test_releasing_finds_what_is_held_among_many(vhost):
    q = declare(vhost)
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="q")] * 700)
    take(q, 3)
    second = rabbitmq.take(q, 600, owner_id=OWNER + 1)
    assert run(delivering.release_owner(vhost, OWNER + 1)) == len(second) == 600
    assert run(delivering.release_owner(vhost, OWNER + 1)) == 0
    assert run(delivering.release_owner(vhost, OWNER)) == 3
    assert count(q) == 700 and ledger_agrees(q)


def test_only_a_quorum_queue_tells_how_often_it_came_back(vhost):
    """RMQ-120"""
    for q in (declare(vhost, "classic"), declare(vhost, "quorum", type="quorum")):
        send(q, 1, headers={"mine": "kept"})
        counts = []
        for _ in range(3):
            delivery = get(q)
            assert delivery.properties.headers["mine"] == "kept"
            counts.append(delivery.properties.headers.get("x-delivery-count"))
            rabbitmq.requeue(q, tokens(delivery))
        assert counts == ([0, 1, 2] if q.path == "quorum" else [None] * 3)


def test_a_consumer_is_told_the_count_once_there_is_one(vhost):
    """RMQ-120"""
    q = declare(vhost, type="quorum")
    send(q, 1)
    counts = []
    for _ in range(3):
        (delivery,) = rabbitmq.take(q, 1, owner_id=OWNER)
        counts.append(delivery.properties.headers.get("x-delivery-count"))
        rabbitmq.requeue(q, tokens(delivery))
    assert counts == [None, 1, 2]


def test_a_delivery_limit_of_n_allows_n_plus_one_deliveries(vhost):
    """RMQ-121"""
    target = declare(vhost, "dead")
    q = declare(vhost, type="quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    send(q, 1)
    for seen in (0, 1, 2):
        delivery = get(q)
        assert delivery.delivery_count == seen
        rabbitmq.requeue(q, tokens(delivery))
    assert get(q) is None and present(q) == [] and ledger_agrees(q)
    dead = get(target)
    assert (deaths(dead)[0].reason, deaths(dead)[0].queue) == ("delivery_limit", "q")
    assert "x-delivery-count" not in dead.properties.headers  # RMQ-065


def test_without_a_dead_letter_exchange_the_limit_drops(vhost):
    q = declare(vhost, type="quorum", delivery_limit=0)
    send(q, 1)
    report = rabbitmq.requeue(q, tokens(get(q)))
    assert len(report.settled) == 1
    assert present(q) == [] and events(q, 1)[-1].kind == EventKind.DROPPED and events(q, 1)[-1].reason == "delivery_limit"


def test_a_quorum_queue_allows_twenty_returns_unless_told_otherwise(vhost):
    """RMQ-910: none for classic ones; -1 means none."""
    limits = {"classic": None, "quorum": 20, "unlimited": None}
    for name, most in limits.items():
        q = declare(
            vhost,
            name,
            type="classic" if name == "classic" else "quorum",
            **({"delivery_limit": -1} if name == "unlimited" else {}),
        )
        send(q, 1)
        deliveries = 0
        while deliveries < 25 and (delivery := get(q)):
            deliveries += 1
            rabbitmq.requeue(q, tokens(delivery))
        assert deliveries == (25 if most is None else most + 1)


def test_a_requeue_that_does_not_count_never_reaches_the_limit(vhost):
    """RMQ-122"""
    q = declare(vhost, type="quorum", delivery_limit=1)
    send(q, 1)
    for _ in range(4):
        rabbitmq.requeue(q, tokens(get(q)), counts=False)
    assert get(q).delivery_count == 0


def test_rejecting_without_a_dead_letter_exchange_drops(vhost):
    q = declare(vhost)
    send(q, 1, 2)
    first = get(q)
    assert rabbitmq.reject(q, tokens(first)).settled == ((first.token, 1),)
    assert rabbitmq.reject(q, tokens(first)).lost == (first.token,)
    assert present(q) == [2] and ledger_agrees(q)
    last = events(q, 1)[-1]
    assert (last.kind, last.reason, last.details) == (EventKind.DROPPED, "rejected", None)


def test_a_purge_leaves_what_is_unacknowledged(vhost):
    """RMQ-028: and nothing is dead-lettered."""
    target = declare(vhost, "dead")
    q = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="q")] * 600)
    held = take(q, 2)
    assert rabbitmq.purge_queue(q) == 598
    assert present(q) == [1, 2] and count(target) == 0 and ledger_agrees(q)
    assert events(q, 3)[-1].kind == EventKind.PURGED
    rabbitmq.requeue(q, tokens(*held))
    assert rabbitmq.purge_queue(q) == 2 and rabbitmq.purge_queue(q) == 0


def test_priorities(vhost):
    """RMQ-160: above the most is the most, none is 0, first in first out within a level; the property stays as it is."""
    q = declare(vhost, max_priority=5)
    for priority in (None, 1, 9, 5, 0, 3):
        send(q, priority, priority=priority)
    found = take(q, 4)
    assert texts(found) == ["9", "5", "3", "1"]
    assert found[0].properties.priority == 9
    rabbitmq.requeue(q, tokens(found[1]))
    assert read_out(q) == ["5", "None", "0"]


def test_without_the_argument_priorities_mean_nothing(vhost):
    """RMQ-161, RMQ-361"""
    q = declare(vhost, type="quorum")
    for priority in (1, 9):
        send(q, priority, priority=priority)
    assert read_out(q) == ["1", "9"]


def test_priorities_are_not_for_policies(vhost):
    """RMQ-162"""
    with pytest.raises(InvalidPolicy, match="not recognised policy settings"):
        policy(vhost, max_priority=5)


def test_what_is_not_there_is_not_found(vhost):
    gone = EntityAddress(vhost, "gone")
    for call in (lambda: get(gone), lambda: take(gone), lambda: rabbitmq.purge_queue(gone)):
        with pytest.raises(AmqpError, match=f"NOT_FOUND - no queue 'gone' in vhost '{vhost}'"):
            call()


def test_a_queue_that_was_deleted_and_declared_again_is_found(vhost):
    q = declare(vhost)
    send(q, 1)
    assert text(get(q)) == "1"
    rabbitmq.delete_queue(q)
    with pytest.raises(AmqpError, match="NOT_FOUND"):
        get(q)
    declare(vhost)
    send(q, 2)
    assert text(get(q)) == "2"


def test_an_exclusive_queue_is_delivered_to_its_connection_alone(vhost):
    q = EntityAddress(vhost, "mine")
    with connect(vhost) as connection:
        connection.channel().declare_queue("mine", exclusive=True)
        send(q, 1)  # RMQ-330: anybody may
        for call in (
            lambda: rabbitmq.get(q, owner_id=connection.id + 1),
            lambda: rabbitmq.take(q, owner_id=connection.id + 1),
            lambda: rabbitmq.purge_queue(q),
        ):
            with pytest.raises(AmqpError, match="RESOURCE_LOCKED"):
                call()
        assert text(rabbitmq.get(q, owner_id=connection.id)) == "1"


def test_who_acknowledges_must_be_somebody(vhost):
    with pytest.raises(InvalidArgument, match="^owner_id"):
        rabbitmq.take(declare(vhost), 1)


def test_the_actor_is_told_in_events(vhost):
    q = declare(vhost)
    send(q, 1)
    delivery = rabbitmq.get(q, owner_id=OWNER, holder="a client")
    rabbitmq.acknowledge(q, tokens(delivery), actor=Actor.local("worker"))
    assert [e.actor for e in events(q, 1)][1:] == ["a client", "process:worker"]


def test_two_consumers_never_get_the_same_message(vhost):
    q = declare(vhost)
    rabbitmq.publish(vhost, [rabbitmq.Publication(str(i).encode(), routing_key="q") for i in range(400)])
    got, failures = [], []

    def consume(owner):
        try:
            idle = 0
            while idle < 3:
                found = rabbitmq.take(q, 7, owner_id=owner)
                idle = 0 if found else idle + 1
                back, kept = ([], found) if len(found) < 5 else (found[:2], found[2:])
                rabbitmq.requeue(q, tokens(*back), counts=False)
                rabbitmq.acknowledge(q, tokens(*kept))
                got.extend(texts(kept))
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=consume, args=(OWNER + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rest = read_out(q)
    assert sorted(got + rest, key=int) == [str(i) for i in range(400)]
    assert ledger_agrees(q)


def test_effects_of_a_policy_are_known_at_once(vhost):
    """What a process remembers of the topology never decides about a limit."""
    q = declare(vhost)
    send(q, 1, 2, 3)
    policy(vhost, max_length=2)
    send(q, 4)
    assert read_out(q) == ["3", "4"]


def test_what_is_held_counts_once_in_a_queues_size(vhost):
    q = declare(vhost)
    send(q, 12, 345)
    take(q, 1)
    assert reads.entity(q).size_bytes == 5 and ledger_agrees(q)
