"""Publishing and deliveries that an operator has paused (RMQ-929)."""

import pytest

from broker_core import rabbitmq
from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, EntityStatus, Right
from broker_core.rabbitmq.rules.errors import AmqpError

from .shortcuts import count, declare, get, ledger_agrees, read_out, send

OPERATOR = Actor("user", "otto", Right.OPERATE | Right.BROWSE)


def test_publishing_to_a_paused_queue_is_refused_and_stores_nothing(vhost):
    """RMQ-929."""
    q, other = declare(vhost), declare(vhost, "other")
    for name in ("q", "other"):
        rabbitmq.bind_queue(vhost, name, "amq.fanout")
    rabbitmq.set_status(q, EntityStatus.SEND_DISABLED, actor=OPERATOR)
    for exchange, key in (("", "q"), ("amq.fanout", "")):
        with pytest.raises(AmqpError, match="paused") as refused:
            rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", exchange, key)])
        assert refused.value.reply_code == 406
    assert count(q) == count(other) == 0
    rabbitmq.set_status(q, EntityStatus.ACTIVE, actor=OPERATOR)
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", "amq.fanout")])
    assert count(q) == count(other) == 1 and ledger_agrees(q)


def test_a_paused_queue_with_a_length_limit_refuses_publications(vhost):
    """RMQ-929."""
    q = declare(vhost, max_length=5)
    rabbitmq.set_status(q, EntityStatus.DISABLED)
    with pytest.raises(AmqpError, match="paused"):
        send(q, "x")
    assert count(q) == 0


def test_messages_are_not_delivered_until_deliveries_are_resumed(vhost):
    """RMQ-929."""
    q = declare(vhost)
    send(q, "a")
    held = get(q, no_ack=False)
    send(q, "b")
    rabbitmq.set_status(q, EntityStatus.RECEIVE_DISABLED, actor=OPERATOR)
    assert rabbitmq.get(q, no_ack=True) is None and rabbitmq.take(q, 5, no_ack=True) == []
    rabbitmq.acknowledge(q, [held.token])  # what is held can be finished
    send(q, "c")
    rabbitmq.set_status(q, EntityStatus.ACTIVE, actor=OPERATOR)
    assert read_out(q) == ["b", "c"] and ledger_agrees(q)


def test_consumers_continue_after_a_pause(channel, queue):
    """RMQ-929."""
    channel.consume("q")
    rabbitmq.set_status(queue, EntityStatus.RECEIVE_DISABLED)
    channel.publish([rabbitmq.Publication(b"x", routing_key="q")])
    assert channel.deliveries(max_wait_seconds=0.05) == []
    rabbitmq.set_status(queue, EntityStatus.ACTIVE)
    [delivery] = channel.deliveries(max_wait_seconds=5)
    assert delivery.body == b"x"


def test_dead_letters_are_accepted_by_a_paused_queue(vhost):
    """RMQ-929: what was accepted is not lost."""
    q = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = declare(vhost, "dead")
    send(q, "a")
    held = get(q, no_ack=False)
    rabbitmq.set_status(dead, EntityStatus.DISABLED)
    rabbitmq.reject(q, [held.token])
    assert count(dead) == 1


def test_pausing_requires_the_right_to_operate(vhost):
    q = declare(vhost)
    with pytest.raises(NotAuthorized):
        rabbitmq.set_status(q, EntityStatus.DISABLED, actor=Actor("user", "vera", Right.BROWSE))
