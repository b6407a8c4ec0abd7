"""Deliveries pass many unacknowledged messages without walking over them, and still find at once, and in order, what is requeued
among them (docs/design.md D17, RMQ-020, RMQ-116)."""

import json

import psycopg
import pytest

from broker_core import rabbitmq, sweeps
from broker_core.common.types import SubQueue
from broker_core.rabbitmq.messages import delivery
from broker_core.runtime.pacing import advance_head
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.broker_state import bounds_hold, entity_id

from . import shortcuts as r

LAG = 4


@pytest.fixture(autouse=True)
def small_lag(monkeypatch):
    monkeypatch.setattr("broker_core.runtime.pacing.HEAD_LAG", LAG)
    monkeypatch.setattr("broker_core.rabbitmq.messages.delivering.HEAD_LAG", LAG)


def bounds(q):
    text = "SELECT head, locked_below FROM vitrine_queue_head WHERE entity_id = %s"
    return tuple(connections.current().execute(text, [entity_id(q)]).fetchone())


def returned(q):
    text = "SELECT count(*) FROM vitrine_returned WHERE entity_id = %s"
    return connections.current().execute(text, [entity_id(q)]).fetchone()[0]


def requeue(q, held, *which, **how):
    rabbitmq.requeue(q, [held[number].token for number in which], **how)


@pytest.fixture(params=["remembered", "by another process"])
def held(request, vhost):
    """A queue with the messages 1 to 12, of which 1 to 10 are unacknowledged and passed; and these by number."""
    q = r.declare(vhost)
    r.send(q, *range(1, 13))
    deliveries = {delivery.number: delivery for delivery in r.take(q, 10)}
    run(advance_head(entity_id(q), SubQueue.MAIN))
    assert bounds(q) == (1, 11) and bounds_hold(q)
    if request.param == "remembered":
        rabbitmq.requeue(q, r.tokens(*r.take(q, 1)), delivered=False)
    else:
        delivery._passing_locked.clear()
    return q, deliveries


def test_unacknowledged_messages_are_skipped(held):
    q, _ = held
    assert r.texts(r.take(q, 5)) == ["11", "12"]
    assert r.take(q, 5) == [] and r.get(q) is None and bounds_hold(q)


@pytest.mark.parametrize("no_ack", [False, True])
def test_requeued_messages_are_found_immediately_and_in_order(held, no_ack):
    q, deliveries = held
    requeue(q, deliveries, 7)
    requeue(q, deliveries, 3, 9)
    assert r.texts(r.take(q, 2, no_ack=no_ack)) == ["3", "7"]
    assert r.texts(r.take(q, 9, no_ack=no_ack)) == ["9", "11", "12"]
    assert bounds_hold(q) and r.ledger_agrees(q) and returned(q) <= 1  # of 11, by the fixture


def test_a_requeued_message_that_has_expired_is_not_delivered(vhost):
    q = r.declare(vhost, message_ttl=100)
    r.send(q, *range(1, 13))
    deliveries = {delivery.number: delivery for delivery in r.take(q, 10)}
    run(advance_head(entity_id(q), SubQueue.MAIN))
    requeue(q, deliveries, 4)
    r.step(q, 60)
    r.send(q, 13)
    r.step(q, 50)
    assert r.texts(r.take(q, 5)) == ["13"] and r.ledger_agrees(q)


def test_the_bound_ends_with_the_messages_it_skips(held):
    q, deliveries = held
    rabbitmq.acknowledge(q, r.tokens(*deliveries.values()))
    sweeps.advance_heads()
    assert bounds(q) == (11, 11) and r.texts(r.take(q, 3)) == ["11", "12"]
    assert entity_id(q) not in {of for _, of in delivery._passing_locked}


def test_records_do_not_accumulate(held):
    q, deliveries = held
    for _ in range(5):
        requeue(q, deliveries, 7, counts=False)
        deliveries = {delivery.number: delivery for delivery in r.take(q, 1)}
        assert list(deliveries) == [7]
    assert returned(q) <= 1


@pytest.mark.parametrize("no_ack", [False, True])
def test_messages_for_consumers_with_capacity_do_not_exceed_the_limit(vhost, no_ack):
    """RMQ-090, also while the bound is used: messages are the consumers' before the queue counts."""
    q = r.declare(vhost, max_length=1)
    for n in range(10):
        r.send(q, n)
        assert r.texts(r.take(q, 1)) == [str(n)]
    run(advance_head(entity_id(q), SubQueue.MAIN))
    assert bounds(q) == (1, 11)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("q", tag="c", no_ack=no_ack)
        r.send(q, *range(10, 20))
        results = []
        while got := channel.deliveries(50):
            results += [int(bytes(d.body)) for d in got]
    assert results == list(range(10, 20)) and r.ledger_agrees(q)


@pytest.mark.parametrize("name", ["rabbit_take_past_locked", "rabbit_take_no_ack_past_locked"])
def test_a_delivery_reads_as_many_rows_as_it_returns(vhost, name):
    q = r.declare(vhost)
    r.send(q, *range(300))
    deliveries = {delivery.number: delivery for delivery in r.take(q, 290)}
    run(advance_head(entity_id(q), SubQueue.MAIN))
    requeue(q, deliveries, 150)
    values = {"entity_id": entity_id(q), "max_count": 3, "past_expired": False}
    values = call(name, **values, owner_ids=[r.OWNER], holders=["h"], consumer_ids=[None]).params
    with psycopg.connect(**connections.Database().parameters()) as own, own.transaction(force_rollback=True):
        [(plan,)] = own.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + SQL[name], values)
    read = [n for n in nodes(plan[0]["Plan"]) if n.get("Relation Name") == "vitrine_message" and "Scan" in n["Node Type"]]
    walked = sum(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in read)
    assert 3 <= walked < 20, json.dumps(read, indent=1)


def nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
