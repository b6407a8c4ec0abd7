"""The names of the properties that messages have."""

import pytest

from broker_core import reads, service_bus
from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, Right
from broker_core.reads import Tab, messages
from broker_core.service_bus.rules.values import Message
from tests.broker_state import entity_id
from tests.fixtures import broker_database, make_queue, namespace  # noqa: F401 - fixtures


def test_property_names_are_those_of_the_messages_of_a_namespace(make_queue):  # noqa: F811
    first, second, other = make_queue(), make_queue(), make_queue()
    service_bus.send(first, [Message(b"x", properties={"region": "eu", "n": 1}), Message(b"x")])
    service_bus.send(second, [Message(b"x", properties={"region": "us", "a": 1})])
    service_bus.send(other, [Message(b"x", properties={"other": 1})])
    ids = [entity_id(first), entity_id(second)]
    assert reads.property_names(first.namespace, ids) == ["a", "n", "region"]
    assert reads.property_names("elsewhere", ids) == []
    with pytest.raises(NotAuthorized):
        reads.property_names(first.namespace, ids, actor=Actor("user", "eve", Right.SEND))


def test_property_names_are_read_from_a_bounded_number_of_messages(make_queue, monkeypatch):  # noqa: F811
    """Also if none of them has a property."""
    monkeypatch.setattr(messages, "NAMES_FROM_MESSAGES", 3)
    monkeypatch.setattr(messages, "NAMES_FROM_ENTITIES", 2)
    queues = [make_queue() for _ in range(3)]
    service_bus.send(queues[0], [Message(b"x")] * 3 + [Message(b"x", properties={"fourth": 1})])
    for queue in queues[1:]:
        service_bus.send(queue, [Message(b"x", properties={queue.path: 1})])
    assert reads.property_names(queues[0].namespace, map(entity_id, queues)) == [queues[1].path]


def test_messages_with_thousands_of_names_do_not_make_suggestions_slow(make_queue):  # noqa: F811
    """The messages examined have 2 MB beside their bodies at most, as long as there are more."""
    queue = make_queue()
    names = {f"name-{n:04}": "x" for n in range(1_500)}
    for _ in range(20):
        service_bus.send(queue, [Message(b"x" * 20_000, properties=names) for _ in range(10)])
    each = len(names) * 20
    [(name, count)] = reads.frequent_values(queue, Tab.ACTIVE, "prop.", "NAME-0007")
    assert name == "name-0007" and 2 * 1024 * 1024 / each / 2 < count < 2 * 1024 * 1024 / each * 2
    assert len(reads.frequent_values(queue, Tab.ACTIVE, "prop.")) == 10
    assert len(reads.property_names(queue.namespace, [entity_id(queue)])) == 30
