"""An operator releases single locks, of messages and of sessions (SB-077), and dead-letters by number (SB-078)."""

from datetime import timedelta
from typing import Any

import pytest

from broker_core import service_bus
from broker_core.common.errors import InvalidArgument, LockLost, NotAuthorized, SessionLockLost
from broker_core.common.types import Actor, EventKind, Right
from broker_core.service_bus.rules.values import Message
from tests.broker_state import bodies, events, ledger_agrees

OTTO = Actor("user", "otto", Right.ALL)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def test_a_released_lock_is_lost_and_counts_as_a_failed_delivery(make_queue):
    """SB-077, SB-090: only the lock of that message ends; the others stay."""
    queue = make_queue()
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    first, second = service_bus.receive(queue, 2)
    assert service_bus.release_locks(queue, [1, 99], reason="stuck worker", actor=OTTO) == [1]
    with pytest.raises(LockLost):
        service_bus.complete(queue, [first.lock_token]).require_all()
    [again] = service_bus.receive(queue, 5)
    assert (again.body, again.delivery_count) == (b"a", 1)
    assert not service_bus.complete(queue, [second.lock_token]).lost
    [lost] = [e for e in events(queue) if e.kind == 12]
    assert (lost.sequence_number, lost.reason, lost.details["dropped_by"]) == (1, "stuck worker", "user:otto")
    assert ledger_agrees(queue)


def test_a_release_that_is_the_last_allowed_failure_dead_letters(make_queue):
    """SB-077, SB-091."""
    queue = make_queue(max_delivery_count=1)
    service_bus.send(queue, [Message(b"a")])
    service_bus.receive(queue, 1)
    assert service_bus.release_locks(queue, [1]) == [1]
    [dead] = service_bus.receive(queue.dead_letter, 1)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert ledger_agrees(queue)


def test_locks_of_dead_letters_and_deferred_messages_can_be_released(make_queue):
    """SB-077, SB-089: in a dead-letter queue nothing is counted."""
    queue = make_queue()
    service_bus.send(queue, [Message(b"dead"), Message(b"deferred")])
    dead, deferred = service_bus.receive(queue, 2)
    service_bus.dead_letter(queue, [dead.lock_token])
    service_bus.defer(queue, [deferred.lock_token])
    service_bus.receive(queue.dead_letter, 1)
    service_bus.receive_deferred(queue, [2])
    assert service_bus.release_locks(queue, [1, 2]) == [1, 2]
    assert service_bus.release_locks(queue, [1, 2]) == []
    assert service_bus.receive(queue.dead_letter, 1)[0].delivery_count == 0
    assert service_bus.receive_deferred(queue, [2])[0].delivery_count == 1
    assert ledger_agrees(queue)


def test_a_released_session_is_lost_with_its_messages(make_queue):
    """SB-077, SB-092, SB-117: what was received through it counts one failed delivery; another receiver can have it at once."""
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(b"a1", session_id="a"), Message(b"a2", session_id="a"), Message(b"b1", session_id="b")])
    held, other = service_bus.accept_session(queue, "a", max_count=1), service_bus.accept_session(queue, "b", max_count=1)
    assert service_bus.release_session(queue, "a", reason="moved on", actor=OTTO)
    assert not service_bus.release_session(queue, "a", actor=OTTO)
    with pytest.raises(SessionLockLost):
        service_bus.receive_from_session(held)
    new = service_bus.accept_session(queue, max_count=5)
    assert (new.session_id, bodies(new.messages), [m.delivery_count for m in new.messages]) == ("a", ["a1", "a2"], [1, 0])
    assert service_bus.close_session(other)
    assert ledger_agrees(queue)


def test_a_release_needs_the_right_and_a_reason_that_can_be_stored(make_queue):
    queue = make_queue()
    viewer = Actor("user", "vera", Right.BROWSE)
    with pytest.raises(NotAuthorized):
        service_bus.release_locks(queue, [1], actor=viewer)
    with pytest.raises(NotAuthorized):
        service_bus.release_session(queue, "a", actor=viewer)
    wrong: tuple[Any, ...] = ("x" * 501, "\x00", 7)
    for reason in wrong:
        with pytest.raises(InvalidArgument):
            service_bus.release_locks(queue, [1], reason=reason)


def test_an_operator_can_dead_letter_unlocked_messages(make_queue, step):
    """SB-078, SB-103: by number; locked, scheduled, expired and unknown ones stay. The history names the operator."""
    queue = make_queue(max_delivery_count=5)
    service_bus.send(
        queue, [Message(b"deferred"), Message(b"locked"), Message(b"active"), Message(b"brief", time_to_live=SECOND)]
    )
    deferred, _locked = service_bus.receive(queue, 2)
    service_bus.defer(queue, [deferred.lock_token])
    service_bus.send(queue, [Message(b"later", scheduled_enqueue_at=deferred.locked_until + HOUR)])
    step(SECOND)
    assert service_bus.dead_letter_unlocked(queue, [3, 1, 2, 4, 5, 99], "Poison", "seen by otto", actor=OTTO) == [1, 3]
    assert service_bus.dead_letter_unlocked(queue, [1, 3], "again", actor=OTTO) == []
    dead = service_bus.receive(queue.dead_letter, 5)
    assert [(m.body, m.dead_letter_reason, m.delivery_count) for m in dead] == [
        (b"deferred", "Poison", 0),
        (b"active", "Poison", 0),
    ]
    [first, second] = [e for e in events(queue) if e.kind == EventKind.DEAD_LETTERED]
    assert (first.sequence_number, first.reason, first.actor, first.details["description"]) == (
        1,
        "Poison",
        "user:otto",
        "seen by otto",
    )
    assert (second.sequence_number, second.delivery_count) == (3, 0)
    assert ledger_agrees(queue)


def test_manual_dead_lettering_requires_a_right_and_forwards_dead_letters(make_queue):
    """SB-078, SB-104."""
    graves = make_queue()
    queue = make_queue(forward_dead_lettered_messages_to=graves.path)
    service_bus.send(queue, [Message(b"a")])
    with pytest.raises(NotAuthorized):
        service_bus.dead_letter_unlocked(queue, [1], actor=Actor("user", "vera", Right.BROWSE))
    with pytest.raises(InvalidArgument):
        service_bus.dead_letter_unlocked(queue, [1], "x\0")
    assert service_bus.dead_letter_unlocked(queue, [1], "Poison") == [1]
    assert [m.body for m in service_bus.receive(graves, 1)] == [b"a"]
