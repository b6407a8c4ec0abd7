"""Topics: what a subscription gets, by which rule, under which number, and how long it lives (SB-210 to SB-221, SB-022, SB-051)."""

from datetime import timedelta

import pytest

from broker_core import broker, entities, sweeps
from broker_core.semantics.errors import EntityDisabled, EntityNotFound, MessageTooLarge, NotAllowed, QuotaExceeded
from broker_core.semantics.filters.rules import Rule
from broker_core.semantics.filters.sql import compile_filter
from broker_core.semantics.types import EntityAddress, EntityStatus, Message, MessageState
from tests.broker.looking import bodies, events, ledger_agrees, now

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def topic(namespace):
    address = EntityAddress(namespace, "orders")
    entities.create_topic(address)
    return address


def subscribe(topic, name, rule=None, **settings):
    address = topic.subscription(name)
    entities.create_subscription(address, rule=rule, **settings)
    return address


def test_every_subscription_gets_its_own_copy(topic):
    first, second = subscribe(topic, "first"), subscribe(topic, "second")
    assert broker.send(topic, [Message(b"a"), Message(b"b")]) == [1, 2]
    (a, b) = broker.receive(first, 5)
    assert (a.body, b.body) == (b"a", b"b")
    assert [(m.sequence_number, m.enqueued_sequence_number) for m in (a, b)] == [(1, 1), (2, 2)]
    assert a.message_id == broker.peek(second)[0].message_id
    broker.complete(first, [a.lock_token, b.lock_token])
    assert bodies(broker.receive(second, 5)) == ["a", "b"]
    assert ledger_agrees(topic) and ledger_agrees(first) and ledger_agrees(second)


def test_a_message_nobody_takes_is_sent_and_gone(topic):
    nobody = subscribe(topic, "nobody", Rule("none", compile_filter("1 = 0")))
    assert broker.send(topic, [Message(b"x")]) == [1]
    assert broker.receive(nobody, 1) == [] and broker.peek(topic) == []
    assert broker.send(topic, [Message(b"y")]) == [2]
