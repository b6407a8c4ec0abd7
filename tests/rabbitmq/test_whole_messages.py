"""A message is delivered as it was published: its header table byte for byte, absent or empty, and every property
(docs/messages.md)."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Properties, Publication, ToQueue
from broker_core.rabbitmq.rules import table, wire_table
from broker_core.store import connections
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import import_
from tests.broker_state import entity_id

from . import shortcuts as r
from .test_moving import with_dlx
from .wire_tables import SIMPLE, TABLES, of

# CC and BCC route, x-death counts deaths: what they may hold has tests of its own.
TEXT: Any = "text"
ROUTING = {"CC", "BCC", "x-death"}
MESSAGES = st.lists(
    st.builds(
        Properties,
        content_type=st.sampled_from([None, "", "text/plain"]),
        delivery_mode=st.sampled_from([None, 1, 2]),
        priority=st.none() | st.integers(0, 255),
        timestamp=st.sampled_from([None, datetime(2026, 1, 1, tzinfo=UTC), 2**63]),
        message_id=st.sampled_from([None, "", "m"]),
        app_id=st.sampled_from([None, "app"]),
        header_table=st.none() | TABLES.filter(lambda encoded: ROUTING.isdisjoint(wire_table.decode(encoded))),
    ),
    min_size=1,
    max_size=6,
)
many = settings(max_examples=8)


def new_vhost():
    name = f"whole {uuid.uuid4().hex[:10]}"
    rabbitmq.create_vhost(name)
    return name


def publish(queue, sent, exchange=""):
    rabbitmq.publish(queue.namespace, [Publication(b"x", exchange, queue.path, properties) for properties in sent])


def got(queue, count):
    return rabbitmq.take(queue, count, owner_id=r.OWNER)


def directly(queue, sent):
    publish(queue, sent)
    return got(queue, len(sent))


def without_acknowledgement(queue, sent):
    publish(queue, sent)
    return [rabbitmq.get(queue, no_ack=True) for _ in sent]


def requeued(queue, sent):
    rabbitmq.requeue(queue, r.tokens(*directly(queue, sent)))
    return got(queue, len(sent))


def copied(queue, sent):
    rabbitmq.bind_queue(queue.namespace, queue.path, "amq.fanout", "")
    rabbitmq.bind_queue(queue.namespace, r.declare(queue.namespace, "other").path, "amq.fanout", "")
    publish(queue, sent, "amq.fanout")
    return got(queue, len(sent))


def in_a_limited_queue(queue, sent):
    limited = r.declare(queue.namespace, "limited", max_length=100)
    return directly(limited, sent)


def moved(queue, sent):
    other = r.declare(queue.namespace, "elsewhere")
    publish(other, sent)
    rabbitmq.move(other, ToQueue(queue.path))
    return got(queue, len(sent))


def exported_and_imported(queue, sent):
    publish(queue, sent)
    lines: list[str] = []
    export([queue.namespace], lines.append)
    copy = EntityAddress(f"{queue.namespace} copied", queue.path)
    import_(lines, name=copy.namespace)
    return got(copy, len(sent))


OPERATIONS = (directly, without_acknowledgement, requeued, copied, in_a_limited_queue, moved, exported_and_imported)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@many
@given(sent=MESSAGES)
def test_a_message_is_delivered_as_published(broker_database, operation, sent):
    deliveries = operation(r.declare(new_vhost(), "q"), sent)
    for delivery, properties in zip(deliveries, sent, strict=True):
        assert delivery.header_table == properties.header_table
        table_ = properties.header_table
        assert table.encode(delivery.properties.headers) == ({} if table_ is None else table.encode(wire_table.decode(table_)))
        for name in ("content_type", "delivery_mode", "priority", "timestamp", "message_id", "app_id"):
            assert getattr(delivery.properties, name) == getattr(properties, name)


@many
@given(sent=MESSAGES)
def test_a_dead_letter_has_its_deaths_and_all_published_values(broker_database, sent):
    """RMQ-065, RMQ-066: the headers as published, in their order, and the deaths."""
    vhost = new_vhost()
    dead, queue = r.declare(vhost, "dead"), with_dlx(vhost, "q")
    rabbitmq.reject(queue, r.tokens(*directly(queue, sent)))
    for delivery, properties in zip(got(dead, len(sent)), sent, strict=True):
        table_ = wire_table.decode(properties.header_table or b"")
        decoded = wire_table.decode(delivery.header_table)
        assert set(decoded) - set(table_) >= {"x-death", "x-first-death-queue", "x-last-death-queue"}
        assert table.encode({name: value for name, value in decoded.items() if name in table_}) == table.encode(table_)
        assert [name for name in decoded if name in table_] == list(table_)
        assert table.encode(delivery.properties.headers) == table.encode(decoded)


@many
@given(first=of(SIMPLE).filter(lambda t: ROUTING.isdisjoint(wire_table.decode(t))))
def test_bcc_is_removed_and_other_headers_stay(broker_database, first):
    """RMQ-366"""
    bcc = b"\x03BCC" + b"A\x00\x00\x00\x06S\x00\x00\x00\x01k"
    queue = r.declare(new_vhost(), "q")
    (delivery,) = directly(queue, [Properties(header_table=first + bcc)])
    assert delivery.header_table == first


def test_a_quorum_queue_adds_the_delivery_count(vhost):
    """RMQ-120"""
    queue = r.declare(vhost, "q", type="quorum")
    publish(queue, [Properties(header_table=b""), Properties()])
    rabbitmq.requeue(queue, r.tokens(*got(queue, 2)))
    assert [d.header_table for d in got(queue, 2)] == [b"\x10x-delivery-countI\x00\x00\x00\x01"] * 2


def column(queue):
    query = "SELECT encoded FROM vitrine_message WHERE entity_id = %s ORDER BY sequence_number"
    return [row[0] for row in connections.current().execute(query, [entity_id(queue)])]


def test_a_table_that_the_json_represents_exactly_is_not_stored_twice(queue):
    plain = b"\x01aI\x00\x00\x00\x01\x02abV"
    other = b"\x02abV\x01aI\x00\x00\x00\x01"  # another order than that of PostgreSQL's JSON
    publish(queue, [Properties(), Properties(headers={"ab": None, "a": 1})])
    publish(queue, [Properties(header_table=table_) for table_ in (plain, other, b"")])
    assert column(queue) == [None, None, None, other, b""]
    assert [d.header_table for d in got(queue, 5)] == [None, plain, plain, other, b""]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        (Properties(header_table=b"\x05x"), "headers"),
        (Properties(header_table=b"\x01aV", headers={"a": 1}), "header_table"),
        (Properties(header_table=TEXT), "header_table"),
        (Properties(timestamp=-1), "timestamp"),
        (Properties(timestamp=2**64), "timestamp"),
    ],
)
def test_an_invalid_table_is_refused_and_nothing_is_stored(queue, properties, name):
    with pytest.raises(InvalidArgument) as refused:
        publish(queue, [Properties(), properties])
    assert refused.value.name == name and rabbitmq.get(queue, no_ack=True) is None
