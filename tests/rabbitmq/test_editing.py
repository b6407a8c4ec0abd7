"""An operator edits ready messages (RMQ-931, docs/design.md D22)."""

import pytest

from broker_core import rabbitmq, reads
from broker_core.common.errors import (
    InvalidArgument,
    MessageChanged,
    MessageHeld,
    MessageNotFound,
    NotAllowed,
    NotAuthorized,
)
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.rabbitmq.rules.errors import AmqpError
from tests.broker_state import events
from tests.queue_storage.test_concurrency import side_by_side

from .shortcuts import OWNER, declare, get, ledger_agrees, read_out, send, step, take, tokens

OTTO = Actor("user", "otto", Right.ALL)


def test_an_edit_changes_the_content_and_nothing_else(vhost):
    """RMQ-931: position, priority, expiry and the other properties stay."""
    queue = declare(vhost, max_priority=5, message_ttl=60_000)
    send(queue, "before", headers={"old": 1}, priority=3, correlation_id="c")
    send(queue, "other", priority=3)
    before = reads.message(queue, 1)
    new = rabbitmq.edit(queue, 1, body=b"longer", headers={"new": ["x"]}, version=before.version, reason="typo", actor=OTTO)
    after = reads.message(queue, 1)
    assert after.version == new and after.broker_properties == before.broker_properties
    for name in ("enqueued_at", "expires_at", "priority", "delivery_count", "message_id"):
        assert getattr(after.row, name) == getattr(before.row, name), name
    [event] = [e for e in events(queue, 1) if e.kind == EventKind.EDITED]
    assert (event.actor, event.reason, event.size, event.details["size_before"]) == ("user:otto", "typo", 6, 6)
    assert event.details["changed"] == ["body", "properties"]
    delivery = get(queue)
    assert (delivery.body, delivery.properties.headers, delivery.properties.correlation_id) == (b"longer", {"new": ["x"]}, "c")
    assert not delivery.redelivered
    rabbitmq.requeue(queue, tokens(delivery))
    assert read_out(queue) == ["longer", "other"] and ledger_agrees(queue)


def test_what_is_not_given_stays(queue):
    send(queue, "x", headers={"a": 1})
    rabbitmq.edit(queue, 1, body=b"y")
    assert reads.message(queue, 1).application_properties["a"] == ("signedint", "1")
    rabbitmq.edit(queue, 1, headers={})
    assert (reads.message(queue, 1).application_properties, read_out(queue)) == ({}, ["y"])


def test_the_headers_of_the_broker_stay(vhost):
    """RMQ-931: where a dead letter came from is not lost, and cannot be forged."""
    declare(vhost, "graves")
    queue = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="graves")
    graves = EntityAddress(vhost, "graves")
    send(queue, "x", headers={"a": 1})
    rabbitmq.reject(queue, tokens(get(queue)))
    before = reads.message(graves, 1).application_properties
    rabbitmq.edit(graves, 1, headers={"b": 2})
    after = reads.message(graves, 1).application_properties
    assert after == {name: value for name, value in before.items() if name != "a"} | {"b": ("signedint", "2")}
    assert "x-death" in after
    with pytest.raises(InvalidArgument, match="x-death is written by the broker"):
        rabbitmq.edit(graves, 1, headers={"x-death": []})


def _unacked(queue):
    send(queue, "x")
    take(queue, actor=Actor("process", "billing", Right.ALL))


def _expired(queue):
    send(queue, "x", expiration="1000")
    step(queue, 2000)


def _acknowledged(queue):
    send(queue, "x")
    read_out(queue)


REFUSED = [
    (_unacked, MessageHeld, "is held by .*release its delivery first"),
    (_expired, NotAllowed, "has expired"),
    (_acknowledged, MessageNotFound, "no message with the sequence number 1"),
]


@pytest.mark.parametrize(("reach", "error", "says"), REFUSED, ids=[reach.__name__ for reach, _, _ in REFUSED])
def test_a_message_that_is_not_ready_is_refused(queue, reach, error, says):
    """RMQ-931"""
    reach(queue)
    before = len(events(queue))
    with pytest.raises(error, match=says):
        rabbitmq.edit(queue, 1, body=b"edited")
    assert len(events(queue)) == before and ledger_agrees(queue)


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_an_edit_never_exceeds_the_length_limit(vhost, overflow):
    """RMQ-931, RMQ-090: whatever the queue does with publications; unacknowledged messages do not count."""
    queue = declare(vhost, max_length_bytes=10, overflow=overflow)
    send(queue, "aaa", "bbb", "ccc")
    with pytest.raises(AmqpError, match="may have 10 bytes of ready messages"):
        rabbitmq.edit(queue, 3, body=b"ccccc")
    rabbitmq.edit(queue, 3, body=b"cccc")
    rabbitmq.edit(queue, 2, body=b"b")
    take(queue)
    rabbitmq.edit(queue, 3, body=b"c" * 9)
    assert ledger_agrees(queue)


def test_the_rules_of_a_publication_hold(queue):
    send(queue, "x")
    for wrong, error in (
        ({"body": "text"}, InvalidArgument), ({"headers": {"a": object()}}, InvalidArgument),
        ({"headers": {"CC": "k"}}, AmqpError), ({}, InvalidArgument),
    ):  # fmt: skip
        with pytest.raises(error):
            rabbitmq.edit(queue, 1, **wrong)
    with pytest.raises(AmqpError, match="NOT_FOUND"):
        rabbitmq.edit(EntityAddress(queue.namespace, "missing"), 1, body=b"x")


def test_an_edit_needs_the_rights(queue):
    send(queue, "x")
    for rights in (Right.OPERATE, Right.ALL & ~Right.OPERATE):
        with pytest.raises(NotAuthorized):
            rabbitmq.edit(queue, 1, body=b"y", actor=Actor("user", "vera", rights))


def test_a_message_that_was_delivered_in_between_is_refused(queue):
    send(queue, "x")
    opened = reads.message(queue, 1).version
    delivery = get(queue)
    with pytest.raises(MessageHeld):
        rabbitmq.edit(queue, 1, body=b"y", version=opened)
    rabbitmq.requeue(queue, tokens(delivery))
    with pytest.raises(MessageChanged):
        rabbitmq.edit(queue, 1, body=b"y", version=opened)


def test_edits_and_deliveries_at_once_lose_nothing(queue):
    send(queue, *["before"] * 60)

    def edit():
        edited = set()
        for number in range(1, 61):
            try:
                rabbitmq.edit(queue, number, body=b"after")
            except (MessageHeld, MessageChanged, MessageNotFound):
                continue
            edited.add(number)
        return edited

    def deliver():
        received = {}
        while taken := rabbitmq.take(queue, 3, owner_id=OWNER):
            received |= {delivery.number: bytes(delivery.body).decode() for delivery in taken}
            rabbitmq.acknowledge(queue, tokens(*taken))
        return received

    edited, received = side_by_side(edit, deliver)
    assert received == {number: "after" if number in edited else "before" for number in range(1, 61)}
    assert ledger_agrees(queue)
