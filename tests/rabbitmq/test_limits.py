"""Length limits (RMQ-090 to RMQ-099)."""

import threading

import pytest
from django.db import transaction

from broker_core import rabbitmq
from broker_core.common.types import EventKind
from broker_core.rabbitmq import Publication
from broker_core.rabbitmq.messages import local_consumers, local_delivery
from broker_core.store import connections
from tests.broker_state import events

from . import shortcuts as r


def test_ready_messages_count_towards_the_length_limit(vhost):
    """RMQ-090: what is unacknowledged takes no room."""
    q = r.declare(vhost, max_length=2)
    r.send(q, 1, 2)
    r.take(q, 2)
    r.send(q, 3, 4)
    assert r.present(q) == [1, 2, 3, 4]
    r.send(q, 5)
    assert r.present(q) == [1, 2, 4, 5] and r.ledger_agrees(q)


def test_ready_bodies_count_towards_the_byte_limit(vhost):
    """RMQ-090: properties do not; the limit that is reached first applies."""
    q = r.declare(vhost, max_length=3, max_length_bytes=10)
    r.send(q, "aaaa", "bbbb", headers={"not": "counted" * 10})
    assert r.count(q) == 2
    r.send(q, "cccc")
    assert r.present(q) == [2, 3]
    r.send(q, "d", "e")
    assert r.present(q) == [3, 4, 5] and r.ledger_agrees(q)


def test_a_full_queue_drops_its_oldest_messages(vhost):
    """RMQ-091"""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, max_length=3, dead_letter_exchange="", dead_letter_routing_key="dead")
    rabbitmq.publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(5)])
    r.send(q, 5)
    assert r.texts(r.take(q, 9)) == ["3", "4", "5"]
    deliveries = r.take(dead, 9)
    assert r.texts(deliveries) == ["0", "1", "2"] and {r.deaths(d)[0].reason for d in deliveries} == {"maxlen"}
    assert r.ledger_agrees(q) and r.ledger_agrees(dead)


def test_a_message_larger_than_the_limit_is_dropped_itself(vhost):
    """RMQ-092: with all that was before it."""
    q = r.declare(vhost, max_length_bytes=3)
    r.send(q, "a", "toolong")
    assert r.present(q) == []
    nothing = r.declare(vhost, "nothing", max_length=0)
    r.send(nothing, "x")
    assert r.present(nothing) == [] and r.ledger_agrees(nothing) and r.ledger_agrees(q)
    assert [e.kind for e in events(nothing)] == [EventKind.SENT, EventKind.DROPPED]


def test_reject_publish_refuses_messages_over_the_length_limit(vhost):
    """RMQ-093: exactly, in a batch too; nothing is dead-lettered."""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, max_length=2, overflow="reject-publish", dead_letter_exchange="", dead_letter_routing_key="dead")
    published = rabbitmq.publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(4)])
    assert [p.refused for p in published] == [False, False, True, True]
    assert [p.unroutable for p in published] == [False] * 4
    r.take(q)
    assert [p.refused for p in r.send(q, 4, 5)] == [False, True]
    assert r.present(q) == [1, 2, 3] and r.present(dead) == [] and r.ledger_agrees(q)


def test_reject_publish_refuses_messages_over_the_byte_limit(vhost):
    q = r.declare(vhost, max_length_bytes=5, overflow="reject-publish")
    assert [p.refused for p in r.send(q, "aaa", "bbb", "cc", "d")] == [False, True, False, True]
    assert r.read_out(q) == ["aaa", "cc"]


def test_expired_messages_at_the_head_make_room(vhost):
    """It would have been gone by then (RMQ-012)."""
    q = r.declare(vhost, max_length=1, overflow="reject-publish", message_ttl=100)
    r.send(q, 1)
    r.step(q, 100)
    assert not r.send(q, 2)[0].refused
    assert r.present(q) == [2]


def test_reject_publish_dlx_dead_letters_refused_messages(vhost):
    """RMQ-094"""
    dead = r.declare(vhost, "dead")
    q = r.declare(vhost, max_length=1, overflow="reject-publish-dlx", dead_letter_exchange="", dead_letter_routing_key="dead")
    published = rabbitmq.publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(3)])
    assert [p.refused for p in published] == [False, True, True]
    assert r.read_out(q) == ["0"]
    deliveries = r.take(dead, 9)
    assert r.texts(deliveries) == ["1", "2"]
    assert [(d.queue, d.reason) for d in r.deaths(deliveries[0])] == [("q", "maxlen")]
    assert r.ledger_agrees(dead)


def test_refused_messages_count_in_their_dead_letter_target(vhost):
    """RMQ-094, RMQ-091: there it may be too much, and goes on."""
    last = r.declare(vhost, "last")
    dead = r.declare(vhost, "dead", max_length=1, dead_letter_exchange="", dead_letter_routing_key="last")
    q = r.declare(vhost, max_length=1, overflow="reject-publish-dlx", dead_letter_exchange="", dead_letter_routing_key="dead")
    rabbitmq.publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(4)])
    assert (r.read_out(q), r.read_out(dead), r.read_out(last)) == (["0"], ["3"], ["1", "2"])
    assert r.ledger_agrees(dead) and r.ledger_agrees(last)


def test_one_queue_rejects_and_the_others_accept(vhost):
    """RMQ-095"""
    full, free = r.declare(vhost, "full", max_length=0, overflow="reject-publish"), r.declare(vhost, "free")
    for q in (full, free):
        rabbitmq.bind_queue(vhost, q.path, "amq.fanout")
    (published,) = rabbitmq.publish(vhost, [Publication(b"x", "amq.fanout")])
    assert published == ((("free", 1),), True, False)
    assert r.present(full) == [] and r.present(free) == [1]


def test_the_limit_is_checked_again_on_requeue(vhost):
    """RMQ-096: two unacknowledged, two published, both given back: the newer two stay (RMQ-909)."""
    q = r.declare(vhost, max_length=2)
    r.send(q, 1, 2)
    held = r.take(q, 2)
    r.send(q, 3, 4)
    rabbitmq.requeue(q, r.tokens(*held))
    assert r.read_out(q) == ["3", "4"]
    assert r.ledger_agrees(q)


def test_a_lower_limit_trims_immediately(vhost):
    """RMQ-097, RMQ-208"""
    q = r.declare(vhost)
    r.send(q, *range(10))
    r.policy(vhost, max_length=3)
    assert r.read_out(q) == ["7", "8", "9"]
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")] * 3)
    r.policy(vhost, max_length_bytes=2)
    assert r.count(q) == 2 and r.ledger_agrees(q)


def test_a_limit_far_below_the_length_trims_in_batches(vhost):
    q = r.declare(vhost)
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")] * 1300)
    held = r.take(q, 3)
    r.policy(vhost, max_length=5)
    assert r.present(q) == [*(d.number for d in held), *range(1296, 1301)] and r.ledger_agrees(q)


def test_the_lower_limit_applies(vhost):
    """RMQ-098: of an argument and a policy; for overflow the argument does."""
    for argument, by_policy in ((50, 2), (2, 50)):
        q = r.declare(vhost, f"q{argument}", max_length=argument, overflow="reject-publish")
        r.policy(vhost, max_length=by_policy, overflow="drop-head")
        assert [p.refused for p in r.send(q, 1, 2, 3)] == [False, False, True]


def test_in_a_priority_queue_the_highest_priority_is_dropped_first(vhost):
    """RMQ-099"""
    q = r.declare(vhost, max_length=2, max_priority=9)
    for priority in (5, 1, 3):
        r.send(q, priority, priority=priority)
    assert r.read_out(q) == ["3", "1"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_the_limit_holds_with_concurrent_publishers_and_consumers(vhost, overflow):
    """However many at once: at no time are more ready than the limit, and none is lost but by it."""
    most = 7
    taken_at_once = 2
    q = r.declare(vhost, max_length=most, overflow=overflow)
    failures, told, seen, done = [], [], [], threading.Event()

    def guarded(work):
        def run():
            try:
                work()
            except Exception as exc:
                failures.append(exc)
            finally:
                connections.close_all_of_this_thread()

        return threading.Thread(target=run)

    def publisher():
        for _ in range(40):
            told.extend(rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")] * 3))

    def consumer():
        while not done.is_set():
            deliveries = rabbitmq.take(q, taken_at_once, owner_id=r.OWNER)
            rabbitmq.requeue(q, r.tokens(*deliveries[:1]), counts=False)
            rabbitmq.acknowledge(q, r.tokens(*deliveries[1:]))

    def watcher():
        query = "SELECT count(*) FROM vitrine_message m JOIN vitrine_entity e ON e.id = m.entity_id WHERE e.path = 'q'" \
                " AND e.deleted_at IS NULL AND m.lock_token IS NULL"  # fmt: skip
        while not done.is_set():
            seen.append(connections.current().execute(query).fetchone()[0])

    publishers = [guarded(publisher) for _ in range(3)]
    others = [guarded(consumer), guarded(watcher)]
    for thread in (*publishers, *others):
        thread.start()
    for thread in publishers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert not failures
    most += overflow == "reject-publish"  # new ones are refused, one that is given back is not
    assert max(seen) <= most + taken_at_once  # those that are being delivered count as delivered
    assert r.count(q) <= most and r.ledger_agrees(q)
    kinds = [e.kind for e in events(q)]
    accepted = sum(not p.refused for p in told)
    assert kinds.count(EventKind.SENT) == accepted
    assert accepted == len(r.present(q)) + kinds.count(EventKind.COMPLETED) + kinds.count(EventKind.DROPPED)


def test_queues_that_dead_letter_to_each_other_do_not_deadlock(vhost):
    """Each of two queues dead-letters to the other: whoever gives way tries again."""
    a = r.declare(vhost, "a", max_length=2, dead_letter_exchange="", dead_letter_routing_key="b")
    b = r.declare(vhost, "b", max_length=2, dead_letter_exchange="", dead_letter_routing_key="a")
    failures = []

    def publisher(q):
        try:
            for n in range(25):
                r.send(q, n)
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=publisher, args=(q,)) for q in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert r.count(a) == r.count(b) == 2 and r.ledger_agrees(a) and r.ledger_agrees(b)
    assert r.get(a) is not None


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_messages_for_consumers_with_capacity_do_not_exceed_the_limit(vhost, overflow, no_ack):
    """RMQ-090: it is theirs before the queue counts; so a consumer without a limit misses nothing, however fast one publishes."""
    q = r.declare(vhost, max_length=1, overflow=overflow)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("q", tag="c", no_ack=no_ack)
        assert not any(p.refused for p in r.send(q, *range(20)))
        assert [int(bytes(d.body)) for d in _all_of(channel)] == list(range(20))
    assert r.ledger_agrees(q)


def test_messages_beyond_the_capacity_of_consumers_exceed_the_limit(vhost):
    """With a prefetch of 2: two are the consumer's, one waits, the others go."""
    q = r.declare(vhost, max_length=1)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(2)
        channel.consume("q", tag="c")
        r.send(q, *range(6))
        assert [int(bytes(d.body)) for d in _all_of(channel)] == [0, 1]
        assert r.present(q) == [1, 2, 6] and r.ledger_agrees(q)


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_dead_letters_for_consumers_with_capacity_do_not_exceed_the_limit(vhost, overflow, no_ack):
    """RMQ-090: theirs before the queue counts, as what is published is; here rejected one by one."""
    dead = r.declare(vhost, "dead", max_length=1, overflow=overflow)
    q = r.declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    r.send(q, *range(6))
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("dead", tag="c", no_ack=no_ack)
        for delivery in r.take(q, 6):
            rabbitmq.reject(q, r.tokens(delivery))
        assert [int(bytes(d.body)) for d in _all_of(channel)] == list(range(6))
        assert r.ledger_agrees(dead) and r.ledger_agrees(q)


def test_dead_letters_beyond_the_capacity_of_consumers_exceed_the_limit(vhost):
    """Six expire at once: two are the consumer's, one waits, the others go on to a queue that waits for nobody."""
    last = r.declare(vhost, "last")
    dead = r.declare(vhost, "dead", max_length=1, dead_letter_exchange="", dead_letter_routing_key="last")
    q = r.declare(vhost, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    r.send(q, *range(6))
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(2)
        channel.consume("dead", tag="c")
        r.step(q, 100)
        r.expire(q)
        assert [int(bytes(d.body)) for d in _all_of(channel)] == [0, 1]
        assert r.read_out(last) == ["2", "3", "4"]
        assert r.present(dead) == [1, 2, 6] and r.ledger_agrees(dead)


def test_dead_letters_of_a_full_queue_go_to_consumers_of_the_target(vhost):
    last = r.declare(vhost, "last", max_length=1)
    q = r.declare(vhost, max_length=1, dead_letter_exchange="", dead_letter_routing_key="last")
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("last", tag="c")
        r.send(q, *range(5))
        assert [int(bytes(d.body)) for d in _all_of(channel)] == [0, 1, 2, 3]
        assert r.present(q) == [5] and r.ledger_agrees(q) and r.ledger_agrees(last)


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize("arguments", [{"max_length": 9}, {"max_length": 9, "overflow": "reject-publish"}, {"message_ttl": 0}])
def test_prefetch_is_respected_by_dead_letters_from_two_queues_in_one_transaction(vhost, arguments, of_all):
    """RMQ-140: two short queues get each publication, and push the one before to the same queue."""
    dead = r.declare(vhost, "dead", **arguments)
    for name in ("s1", "s2"):
        r.declare(vhost, name, max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
        rabbitmq.bind_queue(vhost, name, "amq.fanout")
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(1, global_=of_all)
        channel.consume("dead", tag="c")
        rabbitmq.publish(vhost, [Publication(b"%d" % i, "amq.fanout") for i in range(3)])
        (only,) = channel.deliveries(9)
        channel.ack(only.delivery_tag)
        assert len(channel.deliveries(9)) == (0 if "message_ttl" in arguments else 1)
        assert r.ledger_agrees(dead)


def test_channel_prefetch_is_respected_by_a_publication_to_two_queues(vhost):
    """RMQ-141"""
    queues = [r.declare(vhost, name, max_length=9) for name in ("a", "b")]
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(1, global_=True)
        for q in queues:
            rabbitmq.bind_queue(vhost, q.path, "amq.fanout")
            channel.consume(q.path)
        rabbitmq.publish(vhost, [Publication(b"", "amq.fanout")])
        assert len(channel.deliveries(9)) == 1 and channel.credit == 0
        channel.ack(1)
        assert channel.credit == 1 and len(channel.deliveries(9)) == 1


def test_a_failed_transaction_uses_no_prefetch_capacity(vhost, monkeypatch):
    q = r.declare(vhost, max_length=9)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.qos(1)
        channel.consume("q", tag="c")
        with monkeypatch.context() as patched:
            patched.setattr("broker_core.rabbitmq.messages.publishing.settle_arrivals", _relieve_and_fail)
            with pytest.raises(ZeroDivisionError):
                r.send(q, 0)
        assert channel.consumers["c"].credit == 1
        r.send(q, 1)
        assert r.texts(channel.deliveries(9)) == ["1"] and r.ledger_agrees(q)


@pytest.mark.parametrize("arguments", [{"max_length": 9}, {"message_ttl": 0}])
def test_deliveries_of_a_callers_transaction_arrive_after_its_commit(vhost, transactional_db, arguments):
    """Nobody gets what may yet be rolled back."""
    q = r.declare(vhost, **arguments)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("q")
        with pytest.raises(ZeroDivisionError), transaction.atomic(), connections.callers_transaction():
            r.send(q, "undone")
            raise ZeroDivisionError
        with transaction.atomic(), connections.callers_transaction():
            r.send(q, "done")
            assert not channel.buffered
        (only,) = channel.deliveries(9)
        assert r.texts([only]) == ["done"] and r.ledger_agrees(q)
        channel.ack(only.delivery_tag)


def _relieve_and_fail(work, limited, brief):
    yield from local_delivery.deliver_from_head(work, limited[0])
    assert local_consumers.eligible_consumers(work.queue(limited[0]).id)[0].credit == 0
    raise ZeroDivisionError


def _all_of(channel):
    """What a channel has been given; those that nobody handed over it fetches itself."""
    results = []
    while some := channel.deliveries(50):
        results += some
    return results


def test_connections_that_end_concurrently_get_no_messages(vhost):
    """Publishers hold a counter and want a connection, who ends one holds it and wants the counter: neither waits for long."""
    q = r.declare(vhost, max_length=3)
    failures, done = [], threading.Event()

    def publisher():
        try:
            for n in range(60):
                r.send(q, n)
        except Exception as exc:
            failures.append(exc)
        finally:
            done.set()
            connections.close_all_of_this_thread()

    thread = threading.Thread(target=publisher)
    thread.start()
    while not done.is_set():
        with rabbitmq.connect(vhost) as connection:
            channel = connection.channel()
            channel.qos(2)
            channel.consume("q", tag="c")
            channel.deliveries(5)
    thread.join()
    assert not failures
    assert r.count(q) <= 3 and len(r.present(q)) == r.count(q) and r.ledger_agrees(q)
