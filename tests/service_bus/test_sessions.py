"""Sessions on real Postgres, one story a rule. Time passes only when a test steps the namespace's clock."""

import re
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.errors import (
    EntityDisabled,
    InvalidArgument,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NoSessionAvailable,
    NotAllowed,
    NotAuthorized,
    SessionCannotBeLocked,
    SessionLockLost,
)
from broker_core.common.types import Actor, EntityStatus, Family, MessageState, Right
from broker_core.service_bus import entities
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.messages.tidying import settle_sessions
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from broker_core.store.driver import Atomically, run
from broker_core.store.statements import call
from tests.broker_state import bodies, entity_id, events, ledger_agrees, now

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue(make_queue):
    return make_queue(requires_session=True)


def sent(queue, *texts, **properties):
    """Each text goes to the session of its first letter."""
    return service_bus.send(queue, [Message(text.encode(), session_id=text[0], **properties) for text in texts])


def tokens(messages):
    return [message.lock_token for message in messages]


def session_row(queue, session_id):
    return (
        connections.current()
        .execute(
            "SELECT first_number, locked_until, state FROM vitrine_session WHERE entity_id = %s AND session_id = %s",
            (entity_id(queue), session_id),
        )
        .fetchone()
    )


# What needs a session, and what must have none


def test_the_error_names_the_position_of_a_message_without_session_id(queue):
    """SB-008."""
    with pytest.raises(NotAllowed, match="message 2 of 2 has no session id"):
        service_bus.send(queue, [Message(b"a", session_id="a"), Message(b"b")])
    assert service_bus.peek(queue) == []
    assert service_bus.list_sessions(queue) == []


def test_receives_without_a_session_and_sessions_of_other_entities_are_refused(queue, make_queue):
    """SB-110."""
    sent(queue, "a1")
    for call_it in (service_bus.receive, service_bus.receive_and_delete, lambda q: service_bus.receive_deferred(q, [1])):
        with pytest.raises(NotAllowed, match="requires sessions"):
            call_it(queue)
    plain = make_queue()
    for call_it in (service_bus.accept_session, lambda q: service_bus.accept_session(q, "a"), service_bus.list_sessions):
        with pytest.raises(NotAllowed, match="does not use sessions"):
            call_it(plain)
    with pytest.raises(NotAllowed, match="does not use sessions"):
        service_bus.accept_session(queue.dead_letter)


def test_a_queue_recreated_with_sessions_refuses_messages_without_a_session(make_queue):
    """What is remembered of an entity ends with it."""
    queue = make_queue()
    service_bus.send(queue, [Message(b"x")])
    entities.delete_queue(queue)
    entities.create_queue(queue, requires_session=True)
    with pytest.raises(NotAllowed):
        service_bus.send(queue, [Message(b"x")])
    assert sent(queue, "a1") == [1]


def test_an_empty_session_id_is_an_id(queue):
    service_bus.send(queue, [Message(b"m", session_id="")])
    session = service_bus.accept_session(queue, max_count=1)
    assert session.session_id == "" and session.messages[0].session_id == ""


def test_the_dead_letter_queue_is_received_from_without_a_session(queue):
    """SB-102: the message keeps its session id."""
    sent(queue, "a1")
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.dead_letter(queue, tokens(session.messages))
    (dead,) = service_bus.receive(queue.dead_letter)
    assert dead.session_id == "a"
    assert service_bus.renew(queue.dead_letter, [dead.lock_token]).settled
    assert service_bus.complete(queue.dead_letter, [dead.lock_token]).settled


def test_accepting_a_session_requires_the_right_to_listen(queue):
    with pytest.raises(NotAuthorized):
        service_bus.accept_session(queue, actor=Actor("key", "k", Right.SEND))


def test_a_disabled_queue_refuses_to_accept_sessions(queue):
    sent(queue, "a1")
    entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    for session_id in (None, "a"):
        with pytest.raises(EntityDisabled):
            service_bus.accept_session(queue, session_id)


# Accepting


def test_the_next_session_is_the_unlocked_session_with_the_lowest_number(queue):
    """SB-113."""
    sent(queue, "b1", "a1", "b2", "c1")
    accepted = [service_bus.accept_session(queue, max_count=5) for _ in range(3)]
    assert [(s.session_id, bodies(s.messages)) for s in accepted] == [("b", ["b1", "b2"]), ("a", ["a1"]), ("c", ["c1"])]
    with pytest.raises(NoSessionAvailable) as refused:
        service_bus.accept_session(queue)
    assert refused.value.retryable


def test_a_session_without_deliverable_messages_is_not_next(queue):
    """SB-113: scheduled, deferred and completed messages are nothing to deliver."""
    sent(queue, "a1", "b1")
    sent(queue, "c1", scheduled_enqueue_at=now(queue) + MINUTE)
    for settle in (service_bus.defer, service_bus.complete):
        session = service_bus.accept_session(queue, max_count=1)
        settle(queue, tokens(session.messages))
        service_bus.close_session(session)
    with pytest.raises(NoSessionAvailable):
        service_bus.accept_session(queue)


def test_any_session_can_be_accepted_by_its_id_even_if_it_has_no_messages(queue):
    """SB-112."""
    sent(queue, "b1")
    session = service_bus.accept_session(queue, "new", max_count=3)
    assert (session.messages, session.state) == ((), None)
    assert session.locked_until == now(queue) + MINUTE
    service_bus.send(queue, [Message(b"first", session_id="new")])
    assert bodies(service_bus.receive_from_session(session, 3)) == ["first"]


def test_a_locked_session_cannot_be_accepted_again(queue, step):
    """SB-112: at the very instant its lock ends it can."""
    first = service_bus.accept_session(queue, "a")
    with pytest.raises(SessionCannotBeLocked) as refused:
        service_bus.accept_session(queue, "a")
    assert refused.value.retryable
    step(MINUTE - timedelta(microseconds=1))
    with pytest.raises(SessionCannotBeLocked):
        service_bus.accept_session(queue, "a")
    step(timedelta(microseconds=1))
    assert service_bus.accept_session(queue, "a").lock_token != first.lock_token


def test_session_ids_are_case_sensitive(queue):
    """SB-932."""
    service_bus.send(queue, [Message(b"1", session_id="A"), Message(b"2", session_id="a")])
    assert [service_bus.accept_session(queue, max_count=5).session_id for _ in "12"] == ["A", "a"]


def test_an_invalid_session_id_is_refused(queue):
    session_id: Any
    for session_id in ("x" * 129, "\x00", 5):
        with pytest.raises(InvalidArgument, match="session_id"):
            service_bus.accept_session(queue, session_id)


def _later(action):
    thread = threading.Timer(0.2, lambda: (action(), connections.close_all_of_this_thread()))
    thread.start()
    return thread


def test_a_message_of_an_unlocked_session_wakes_a_waiting_receiver(queue):
    """SB-113."""
    thread = _later(lambda: sent(queue, "a1"))
    session = service_bus.accept_session(queue, max_wait_seconds=20, max_count=1)
    thread.join()
    assert bodies(session.messages) == ["a1"]


def test_closing_a_session_wakes_a_waiting_receiver(queue):
    """SB-118."""
    sent(queue, "a1")
    held = service_bus.accept_session(queue)
    thread = _later(lambda: service_bus.close_session(held))
    assert service_bus.accept_session(queue, "a", max_wait_seconds=20).session_id == "a"
    thread.join()


async def test_sessions_work_under_asyncio(queue):
    try:
        await service_bus.send.aio(queue, [Message(b"a1", session_id="a")])
        session = await service_bus.accept_session.aio(queue, max_count=1)
        assert (await service_bus.complete.aio(queue, tokens(session.messages))).settled
        assert await service_bus.close_session.aio(session)
    finally:
        await aio.close()


# Receiving


def test_only_the_holder_gets_present_and_future_messages_in_order(queue):
    """SB-114."""
    sent(queue, "a1", "b1", "a2")
    session = service_bus.accept_session(queue)
    assert bodies(service_bus.receive_from_session(session, 1)) == ["a1"]
    sent(queue, "a3")
    other = service_bus.accept_session(queue, max_count=9)
    assert bodies(other.messages) == ["b1"]
    assert bodies(service_bus.receive_from_session(session, 9)) == ["a2", "a3"]
    assert service_bus.receive_from_session(session) == []
    assert ledger_agrees(queue)


def test_an_abandoned_message_is_delivered_next(queue):
    """SB-115, SB-092: an explicit abandon is a failed delivery."""
    sent(queue, "a1", "a2")
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.abandon(queue, tokens(session.messages))
    (again,) = service_bus.receive_from_session(session)
    assert (bytes(again.body), again.delivery_count) == (b"a1", 1)


def test_the_locks_of_messages_last_as_long_as_their_session(queue, step):
    """SB-116."""
    sent(queue, "a1", "a2", "a3")
    session = service_bus.accept_session(queue, max_count=1)
    step(20 * SECOND)
    (second,) = service_bus.receive_from_session(session)
    assert second.locked_until == session.locked_until
    service_bus.defer(queue, [second.lock_token])
    (deferred,) = service_bus.receive_deferred(queue, [second.sequence_number], session=session)
    assert deferred.locked_until == session.locked_until
    step(20 * SECOND)
    renewed = service_bus.renew_session(session)
    assert renewed.locked_until == now(queue) + MINUTE
    step(50 * SECOND)  # past the first lock
    assert [m.state for m in service_bus.peek(queue)] == [MessageState.ACTIVE, MessageState.DEFERRED, MessageState.ACTIVE]
    assert len(service_bus.complete(queue, [*tokens(session.messages), deferred.lock_token]).settled) == 2
    assert bodies(service_bus.receive_from_session(session, 5)) == ["a3"]
    assert ledger_agrees(queue)


def test_locks_of_a_sessions_messages_cannot_be_renewed_individually(queue):
    """SB-065."""
    sent(queue, "a1")
    session = service_bus.accept_session(queue, max_count=1)
    with pytest.raises(NotAllowed, match="renew the session"):
        service_bus.renew(queue, tokens(session.messages))


def test_messages_of_a_session_can_be_received_and_deleted(queue):
    """SB-123, SB-093."""
    sent(queue, "a1", "b1", "a2")
    session = service_bus.accept_session(queue)
    assert bodies(service_bus.receive_and_delete_from_session(session, 5)) == ["a1", "a2"]
    assert bodies(service_bus.peek(queue)) == ["b1"]
    assert ledger_agrees(queue)


def test_a_waiting_holder_is_woken(queue):
    session = service_bus.accept_session(queue, "a")
    thread = _later(lambda: sent(queue, "a1"))
    assert bodies(service_bus.receive_from_session(session, max_wait_seconds=20)) == ["a1"]
    thread.join()


def test_deferred_messages_need_their_session(queue):
    """SB-120, SB-085."""
    sent(queue, "a1", "b1")
    session, other = (service_bus.accept_session(queue, max_count=1) for _ in "ab")
    service_bus.defer(queue, tokens(session.messages))
    with pytest.raises(MessageNotFound):
        service_bus.receive_deferred(queue, [1], session=other)
    (deferred,) = service_bus.receive_deferred(queue, [1], session=session)
    assert bytes(deferred.body) == b"a1"
    service_bus.close_session(session)
    with pytest.raises(SessionLockLost):
        service_bus.receive_deferred(queue, [1], session=session)
    with pytest.raises(InvalidArgument, match="belongs to"):
        service_bus.receive_deferred(queue.dead_letter, [1], session=other)


def test_scheduled_messages_are_delivered_in_their_session_when_due(queue, step):
    """SB-047."""
    sent(queue, "a1", scheduled_enqueue_at=now(queue) + MINUTE)
    session = service_bus.accept_session(queue, "a")
    sent(queue, "a2")
    service_bus.close_session(session)
    step(MINUTE)
    session = service_bus.accept_session(queue, max_count=1)
    assert bodies(session.messages) == ["a2"]
    assert bodies(service_bus.receive_from_session(session, 5)) == ["a1"]


def test_a_scheduled_message_alone_makes_its_session_available_when_due(queue, step):
    sent(queue, "a1", scheduled_enqueue_at=now(queue) + MINUTE)
    step(MINUTE)
    assert bodies(service_bus.accept_session(queue, max_count=1).messages) == ["a1"]


def test_a_resubmitted_message_returns_to_its_session(queue):
    """SB-105."""
    sent(queue, "a1")
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.dead_letter(queue, tokens(session.messages))
    service_bus.close_session(session)
    assert session_row(queue, "a") is None
    service_bus.resubmit(queue.dead_letter, [1])
    assert bodies(service_bus.accept_session(queue, max_count=1).messages) == ["a1"]


def test_reply_to_session_id_is_kept(queue):
    """SB-124."""
    service_bus.send(queue, [Message(b"a1", session_id="a", reply_to="q", reply_to_session_id="r")])
    (message,) = service_bus.accept_session(queue, max_count=1).messages
    assert message.broker_properties["reply_to_session_id"] == "r"


def test_peek_of_a_session_shows_the_current_state(queue, step):
    """SB-024, SB-092: the session's lock has ended, a scheduled message is due, and nothing has looked at either yet."""
    sent(queue, "a1")
    due = now(queue) + MINUTE
    sent(queue, "a2", scheduled_enqueue_at=due, time_to_live=5 * MINUTE)
    service_bus.accept_session(queue, "a", max_count=1)
    assert [(m.delivery_count, m.state) for m in service_bus.peek(queue, session_id="a")] == [
        (0, MessageState.ACTIVE), (0, MessageState.SCHEDULED)
    ]  # fmt: skip
    step(2 * MINUTE)
    locked, scheduled = service_bus.peek(queue, session_id="a")
    assert (locked.delivery_count, scheduled.state) == (1, MessageState.ACTIVE)
    assert (scheduled.enqueued_at, scheduled.expires_at) == (due, due + 5 * MINUTE)


def test_any_client_can_peek_a_session(queue):
    """SB-145."""
    sent(queue, "a1", "b1", "a2")
    sent(queue, "a3", scheduled_enqueue_at=now(queue) + MINUTE)
    session = service_bus.accept_session(queue, "a", max_count=1)
    service_bus.defer(queue, tokens(session.messages))
    assert bodies(service_bus.peek(queue, session_id="a")) == ["a1", "a2", "a3"]
    assert bodies(service_bus.peek(queue, 2, 1, session_id="a")) == ["a2"]
    assert service_bus.peek(queue, session_id="A") == []
    assert bodies(service_bus.peek(queue)) == ["a1", "b1", "a2", "a3"]
    (second,) = service_bus.receive_from_session(session)
    service_bus.dead_letter(queue, [second.lock_token])
    assert bodies(service_bus.peek(queue.dead_letter, session_id="a")) == ["a2"]
    assert service_bus.peek(queue.dead_letter, session_id="b") == []


# How a session's lock ends


def test_an_ended_session_lock_is_a_failed_delivery_of_received_messages(queue, step):
    """SB-117, SB-092."""
    sent(queue, "a1", "a2")
    session = service_bus.accept_session(queue, max_count=1)
    step(MINUTE)
    for use in (
        lambda: service_bus.receive_from_session(session),
        lambda: service_bus.receive_and_delete_from_session(session),
        lambda: service_bus.renew_session(session),
        lambda: service_bus.get_session_state(session),
        lambda: service_bus.set_session_state(session, b"x"),
    ):
        with pytest.raises(SessionLockLost):
            use()
    assert service_bus.complete(queue, tokens(session.messages)).lost
    assert service_bus.close_session(session) is False
    again = service_bus.accept_session(queue, max_count=5)
    assert [(bytes(m.body), m.delivery_count) for m in again.messages] == [(b"a1", 1), (b"a2", 0)]
    assert ledger_agrees(queue)


def test_the_sweep_of_ended_locks_counts_the_same_failed_deliveries(queue, step):
    """SB-092, SB-091."""
    entities.update_queue(queue, max_delivery_count=1)
    sent(queue, "a1", "a2")
    service_bus.accept_session(queue, max_count=1)
    step(MINUTE)
    sweeps.end_locks()
    (dead,) = service_bus.receive(queue.dead_letter)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert bodies(service_bus.accept_session(queue, max_count=5).messages) == ["a2"]


def test_closing_a_session_releases_messages_without_counting(queue):
    """SB-118, SB-092."""
    sent(queue, "a1", "a2", "a3")
    session = service_bus.accept_session(queue, max_count=3)
    service_bus.defer(queue, tokens(session.messages)[2:])
    (deferred,) = service_bus.receive_deferred(queue, [3], session=session)
    assert service_bus.close_session(session) is True
    assert len(service_bus.complete(queue, [*tokens(session.messages), deferred.lock_token]).lost) == 4
    again = service_bus.accept_session(queue, max_count=5)
    assert [(bytes(m.body), m.delivery_count) for m in again.messages] == [(b"a1", 0), (b"a2", 0)]
    assert service_bus.receive_deferred(queue, [3], session=again)[0].delivery_count == 0
    assert ledger_agrees(queue)
    assert [e.kind for e in events(queue, 1)] == [1, 4, 8, 23, 4]


def test_closing_a_session_keeps_settled_messages_and_locks_of_others(queue):
    sent(queue, "a1", "b1", "a2")
    first, second = (service_bus.accept_session(queue, max_count=5) for _ in "ab")
    service_bus.complete(queue, tokens(first.messages)[:1])
    service_bus.close_session(first)
    assert service_bus.complete(queue, tokens(second.messages)).settled
    assert bodies(service_bus.accept_session(queue, max_count=5).messages) == ["a2"]


def test_only_its_holder_can_close_or_renew_a_session(queue, step):
    sent(queue, "a1")
    lost = service_bus.accept_session(queue)
    step(MINUTE)
    held = service_bus.accept_session(queue, max_count=1)
    assert service_bus.close_session(lost) is False
    with pytest.raises(SessionLockLost):
        service_bus.renew_session(lost)
    assert service_bus.complete(queue, tokens(held.messages)).settled


def test_renewing_alone_keeps_an_idle_session(queue, step):
    """SB-121."""
    session = service_bus.accept_session(queue, "a")
    for _ in range(5):
        step(40 * SECOND)
        session = service_bus.renew_session(session)
    sent(queue, "a1")
    assert bodies(service_bus.receive_from_session(session)) == ["a1"]


def test_the_process_renews_a_session_until_it_is_closed(queue):
    session = service_bus.accept_session(queue, "a", auto_renew=MINUTE)
    assert session.lock_token in renewer.tokens()
    service_bus.close_session(session)
    assert session.lock_token not in renewer.tokens()


def test_the_renewer_renews_sessions_and_reports_a_lost_session(make_queue, settings, step):
    settings.VITRINE_LIMITS = "relaxed"
    queue = make_queue(requires_session=True, lock_duration=SECOND / 10)
    sent(queue, "a1")
    lost, done = [], threading.Event()
    session = service_bus.accept_session(queue, max_count=1)
    renewer.hold(session, on_lost=lambda token: (lost.append(token), done.set()))
    step(SECOND / 20)
    for _ in range(200):  # until the renewer's thread has been at it
        if session_row(queue, "a").locked_until > session.locked_until:
            break
        done.wait(0.02)
    assert session_row(queue, "a").locked_until > session.locked_until
    step(SECOND)
    assert done.wait(10)
    assert lost == [session.lock_token]


def test_all_session_locks_can_be_released(queue):
    """For SB-073."""
    sent(queue, "a1", "b1")
    held = [service_bus.accept_session(queue) for _ in "ab"]
    (row,) = run(_drop(queue))
    assert row.done == 2
    for session in held:
        with pytest.raises(SessionLockLost):
            service_bus.receive_from_session(session)
    assert service_bus.accept_session(queue).session_id == "a"


def _drop(queue):
    return (yield call("drop_session_locks", entity_id=entity_id(queue), session_id=None))


# What a session is


def test_a_session_exists_while_it_has_messages_or_state(queue):
    """SB-111."""
    sent(queue, "a1", "a2")
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.complete(queue, tokens(session.messages))
    service_bus.close_session(session)
    assert session_row(queue, "a").first_number == 2
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.set_session_state(session, b"half")
    service_bus.complete(queue, tokens(session.messages))
    service_bus.close_session(session)
    assert session_row(queue, "a").first_number is None
    session = service_bus.accept_session(queue, "a")
    assert session.state == b"half"
    service_bus.set_session_state(session, None)
    service_bus.close_session(session)
    assert session_row(queue, "a") is None


def test_session_state_remains_without_messages(queue, step):
    """SB-119."""
    sent(queue, "a1")
    session = service_bus.accept_session(queue, max_count=1)
    assert (session.state, service_bus.get_session_state(session)) == (None, None)
    service_bus.set_session_state(session, bytearray(b"\x00\xff"))
    service_bus.complete(queue, tokens(session.messages))
    step(2 * MINUTE)
    sweeps.end_locks()
    service_bus.sweeps.forget_sessions()
    later = service_bus.accept_session(queue, "a")
    assert later.state == service_bus.get_session_state(later) == b"\x00\xff"
    service_bus.set_session_state(later, b"")
    assert service_bus.get_session_state(later) == b""
    with pytest.raises(SessionLockLost):
        service_bus.set_session_state(session, b"stale")
    service_bus.set_session_state(later, b"x" * 256 * 1024)
    with pytest.raises(MessageTooLarge, match="session state"):
        service_bus.set_session_state(later, b"x" * (256 * 1024 + 1))
    text: Any = "text"
    with pytest.raises(InvalidArgument, match="must be bytes"):
        service_bus.set_session_state(later, text)


def test_sessions_are_listed_by_messages_and_by_the_time_of_their_state(queue, step):
    """SB-122."""
    sent(queue, "c1", "a1")
    held = service_bus.accept_session(queue, "b")
    assert [s.session_id for s in service_bus.list_sessions(queue)] == ["a", "c"]
    before = now(queue)
    step(SECOND)
    service_bus.set_session_state(held, b"state")
    sessions = service_bus.list_sessions(queue)
    assert [(s.session_id, s.first_number, s.state_size) for s in sessions] == [("a", 2, None), ("b", None, 5), ("c", 1, None)]
    assert sessions[1].locked_until == held.locked_until
    assert [s.session_id for s in service_bus.list_sessions(queue, skip=1, top=1)] == ["b"]
    assert [s.session_id for s in service_bus.list_sessions(queue, updated_since=before)] == ["b"]
    assert service_bus.list_sessions(queue, updated_since=now(queue)) == []
    for wrong in ({"skip": -1}, {"top": 0}, {"updated_since": before.replace(tzinfo=None)}):
        with pytest.raises(InvalidArgument):
            service_bus.list_sessions(queue, **wrong)


def test_the_sweep_removes_sessions_that_were_not_closed(queue, step):
    """SB-111."""
    sent(queue, "a1", "b1", "b2", "c1")
    for _ in "abc":
        session = service_bus.accept_session(queue, max_count=1)
        service_bus.complete(queue, tokens(session.messages))
    held = service_bus.accept_session(queue, "d")
    assert service_bus.sweeps.forget_sessions() == {"sessions": 0}  # all are held
    step(MINUTE - SECOND)
    service_bus.close_session(held)
    held = service_bus.accept_session(queue, "d")
    step(SECOND)
    assert service_bus.sweeps.forget_sessions() == {"sessions": 3}
    assert [session_row(queue, name) is None for name in "abcd"] == [True, False, True, False]
    assert session_row(queue, "b").first_number == 3
    assert service_bus.sweeps.forget_sessions() == {"sessions": 0}


def test_the_sweep_processes_all_sessions_in_pages(queue, step):
    service_bus.send(queue, [Message(b"x", session_id=str(n)) for n in range(25)])
    step(SECOND)
    service_bus.purge(queue)
    pages, after, steps = 0, None, []
    while pages == 0 or after is not None:
        done, after = run(_one_page(queue, after))
        steps.append(done)
        pages += 1
    assert (sum(steps), pages) == (25, 3)
    assert service_bus.list_sessions(queue) == []
    assert session_row(queue, "7") is None


def _one_page(queue, after):
    return (yield Atomically(settle_sessions(entity_id(queue), after, 10)))


def test_deleting_a_queue_removes_its_sessions(queue):
    sent(queue, "a1")
    gone = entity_id(queue)
    entities.delete_queue(queue)
    sweeps.remove_deleted_entities()
    assert not connections.current().execute("SELECT FROM vitrine_session WHERE entity_id = %s", (gone,)).fetchall()


def test_the_bound_of_a_long_session_is_raised_while_it_is_held(queue):
    service_bus.send(queue, [Message(b"x", session_id="a") for _ in range(1200)])
    session = service_bus.accept_session(queue)
    while messages := service_bus.receive_and_delete_from_session(session, 400):
        last = messages[-1].sequence_number
    assert last == 1200
    assert session_row(queue, "a").first_number is None
    sent(queue, "a1")
    assert session_row(queue, "a").first_number == 1201
    assert bodies(service_bus.receive_from_session(session, 5)) == ["a1"]


# The end of a session's life


@pytest.mark.parametrize("dead_letters", [True, False])
def test_one_expired_message_expires_its_session(make_queue, step, dead_letters):
    """SB-037, SB-901: found by a receive with no sweep; other sessions live on."""
    queue = make_queue(requires_session=True, dead_lettering_on_message_expiration=dead_letters)
    sent(queue, "a1", "b1", "a2")
    sent(queue, "a3", time_to_live=10 * SECOND)
    sent(queue, "a4")
    step(10 * SECOND)
    assert service_bus.accept_session(queue).session_id == "b"
    with pytest.raises(NoSessionAvailable):
        service_bus.accept_session(queue)
    assert bodies(service_bus.peek(queue)) == ["b1"]
    dead = service_bus.receive(queue.dead_letter, 9)
    assert sorted(bodies(dead)) == (["a1", "a2", "a3", "a4"] if dead_letters else [])
    assert {m.dead_letter_reason for m in dead} <= {"TTLExpiredException"}
    assert ledger_agrees(queue)


def test_the_holder_of_an_expired_session_gets_no_more_messages(queue, step):
    """SB-037: what it holds is left to its lock."""
    sent(queue, "a1", "a2")
    sent(queue, "a3", time_to_live=10 * SECOND)
    session = service_bus.accept_session(queue, max_count=1)
    step(10 * SECOND)
    assert service_bus.receive_from_session(session, 5) == []
    assert bodies(service_bus.peek(queue)) == ["a1"]
    assert service_bus.complete(queue, tokens(session.messages)).settled
    sent(queue, "a5")
    assert bodies(service_bus.receive_from_session(session, 5)) == ["a5"]  # a new life


def test_the_entitys_default_expires_a_session_with_its_first_message(make_queue, step):
    """SB-037, SB-023."""
    queue = make_queue(requires_session=True, default_message_time_to_live=MINUTE)
    sent(queue, "a1", "b1")
    step(40 * SECOND)
    sent(queue, "a2", "c1")
    step(20 * SECOND)
    sweeps.expire_messages(pause=lambda _: None)
    assert bodies(service_bus.peek(queue)) == ["c1"]
    assert [session_row(queue, name) is None for name in "abc"] == [True, True, False]


def test_an_expired_message_that_is_released_expires_its_session(make_queue, step):
    """SB-027, SB-037: whether by abandoning it or by the end of the lock."""
    for release_unclaimed in (service_bus.abandon, lambda *_: step(MINUTE), lambda *_: (step(MINUTE), sweeps.end_locks())):
        queue = make_queue(requires_session=True, dead_lettering_on_message_expiration=True)
        sent(queue, "a1", time_to_live=10 * SECOND)
        sent(queue, "a2")
        session = service_bus.accept_session(queue, max_count=1)
        step(20 * SECOND)
        release_unclaimed(queue, tokens(session.messages))
        with pytest.raises(NoSessionAvailable):
            service_bus.accept_session(queue)
        assert sorted(bodies(service_bus.receive(queue.dead_letter, 5))) == ["a1", "a2"]


def test_with_per_message_expiry_the_session_does_not_expire(make_queue, step):
    """SB-901."""
    queue = make_queue(requires_session=True, expires_whole_sessions=False, dead_lettering_on_message_expiration=True)
    sent(queue, "a1")
    sent(queue, "a2", time_to_live=10 * SECOND)
    sent(queue, "a3")
    step(10 * SECOND)
    assert bodies(service_bus.accept_session(queue, max_count=5).messages) == ["a1", "a3"]
    sweeps.expire_messages(pause=lambda _: None)
    assert bodies(service_bus.receive(queue.dead_letter, 5)) == ["a2"]


@pytest.mark.parametrize(
    "lives", [[5, None, None, None, None, None, None], [None, None, None, 5, None, 90, 5], [90, 5, 5, 5, None, 5, 90]]
)
@pytest.mark.parametrize("default", [None, 60])
def test_expiring_a_session_in_small_batches_revives_no_message(make_queue, step, lives, default):
    """SB-037: whatever a batch leaves is still over."""
    default = default and default * SECOND
    queue = make_queue(requires_session=True, default_message_time_to_live=default)
    for life in lives:
        sent(queue, "a1", time_to_live=life and life * SECOND)
    step(61 * SECOND)
    for left in (5, 3, 1, 0):
        run(_expire(queue, 2))
        assert len(service_bus.peek(queue)) == left
    assert ledger_agrees(queue)


def _expire(queue, count):
    return (
        yield call("expire_sessions", entity_id=entity_id(queue), subqueue=0, max_count=count, properties=None, from_number=0)
    )


def test_the_sweep_skips_unexpired_sessions(make_queue, step, monkeypatch):
    """Sessions whose first number is too low, since what was there is gone, do not end the walk."""
    monkeypatch.setattr(sweeps, "BATCH", 2)
    queue = make_queue(requires_session=True, default_message_time_to_live=MINUTE)
    service_bus.send(queue, [Message(b"old", session_id=name) for name in "abcdefg"])
    step(40 * SECOND)
    service_bus.send(queue, [Message(b"young", session_id=name) for name in "abcd"])
    for name in "abcd":
        session = service_bus.accept_session(queue, name, max_count=1)
        service_bus.complete(queue, tokens(session.messages))
    step(20 * SECOND)
    sweeps.expire_messages(pause=lambda _: None)
    assert bodies(service_bus.peek(queue)) == ["young"] * 4


def test_the_example_of_the_page_runs(broker_database):
    page = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text()
    namespaces.create_namespace("demo", Family.SERVICE_BUS)
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert service_bus.peek(names["orders"]) == []
    assert [(s.session_id, s.state_size) for s in service_bus.list_sessions(names["orders"])] == [("4711", 4), ("4712", 4)]


# Several at once


def test_eight_receivers_get_each_session_in_order(queue):
    """SB-114: each message once, each session in order, none with two holders."""
    for k in range(5):
        service_bus.send(queue, [Message(str(k).encode(), session_id=f"s{n}") for n in range(200)])
    log, held, guard, barrier, errors = [], set(), threading.Lock(), threading.Barrier(8), []

    def work():
        barrier.wait()
        try:
            while True:
                try:
                    session = service_bus.accept_session(queue, max_count=2)
                except NoSessionAvailable:
                    with guard:
                        if len(log) == 1000:
                            return
                    continue
                with guard:
                    assert session.session_id not in held
                    held.add(session.session_id)
                messages = session.messages
                with guard:
                    log.extend((m.session_id, m.sequence_number) for m in messages)
                assert len(service_bus.complete(queue, tokens(messages)).settled) == len(messages)
                with guard:
                    held.discard(session.session_id)
                assert service_bus.close_session(session)
        except BaseException as exc:
            errors.append(exc)
            raise
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not errors
    assert len(log) == len(set(log)) == 1000
    for name in {name for name, _ in log}:
        assert all(a < b for a, b in pairwise(number for session_id, number in log if session_id == name))
    assert service_bus.list_sessions(queue) == []
    assert ledger_agrees(queue)


def test_closing_a_session_never_removes_one_with_a_running_send(queue):
    """SB-111: closing waits for a sender that has the row, and looks with a new snapshot. As one statement it would forget
    the session, or set its first number to NULL, while a message is in it."""
    sent(queue, "a1")
    session = service_bus.accept_session(queue, max_count=1)
    service_bus.complete(queue, tokens(session.messages))
    stored, commit = threading.Event(), threading.Event()

    def send_and_wait():
        yield from service_bus.send.steps(queue, [Message(b"a2", session_id="a")])
        stored.set()
        commit.wait(20)

    sender = threading.Thread(target=_in_one_transaction, args=(send_and_wait,))
    sender.start()
    assert stored.wait(20)
    closer = threading.Thread(target=lambda: (service_bus.close_session(session), connections.close_all_of_this_thread()))
    closer.start()
    closer.join(0.3)
    assert closer.is_alive()
    commit.set()
    for thread in (sender, closer):
        thread.join(20)
    assert session_row(queue, "a").first_number == 2
    assert bodies(service_bus.accept_session(queue, max_count=5).messages) == ["a2"]


def _in_one_transaction(steps):
    def whole():
        yield Atomically(steps())

    run(whole())
    connections.close_all_of_this_thread()


@pytest.mark.parametrize("then", [service_bus.renew_session, service_bus.close_session])
def test_messages_of_a_running_receive_are_renewed_and_closed_with_the_session(queue, step, then):
    """SB-116, SB-118: a receive of the same holder that has not committed yet is waited for, and its messages are known."""
    sent(queue, "a1", "a2")
    session = service_bus.accept_session(queue, max_count=1)
    step(SECOND)
    received, commit, answers = threading.Event(), threading.Event(), []

    def receive_and_wait():
        yield from service_bus.receive_from_session.steps(session)
        received.set()
        commit.wait(20)

    receiver = threading.Thread(target=_in_one_transaction, args=(receive_and_wait,))
    receiver.start()
    assert received.wait(20)
    other = threading.Thread(target=lambda: (answers.append(then(session)), connections.close_all_of_this_thread()))
    other.start()
    other.join(0.3)
    assert other.is_alive()
    commit.set()
    for thread in (receiver, other):
        thread.join(20)
    ends = session_row(queue, "a").locked_until
    assert ends == (answers[0].locked_until if then is service_bus.renew_session else None)
    query = "SELECT locked_until FROM vitrine_message WHERE entity_id = %s"
    assert {row.locked_until for row in connections.current().execute(query, (entity_id(queue),))} == {ends}
    assert ledger_agrees(queue)


def test_settling_after_the_session_was_lost_raises_session_lock_lost(queue, step):
    """SB-117: what is settled in a session that nobody holds any more was lost with it; what was settled before is lost alone."""
    sent(queue, "a1", "a2", "b1")
    session = service_bus.accept_session(queue, "a", max_count=2)
    first, second = session.messages
    service_bus.complete(queue, [first.lock_token])
    with pytest.raises(LockLost):
        service_bus.complete(queue, [first.lock_token]).require_all()
    service_bus.abandon(queue, [second.lock_token])
    with pytest.raises(LockLost):  # the session is still held
        service_bus.abandon(queue, [second.lock_token]).require_all()
    other = service_bus.accept_session(queue, "b", max_count=1)
    step(2 * MINUTE)
    for name in ("complete", "abandon", "defer", "dead_letter"):
        report = getattr(service_bus, name)(queue, tokens(other.messages))
        assert report.lost == tuple(tokens(other.messages))
        with pytest.raises(SessionLockLost, match="'b'"):
            report.require_all()
    with pytest.raises(SessionLockLost), service_bus.transaction() as transaction:
        transaction.complete(queue, tokens(other.messages))
