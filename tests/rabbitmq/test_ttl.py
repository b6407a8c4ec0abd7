"""How long messages live (RMQ-001 to RMQ-029, RMQ-901, RMQ-902, RMQ-920)."""

import time

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EventKind
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.connections.connections import connect
from broker_core.rabbitmq.messages import tidying
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import entity_id, events

from . import shortcuts as r


def exactly(address):
    """The queue's messages expire at their own instants, wherever they stand (RMQ-901)."""
    rabbitmq.set_queue_option(address, exact_expiry=True)


@pytest.mark.parametrize(
    ("by_queue", "own", "lives"), [(500, None, 500), (None, "500", 500), (500, "900", 500), (900, "500", 500)]
)
def test_the_lower_ttl_applies(vhost, by_queue, own, lives):
    """RMQ-008: and the instant itself is too late (RMQ-002)."""
    q = r.declare(vhost, **({"message_ttl": by_queue} if by_queue else {}))
    r.send(q, "x", expiration=own)
    r.step(q, lives - 1)
    delivery = r.get(q)
    assert r.text(delivery) == "x" and delivery.properties.expiration == own  # RMQ-009
    rabbitmq.requeue(q, r.tokens(delivery))
    r.step(q, 1)
    assert r.get(q) is None and r.present(q) == [] and r.ledger_agrees(q)


def test_the_lowest_ttl_of_argument_policy_and_operator_policy_applies(vhost):
    """RMQ-008, as measured: argument, policy, operator policy."""
    q = r.declare(vhost, message_ttl=5000)
    r.policy(vhost, message_ttl=1000)
    r.policy(vhost, "op", operator=True, message_ttl=500)
    r.send(q, "x")
    r.policy(vhost, "op", operator=True, message_ttl=2000)
    r.send(q, "y")
    r.step(q, 500)
    assert r.count(q) == 2 and r.expire(q) == 1
    r.step(q, 499)
    assert r.text(rabbitmq.get(q, no_ack=True)) == "y"


def test_a_bad_expiration_is_refused_before_routing(vhost):
    """RMQ-006, RMQ-007"""
    for bad in ("abc", "", " 5", "1.5", "1000 ", "-1", "315360000001"):
        with pytest.raises(AmqpError, match="PRECONDITION_FAILED - invalid expiration"):
            rabbitmq.publish(vhost, [Publication(b"x", routing_key="nobody", properties=Properties(expiration=bad))])


def test_a_leading_plus_and_leading_zeros_are_accepted(vhost):
    """RMQ-005"""
    q = r.declare(vhost)
    r.send(q, "a", expiration="+500")
    r.send(q, "b", expiration="00700")
    r.step(q, 500)
    assert r.read_out(q) == ["b"]


def test_the_expiry_is_fixed_when_a_message_enters_the_queue(vhost):
    """RMQ-010, RMQ-903: raising the time, or taking it away, changes nothing for what is there."""
    q = r.declare(vhost)
    r.policy(vhost, message_ttl=500)
    r.send(q, "x")
    r.policy(vhost, message_ttl=3000)
    r.send(q, "y")
    r.step(q, 500)
    assert r.texts(r.take(q, 2)) == ["y"]
    rabbitmq.delete_policy(vhost, "p")
    r.send(q, "z")
    r.step(q, 10_000)
    assert r.read_out(q) == ["z"]


def test_each_copy_has_its_own_ttl(vhost):
    """RMQ-011"""
    short, plain = r.declare(vhost, "short", message_ttl=300), r.declare(vhost, "plain")
    for q in (short, plain):
        rabbitmq.bind_queue(vhost, q.path, "amq.fanout")
    rabbitmq.publish(vhost, [Publication(b"x", "amq.fanout")])
    r.step(short, 300)
    assert r.read_out(short) == [] and r.read_out(plain) == ["x"]


def test_an_expired_message_behind_an_unexpired_one_stays_and_is_counted(vhost):
    """RMQ-013, RMQ-014: and it is gone as soon as it comes to the head."""
    q = r.declare(vhost)
    r.send(q, "long", expiration="60000")
    r.send(q, "short", expiration="300")
    r.step(q, 1200)
    assert r.expire(q) == 0 and r.count(q) == 2
    assert r.text(r.get(q)) == "long"
    assert r.get(q) is None and r.count(q) == 0 and r.present(q) == [1]
    assert r.ledger_agrees(q)


def test_the_head_expires_without_a_consumer(vhost):
    """RMQ-012: one after the other, as long as the first has expired."""
    q = r.declare(vhost)
    for body, life in (("a", "100"), ("b", "200"), ("c", "900"), ("d", "100")):
        r.send(q, body, expiration=life)
    r.step(q, 200)
    assert r.expire(q) == 2 and r.present(q) == [3, 4]
    assert [e.kind for e in events(q, 1)] == [EventKind.SENT, EventKind.EXPIRED]


def test_messages_with_the_same_ttl_expire_in_order_and_in_time(vhost):
    """RMQ-015"""
    q = r.declare(vhost, message_ttl=100)
    for n in range(4):
        r.send(q, n)
        r.step(q, 30)
    assert r.expire(q) == 1 and r.present(q) == [2, 3, 4]


def test_without_a_sweep_expired_messages_are_not_delivered(vhost):
    """RMQ-002, RMQ-003, RMQ-920"""
    q = r.declare(vhost, message_ttl=100)
    rabbitmq.publish(vhost, [Publication(b"old", routing_key="q")] * 700)
    r.step(q, 100)
    r.send(q, "new")
    assert r.texts(r.take(q, 3)) == ["new"]
    assert r.present(q) == [701] and r.ledger_agrees(q)


def test_a_delivery_skips_more_than_one_batch_of_expired_messages(vhost, monkeypatch):
    """What lives is delivered all the same, and a few more deliveries clear the rest."""
    monkeypatch.setattr("broker_core.runtime.pacing.ROUNDS", 1)
    q = r.declare(vhost, message_ttl=100)
    rabbitmq.publish(vhost, [Publication(b"old", routing_key="q")] * 1200)
    r.step(q, 100)
    r.send(q, "one", "two")
    assert r.text(r.get(q)) == "one"
    assert len(r.present(q)) == 702
    assert r.texts(r.take(q, 5)) == ["two"]
    assert len(r.present(q)) == 202
    assert r.take(q, 5) == [] and r.present(q) == [1201, 1202]


def test_unacknowledged_messages_do_not_expire(vhost):
    """RMQ-019"""
    q = r.declare(vhost, message_ttl=100)
    r.send(q, "x")
    held = r.get(q)
    r.step(q, 500)
    assert r.expire(q) == 0 and r.present(q) == [1]
    assert rabbitmq.acknowledge(q, r.tokens(held)).settled


def test_a_requeue_keeps_the_expiry(vhost):
    """RMQ-020: given back before it, it goes at it; given back after it, it goes at once and is not redelivered."""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, message_ttl=600, dead_letter_exchange="", dead_letter_routing_key="dead")
    r.send(q, "x")
    held = r.get(q)
    r.step(q, 400)
    rabbitmq.requeue(q, r.tokens(held))
    held = r.get(q)
    assert held.redelivered
    r.step(q, 300)
    rabbitmq.requeue(q, r.tokens(held))
    assert r.present(q) == [] and r.texts(r.take(dead)) == ["x"]
    assert r.ledger_agrees(q)


def test_waiting_behind_an_unacked_message_does_not_prevent_expiry(vhost):
    """RMQ-021"""
    q = r.declare(vhost, message_ttl=100)
    r.send(q, "held", "waits")
    r.take(q)
    r.step(q, 100)
    assert r.expire(q) == 1 and r.present(q) == [1]


def test_messages_expire_without_consumers(vhost):
    """RMQ-022: instants are stored, so they pass while no process runs."""
    q = r.declare(vhost)
    r.send(q, "short", expiration="1000")
    r.send(q, "long", expiration="600000")
    r.step(q, 60_000)
    connections.close_all()
    assert r.read_out(q) == ["long"]


def test_a_policys_ttl_applies_to_waiting_messages(vhost):
    """RMQ-902, as the guide says: the lower of its own instant and its arrival plus the new time; from the head on."""
    q = r.declare(vhost)
    r.send(q, "old", "own", expiration=None)
    r.send(q, "mine", expiration="60000")
    r.step(q, 1500)
    r.send(q, "young")
    r.policy(vhost, message_ttl=1000)
    assert r.present(q) == [4] and r.ledger_agrees(q)
    r.step(q, 999)
    assert r.text(r.get(q)) == "young"


def test_with_retroactive_ttl_off_a_policy_does_not_affect_waiting_messages(vhost):
    """RMQ-023, RMQ-024: as measured. New ones behind them wait for their head (RMQ-012)."""
    q = r.declare(vhost)
    rabbitmq.set_queue_option(q, retroactive_ttl=False)
    r.send(q, "old", expiration="60000")
    r.step(q, 1500)
    r.policy(vhost, message_ttl=500)
    r.send(q, "new")
    r.step(q, 500)
    assert r.expire(q) == 0 and r.count(q) == 2
    held = r.get(q)
    assert r.text(held) == "old"
    rabbitmq.requeue(q, r.tokens(held))
    assert r.read_out(q) == ["old"]


def test_a_message_with_a_ttl_of_zero_expires_immediately(vhost):
    """RMQ-016, RMQ-018: it was routed, no get sees it, and it is dead-lettered."""
    dead = r.declare(vhost, "dead")
    by_queue = r.declare(vhost, "q0", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    by_message = r.declare(vhost, "m0", dead_letter_exchange="", dead_letter_routing_key="dead")
    (first,) = r.send(by_queue, "x")
    (second,) = r.send(by_message, "y", expiration="0")
    assert not first.unroutable and not second.unroutable
    assert r.present(by_queue) == r.present(by_message) == []
    assert [r.deaths(d)[0].reason for d in r.take(dead, 5)] == ["expired", "expired"]
    assert r.ledger_agrees(by_queue) and r.ledger_agrees(dead)


def test_a_zero_ttl_message_behind_others_expires_at_the_head(vhost):
    """RMQ-013, RMQ-016"""
    q = r.declare(vhost)
    r.send(q, "lives")
    r.send(q, "dead", expiration="0")
    assert r.count(q) == 2
    assert r.read_out(q) == ["lives"] and r.present(q) == []


def test_a_zero_ttl_message_reaches_a_consumer_with_credit(vhost):
    """RMQ-016, RMQ-017: with a prefetch of 2, two of five; and these expire when they come back."""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    with connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(2)
        channel.consume("q", tag="c")
        for n in range(5):
            r.send(q, n)
        assert [bytes(d.body) for d in channel.deliveries(10)] == [b"0", b"1"]
        assert r.texts(r.take(dead, 9)) == ["2", "3", "4"]
        assert len(r.present(q)) == 2 and r.ledger_agrees(q)
    assert r.present(q) == [] and r.texts(r.take(dead, 9)) == ["0", "1"]


def test_all_zero_ttl_messages_reach_a_consumer_without_a_prefetch_limit(vhost):
    """RMQ-017: acknowledged or not."""
    q = r.declare(vhost, message_ttl=0)
    for no_ack in (False, True):
        with connect(vhost) as connection:
            channel = connection.channel()
            channel.consume("q", tag="c", no_ack=no_ack)
            rabbitmq.publish(vhost, [Publication(str(n).encode(), routing_key="q") for n in range(5)])
            deliveries = channel.deliveries(10)
            assert [bytes(d.body) for d in deliveries] == [b"0", b"1", b"2", b"3", b"4"]
        assert r.present(q) == [] and r.ledger_agrees(q)


def test_an_expired_message_behind_a_higher_priority_stays_and_is_counted(vhost):
    """RMQ-027"""
    q = r.declare(vhost, max_priority=5)
    r.send(q, "low", priority=1, expiration="300")
    r.send(q, "high", priority=5, expiration="60000")
    r.step(q, 1200)
    assert r.expire(q) == 0 and r.count(q) == 2
    assert r.text(r.get(q)) == "high"
    assert r.get(q) is None and r.present(q) == [2] and r.ledger_agrees(q)


def test_exact_expiry_removes_messages_at_any_position(vhost):
    """RMQ-901: of a queue that is told so, also behind a living one and in any priority."""
    q = r.declare(vhost)
    exactly(q)
    r.send(q, "long", expiration="60000")
    r.send(q, "short", expiration="300")
    r.step(q, 300)
    assert r.expire(q) == 1 and r.present(q) == [1]
    p = r.declare(vhost, "p", max_priority=5)
    exactly(p)
    r.send(p, "low", priority=1)
    r.step(p, 500)
    r.send(p, "high", priority=5)
    r.policy(vhost, message_ttl=400)
    r.expire(p)
    assert r.texts(r.take(p, 5)) == ["high"] and r.present(p) == [2]


def test_a_purge_and_a_deletion_dead_letter_nothing(vhost):
    """RMQ-028"""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    r.send(q, "x")
    r.step(q, 100)
    assert rabbitmq.purge_queue(q) == 1
    r.send(q, "y")
    rabbitmq.delete_queue(q)
    assert r.present(dead) == []


def test_expired_messages_are_recorded_as_events(vhost):
    """RMQ-029 has no counter of them; here each has its event."""
    q = r.declare(vhost)
    r.send(q, *range(5), expiration="100")
    r.step(q, 100)
    r.expire(q)
    assert [(e.kind, e.reason) for e in events(q) if e.kind != EventKind.SENT] == [(EventKind.EXPIRED, "expired")] * 5


def test_expired_messages_behind_the_head_do_not_slow_a_get(vhost):
    """20,000 of them; `make bench` has a million."""
    slow, fast = r.declare(vhost, "slow"), r.declare(vhost, "fast")
    for q in (slow, fast):
        r.send(q, "head")
    batch = [Publication(b"x", routing_key="slow", properties=Properties(expiration="1"))] * 1000
    for _ in range(20):
        rabbitmq.publish(vhost, batch)
    r.step(slow, 1000)

    def seconds(q):
        began = time.perf_counter()
        for _ in range(30):
            rabbitmq.requeue(q, r.tokens(*r.take(q)), counts=False)
        return time.perf_counter() - began

    seconds(slow), seconds(fast)
    assert min(seconds(slow) for _ in range(3)) < 3 * min(seconds(fast) for _ in range(3))
    assert len(r.present(slow)) == 20_001  # they are still there


def test_a_sweep_expires_messages_in_batches(vhost):
    q = r.declare(vhost, message_ttl=100)
    rabbitmq.publish(vhost, [Publication(b"old", routing_key="q")] * 1100)
    r.step(q, 100)
    pauses = []

    class Due:
        entity_id = entity_id(q)

    assert run(tidying.expire(Due, time.monotonic() + 60, pauses.append)) == 1100
    assert len(pauses) == 3 and r.present(q) == []
    assert run(tidying.expire(Due, time.monotonic() + 60, pauses.append)) == 0
    assert r.OWNER and r.ledger_agrees(q)


def test_messages_of_a_lazy_queue_expire_the_same_way(vhost):
    """RMQ-025, RMQ-190"""
    q = r.declare(vhost, queue_mode="lazy", message_ttl=100)
    r.send(q, "old")
    r.step(q, 100)
    r.send(q, "new")
    assert r.read_out(q) == ["new"]
