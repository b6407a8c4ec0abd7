"""An operator edits the texts of messages that wait (QS-927, docs/design.md D22)."""

from datetime import timedelta

import pytest

from broker_core import queue_storage, reads
from broker_core.common.errors import (
    InvalidArgument,
    MessageChanged,
    MessageHeld,
    MessageNotFound,
    MessageTooLarge,
    NotAllowed,
    NotAuthorized,
)
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.queue_storage.rules.errors import PopReceiptMismatch, QueueNotFound
from tests.broker_state import events, ledger_agrees
from tests.queue_storage.test_concurrency import side_by_side

OTTO = Actor("user", "otto", Right.ALL)
SECOND = timedelta(seconds=1)


def row(queue, number=1):
    return reads.message(queue, number).row


@pytest.mark.parametrize("delay", [0 * SECOND, 60 * SECOND])
def test_an_edit_changes_the_text_and_the_receipt(queue, step, delay):
    """QS-927: of a visible message, and of one that was put with a delay, which goes on."""
    put = queue_storage.put(queue, "before", visibility_timeout=delay)
    before = row(queue)
    queue_storage.edit(queue, 1, text="longer than before", version=reads.message(queue, 1).version, reason="typo", actor=OTTO)
    after = row(queue)
    for name in ("message_id", "enqueued_at", "expires_at", "visible_at", "hold_kind", "delivery_count", "locked_by"):
        assert getattr(after, name) == getattr(before, name), name
    with pytest.raises(PopReceiptMismatch):
        queue_storage.delete(queue, put.message_id, put.pop_receipt)
    [event] = [e for e in events(queue, 1) if e.kind == EventKind.EDITED]
    assert (event.actor, event.reason, event.size) == ("user:otto", "typo", 18)
    assert event.details == {"size_before": 6, "changed": ["body"]}
    assert ledger_agrees(queue)
    step(delay)
    assert [got.text for got in queue_storage.get(queue)] == ["longer than before"]


def _leased(queue, step):
    queue_storage.put(queue, "x")
    queue_storage.get(queue, actor=Actor("process", "billing", Right.ALL))


def _updated(queue, step):
    put = queue_storage.put(queue, "x")
    [got] = queue_storage.get(queue)
    queue_storage.update(queue, put.message_id, got.pop_receipt, visibility_timeout=60 * SECOND)


def _expired(queue, step):
    queue_storage.put(queue, "x", time_to_live=SECOND)
    step(2 * SECOND)


def _deleted(queue, step):
    put = queue_storage.put(queue, "x")
    queue_storage.delete(queue, put.message_id, put.pop_receipt)


REFUSED = [
    (_leased, MessageHeld, r"held by process:billing until \d\d:\d\d:\d\d UTC. .* release its lease first"),
    (_updated, MessageHeld, "release its lease first"),
    (_expired, NotAllowed, "has expired"),
    (_deleted, MessageNotFound, "no message with the sequence number 1"),
]


@pytest.mark.parametrize(("reach", "error", "says"), REFUSED, ids=[reach.__name__ for reach, _, _ in REFUSED])
def test_a_message_that_does_not_wait_is_refused(queue, step, reach, error, says):
    """QS-927"""
    reach(queue, step)
    before = len(events(queue))
    with pytest.raises(error, match=says):
        queue_storage.edit(queue, 1, text="edited")
    assert len(events(queue)) == before and ledger_agrees(queue)


def test_a_message_whose_lease_ended_can_be_edited(queue, step):
    """QS-927: its last consumer's receipt no longer works then."""
    put = queue_storage.put(queue, "x")
    [got] = queue_storage.get(queue, visibility_timeout=10 * SECOND)
    step(10 * SECOND)
    queue_storage.edit(queue, 1, text="y")
    with pytest.raises(PopReceiptMismatch):
        queue_storage.delete(queue, put.message_id, got.pop_receipt)
    assert [(m.text, m.dequeue_count) for m in queue_storage.get(queue)] == [("y", 2)] and ledger_agrees(queue)


def test_of_two_editors_the_second_is_refused(queue):
    queue_storage.put(queue, "x")
    opened = reads.message(queue, 1).version
    answers = side_by_side(*[lambda: queue_storage.edit(queue, 1, text="y", version=opened)] * 2)
    assert sorted(type(answer).__name__ for answer in answers) == ["MessageChanged", "str"]
    queue_storage.get(queue, visibility_timeout=SECOND)
    with pytest.raises(MessageHeld):
        queue_storage.edit(queue, 1, text="z", version=opened)


def test_a_message_that_was_received_in_between_is_refused(queue, step):
    queue_storage.put(queue, "x")
    opened = reads.message(queue, 1).version
    queue_storage.get(queue, visibility_timeout=SECOND)
    step(SECOND)
    with pytest.raises(MessageChanged):
        queue_storage.edit(queue, 1, text="z", version=opened)


def test_the_rules_of_a_put_hold(queue):
    """QS-010, QS-912."""
    queue_storage.put(queue, "x")
    for text, error in (("x" * 65_537, MessageTooLarge), ("\x0b", InvalidArgument)):
        with pytest.raises(error):
            queue_storage.edit(queue, 1, text=text)
    queue_storage.edit(queue, 1, text="")
    assert row(queue).size == 0 and ledger_agrees(queue)


def test_an_edit_needs_the_rights_and_a_queue(queue):
    queue_storage.put(queue, "x")
    for rights in (Right.OPERATE, Right.ALL & ~Right.OPERATE):
        with pytest.raises(NotAuthorized):
            queue_storage.edit(queue, 1, text="y", actor=Actor("user", "vera", rights))
    with pytest.raises(QueueNotFound):
        queue_storage.edit(EntityAddress(queue.namespace, "missing"), 1, text="y")


def test_edits_and_gets_at_once_lose_nothing(queue):
    queue_storage.put_all(queue, ["before"] * 60)

    def edit():
        edited = set()
        for number in range(1, 61):
            try:
                queue_storage.edit(queue, number, text="after")
            except (MessageHeld, MessageChanged, MessageNotFound):
                continue
            edited.add(number)
        return edited

    def get():
        received = {}
        while got := queue_storage.get(queue, 3):
            received |= {message.sequence_number: message.text for message in got}
            queue_storage.delete_all(queue, got)
        return received

    edited, received = side_by_side(edit, get)
    assert received == {number: "after" if number in edited else "before" for number in range(1, 61)}
    assert ledger_agrees(queue)
