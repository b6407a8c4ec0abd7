"""Dead-lettering (RMQ-060 to RMQ-080, RMQ-911): how a message leaves, where it arrives, what is written on it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.types import EntityAddress, EventKind
from broker_core.rabbitmq import Properties, Publication
from broker_core.store import connections
from tests.broker_state import entity_id, events

from . import shortcuts as r


def with_dlx(vhost, name="q", key="dead", **arguments):
    """A queue that dead-letters to the queue `key` through the default exchange."""
    return r.declare(vhost, name, dead_letter_exchange="", dead_letter_routing_key=key, **arguments)


def reject(address):
    rabbitmq.reject(address, r.tokens(*r.take(address, 10)))


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen", "delivery_limit"])
def test_dead_lettering_has_four_reasons(vhost, reason):
    """RMQ-060"""
    dead = r.declare(vhost, "dead")
    arguments = {"expired": {"message_ttl": 100}, "maxlen": {"max_length": 0}, "delivery_limit": {"delivery_limit": 0}}
    q = with_dlx(vhost, type="quorum" if reason == "delivery_limit" else None, **arguments.get(reason, {}))
    r.send(q, "x")
    match reason:
        case "rejected":
            reject(q)
        case "expired":
            r.step(q, 100)
            r.expire(q)
        case "delivery_limit":
            rabbitmq.requeue(q, r.tokens(r.get(q)))
    assert r.present(q) == [] and r.ledger_agrees(q) and r.ledger_agrees(dead)
    arrived = r.get(dead)
    assert r.text(arrived) == "x" and not arrived.redelivered
    (death,) = r.deaths(arrived)
    assert (death.reason, death.queue, death.count, death.exchange, death.routing_keys) == (reason, "q", 1, "", ("q",))


def test_dead_lettering_is_recorded_in_both_queues(vhost):
    """RMQ-911: the old number ends, the new one begins, each names the other."""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    r.send(q, "x", "y")
    reject(q)
    moved, sent = events(q, 2)[-1], events(dead, 2)[0]
    assert (moved.kind, moved.reason) == (EventKind.MOVED, "rejected")
    assert moved.details == {"to": [{"entity": entity_id(dead), "path": "dead", "sequence_number": 2}]}
    assert sent.kind == EventKind.SENT
    assert sent.details == {"from": {"entity": entity_id(q), "path": "q", "sequence_number": 2, "reason": "rejected"}}


def test_without_a_dead_letter_exchange_a_message_is_dropped(vhost):
    """RMQ-061: none, one that is not there, one that leads nowhere; the reason is told."""
    none, missing = r.declare(vhost, "none"), r.declare(vhost, "missing", dead_letter_exchange="gone")
    nowhere = r.declare(vhost, "nowhere", dead_letter_exchange="amq.direct")
    told = []
    for q in (none, missing, nowhere):
        r.send(q, "x")
        reject(q)
        assert r.present(q) == [] and r.ledger_agrees(q)
        last = events(q)[-1]
        assert (last.kind, last.reason) == (EventKind.DROPPED, "rejected")
        told.append(last.details and last.details["description"])
    assert told[0] is None and "no exchange 'gone'" in told[1] and "'amq.direct' does not route it to any queue" in told[2]


def test_a_dead_letter_keeps_its_routing_keys_or_has_the_dead_letter_routing_key(vhost):
    """RMQ-062, RMQ-063, RMQ-066"""
    dead, copy = r.declare(vhost, "dead"), r.declare(vhost, "copy")
    rabbitmq.declare_exchange(vhost, "dlx", "direct")
    rabbitmq.bind_queue(vhost, "dead", "dlx", "own")
    rabbitmq.bind_queue(vhost, "copy", "dlx", "cc")
    own, keyed = r.declare(vhost, "own", dead_letter_exchange="dlx"), with_dlx(vhost, "keyed")
    r.send(own, "1", headers={"CC": ["cc"], "BCC": ["nobody"]})
    r.send(keyed, "2", headers={"CC": ["cc"]})
    reject(own)
    reject(keyed)
    first, second = r.take(dead, 2)
    assert (r.text(first), first.exchange, first.routing_key) == ("1", "dlx", "own")
    assert first.properties.headers["CC"] == ["cc"] and "BCC" not in first.properties.headers
    assert r.deaths(first)[0].routing_keys == ("own", "cc")
    assert (r.text(second), second.exchange, second.routing_key) == ("2", "", "dead")
    assert "CC" not in second.properties.headers and r.deaths(second)[0].routing_keys == ("keyed", "cc")
    assert r.read_out(copy) == ["1"]


def test_bcc_keys_route_and_are_removed(vhost):
    """RMQ-395: also at later deaths, until a queue has a key of its own for its dead."""
    rabbitmq.declare_exchange(vhost, "dlx", "direct")
    first, second, last = (r.declare(vhost, name, dead_letter_exchange="dlx") for name in ("first", "second", "last"))
    keyed = r.declare(vhost, "keyed", dead_letter_exchange="dlx", dead_letter_routing_key="to last")
    for queue, key in (("second", "blind 1"), ("keyed", "blind 2"), ("last", "to last")):
        rabbitmq.bind_queue(vhost, queue, "dlx", key)
    r.send(first, "x", headers={"CC": ["cc"], "BCC": ["blind 1"]})
    r.send(second, "y", headers={"BCC": ["blind 2"]})
    reject(second)
    reject(first)
    for queue, keys in ((second, ("first", "cc")), (keyed, ("second",))):
        (arrived,) = r.take(queue)
        assert "BCC" not in arrived.properties.headers and r.deaths(arrived)[0].routing_keys == keys
        rabbitmq.requeue(queue, r.tokens(arrived))
    reject(second)  # there it died before, and was rejected: it comes again
    (again,) = r.take(second)
    assert [death.queue for death in r.deaths(again)] == ["second", "first"]
    assert {death.routing_keys for death in r.deaths(again)} == {("first", "cc")}
    reject(keyed)
    reject(last)
    assert (len(r.present(keyed)), len(r.present(last))) == (0, 1)  # by "to last" alone: the blind keys are lost
    assert r.ledger_agrees(keyed) and r.ledger_agrees(last)


def test_the_expiration_of_a_dead_letter_is_removed(vhost):
    """RMQ-064: for every reason; it does not expire again where it arrives."""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    r.send(q, "expired", expiration="100")
    r.step(q, 100)
    r.expire(q)
    r.send(q, "rejected", expiration="5000")
    reject(q)
    r.step(q, 60_000)
    deliveries = r.take(dead, 5)
    assert r.texts(deliveries) == ["expired", "rejected"]
    assert [r.deaths(d)[0].original_expiration for d in deliveries] == ["100", "5000"]
    assert [d.properties.expiration for d in deliveries] == [None, None]


def test_all_other_properties_of_a_dead_letter_are_kept(vhost):
    """RMQ-065"""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    values: dict[str, Any] = {
        "content_type": "a", "content_encoding": "b", "delivery_mode": 2, "priority": 7, "correlation_id": "c", "reply_to": "d",
        "message_id": "e", "timestamp": datetime(2026, 1, 1, tzinfo=UTC), "type": "f", "user_id": "g", "app_id": "h",
    }  # fmt: skip
    rabbitmq.publish(
        vhost, [Publication(b"\x00body", routing_key="q", properties=Properties(**values, headers={"mine": [1, "x"]}))]
    )
    held = r.get(q)
    rabbitmq.requeue(q, r.tokens(held))
    reject(q)
    arrived = r.get(dead)
    assert {name: getattr(arrived.properties, name) for name in values} == values
    assert arrived.properties.headers["mine"] == [1, "x"] and arrived.body == b"\x00body"
    assert not arrived.redelivered and arrived.delivery_count == 0


def test_deaths_are_counted_and_the_newest_is_first(vhost):
    """RMQ-066 to RMQ-069, RMQ-912, RMQ-913: through two queues and back, twice."""
    first, second = with_dlx(vhost, "first", key="second"), with_dlx(vhost, "second", key="first", message_ttl=100)
    r.send(first, "x")
    died_first = []
    for _ in range(2):
        now = namespaces.get_clock(vhost).now
        died_first += [now, now + timedelta(milliseconds=100)]
        reject(first)
        r.step(second, 100)
        assert r.expire(second) == 1
        r.step(second, 5000)
    arrived = r.get(first)
    newest, oldest = r.deaths(arrived)
    assert (newest.queue, newest.reason, newest.count) == ("second", "expired", 2)
    assert (oldest.queue, oldest.reason, oldest.count) == ("first", "rejected", 2)
    assert [oldest.time, newest.time] == [at.replace(microsecond=0) for at in died_first[:2]]  # not those of the second round
    headers = arrived.properties.headers
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"], headers["x-first-death-exchange"]) == (
        "first",
        "rejected",
        "",
    )
    assert (headers["x-last-death-queue"], headers["x-last-death-reason"]) == ("second", "expired")


def test_a_republished_dead_letter_continues_its_count(vhost):
    """RMQ-070, RMQ-914; and garbage is replaced (RMQ-071)."""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    r.send(q, "x")
    reject(q)
    arrived = rabbitmq.get(dead, no_ack=True)
    r.send(q, "again", headers=arrived.properties.headers)
    r.send(q, "garbage", headers={"x-death": "nonsense"})
    reject(q)
    again, garbage = r.take(dead, 2)
    assert r.deaths(again)[0].count == 2
    assert r.deaths(garbage)[0].count == 1 and "x-first-death-queue" not in garbage.properties.headers


def test_a_cycle_without_rejection_is_dropped(vhost):
    """RMQ-072: two queues that expire into each other, one into itself, one too full for itself."""
    first, second = with_dlx(vhost, "one", key="two", message_ttl=100), with_dlx(vhost, "two", key="one", message_ttl=100)
    r.send(first, "x")
    for q in (first, second):
        r.step(q, 100)
        r.expire(q)
    assert r.present(first) == r.present(second) == []
    last = events(second)[-1]
    assert (last.kind, last.reason) == (EventKind.DROPPED, "expired") and "died in 'one' before" in last.details["description"]
    for name, arguments in (("self", {"message_ttl": 100}), ("full", {"max_length": 0})):
        q = with_dlx(vhost, name, key=name, **arguments)
        r.send(q, "x")
        r.step(q, 100)
        r.expire(q)
        assert r.present(q) == [] and events(q)[-1].kind == EventKind.DROPPED and r.ledger_agrees(q)


def test_a_cycle_with_a_rejection_never_ends(vhost):
    """RMQ-073"""
    q = with_dlx(vhost, key="q")
    r.send(q, "x")
    for turn in range(1, 6):
        reject(q)
        assert r.count(q) == 1
        held = r.get(q)
        assert r.deaths(held)[0].count == turn
        rabbitmq.requeue(q, r.tokens(held))
    assert r.ledger_agrees(q)


def test_dead_lettering_is_atomic(vhost):
    """RMQ-074, RMQ-075, RMQ-911: in one transaction, so it is never in both queues, nor in none."""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    r.send(q, "x")
    held = r.get(q)
    locker = connections.DEFAULT.parameters()
    import psycopg

    with psycopg.connect(**locker | {"autocommit": False}) as other:
        other.execute("SELECT FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE", [entity_id(dead)])
        connections.current().execute("SET lock_timeout = '50ms'")
        try:
            with pytest.raises(Exception, match="holds a required lock"):
                rabbitmq.reject(q, r.tokens(held))
        finally:
            connections.current().execute("SET lock_timeout = '10s'")
        other.rollback()
    assert r.present(q) == [1] and r.present(dead) == [] and r.ledger_agrees(q)
    rabbitmq.reject(q, r.tokens(held))
    assert r.present(q) == [] and r.present(dead) == [1] and r.ledger_agrees(q) and r.ledger_agrees(dead)


def test_an_argument_overrides_a_policy(vhost):
    """RMQ-076; and a policy is enough (RMQ-211)."""
    by_argument, by_policy = r.declare(vhost, "a"), r.declare(vhost, "b")
    q, plain = with_dlx(vhost, key="a"), r.declare(vhost, "plain")
    r.policy(vhost, dead_letter_exchange="", dead_letter_routing_key="b", pattern="^(q|plain)$")
    for queue in (q, plain):
        r.send(queue, queue.path)
        reject(queue)
    assert (r.read_out(by_argument), r.read_out(by_policy)) == (["q"], ["plain"])


def test_the_dead_letter_exchange_may_be_the_default_exchange(vhost):
    """RMQ-077: with the queue's own key it comes back."""
    q = r.declare(vhost, dead_letter_exchange="")
    r.send(q, "x")
    reject(q)
    assert r.deaths(r.get(q))[0].queue == "q"


def test_dead_letters_arrive_in_the_order_of_dead_lettering(vhost):
    """RMQ-078"""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost, max_length=2)
    r.send(q, *range(7))
    assert r.read_out(dead) == ["0", "1", "2", "3", "4"]
    p = with_dlx(vhost, "p", max_priority=9, message_ttl=100)
    for priority in (1, 5, 3):
        r.send(p, priority, priority=priority)
    r.step(p, 100)
    r.expire(p)
    assert r.read_out(dead) == ["5", "3", "1"]


def test_a_dead_letter_may_be_routed_to_several_queues(vhost):
    """RMQ-079: through any exchange, an internal one too; an alternate exchange serves where there is no way."""
    rabbitmq.declare_exchange(vhost, "dlx", "fanout", internal=True)
    targets = [r.declare(vhost, f"t{n}") for n in range(3)]
    for target in targets:
        rabbitmq.bind_queue(vhost, target.path, "dlx")
    rabbitmq.declare_exchange(vhost, "nowhere", "direct", arguments={"alternate-exchange": "dlx"})
    for n, exchange in enumerate(("dlx", "nowhere")):
        q = r.declare(vhost, f"q{n}", dead_letter_exchange=exchange)
        r.send(q, exchange)
        reject(q)
        assert len(events(q)[-1].details["to"]) == 3
    for target in targets:
        assert r.read_out(target) == ["dlx", "nowhere"] and r.ledger_agrees(target)


def test_the_target_queue_applies_its_own_settings(vhost):
    """RMQ-080: its time-to-live, its limit with what follows from that, its priorities."""
    last = r.declare(vhost, "last")
    short = with_dlx(vhost, "short", key="last", max_length=2, message_ttl=1000)
    q = with_dlx(vhost, key="short")
    r.send(q, *range(5))
    reject(q)
    assert r.count(short) == 2 and r.texts(r.take(last, 9)) == ["0", "1", "2"]
    r.step(short, 1000)
    r.expire(short)
    (delivery, _) = r.take(last, 9)
    assert [(d.queue, d.reason) for d in r.deaths(delivery)] == [("short", "expired"), ("q", "rejected")]
    leveled = r.declare(vhost, "leveled", max_priority=9)
    q = with_dlx(vhost, "p", key="leveled")
    for priority in (1, 5):
        r.send(q, priority, priority=priority)
    reject(q)
    assert r.read_out(leveled) == ["5", "1"]
    for address in (short, last, leveled):
        assert r.ledger_agrees(address)


def test_a_dead_letter_that_its_target_refuses_is_dropped(vhost):
    full = r.declare(vhost, "full", max_length=1, overflow="reject-publish")
    q = with_dlx(vhost, key="full")
    r.send(q, "a", "b")
    reject(q)
    assert r.read_out(full) == ["a"]
    assert events(q, 2)[-1].kind == EventKind.DROPPED and "'full' is full" in events(q, 2)[-1].details["description"]
    assert r.ledger_agrees(q) and r.ledger_agrees(full)


def test_a_chain_of_full_queues_ends(vhost):
    """Each has room for nothing and passes on; a rejection on the way would let it go round, so the way is bounded."""
    names = [f"c{n}" for n in range(30)]
    for name, following in zip(names, [*names[1:], "end"], strict=True):
        with_dlx(vhost, name, key=following, max_length=0)
    end = r.declare(vhost, "end")
    r.send(EntityAddress(vhost, "c20"), "near")
    assert r.read_out(end) == ["near"]
    r.send(EntityAddress(vhost, "c0"), "far")
    assert r.count(end) == 0
    assert [len(r.present(EntityAddress(vhost, name))) for name in names] == [0] * 30
    dropped = [e for name in names for e in events(EntityAddress(vhost, name)) if e.kind == EventKind.DROPPED]
    assert len(dropped) == 1 and "at once" in dropped[0].details["description"]


def test_a_ring_of_full_queues_with_a_rejection_ends(vhost):
    first, second = with_dlx(vhost, "one", key="two", max_length=0), with_dlx(vhost, "two", key="one", max_length=0)
    start = with_dlx(vhost, key="one")
    r.send(start, "x")
    reject(start)
    assert r.present(first) == r.present(second) == r.present(start) == []
    assert r.ledger_agrees(first) and r.ledger_agrees(second)


def test_a_deleted_target_is_detected(vhost):
    """What this process remembers of the topology does not decide."""
    from broker_core.rabbitmq.topology import compiled

    r.declare(vhost, "dead")
    q = with_dlx(vhost)
    r.send(q, "x")
    held = r.get(q)
    remembered = compiled._compiled[compiled._key(vhost)]
    rabbitmq.delete_queue(EntityAddress(vhost, "dead"))
    compiled._compiled[compiled._key(vhost)] = remembered
    rabbitmq.reject(q, r.tokens(held))
    assert events(q)[-1].kind == EventKind.DROPPED and "does not route it to any queue" in events(q)[-1].details["description"]


def test_a_large_body_is_kept_in_a_dead_letter(vhost):
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost)
    body = bytes(range(256)) * 4096
    rabbitmq.publish(vhost, [Publication(body, routing_key="q")])
    reject(q)
    assert r.get(dead).body == body and r.ledger_agrees(dead)
