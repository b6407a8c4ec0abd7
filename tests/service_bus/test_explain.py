"""Why a message is or is not delivered: what is said must be what a receive then does."""

import uuid
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageNotFound,
    NotAuthorized,
    SessionCannotBeLocked,
)
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, Right
from broker_core.service_bus import entities
from broker_core.service_bus.rules.explaining import Code
from broker_core.service_bus.rules.values import Message
from tests.broker_state import now

SECOND = timedelta(seconds=1)
LIVES = [None, 5, 12, 40]


def codes(address, number):
    return [reason.code for reason in service_bus.explain(address, number).reasons]


def reason(address, number, code):
    return next(r for r in service_bus.explain(address, number).reasons if r.code == code)


def test_the_first_message_is_next_and_the_others_are_behind(queue):
    service_bus.send(queue, [Message(b"x") for _ in range(3)])
    assert codes(queue, 1) == [Code.NEXT]
    explanation = service_bus.explain(queue, 3)
    assert (explanation.deliverable, explanation.at, explanation.message.sequence_number) == (True, now(queue), 3)
    assert explanation.reasons[0].text == "2 messages ahead."
    service_bus.receive(queue, 2)
    assert codes(queue, 3) == [Code.NEXT]


def test_messages_ahead_are_counted_up_to_a_cap(queue, monkeypatch):
    monkeypatch.setattr("broker_core.service_bus.messages.reading.PLACE_CAP", 4)
    service_bus.send(queue, [Message(b"x") for _ in range(9)])
    assert reason(queue, 9, Code.BEHIND).text == "4 or more messages ahead."
    assert reason(queue, 2, Code.BEHIND).text == "1 message ahead."
    monkeypatch.setattr("broker_core.service_bus.messages.reading.PLACE_ROWS", 2)
    service_bus.receive(queue, 3)
    assert reason(queue, 9, Code.BEHIND).text.startswith("Many messages that cannot be received now are ahead;")
    assert codes(queue, 4) == [Code.BEHIND]


def test_a_locked_message_names_its_holder_and_the_end_of_the_lock(queue):
    service_bus.send(queue, [Message(b"x")])
    [message] = service_bus.receive(queue, actor=Actor("user", "ann", Right.ALL))
    locked_reason = reason(queue, 1, Code.LOCKED)
    assert locked_reason.ends_at == message.locked_until
    assert locked_reason.values == {"locked_by": "user:ann", "locked_until": message.locked_until}
    assert locked_reason.text == "Locked by ann for another 1 min."


def test_all_reasons_are_listed(make_queue, step):
    queue = make_queue(max_delivery_count=1, dead_lettering_on_message_expiration=True)
    service_bus.send(queue, [Message(b"x", time_to_live=30 * SECOND)])
    service_bus.receive(queue)
    step(40 * SECOND)
    entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    explanation = service_bus.explain(queue, 1)
    assert [r.code for r in explanation.obstacles] == [Code.STATUS, Code.LOCKED, Code.EXPIRED]
    assert "can still settle it until the lock ends (SB-026)" in explanation.obstacles[2].text
    assert explanation.obstacles[2].change == "If it is not completed, it moves to the dead-letter queue when the lock ends."
    assert explanation.reasons[3].code == Code.LAST_DELIVERY


def test_a_scheduled_message_is_explained_with_its_due_time(queue, step):
    due = now(queue) + 10 * SECOND
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=due)])
    assert (codes(queue, 1), reason(queue, 1, Code.SCHEDULED).ends_at) == ([Code.SCHEDULED], due)
    step(10 * SECOND)
    assert codes(queue, 1) == [Code.DUE]


def test_a_deferred_message_with_too_many_failed_deliveries_cannot_be_received(make_queue, step):
    queue = make_queue(max_delivery_count=1)
    service_bus.send(queue, [Message(b"x")])
    [message] = service_bus.receive(queue)
    service_bus.defer(queue, [message.lock_token])
    assert codes(queue, 1) == [Code.DEFERRED, Code.LAST_DELIVERY]
    service_bus.receive_deferred(queue, [1])
    step(timedelta(minutes=2))
    assert codes(queue, 1)[:2] == [Code.DEFERRED, Code.SPENT]


def test_a_dead_letter_is_delivered_from_its_own_queue(queue):
    service_bus.send(queue, [Message(b"x")])
    [message] = service_bus.receive(queue)
    service_bus.dead_letter(queue, [message.lock_token], "Broken")
    explanation = service_bus.explain(queue, 1)
    assert (explanation.deliverable, [r.code for r in explanation.reasons]) == (True, [Code.DEAD_LETTER, Code.NEXT])
    assert "(Broken)" in explanation.reasons[0].text


def test_an_expiry_from_the_default_is_marked_as_computed(make_queue, step):
    """SB-028, SB-903."""
    queue = make_queue(default_message_time_to_live=60 * SECOND)
    service_bus.send(queue, [Message(b"x"), Message(b"x", time_to_live=30 * SECOND)])
    ends = {row.sequence_number: (row.expires_at, row.expires_by_default) for row in reads.list_messages(queue).rows}
    assert ends == {1: (now(queue) + 60 * SECOND, True), 2: (now(queue) + 30 * SECOND, False)}
    assert {m.sequence_number: m.expires_at for m in service_bus.peek(queue)} == {number: at for number, (at, _) in ends.items()}
    step(70 * SECOND)
    assert reason(queue, 1, Code.EXPIRED).change.endswith("A longer DefaultMessageTimeToLive makes it available again.")
    assert reason(queue, 2, Code.EXPIRED).change.endswith("It cannot become available again.")
    assert [m.sequence_number for m in service_bus.receive(queue, 2)] == []


def test_a_removed_message_has_no_explanation_and_explaining_requires_a_right(queue):
    assert service_bus.explain(queue, 7) is None
    with pytest.raises(EntityNotFound):
        service_bus.explain(EntityAddress(queue.namespace, "nowhere"), 1)
    with pytest.raises(NotAuthorized):
        service_bus.explain(queue, 1, actor=Actor("user", "eve"))


def test_the_explanation_of_a_forwarded_message_names_the_target(make_queue):
    source, target = make_queue(), make_queue()
    service_bus.send(source, [Message(b"x")])
    [message] = service_bus.receive(source)
    service_bus.dead_letter(source, [message.lock_token])
    entities.update_queue(source, forward_dead_lettered_messages_to=target.path)
    explanation = service_bus.explain(source, 1)
    assert [r.code for r in explanation.reasons] == [Code.FORWARDED, Code.DEAD_LETTER]
    assert explanation.reasons[0].text == f"Dead letters are forwarded to '{target.path}' (SB-171); receive them there."
    assert not explanation.deliverable


def test_the_explanation_of_a_message_in_transfer_names_the_target(make_queue, monkeypatch):
    via, target = make_queue(), make_queue()
    monkeypatch.setattr(
        "broker_core.service_bus.transactions.forward_on", lambda *_: iter(())
    )  # a process that died after its commit
    service_bus.send(via, [Message(b"work")])
    [message] = service_bus.receive(via)
    with service_bus.transaction(via=via) as tx:
        tx.complete(via, [message.lock_token])
        tx.send(target, [Message(b"x")])
    explanation = service_bus.explain(via, 2)
    assert [r.code for r in explanation.reasons] == [Code.TRANSFER]
    assert explanation.reasons[0].text == f"It is being forwarded to '{target.path}' and leaves with the next transfer."
    assert not explanation.deliverable


def test_a_scheduled_message_of_a_topic_waits_for_its_subscriptions(namespace):
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    service_bus.send(topic, [Message(b"x", scheduled_enqueue_at=now(topic) + SECOND)])
    [reason] = service_bus.explain(topic, 1).reasons
    assert (
        reason.change == "When due, it goes to the topic's subscriptions with a new sequence number. It can be cancelled before."
    )


def test_messages_of_a_locked_session_are_explained(make_queue, step):
    queue = make_queue(requires_session=True, lock_duration=20 * SECOND)
    service_bus.send(queue, [Message(b"x", session_id="a"), Message(b"x", session_id="b"), Message(b"x", session_id="a")])
    assert codes(queue, 3) == [Code.IN_SESSION, Code.BEHIND]
    assert reason(queue, 3, Code.BEHIND).text == "1 message of the session 'a' ahead."
    session = service_bus.accept_session(queue, "a", actor=Actor("user", "ann", Right.ALL))
    held = reason(queue, 3, Code.SESSION_LOCKED)
    assert (held.ends_at, held.values["locked_by"]) == (session.locked_until, "user:ann")
    assert held.text == "Its session 'a' is locked by ann for another 20 s; only that receiver gets its messages (SB-114)."
    assert service_bus.explain(queue, 2).deliverable
    service_bus.close_session(session)
    assert service_bus.explain(queue, 3).deliverable


@pytest.mark.parametrize("whole", [True, False])
def test_an_expired_message_ends_its_session(make_queue, step, whole):
    queue = make_queue(requires_session=True, expires_whole_sessions=whole)
    service_bus.send(queue, [Message(b"x", session_id="a", time_to_live=5 * SECOND), Message(b"x", session_id="a")])
    step(6 * SECOND)
    assert codes(queue, 1)[0] == Code.EXPIRED
    assert service_bus.explain(queue, 2).deliverable == (not whole)
    if whole:
        assert reason(queue, 2, Code.SESSION_EXPIRED).values["expired"] == 1


# What is said is what a receive does

steps_of_a_story = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(LIVES), st.sampled_from([None, 8, 30])),
        st.tuples(st.just("step"), st.sampled_from([1, 5, 9, 21])),
        st.tuples(st.just("receive"), st.sampled_from(["hold", "abandon", "defer", "dead_letter", "release"]), st.integers(1, 2)),
        st.tuples(st.just("receive_dead"), st.sampled_from(["hold", "abandon"]), st.integers(1, 2)),
        st.tuples(st.just("ask"), st.integers(1, 8)),
    ),
    min_size=1,
    max_size=14,
)


def play(queue, story):
    for what, *how in story:
        match what:
            case "send":
                life, delay = how
                due = None if delay is None else now(queue) + delay * SECOND
                service_bus.send(queue, [Message(b"x", time_to_live=life and life * SECOND, scheduled_enqueue_at=due)])
            case "step":
                namespaces.step_clock(queue.namespace, how[0] * SECOND)
            case "receive" | "receive_dead":
                address = queue.dead_letter if what == "receive_dead" else queue
                tokens = [message.lock_token for message in service_bus.receive(address, how[1])]
                if how[0] != "hold" and tokens:
                    getattr(service_bus, how[0])(address, tokens)
            case "ask":
                with suppress(MessageNotFound):
                    service_bus.receive_deferred(queue, [how[0]])


@settings(max_examples=35)
@given(
    story=steps_of_a_story,
    most=st.integers(1, 3),
    default=st.sampled_from([None, 30]),
    dead_lettering=st.booleans(),
    status=st.sampled_from(EntityStatus),
    mode=st.sampled_from(["eager", "on_activity"]),
)
def test_explanations_agree_with_receiving(broker_database, story, most, default, dead_lettering, status, mode):
    namespace = f"x-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    namespaces.pause_clock(namespace)
    queue = EntityAddress(namespace, "q")
    entities.create_queue(
        queue, lock_duration=20 * SECOND, max_delivery_count=most, default_message_time_to_live=default and default * SECOND,
        dead_lettering_on_message_expiration=dead_lettering, expiry_mode=mode,
    )  # fmt: skip
    play(queue, story)
    entities.update_queue(queue, status=status)
    for address, tabs in (
        (queue, (reads.Tab.ACTIVE, reads.Tab.DEFERRED, reads.Tab.SCHEDULED)),
        (queue.dead_letter, (reads.Tab.DEAD_LETTER,)),
    ):
        present = sorted(row.sequence_number for tab in tabs for row in reads.list_messages(queue, tab).rows)
        told = [(number, service_bus.explain(queue, number)) for number in present]
        deliverable = [number for number, explanation in told if explanation.deliverable]
        assert places_of(told) == list(range(len(deliverable)))
        try:
            received = [m.sequence_number for m in service_bus.receive(address, 100)]
        except EntityDisabled:
            received = []
        # What a receive puts in motion on the way (activates, dead-letters) arrives under a new number, or in the other list.
        assert [number for number in received if number in present] == deliverable


def places_of(told):
    return [r.values["before"] for _, explanation in told for r in explanation.reasons if r.code in (Code.NEXT, Code.BEHIND)]


@settings(max_examples=35)
@given(
    story=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from("ab"), st.sampled_from(LIVES)),
            st.tuples(st.just("step"), st.sampled_from([1, 5, 9, 21])),
            st.tuples(
                st.just("accept"), st.sampled_from("ab"), st.sampled_from(["hold", "abandon", "defer", "close", "complete"])
            ),
        ),
        min_size=1,
        max_size=12,
    ),
    most=st.integers(1, 3),
    default=st.sampled_from([None, 30]),
    whole=st.booleans(),
    status=st.sampled_from(EntityStatus),
)
def test_explanations_agree_with_receiving_from_sessions(broker_database, story, most, default, whole, status):
    namespace = f"y-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    namespaces.pause_clock(namespace)
    queue = EntityAddress(namespace, "q")
    entities.create_queue(
        queue, lock_duration=20 * SECOND, max_delivery_count=most, default_message_time_to_live=default and default * SECOND,
        requires_session=True, expires_whole_sessions=whole,
    )  # fmt: skip
    for what, *how in story:
        match what:
            case "send":
                service_bus.send(queue, [Message(b"x", session_id=how[0], time_to_live=how[1] and how[1] * SECOND)])
            case "step":
                namespaces.step_clock(namespace, how[0] * SECOND)
            case "accept":
                with suppress(SessionCannotBeLocked):
                    work_in_session(service_bus.accept_session(queue, how[0], max_count=2), how[1])
    entities.update_queue(queue, status=status)
    rows = reads.list_messages(queue, reads.Tab.ACTIVE, newest_first=False).rows
    told = [(row.session_id, row.sequence_number, service_bus.explain(queue, row.sequence_number)) for row in rows]
    for session_id in "ab":
        of_session = [(number, explanation) for session, number, explanation in told if session == session_id]
        deliverable = [number for number, explanation in of_session if explanation.deliverable]
        assert places_of(of_session) == list(range(len(deliverable)))
        try:
            received = [m.sequence_number for m in service_bus.accept_session(queue, session_id, max_count=50).messages]
        except (SessionCannotBeLocked, EntityDisabled):
            received = []
        assert received == deliverable


def work_in_session(session, how):
    tokens = [message.lock_token for message in session.messages]
    if how == "close":
        service_bus.close_session(session)
    elif how != "hold" and tokens:
        getattr(service_bus, how)(session.address, tokens)
