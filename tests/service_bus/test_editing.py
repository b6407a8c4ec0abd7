"""An operator edits messages that wait (SB-079, docs/design.md D22)."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from broker_core import namespaces, operations, reads, service_bus
from broker_core.common.errors import (
    BrokerError,
    EntityNotFound,
    InvalidArgument,
    MessageChanged,
    MessageHeld,
    MessageNotFound,
    MessageTooLarge,
    NamespaceFull,
    NotAllowed,
    NotAuthorized,
    QuotaExceeded,
)
from broker_core.common.types import Actor, BodyKind, EntityAddress, EventKind, HistoryLevel, Right
from broker_core.runtime import room
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters.rules import Rule
from broker_core.service_bus.rules.values import Message
from tests.broker_state import events, ledger_agrees, now
from tests.service_bus.test_topics_config import at_once

OTTO = Actor("user", "otto", Right.ALL)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.fixture
def small_limits(settings):
    """Queues may be as small as 1 MB."""
    settings.VITRINE_LIMITS = "relaxed"


def version(queue, number=1):
    return reads.message(queue, number).version


def body(queue, number=1):
    return reads.body(queue, number).content


def content(queue, number=1):
    """All that is stored of a message but what an edit changes."""
    detail = reads.message(queue, number)
    kept = (detail.broker_properties, detail.time_to_live, detail.encoded, detail.enqueued_sequence_number)
    row = detail.row
    return kept, row.state, row.message_id, row.session_id, row.enqueued_at, row.expires_at, row.delivery_count, row.locked_until


def waiting(queue, state):
    """Message 1 of a queue in this state."""
    at = now(queue) + HOUR if state == "scheduled" else None
    message = Message(
        b"before", message_id="one", subject="s", time_to_live=2 * HOUR, properties={"old": 1}, scheduled_enqueue_at=at
    )
    service_bus.send(queue, [message])
    if state == "deferred":
        service_bus.defer(queue, [service_bus.receive(queue, 1)[0].lock_token])
    if state == "abandoned":
        service_bus.abandon(queue, [service_bus.receive(queue, 1)[0].lock_token])


@pytest.mark.parametrize("state", ["active", "scheduled", "deferred", "abandoned"])
def test_an_edit_changes_the_content_and_nothing_else(make_queue, state):
    """SB-079: a message in every state that waits."""
    queue = make_queue()
    waiting(queue, state)
    before, size = content(queue), reads.message(queue, 1).row.size
    new = service_bus.edit(queue, 1, body=b"longer than before", properties={"new": "x"}, version=version(queue), actor=OTTO)
    after = reads.message(queue, 1)
    assert (body(queue), after.application_properties) == (b"longer than before", {"new": ("string", "x")})
    assert content(queue) == before and after.version == new
    [event] = [e for e in events(queue) if e.kind == EventKind.EDITED]
    assert (event.actor, event.sequence_number, event.size) == ("user:otto", 1, after.row.size)
    assert event.details == {
        "size_before": size, "changed": ["body", "properties"], "properties": {"new": ["string", "x"]},
    }  # fmt: skip
    assert ledger_agrees(queue)


def test_the_size_of_an_edited_message_is_that_of_the_same_message_sent(make_queue):
    """SB-007."""
    queue, other = make_queue(), make_queue()
    sent = Message(b"before" * 60, message_id="one", subject="s", time_to_live=HOUR, properties={"a": 1})
    service_bus.send(queue, [sent])
    service_bus.edit(queue, 1, body=b"x", properties={"b": "y", "c": True})
    service_bus.send(other, [replace(sent, body=b"x", properties={"b": "y", "c": True})])
    assert reads.message(queue, 1).row.size == reads.message(other, 1).row.size


def test_what_is_not_given_stays(make_queue):
    queue = make_queue()
    waiting(queue, "active")
    service_bus.edit(queue, 1, body=b"new")
    assert reads.message(queue, 1).application_properties == {"old": ("int", "1")}
    service_bus.edit(queue, 1, properties={})
    assert (reads.message(queue, 1).application_properties, body(queue)) == ({}, b"new")
    [received] = service_bus.receive(queue, 1)
    assert (received.body, received.properties, received.subject) == (b"new", {}, "s")
    assert [e.details["changed"] for e in events(queue) if e.kind == EventKind.EDITED] == [["body"], ["properties"]]


def test_a_body_of_sections_becomes_plain_bytes(make_queue):
    queue = make_queue()
    service_bus.send(queue, [Message(service_bus.encode_body(BodyKind.VALUE, "text"), body_kind=BodyKind.VALUE)])
    service_bus.edit(queue, 1, properties={"a": 1})
    assert reads.message(queue, 1).body_kind is BodyKind.VALUE
    service_bus.edit(queue, 1, body=b"plain")
    assert (reads.message(queue, 1).body_kind, body(queue)) == (BodyKind.DATA, b"plain")
    assert ledger_agrees(queue)


def _locked(queue, step):
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive(queue, 1, actor=Actor("process", "billing", Right.ALL))


def _deferred_and_locked(queue, step):
    waiting(queue, "deferred")
    service_bus.receive_deferred(queue, [1])


def _expired(queue, step):
    service_bus.send(queue, [Message(b"x", time_to_live=SECOND)])
    step(2 * SECOND)


def _dead(queue, step):
    waiting(queue, "active")
    service_bus.dead_letter_unlocked(queue, [1])


def _completed(queue, step):
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive_and_delete(queue, 1)


REFUSED = [
    (_locked, MessageHeld, r"held by process:billing until \d\d:\d\d:\d\d UTC. .* release its lock first"),
    (_deferred_and_locked, MessageHeld, "release its lock first"),
    (_expired, NotAllowed, "has expired"),
    (_dead, NotAllowed, "is a dead letter.* Repair and resubmit it"),
    (_completed, MessageNotFound, "no message with the sequence number 1"),
]


@pytest.mark.parametrize(("reach", "error", "says"), REFUSED, ids=[reach.__name__ for reach, _, _ in REFUSED])
def test_a_message_that_does_not_wait_is_refused(make_queue, step, reach, error, says):
    """SB-079: with what to do, and nothing is changed."""
    queue = make_queue()
    reach(queue, step)
    before = len(events(queue))
    with pytest.raises(error, match=says):
        service_bus.edit(queue, 1, body=b"edited")
    assert len(events(queue)) == before and ledger_agrees(queue)


def test_the_lists_of_dead_letters_and_missing_entities_are_refused(queue):
    for address, error in ((queue.dead_letter, NotAllowed), (EntityAddress(queue.namespace, "gone"), EntityNotFound)):
        with pytest.raises(error):
            service_bus.edit(address, 1, body=b"x")


def test_a_deleted_queue_is_not_found(make_queue):
    queue = make_queue()
    service_bus.send(queue, [Message(b"x")])
    entities.delete_entity(queue, operation_id=operations.new_number())
    with pytest.raises(EntityNotFound):
        service_bus.edit(queue, 1, body=b"y")


def test_of_two_editors_the_second_is_refused(queue):
    """SB-079: nobody's change is lost."""
    service_bus.send(queue, [Message(b"x")])
    opened = version(queue)
    service_bus.edit(queue, 1, body=b"first", version=opened)
    with pytest.raises(MessageChanged, match="has changed since you opened it. .* open it again"):
        service_bus.edit(queue, 1, body=b"second", version=opened)
    assert body(queue) == b"first"


def test_a_message_that_was_received_in_between_is_refused(queue):
    """SB-079: also once it has returned, so that an editor sees what its receiver set."""
    service_bus.send(queue, [Message(b"x")])
    opened = version(queue)
    [lock] = service_bus.receive(queue, 1)
    with pytest.raises(MessageHeld):
        service_bus.edit(queue, 1, body=b"y", version=opened)
    service_bus.abandon(queue, [lock.lock_token], properties={"tried": 1})
    with pytest.raises(MessageChanged):
        service_bus.edit(queue, 1, properties={}, version=opened)
    service_bus.edit(queue, 1, body=b"y", version=version(queue))
    assert reads.message(queue, 1).application_properties == {"tried": ("int", "1")}


def test_a_message_whose_lock_ended_unnoticed_can_be_edited(make_queue, step):
    """SB-079, SB-090: nobody holds it; the failed delivery counts all the same."""
    queue = make_queue(lock_duration=10 * SECOND)
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive(queue, 1)
    step(11 * SECOND)
    service_bus.edit(queue, 1, body=b"y")
    [again] = service_bus.receive(queue, 1)
    assert (again.body, again.delivery_count) == (b"y", 1)
    assert ledger_agrees(queue)


@pytest.mark.parametrize("rights", [Right.OPERATE, Right.SEE_BODIES | Right.BROWSE, Right.ALL & ~Right.OPERATE])
def test_an_edit_needs_the_rights_to_operate_and_to_see_bodies(queue, rights):
    service_bus.send(queue, [Message(b"x")])
    with pytest.raises(NotAuthorized):
        service_bus.edit(queue, 1, body=b"y", actor=Actor("user", "vera", rights))
    assert body(queue) == b"x"


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({}, "body"), ({"body": "text"}, "body"), ({"body": b"y", "reason": "x" * 501}, "reason"),
        ({"properties": {"": 1}}, "application property"), ({"body": b"y", "version": 5}, "version"),
    ],
)  # fmt: skip
def test_a_wrong_edit_is_refused_by_name(queue, wrong, name):
    service_bus.send(queue, [Message(b"x")])
    with pytest.raises(InvalidArgument) as refused:
        service_bus.edit(queue, 1, **wrong)
    assert refused.value.name == name


def test_the_limits_of_a_send_hold(make_queue, small_limits):
    """SB-007: of the message, and of its properties. A message that is over a lowered limit can be made smaller."""
    queue = make_queue(max_message_size_in_kilobytes=2)
    service_bus.send(queue, [Message(b"x" * 1900)])
    for wrong in ({"body": b"x" * 2100}, {"properties": {"a": "x" * 40_000}}):
        with pytest.raises(MessageTooLarge):
            service_bus.edit(queue, 1, **wrong)
    entities.update_queue(queue, max_message_size_in_kilobytes=1)
    service_bus.edit(queue, 1, body=b"x" * 1500)
    with pytest.raises(MessageTooLarge):
        service_bus.edit(queue, 1, body=b"x" * 1501)
    assert ledger_agrees(queue)


def test_a_full_queue_refuses_only_edits_that_make_messages_larger(make_queue, small_limits):
    """SB-012."""
    queue = make_queue(max_size_in_megabytes=1, max_message_size_in_kilobytes=2048)
    service_bus.send(queue, [Message(b"x" * 1_000_000), Message(b"y")])
    with pytest.raises(QuotaExceeded):
        service_bus.edit(queue, 2, body=b"y" * 60_000)
    service_bus.edit(queue, 1, body=b"x" * 900_000)
    service_bus.edit(queue, 2, body=b"y" * 60_000)
    assert ledger_agrees(queue)


def test_copies_count_at_their_topic(namespace, small_limits):
    """SB-012: an edited copy is counted by the next publication, and refused if the topic is full."""
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic, max_size_in_megabytes=1, max_message_size_in_kilobytes=2048)
    copy = topic.subscription("all")
    entities.create_subscription(copy)
    service_bus.send(topic, [Message(b"x" * 500_000)])
    service_bus.edit(copy, 1, body=b"x" * 900_000)
    with pytest.raises(QuotaExceeded):
        service_bus.edit(copy, 1, body=b"x" * 1_100_000)
    with pytest.raises(QuotaExceeded):
        service_bus.send(topic, [Message(b"x" * 200_000)])
    service_bus.send(topic, [Message(b"x" * 100_000)])
    assert ledger_agrees(copy)


def test_a_scheduled_message_of_a_topic_is_published_as_edited(namespace, step):
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"), rule=Rule("r"))
    service_bus.send(topic, [Message(b"x", scheduled_enqueue_at=now(topic) + HOUR)])
    service_bus.edit(topic, 1, body=b"edited", properties={"a": 1})
    step(HOUR)
    [copy] = service_bus.receive(topic.subscription("all"), 1)
    assert (copy.body, copy.properties) == (b"edited", {"a": 1})


def test_a_full_namespace_refuses_an_edit_that_makes_a_message_larger(queue, fresh_room_check):
    service_bus.send(queue, [Message(b"x" * 200_000) for _ in range(6)])
    namespaces.change_limits(queue.namespace, max_size_in_megabytes=1)
    room.forget_rooms()
    with pytest.raises(NamespaceFull):
        service_bus.edit(queue, 1, body=b"x" * 200_001)
    service_bus.edit(queue, 1, body=b"x")
    assert ledger_agrees(queue)


@pytest.mark.parametrize(("level", "recorded"), [(HistoryLevel.OFF, 0), (HistoryLevel.LIFECYCLE, 1), (HistoryLevel.FULL, 1)])
def test_an_edit_is_recorded_unless_the_history_is_off(make_queue, level, recorded):
    queue = make_queue(history_level=level)
    service_bus.send(queue, [Message(b"x")])
    service_bus.edit(queue, 1, body=b"y", reason="typing error", actor=OTTO)
    edited = [e for e in events(queue) if e.kind == EventKind.EDITED]
    assert len(edited) == recorded and all(e.reason == "typing error" for e in edited)


def test_edits_and_receives_at_once_lose_nothing(queue):
    """A message is received as it was before or after its edit; a refused edit left it as it was."""
    service_bus.send(queue, [Message(b"before", message_id=str(n)) for n in range(60)])
    done, edited = threading.Event(), set()

    def edit():
        for number in range(1, 61):
            try:
                service_bus.edit(queue, number, body=b"after", properties={"n": number})
            except (MessageHeld, MessageChanged, MessageNotFound):
                continue
            edited.add(number)
        done.set()

    def receive():
        received = {}
        while True:
            last = done.is_set()
            locks = service_bus.receive(queue, 3)
            received |= {lock.sequence_number: (lock.body, dict(lock.properties)) for lock in locks}
            service_bus.complete(queue, [lock.lock_token for lock in locks])
            if last and not locks:
                return received

    _, received = at_once(edit, receive)
    assert len(received) == 60
    expected = {n: (b"after", {"n": n}) if n in edited else (b"before", {}) for n in range(1, 61)}
    assert received == expected
    assert ledger_agrees(queue)


def test_two_editors_at_once_lose_no_change(queue):
    service_bus.send(queue, [Message(b"0")])

    def add():
        added = 0
        while added < 15:
            opened = version(queue)
            try:
                service_bus.edit(queue, 1, body=str(int(body(queue)) + 1).encode(), version=opened)
            except BrokerError as refused:
                assert isinstance(refused, MessageChanged)
                continue
            added += 1

    at_once(add, add)
    assert body(queue) == b"30"
    assert ledger_agrees(queue)
