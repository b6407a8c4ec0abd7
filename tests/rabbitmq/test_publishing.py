"""Publishing: where a message goes, what is told of it, and what is kept (RMQ-360 to RMQ-369)."""

import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import transaction

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.messages import publishing
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.messages import MAX_BODY
from broker_core.rabbitmq.rules.table import Typed
from broker_core.rabbitmq.topology import compiled
from broker_core.store import aio, connections
from tests.broker_state import entity_id, events
from tests.combined_calls import group_sizes, results_behind_first

from .shortcuts import OWNER, count, declare, get, ledger_agrees, present, read_out, send, texts

TEXT: Any = "text"  # where bytes belong
NUMBER: Any = 5  # where a text belongs
EVERYTHING = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC),
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="",
    headers={"n": 1, "wide": Typed("long", 1), "none": None, "inner": {"list": ["x\x00", 2.5, b"\x00"]}},
)


def test_a_batch_keeps_its_order(vhost):
    q = declare(vhost)
    published = rabbitmq.publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(5)])
    assert [p.queues for p in published] == [(("q", i + 1),) for i in range(5)]
    assert read_out(q) == ["0", "1", "2", "3", "4"]
    assert ledger_agrees(q)


def test_properties_are_delivered_unchanged(vhost):
    """RMQ-360: to one queue, and to several."""
    q, other = declare(vhost), declare(vhost, "other")
    rabbitmq.bind_queue(vhost, "q", "amq.fanout")
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="q", properties=EVERYTHING)])
    rabbitmq.bind_queue(vhost, "other", "amq.fanout")
    rabbitmq.publish(vhost, [Publication(b"", "amq.fanout", "key", EVERYTHING)])
    assert get(q).properties == EVERYTHING
    for address in (q, other):
        delivery = get(address)
        assert (delivery.properties, delivery.body, delivery.exchange, delivery.routing_key) == (
            EVERYTHING,
            b"",
            "amq.fanout",
            "key",
        )


def test_copies_are_independent(vhost):
    q, other = declare(vhost), declare(vhost, "other")
    for address in (q, other):
        rabbitmq.bind_queue(vhost, address.path, "amq.fanout")
    send(other, "before")
    (published,) = rabbitmq.publish(vhost, [Publication(b"x", "amq.fanout")])
    assert sorted(published.queues) == [("other", 2), ("q", 1)]
    rabbitmq.acknowledge(q, [get(q).token])
    assert read_out(other) == ["before", "x"] and present(q) == []
    assert ledger_agrees(q) and ledger_agrees(other)


def test_a_batch_is_routed_to_several_queues(vhost):
    """All or none of it, each message to the queues it is routed to; numbers are told by queue."""
    a, b = declare(vhost, "a"), declare(vhost, "b")
    rabbitmq.bind_queue(vhost, "a", "amq.topic", "x.#")
    rabbitmq.bind_queue(vhost, "b", "amq.topic", "x.y")
    published = rabbitmq.publish(
        vhost,
        [
            Publication(b"1", "amq.topic", "x"),
            Publication(b"2", "amq.topic", "x.y"),
            Publication(b"3", "amq.topic", "z", mandatory=True),
            Publication(b"4", routing_key="b"),
        ],
    )
    assert [dict(p.queues) for p in published] == [{"a": 1}, {"a": 2, "b": 1}, {}, {"b": 2}]
    assert [p.unroutable for p in published] == [False, False, True, False]
    assert (read_out(a), read_out(b)) == (["1", "2"], ["2", "4"])


def test_carbon_copy_keys_are_routed(vhost):
    """RMQ-366: one copy for a queue, whatever the number of keys; BCC is not for consumers to see."""
    q, other, hidden = declare(vhost), declare(vhost, "other"), declare(vhost, "hidden")
    send(q, "x", headers={"CC": ["other", "q"], "BCC": ["hidden"]})
    for address in (q, other, hidden):
        assert get(address).properties.headers == {"CC": ["other", "q"]}
        assert get(address) is None


def test_a_bad_carbon_copy_is_refused(vhost):
    declare(vhost)
    with pytest.raises(AmqpError, match="unacceptable_type_in_header"):
        rabbitmq.publish(vhost, [Publication(b"x", routing_key="q", properties=Properties(headers={"CC": "q"}))])


def test_an_unroutable_mandatory_message_is_returned(vhost):
    (published,) = rabbitmq.publish(vhost, [Publication(b"x", routing_key="nobody", mandatory=True)])
    assert published == ((), False, True)


def test_an_unroutable_message_is_dropped(vhost):
    (published,) = rabbitmq.publish(vhost, [Publication(b"x", "amq.direct", "nobody")])
    assert published.unroutable and not published.queues


def test_a_missing_or_internal_exchange_is_refused(vhost):
    q = declare(vhost)
    with pytest.raises(AmqpError, match="NOT_FOUND - no exchange 'gone' in vhost"):
        rabbitmq.publish(vhost, [Publication(b"1", routing_key="q"), Publication(b"2", "gone")])
    with pytest.raises(AmqpError, match="cannot publish to internal exchange"):
        rabbitmq.publish(vhost, [Publication(b"x", "amq.rabbitmq.trace")])
    assert present(q) == []


def test_an_unknown_vhost_is_refused(vhost):
    with pytest.raises(AmqpError, match="vhost nowhere not found"):
        rabbitmq.publish("nowhere", [Publication(b"x")])


def test_too_large_a_body_is_refused(vhost):
    q = declare(vhost)
    with pytest.raises(AmqpError, match=f"message size {MAX_BODY + 1} is larger than configured max size {MAX_BODY}"):
        rabbitmq.publish(vhost, [Publication(bytes(MAX_BODY + 1), routing_key="q")])
    assert present(q) == []


@pytest.mark.parametrize(
    ("publication", "error", "problem"),
    [
        (Publication(TEXT, routing_key="q"), InvalidArgument, "body"),
        (Publication(b"", routing_key="k" * 256), InvalidArgument, "routing_key"),
        (Publication(b"", routing_key="q", properties=Properties(type="t" * 256)), InvalidArgument, "type"),
        (Publication(b"", routing_key="q", properties=Properties(app_id="a\x00")), InvalidArgument, "app_id"),
        (Publication(b"", routing_key="q", properties=Properties(priority=256)), InvalidArgument, "priority"),
        (Publication(b"", routing_key="q", properties=Properties(priority=True)), InvalidArgument, "priority"),
        (Publication(b"", routing_key="q", properties=Properties(delivery_mode=3)), AmqpError, "delivery_mode_unknown,3"),
        (
            Publication(b"", routing_key="q", properties=Properties(expiration="abc")),
            AmqpError,
            "invalid expiration 'abc': no_integer",
        ),
        (Publication(b"", routing_key="q", properties=Properties(expiration=NUMBER)), InvalidArgument, "expiration"),
        (Publication(b"", routing_key="q", properties=Properties(timestamp=datetime(2026, 1, 1))), InvalidArgument, "timestamp"),
        (Publication(b"", routing_key="q", properties=Properties(headers={"a": object()})), InvalidArgument, "object"),
    ],
)
def test_an_invalid_publication_stores_nothing(vhost, publication, error, problem):
    q = declare(vhost)
    with pytest.raises(error, match=problem):
        rabbitmq.publish(vhost, [Publication(b"fine", routing_key="q"), publication])
    assert present(q) == [] and ledger_agrees(q)


def test_publishing_requires_the_right_to_send(vhost):
    declare(vhost)
    with pytest.raises(NotAuthorized):
        rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")], actor=Actor("user", "reader", Right.BROWSE))


def test_an_empty_batch_is_accepted(vhost):
    assert rabbitmq.publish(vhost, []) == []


def test_events_record_the_published_message(vhost):
    q = declare(vhost)
    send(q, "x", headers={"a": "b"}, expiration="1500", message_id="m")
    (event,) = events(q)
    assert (event.kind, event.size, event.message_id) == (EventKind.SENT, 1, "m")
    assert event.time_to_live.total_seconds() == 1.5
    assert event.properties == {"exchange": "", "routing_key": "q", "expiration": "1500"}
    assert event.application_properties == {"a": ["longstr", "b"]}


def test_topology_changes_of_other_processes_are_seen(vhost):
    """Another process, to which nobody tells anything, finds out by the version."""
    q = declare(vhost)
    send(q, 1)  # remembered now
    key = compiled._key(vhost)
    remembered = compiled._compiled[key]
    other = declare(vhost, "other")
    rabbitmq.bind_queue(vhost, "other", "amq.fanout")
    rabbitmq.declare_exchange(vhost, "new", "fanout")
    rabbitmq.bind_queue(vhost, "other", "new")
    for exchange, routing_key in (("amq.fanout", ""), ("new", ""), ("", "other")):
        compiled._compiled[key] = remembered
        (published,) = rabbitmq.publish(vhost, [Publication(b"x", exchange, routing_key)])
        assert [name for name, _ in published.queues] == ["other"]
    assert count(other) == 3
    rabbitmq.delete_queue(q)
    compiled._compiled[key] = remembered
    assert rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")])[0].unroutable
    assert count(other) == 3


def test_topology_cached_in_a_rolled_back_transaction_is_discarded(vhost, transactional_db):
    a, b = declare(vhost, "a"), declare(vhost, "b")
    rabbitmq.declare_exchange(vhost, "x", "fanout")
    with pytest.raises(ZeroDivisionError), transaction.atomic(), connections.callers_transaction():
        rabbitmq.bind_queue(vhost, "a", "x")
        send(a, "undone", exchange="x")
        raise ZeroDivisionError
    rabbitmq.bind_queue(vhost, "b", "x")
    send(b, "done", exchange="x")
    assert (read_out(a), read_out(b)) == ([], ["done"])


def test_publishers_and_topology_changes_run_concurrently(vhost):
    """Whatever is bound while others publish, each publication is stored by one state of the topology, wholly."""
    for name in ("a", "b"):
        declare(vhost, name)
    rabbitmq.bind_queue(vhost, "a", "amq.fanout")
    failures, told, done = [], [], threading.Event()

    def publisher():
        try:
            for i in range(120):
                told.append(rabbitmq.publish(vhost, [Publication(str(i).encode(), "amq.fanout")])[0])
        except Exception as exc:
            failures.append(exc)
        finally:
            done.set()
            connections.close_all_of_this_thread()

    thread = threading.Thread(target=publisher)
    thread.start()
    while not done.is_set():
        rabbitmq.bind_queue(vhost, "b", "amq.fanout")
        rabbitmq.unbind_queue(vhost, "b", "amq.fanout")
    thread.join()
    assert not failures
    a, b = EntityAddress(vhost, "a"), EntityAddress(vhost, "b")
    assert present(a) == [dict(p.queues)["a"] for p in told] == list(range(1, 121))
    assert present(b) == [dict(p.queues)["b"] for p in told if "b" in dict(p.queues)]
    assert ledger_agrees(a) and ledger_agrees(b)


def test_publishers_to_the_same_queues_do_not_deadlock(vhost):
    """Counters are taken in one order, whatever the order of the queues a message goes to."""
    for name in ("a", "b", "c"):
        declare(vhost, name)
    rabbitmq.declare_exchange(vhost, "some", "fanout")
    for name in ("c", "a"):
        rabbitmq.bind_queue(vhost, name, "some")
    for name in ("b", "c", "a"):
        rabbitmq.bind_queue(vhost, name, "amq.fanout")
    failures = []

    def publisher(exchange):
        try:
            for _ in range(60):
                rabbitmq.publish(vhost, [Publication(b"x", exchange)] * 3)
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=publisher, args=(e,)) for e in ("some", "amq.fanout", "some", "amq.fanout")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert count(EntityAddress(vhost, "a")) == count(EntityAddress(vhost, "c")) == 720
    assert count(EntityAddress(vhost, "b")) == 360


async def test_publishing_and_consuming_work_under_asyncio(vhost):
    q = declare(vhost)
    try:
        await rabbitmq.publish.aio(vhost, [Publication(b"x", routing_key="q")])
        deliveries = await rabbitmq.take.aio(q, 1, owner_id=OWNER)
        assert texts(deliveries) == ["x"]
        assert (await rabbitmq.acknowledge.aio(q, [deliveries[0].token])).settled
    finally:
        await aio.close()


def test_a_queue_deleted_while_its_counter_is_awaited_is_left_out(vhost):
    """The whole publication is made anew, by the topology without it; nothing is stored twice."""
    going, staying = declare(vhost, "going"), declare(vhost, "staying")
    for q in (going, staying):
        rabbitmq.bind_queue(vhost, q.path, "amq.fanout")
    send(staying, "before")
    told = []

    def publisher():
        try:
            told.extend(rabbitmq.publish(vhost, [Publication(b"x", "amq.fanout")]))
        finally:
            connections.close_all_of_this_thread()

    thread = threading.Thread(target=publisher)
    gone = entity_id(going)
    with psycopg.connect(**connections.DEFAULT.parameters() | {"autocommit": False}) as other:
        other.execute("SELECT FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE", [gone])
        thread.start()
        waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        while not connections.current().execute(waiting).fetchone().n:
            pass
        other.execute("DELETE FROM vitrine_binding WHERE queue_id = %s", [gone])
        other.execute("UPDATE vitrine_entity SET deleted_at = now() WHERE id = %s", [gone])
        other.execute("DELETE FROM vitrine_entity_counter WHERE entity_id = %s", [gone])
        other.execute("UPDATE vitrine_namespace SET topology_version = topology_version + 1000 WHERE name = %s", [vhost])
        other.commit()
    thread.join()
    assert [p.queues for p in told] == [(("staying", 2),)]
    assert read_out(staying) == ["before", "x"]


def test_publications_of_threads_to_several_queues_are_stored_together(vhost, monkeypatch):
    """Each call is told of its own messages, and the messages of each are next to each other, in order."""
    a, b = declare(vhost, "a"), declare(vhost, "b")
    for queue in (a, b):
        rabbitmq.bind_queue(vhost, queue.path, "amq.fanout")
    groups = group_sizes(monkeypatch, publishing._copied)
    bodies = [[b"%d%d" % (n, i) for i in range(2)] for n in range(6)]
    works = [lambda some=some: rabbitmq.publish(vhost, [Publication(body, "amq.fanout") for body in some]) for some in bodies]
    counter = "SELECT FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE"
    outcomes = results_behind_first(publishing._copied, counter, entity_id(a), works)
    assert groups == [1, 5] and ledger_agrees(a) and ledger_agrees(b)
    for queue in (a, b):
        stored = {d.number: bytes(d.body) for d in rabbitmq.take(queue, 20, owner_id=OWNER)}
        for some, published in zip(bodies, outcomes, strict=True):
            numbers = [dict(publication.queues)[queue.path] for publication in published]
            assert numbers[1] == numbers[0] + 1 and [stored[n] for n in numbers] == some
