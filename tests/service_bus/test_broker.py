"""The use cases on real Postgres, one story a rule. Time passes only when a test steps the namespace's clock."""

import asyncio
import threading
from datetime import timedelta

import pytest

from broker_core import service_bus, sweeps
from broker_core.common.errors import (
    BrokerUnavailable,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NotAllowed,
    NotAuthorized,
    QuotaExceeded,
)
from broker_core.common.lock_tokens import sequence_number_of
from broker_core.common.types import Actor, EntityAddress, EntityStatus, EventKind, MessageState, Right
from broker_core.runtime import entity_cache
from broker_core.service_bus import entities
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.amqp_messages import encode_message
from broker_core.service_bus.rules.messages import properties_json
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from tests.broker_state import bodies, entity_id, events, ledger_agrees, now

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def sent(queue, *texts, **properties):
    return service_bus.send(queue, [Message(text.encode(), **properties) for text in texts])


def tokens(messages):
    return [message.lock_token for message in messages]


# Sending


def test_numbers_start_at_one_and_have_no_gaps(queue):
    """SB-001, SB-004, SB-924."""
    assert sent(queue, "a", "b") == [1, 2]
    with pytest.raises(InvalidArgument):
        service_bus.send(queue, [Message(b"c"), Message(b"d", message_id="x" * 200)])
    assert sent(queue, "e") == [3]


def test_a_batch_is_stored_completely_or_not_at_all(queue):
    """SB-003."""
    with pytest.raises(InvalidArgument, match="time_to_live"):
        service_bus.send(queue, [Message(b"good"), Message(b"bad", time_to_live=-SECOND)])
    assert service_bus.peek(queue) == []
    assert events(queue) == []


def test_everything_sent_is_received_unchanged(queue):
    message = Message(
        bytes(range(256)),
        message_id="m",
        session_id="s",
        correlation_id="c",
        subject="subject",
        content_type="text/plain",
        to="to",
        reply_to="reply",
        reply_to_session_id="rs",
        partition_key="s",
        time_to_live=MINUTE,
        properties={"n": 1, "nothing": None, "bytes": b"\x00"},
        amqp=AmqpSections(user_id=b"u"),
    )
    service_bus.send(queue, [message])
    (received_message,) = service_bus.receive(queue)
    assert received_message.body == message.body
    assert received_message.properties == message.properties  # SB-015
    assert received_message.time_to_live == MINUTE
    assert (received_message.message_id, received_message.session_id) == ("m", "s")
    assert received_message.broker_properties == {
        "correlation_id": "c",
        "subject": "subject",
        "content_type": "text/plain",
        "to": "to",
        "reply_to": "reply",
        "reply_to_session_id": "rs",
        "partition_key": "s",
    }
    assert received_message.amqp.user_id == b"u"


def test_an_empty_body_is_accepted_and_a_message_without_an_id_gets_one(queue):
    """SB-011, SB-134."""
    sent(queue, "", "")
    first, second = service_bus.receive(queue, 2)
    assert first.body == b""
    assert first.message_id
    assert first.message_id != second.message_id


def test_a_message_that_is_too_large_is_refused_and_nothing_is_stored(queue):
    """SB-007."""
    limit = 256 * 1024
    with pytest.raises(MessageTooLarge, match="262,144"):
        service_bus.send(queue, [Message(b"small"), Message(b"x" * (limit + 1))])
    assert service_bus.peek(queue) == []
    # The limit is that of the whole message as AMQP encodes it: its header, properties and application properties count.
    footer = AmqpSections(footer={"f": 1})
    for fields in ({"message_id": "m"}, {"time_to_live": MINUTE}, {"properties": {"n": 1}}, {"amqp": footer}):
        overhead = len(encode_message(Message(b"", **{"message_id": "x" * 32} | fields))) + 3  # the length of a long body
        service_bus.send(queue, [Message(b"x" * (limit - overhead), **fields)])
        with pytest.raises(MessageTooLarge, match=r"The message has 262,145 bytes"):
            service_bus.send(queue, [Message(b"x" * (limit - overhead + 1), **fields)])


def test_a_full_queue_refuses_sends_until_there_is_room(make_queue, settings):
    """SB-012: exact, whether or not the ledger was rolled up."""
    settings.VITRINE_LIMITS = "relaxed"
    queue = make_queue(max_size_in_megabytes=1)
    service_bus.send(queue, [Message(b"x" * 200_000)] * 5)
    with pytest.raises(QuotaExceeded, match="1 MB"):
        service_bus.send(queue, [Message(b"x" * 200_000)])
    service_bus.receive_and_delete(queue)
    service_bus.send(queue, [Message(b"x" * 200_000)])


def test_sending_to_a_dead_letter_queue_is_refused(queue):
    """SB-013."""
    with pytest.raises(NotAllowed):
        sent(queue.dead_letter, "a")


def test_an_error_names_the_unknown_queue(queue):
    with pytest.raises(EntityNotFound, match="could not be found"):
        sent(EntityAddress(queue.namespace, "nowhere"), "a")


def test_a_recreated_queue_is_found_despite_caches(queue):
    """SB-240, SB-241."""
    sent(queue, "old")
    entities.delete_queue(queue)
    with pytest.raises(EntityNotFound):
        sent(queue, "lost")
    entities.create_queue(queue)
    assert sent(queue, "new") == [1]
    assert bodies(service_bus.receive(queue, 5)) == ["new"]


# Receiving, locks, settling


def test_receivers_get_disjoint_messages_in_order(queue):
    """SB-061, SB-062."""
    sent(queue, "a", "b", "c")
    first, second = service_bus.receive(queue, 2), service_bus.receive(queue, 2)
    assert (bodies(first), bodies(second)) == (["a", "b"], ["c"])
    assert first[0].locked_until - now(queue) == MINUTE
    assert service_bus.receive(queue) == []


def test_concurrent_receivers_never_get_the_same_message(queue):
    service_bus.send(queue, [Message(str(n).encode()) for n in range(300)])
    received, barrier = [[], [], [], []], threading.Barrier(4)

    def work(mine):
        barrier.wait()
        while messages := service_bus.receive(queue, 7):
            mine += [m.sequence_number for m in messages]
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in received]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    together = sum(received, [])
    assert sorted(together) == list(range(1, 301))


def test_a_lock_token_identifies_its_message(queue):
    sent(queue, "a", "b")
    messages = service_bus.receive(queue, 2)
    assert [sequence_number_of(t) for t in tokens(messages)] == [1, 2]
    again = (service_bus.abandon(queue, tokens(messages)), service_bus.receive(queue, 2))[1]
    assert not set(tokens(again)) & set(tokens(messages))  # a new token each delivery


def test_a_message_is_completed_once_and_a_second_complete_raises_lock_lost(queue):
    """SB-080, SB-071, SB-088."""
    sent(queue, "a")
    held = tokens(service_bus.receive(queue))
    assert [number for _, number in service_bus.complete(queue, held).settled] == [1]
    report = service_bus.complete(queue, held)
    assert report.lost == tuple(held)
    with pytest.raises(LockLost):
        report.require_all()


def test_messages_with_valid_locks_are_settled_and_the_others_reported(queue):
    """SB-087."""
    sent(queue, "a", "b")
    first, second = service_bus.receive(queue, 2)
    service_bus.complete(queue, [first.lock_token])
    report = service_bus.complete(queue, [first.lock_token, second.lock_token])
    assert (report.lost, report.settled) == ((first.lock_token,), ((second.lock_token, 2),))


def test_a_lock_ends_at_its_exact_time(queue, step):
    """SB-070, SB-090: the delivery failed, and the message is first in line again (SB-063)."""
    sent(queue, "a", "b")
    (held,) = service_bus.receive(queue)
    step(MINUTE - SECOND)
    assert service_bus.renew(queue, [held.lock_token]).locked_until == now(queue) + MINUTE  # SB-064
    step(MINUTE)
    assert service_bus.complete(queue, [held.lock_token]).lost
    assert service_bus.renew(queue, [held.lock_token]).lost
    again = service_bus.receive(queue) + service_bus.receive(queue)  # one by one: the first is not found by a second look
    assert bodies(again) == ["a", "b"]
    assert [m.delivery_count for m in again] == [1, 0]


def test_an_abandon_at_the_instant_at_which_the_lock_ends_is_too_late(queue, step):
    """SB-070."""
    sent(queue, "a")
    (held,) = service_bus.receive(queue)
    step(MINUTE)
    assert service_bus.abandon(queue, [held.lock_token]).lost


def test_a_renewed_lock_holds_until_its_new_end(queue, step):
    """SB-064."""
    sent(queue, "a")
    (held,) = service_bus.receive(queue)
    step(MINUTE - SECOND)
    service_bus.renew(queue, [held.lock_token])
    step(MINUTE - SECOND)
    assert service_bus.complete(queue, [held.lock_token]).settled


def test_the_event_of_a_renewal_has_the_delivery_count_of_its_lock(queue):
    """SB-090: in the queue and, where receiving counts no delivery beforehand, in its dead-letter queue."""
    sent(queue, "a")
    (held,) = service_bus.receive(queue)
    service_bus.abandon(queue, [held.lock_token])
    (held,) = service_bus.receive(queue)
    service_bus.renew(queue, [held.lock_token])
    service_bus.dead_letter(queue, [held.lock_token])
    (dead,) = service_bus.receive(queue.dead_letter)
    service_bus.renew(queue.dead_letter, [dead.lock_token])
    recorded = [(event.kind, event.delivery_count) for event in events(queue, 1)]
    received, renewed = (
        [count for kind, count in recorded if kind == which] for which in (EventKind.RECEIVED, EventKind.RENEWED)
    )
    assert renewed == received[1:] == [held.delivery_count, dead.delivery_count]


def test_an_earlier_lock_cannot_settle_a_message_that_is_locked_again(queue, step):
    """SB-070: the message is the same, the lock is not."""
    sent(queue, "a")
    (earlier,) = service_bus.receive(queue)
    step(MINUTE)
    (held,) = service_bus.receive(queue)
    assert service_bus.complete(queue, [earlier.lock_token]).lost
    assert service_bus.complete(queue, [held.lock_token]).settled


def test_changing_the_lock_duration_affects_only_later_locks(queue):
    """SB-066, SB-907."""
    sent(queue, "a", "b")
    (first,) = service_bus.receive(queue)
    entities.update_queue(queue, lock_duration=timedelta(seconds=30))
    (second,) = service_bus.receive(queue)
    assert first.locked_until - second.locked_until == timedelta(seconds=30)
    assert service_bus.complete(queue, [first.lock_token]).settled
    assert service_bus.renew(queue, [second.lock_token]).locked_until == now(queue) + timedelta(seconds=30)


def test_abandon_counts_and_changes_properties(queue):
    """SB-081."""
    service_bus.send(queue, [Message(b"a", properties={"keep": 1, "change": 1})])
    service_bus.abandon(queue, tokens(service_bus.receive(queue)), {"change": 2, "new": 3})
    (again,) = service_bus.receive(queue)
    assert again.delivery_count == 1
    assert again.properties == {"keep": 1, "change": 2, "new": 3}


def test_a_release_does_not_count_as_a_delivery(queue):
    """SB-926."""
    sent(queue, "a")
    for _ in range(15):
        service_bus.release(queue, tokens(service_bus.receive(queue)))
    assert ledger_agrees(queue)
    assert service_bus.receive(queue)[0].delivery_count == 0


def test_the_last_allowed_failed_delivery_dead_letters(make_queue, step):
    """SB-091: three allowed, three deliveries."""
    queue = make_queue(max_delivery_count=3)
    sent(queue, "a")
    service_bus.abandon(queue, tokens(service_bus.receive(queue)))
    service_bus.receive(queue)
    step(MINUTE)  # the second failure: a lock that ended
    (third,) = service_bus.receive(queue)
    assert third.delivery_count == 2
    service_bus.abandon(queue, [third.lock_token])
    assert service_bus.receive(queue) == []
    (dead,) = service_bus.receive(queue.dead_letter)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.properties["DeadLetterErrorDescription"] == "Message could not be consumed after 3 delivery attempts."
    assert (dead.sequence_number, dead.delivery_count) == (1, 0)  # SB-103


def test_the_last_allowed_abandon_dead_letters_immediately(make_queue):
    """SB-091: no receive and no sweep is needed."""
    queue = make_queue(max_delivery_count=1)
    sent(queue, "a")
    service_bus.abandon(queue, tokens(service_bus.receive(queue)))
    assert service_bus.peek(queue) == [] and bodies(service_bus.peek(queue.dead_letter)) == ["a"]


def test_a_message_dead_lettered_by_an_abandon_is_found_below_the_head(make_queue):
    queue = make_queue(max_delivery_count=1)
    sent(queue, "a", "b")
    a, b = service_bus.receive(queue, 2)
    service_bus.abandon(queue, [b.lock_token])
    assert bodies(service_bus.receive_and_delete(queue.dead_letter)) == ["b"]
    advance(queue.dead_letter)
    service_bus.abandon(queue, [a.lock_token])
    assert bodies(service_bus.receive(queue.dead_letter)) == ["a"]


def test_a_spent_message_is_never_delivered_even_before_a_sweep(make_queue, step):
    """SB-091, docs/design.md D5."""
    queue = make_queue(max_delivery_count=1)
    sent(queue, "a")
    service_bus.receive(queue)
    step(MINUTE)
    assert service_bus.receive(queue) == []
    assert bodies(service_bus.receive(queue.dead_letter)) == ["a"]


def test_a_receiver_can_dead_letter_a_message(queue):
    """SB-082, SB-089, SB-100, SB-101, SB-103."""
    sent(queue, "a", message_id="m", session_id="s")
    report = service_bus.dead_letter(queue, tokens(service_bus.receive(queue)), "bad", "very bad", {"k": 1})
    assert report.settled
    (dead,) = service_bus.receive(queue.dead_letter)
    assert dead.properties == {"k": 1, "DeadLetterReason": "bad", "DeadLetterErrorDescription": "very bad"}
    assert (dead.message_id, dead.session_id, dead.dead_letter_source) == ("m", "s", queue.path)
    with pytest.raises(NotAllowed):
        service_bus.dead_letter(queue.dead_letter, [dead.lock_token])
    service_bus.abandon(queue.dead_letter, [dead.lock_token])
    (again,) = service_bus.receive(queue.dead_letter)
    assert again.delivery_count == 0
    service_bus.complete(queue.dead_letter, [again.lock_token])
    assert service_bus.peek(queue.dead_letter) == []


def test_a_dead_letter_reason_has_a_maximum_length(queue):
    sent(queue, "a")
    with pytest.raises(InvalidArgument, match="4096"):
        service_bus.dead_letter(queue, tokens(service_bus.receive(queue)), "x" * 5000)


def test_dead_letters_that_arrive_below_the_head_are_found(queue):
    """The head bound of the dead-letter queue is lowered by whoever moves a message below it."""
    sent(queue, *"abcd")
    held = service_bus.receive(queue, 4)
    service_bus.dead_letter(queue, tokens(held[2:]))
    assert bodies(service_bus.receive_and_delete(queue.dead_letter, 5)) == ["c", "d"]
    advance(queue.dead_letter)
    service_bus.dead_letter(queue, tokens(held[:2]))
    assert bodies(service_bus.receive(queue.dead_letter, 5)) == ["a", "b"]


def test_receive_and_delete_removes_immediately_and_counts_no_delivery(queue):
    """SB-060, SB-093."""
    sent(queue, "a", "b")
    (taken,) = service_bus.receive_and_delete(queue)
    assert (taken.body, taken.delivery_count) == (b"a", 0)
    assert bodies(service_bus.peek(queue)) == ["b"]


def test_deferred_messages_are_received_only_by_number(queue, step):
    """SB-083, SB-084, SB-085."""
    sent(queue, "a", "b")
    service_bus.defer(queue, tokens(service_bus.receive(queue, 2)), {"why": "later"})
    assert service_bus.receive(queue) == []
    (message,) = service_bus.receive_deferred(queue, [1])
    assert (message.state, message.properties["why"], message.delivery_count) == (MessageState.DEFERRED, "later", 0)
    with pytest.raises(MessageNotFound):
        service_bus.receive_deferred(queue, [1, 2])  # one of them is locked: none is taken
    assert service_bus.receive_deferred(queue, [2])
    service_bus.abandon(queue, [message.lock_token])
    assert service_bus.receive(queue) == []  # it stays deferred
    (message,) = service_bus.receive_deferred(queue, [1])
    assert message.delivery_count == 1
    assert service_bus.complete(queue, [message.lock_token]).settled


def test_a_lock_of_a_deferred_message_that_ends_is_a_failed_delivery(queue, step):
    """SB-084, SB-090."""
    sent(queue, "a")
    service_bus.defer(queue, tokens(service_bus.receive(queue)))
    assert [m.delivery_count for m in service_bus.receive_deferred(queue, [1])] == [0]
    step(MINUTE)
    assert [m.delivery_count for m in service_bus.receive_deferred(queue, [1])] == [1]


def test_a_lock_of_a_deferred_message_that_has_ended_is_lost_when_it_is_received_again(make_queue, step):
    """SB-090: also where that was the last delivery allowed. Each delivery has one end."""
    queue, first, second = make_queue(max_delivery_count=2), Actor.local("first"), Actor.local("second")
    sent(queue, "a", "b")
    service_bus.defer(queue, tokens(service_bus.receive(queue, 2)))
    service_bus.receive_deferred(queue, [1], actor=first)
    step(MINUTE)
    with pytest.raises(MessageNotFound):
        service_bus.receive_deferred(queue, [1, 3], actor=second)  # it is not taken, so nothing is written yet
    service_bus.receive_deferred(queue, [1, 2], actor=second)
    step(MINUTE)
    with pytest.raises(MessageNotFound):
        service_bus.receive_deferred(queue, [1])
    history = [
        (EventKind(e.kind), e.actor, e.delivery_count) for e in sorted(events(queue, 1), key=lambda e: (e.at, e.kind != 12))
    ]
    assert history[3:] == [
        (EventKind.RECEIVED, str(first), 0),
        (EventKind.LOCK_LOST, str(first), 1),
        (EventKind.RECEIVED, str(second), 1),
        (EventKind.LOCK_LOST, str(second), 2),
        (EventKind.DEAD_LETTERED, "process:broker", 2),
    ]


@pytest.mark.parametrize("dead_lettering", [False, True])
def test_an_expired_deferred_message_is_removed_when_it_is_requested(make_queue, step, dead_lettering):
    """SB-036, SB-906."""
    queue = make_queue(dead_lettering_on_message_expiration=dead_lettering)
    sent(queue, "a", time_to_live=2 * MINUTE)
    service_bus.defer(queue, tokens(service_bus.receive(queue)))
    step(2 * MINUTE)
    service_bus.receive(queue)  # nothing in the background
    assert bodies(service_bus.peek(queue)) == ["a"]
    with pytest.raises(MessageNotFound):
        service_bus.receive_deferred(queue, [1])
    assert service_bus.peek(queue) == []
    assert bodies(service_bus.peek(queue.dead_letter)) == (["a"] if dead_lettering else [])


# Time to live


@pytest.mark.parametrize("dead_lettering", [False, True])
def test_expired_messages_are_never_delivered(make_queue, step, dead_lettering):
    """SB-025, SB-032, SB-033, SB-034, SB-035: with no sweep running, in either mode."""
    queue = make_queue(dead_lettering_on_message_expiration=dead_lettering)
    sent(queue, "short", time_to_live=SECOND)
    sent(queue, "long")
    step(SECOND)
    assert bodies(service_bus.receive(queue, 5)) == ["long"]
    assert service_bus.receive_and_delete(queue, 5) == []
    step(timedelta(days=400))
    dead = service_bus.receive(queue.dead_letter, 5)
    assert bodies(dead) == (["short"] if dead_lettering else [])
    if dead:
        assert dead[0].properties["DeadLetterReason"] == "TTLExpiredException"
        assert dead[0].properties["DeadLetterErrorDescription"] == "The message expired and was dead lettered."


def test_the_entitys_default_is_a_maximum_and_is_applied_dynamically(make_queue, step):
    """SB-020, SB-023, SB-921."""
    queue = make_queue(default_message_time_to_live=timedelta(seconds=10))
    sent(queue, "own", time_to_live=timedelta(hours=1))
    sent(queue, "default")
    own, default = service_bus.peek(queue)
    assert (own.time_to_live, default.time_to_live) == (timedelta(seconds=10), None)
    entities.update_queue(queue, default_message_time_to_live=timedelta(seconds=20))
    step(timedelta(seconds=15))
    assert bodies(service_bus.receive(queue, 5)) == ["default"]


def test_a_locked_message_expires_when_its_lock_ends(make_queue, step):
    """SB-026, SB-027, SB-920."""
    queue = make_queue(dead_lettering_on_message_expiration=True, max_delivery_count=1)
    sent(queue, "completed", "abandoned", "left", time_to_live=SECOND)
    completed, abandoned, _ = service_bus.receive(queue, 3)
    step(2 * SECOND)
    assert service_bus.renew(queue, [completed.lock_token]).settled
    assert service_bus.complete(queue, [completed.lock_token]).settled
    assert service_bus.abandon(queue, [abandoned.lock_token]).settled
    assert [d.dead_letter_reason for d in service_bus.peek(queue.dead_letter)] == ["TTLExpiredException"]
    step(MINUTE)
    assert service_bus.receive(queue) == []
    assert [d.dead_letter_reason for d in service_bus.peek(queue.dead_letter)] == ["TTLExpiredException"] * 2


# Scheduling


def test_a_scheduled_message_appears_when_due_under_a_new_number(queue, step):
    """SB-045, SB-047, SB-024."""
    due = now(queue) + 5 * MINUTE
    (number,) = service_bus.send(queue, [Message(b"later", scheduled_enqueue_at=due, time_to_live=10 * MINUTE)])
    sent(queue, "now")
    assert bodies(service_bus.receive_and_delete(queue, 5)) == ["now"]
    (waiting,) = service_bus.peek(queue)
    assert (waiting.sequence_number, waiting.state, waiting.expires_at) == (number, MessageState.SCHEDULED, None)
    step(7 * MINUTE)  # nobody looked when it became due: its life began then all the same
    (message,) = service_bus.receive(queue)
    assert (message.sequence_number, message.enqueued_at) == (3, due)
    assert message.expires_at == due + 10 * MINUTE


def test_a_message_scheduled_in_the_past_is_sent_immediately(queue):
    """SB-046."""
    service_bus.send(queue, [Message(b"a", scheduled_enqueue_at=now(queue))])
    assert bodies(service_bus.receive(queue)) == ["a"]


def test_cancelling_scheduled_messages_is_all_or_nothing(queue, step):
    """SB-048, SB-049."""
    later = now(queue) + MINUTE
    service_bus.send(queue, [Message(b"a", scheduled_enqueue_at=later), Message(b"b", scheduled_enqueue_at=later + MINUTE)])
    with pytest.raises(MessageNotFound) as refusal:
        service_bus.cancel_scheduled(queue, [1, 9])
    assert refusal.value.sequence_numbers == (9,)
    assert len(service_bus.peek(queue)) == 2
    step(MINUTE)
    with pytest.raises(MessageNotFound):
        service_bus.cancel_scheduled(queue, [1])  # due, so active, though nothing has moved it yet
    service_bus.cancel_scheduled(queue, [2])
    assert bodies(service_bus.receive(queue, 5)) == ["a"]


# Peek, purge, resubmit


def test_peek_shows_every_state_and_changes_nothing(queue):
    """SB-140, SB-141."""
    service_bus.send(queue, [Message(b"scheduled", scheduled_enqueue_at=now(queue) + MINUTE)])
    sent(queue, "deferred", "locked", "active")
    deferred, _ = service_bus.receive(queue, 2)
    service_bus.defer(queue, [deferred.lock_token])
    before = service_bus.peek(queue)
    assert bodies(before) == ["scheduled", "deferred", "locked", "active"]
    assert [m.state for m in before] == [MessageState.SCHEDULED, MessageState.DEFERRED, MessageState.ACTIVE, MessageState.ACTIVE]
    assert service_bus.peek(queue) == before
    assert bodies(service_bus.peek(queue, from_sequence_number=2, max_count=2)) == ["deferred", "locked"]


@pytest.mark.parametrize("sweep", [False, True], ids=["unnoticed", "swept"])
def test_peek_counts_a_lock_that_has_ended(queue, step, sweep):
    """SB-090, SB-092: also where nothing has looked at the queue since."""
    sent(queue, "active", "deferred", "dead")
    active, deferred, dead = service_bus.receive(queue, 3)
    service_bus.defer(queue, [deferred.lock_token])
    service_bus.dead_letter(queue, [dead.lock_token])
    service_bus.receive_deferred(queue, [deferred.sequence_number])
    service_bus.receive(queue.dead_letter)
    assert [m.delivery_count for m in service_bus.peek(queue)] == [0, 0]  # held
    step(2 * MINUTE)
    if sweep:
        sweeps.end_locks()
    assert [m.delivery_count for m in service_bus.peek(queue)] == [1, 1]
    assert [m.delivery_count for m in service_bus.peek(queue.dead_letter)] == [0]  # none are counted there (SB-089)
    (again,) = service_bus.receive(queue)
    assert (again.sequence_number, again.delivery_count) == (active.sequence_number, 1)
    (dead_again,) = service_bus.receive(queue.dead_letter)
    assert dead_again.delivery_count == 0


@pytest.mark.parametrize("time_to_live", [10 * MINUTE, None], ids=["own", "default"])
def test_peek_shows_a_due_message_as_active_with_its_end(make_queue, step, time_to_live):
    """SB-024, SB-047: it has been active since it was due, also where nothing has moved it yet."""
    queue = make_queue(default_message_time_to_live=10 * MINUTE)
    due = now(queue) + 5 * MINUTE
    service_bus.send(queue, [Message(b"later", scheduled_enqueue_at=due, time_to_live=time_to_live)])
    step(5 * MINUTE)
    (peeked,) = service_bus.peek(queue)
    assert (peeked.state, peeked.enqueued_at, peeked.expires_at) == (MessageState.ACTIVE, due, due + 10 * MINUTE)
    (message,) = service_bus.receive(queue)
    assert (message.enqueued_at, message.expires_at) == (peeked.enqueued_at, peeked.expires_at)


def test_purge_keeps_locked_and_later_messages(queue):
    """SB-150, SB-151, SB-153."""
    service_bus.send(queue, [Message(b"x")] * 1200)
    held = service_bus.receive(queue, 5)
    assert service_bus.purge(queue, max_count=10, enqueued_before=now(queue) + SECOND) == 10
    assert service_bus.purge(queue, enqueued_before=now(queue) + SECOND) == 1185
    assert service_bus.complete(queue, tokens(held)).lost == ()
    assert ledger_agrees(queue)


def test_resubmit_moves_each_dead_letter_once_and_refers_to_the_original(make_queue):
    """SB-105."""
    queue = make_queue()
    sent(queue, "a", "b", message_id="same")
    service_bus.dead_letter(queue, tokens(service_bus.receive(queue, 2)), "bad")
    (held,) = service_bus.receive(queue.dead_letter)
    assert service_bus.resubmit(queue.dead_letter, [1, 2, 77]) == {2: 3}  # 1 is held by a receiver
    service_bus.release(queue.dead_letter, [held.lock_token])
    assert service_bus.resubmit(queue.dead_letter, [1, 2], properties={"by": "me"}, body=b"mended") == {1: 4}
    first, second = service_bus.receive(queue, 5)
    assert (first.body, first.properties, first.message_id) == (b"b", {}, "same")
    assert (second.body, second.properties) == (b"mended", {"by": "me"})
    assert service_bus.peek(queue.dead_letter) == []
    ancestor = events(queue, 4)[0].details["resubmitted_from"]
    assert (ancestor["sequence_number"], ancestor["reason"], ancestor["times"]) == (1, "bad", 1)


def test_a_resubmitted_body_has_its_own_size_and_the_entitys_limit(queue):
    """SB-105, SB-007."""
    sent(queue, "a")
    service_bus.dead_letter(queue, tokens(service_bus.receive(queue, 1)))
    with pytest.raises(MessageTooLarge):
        service_bus.resubmit(queue.dead_letter, [1], body=b"x" * (256 * 1024))  # with its id, it is larger than that
    assert service_bus.resubmit(queue.dead_letter, [1], body=b"x" * 1000) == {1: 2}
    (size,) = (
        connections.current().execute("SELECT size FROM vitrine_message WHERE entity_id = %s", [entity_id(queue)]).fetchone()
    )
    assert size >= 1000 and ledger_agrees(queue)


def test_resubmitting_adds_no_more_properties_than_may_be_sent(queue):
    """SB-105: each set alone is within the limit, both together are not."""
    service_bus.send(queue, [Message(b"a", properties={f"old{n}": "x" * 10_000 for n in range(4)}), Message(b"b")])
    service_bus.dead_letter(queue, tokens(service_bus.receive(queue, 2)))
    many = {f"new{n}": "x" * 10_000 for n in range(4)}
    with pytest.raises(MessageTooLarge, match="set of application properties"):
        service_bus.resubmit(queue.dead_letter, [1, 2], properties=many)
    assert len(service_bus.peek(queue.dead_letter, max_count=5)) == 2 and service_bus.peek(queue) == []
    assert service_bus.resubmit(queue.dead_letter, [2], properties=many) == {2: 3}
    assert service_bus.resubmit(queue.dead_letter, [1], properties={f"old{n}": "y" * 10_000 for n in range(4)}) == {1: 4}


def test_an_unpaired_surrogate_is_refused_as_a_value(queue):
    """No text of ours can hold it; so it is the caller's mistake, not a failure."""
    half = chr(0xD800)

    async def send_async():
        try:
            await service_bus.send.aio(queue, [Message(b"m", message_id=half)])
        finally:
            await aio.close()

    for use in (
        lambda: service_bus.send(queue, [Message(b"m", message_id=half)]),
        lambda: service_bus.send(queue, [Message(b"m", properties={half: 1})]),
        lambda: service_bus.peek(queue, session_id=half),
        lambda: service_bus.receive(EntityAddress(queue.namespace, half), 1),
        lambda: asyncio.run(send_async()),
    ):
        with pytest.raises(InvalidArgument):
            use()
    assert service_bus.peek(queue) == []


@pytest.mark.parametrize("count", [0, -1, True, 1.0, 2**63])
def test_a_count_must_be_an_integer(queue, count):
    for use in (service_bus.receive, service_bus.receive_and_delete, lambda address, n: service_bus.peek(address, 1, n)):
        with pytest.raises(InvalidArgument, match="max_count"):
            use(queue, count)


# Status and rights


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.ACTIVE, True, True),  # SB-230
        (EntityStatus.SEND_DISABLED, False, True),  # SB-231
        (EntityStatus.RECEIVE_DISABLED, True, False),  # SB-232
        (EntityStatus.DISABLED, False, False),  # SB-233
    ],
)
def test_a_status_allows_or_refuses_sends_and_receives(queue, status, sends, receives):
    sent(queue, "a")
    (held,) = service_bus.receive(queue)
    entities.update_queue(queue, status=status)
    for allowed, call in ((sends, lambda: sent(queue, "b")), (receives, lambda: service_bus.complete(queue, [held.lock_token]))):
        if allowed:
            assert call()
        else:
            with pytest.raises(EntityDisabled, match=status):
                call()
    if not receives:
        with pytest.raises(EntityDisabled):
            service_bus.receive(queue)
    entities.update_queue(queue, status=EntityStatus.ACTIVE)
    assert len(service_bus.peek(queue)) + receives == 1 + sends  # nothing was lost


@pytest.mark.parametrize(
    ("right", "call"),
    [
        (Right.SEND, lambda q, a: service_bus.send(q, [Message(b"")], actor=a)),
        (Right.SEND, lambda q, a: service_bus.cancel_scheduled(q, [1], actor=a)),
        (Right.LISTEN, lambda q, a: service_bus.receive(q, actor=a)),
        (Right.LISTEN, lambda q, a: service_bus.peek(q, actor=a)),
        (Right.LISTEN, lambda q, a: service_bus.complete(q, [], actor=a)),
        (Right.OPERATE, lambda q, a: service_bus.resubmit(q.dead_letter, [1], actor=a)),
        (Right.OPERATE, lambda q, a: service_bus.purge(q, actor=a)),
    ],
)
def test_a_missing_right_is_named(queue, right, call):
    with pytest.raises(NotAuthorized) as refused:
        call(queue, Actor("user", "mallory", Right.ALL & ~right))
    assert refused.value.right == right.name


def test_events_name_the_actor_and_locks_their_holder(queue):
    sent(queue, "a")
    ann = Actor("user", "ann", Right.ALL, holder="ann's browser")
    (held,) = service_bus.receive(queue, actor=ann)
    service_bus.complete(queue, [held.lock_token], actor=ann)
    assert [e.actor for e in events(queue)][1:] == ["ann's browser", "user:ann"]


# Waiting


def test_a_waiting_receiver_is_woken_by_a_send(queue):
    def later():
        sent(queue, "a")
        connections.close_all_of_this_thread()

    threading.Timer(0.3, later).start()
    assert bodies(service_bus.receive(queue, max_wait_seconds=20)) == ["a"]


def test_receiving_from_several_queues_returns_available_messages(make_queue):
    """One that does not exist has nothing; the order given is the order of turns, up to max_count."""
    first, empty, second = make_queue(), make_queue(), make_queue()
    sent(first, "a", "b")
    sent(second, "c", "d")
    missing = EntityAddress(first.namespace, "missing")
    assert bodies(service_bus.receive_from([missing, empty, first, second], 3)) == ["a", "b", "c"]
    assert bodies(service_bus.receive_from([missing, empty, first, second], 3)) == ["d"]


def test_receiving_from_several_queues_skips_a_queue_that_refuses(make_queue):
    """What was locked in another queue reaches the caller, before and after the one that requires sessions (SB-120)."""
    first, with_sessions, last = make_queue(), make_queue(requires_session=True), make_queue()
    service_bus.send(with_sessions, [Message(b"s", session_id="1")])
    for queue in (first, last):
        sent(queue, "a")
    assert bodies(service_bus.receive_from([first, with_sessions, last], 3)) == ["a", "a"]
    with pytest.raises(NotAllowed, match="session"):
        service_bus.receive_from([first, with_sessions, last], 3)


def test_receiving_from_several_queues_keeps_messages_locked_before_a_failure(make_queue, monkeypatch):
    first, second = make_queue(), make_queue()
    for queue in (first, second):
        sent(queue, "a")
    steps = service_bus.receive.steps

    def failing(address, *args, **kwargs):
        if address == second:
            raise BrokerUnavailable("restarting")
        return steps(address, *args, **kwargs)

    monkeypatch.setattr(service_bus.receive, "steps", failing)
    assert bodies(service_bus.receive_from([first, second], 2)) == ["a"]
    with pytest.raises(BrokerUnavailable):
        service_bus.receive_from([first, second], 2)


def test_receiving_from_several_queues_skips_a_forwarding_queue(make_queue):
    """Also while messages are left that are not forwarded yet (SB-171)."""
    forwarding, other = make_queue(), make_queue()
    sent(forwarding, "moves")
    entities.update_queue(forwarding, forward_to=other.path)
    assert service_bus.receive_from([forwarding], 2) == []


def test_each_poller_finds_a_recreated_queue(make_queue):
    """By another process, whatever others in this one poll meanwhile: nobody's look stands in for somebody else's."""
    others, queue = make_queue(), make_queue()
    assert service_bus.receive_from([queue]) == []
    remembered = dict(entity_cache._entities)
    entities.delete_queue(queue)
    entities.create_queue(queue)
    sent(queue, "new")
    entity_cache._entities.update(remembered)  # this process has heard nothing of it
    received = [(service_bus.receive_from([others]), bodies(service_bus.receive_from([queue])))[1] for _ in range(2)]
    assert received == [[], ["new"]]


def test_a_wait_without_messages_returns_an_empty_list(queue):
    assert service_bus.receive(queue, max_wait_seconds=0.1) == []


def test_a_rollback_of_the_callers_transaction_undoes_a_send(queue):
    """Design D3: opt-in."""
    from django.db import transaction

    class Undo(Exception):
        pass

    with pytest.raises(Undo), transaction.atomic(), connections.callers_transaction():
        assert sent(queue, "a") == [1]
        raise Undo
    assert sent(queue, "b") == [1]


def advance(address):
    from broker_core.runtime.pacing import advance_head
    from broker_core.service_bus.messages.shared import entity_id_of
    from broker_core.store.driver import run

    run(advance_head(run(entity_id_of(address)), address.subqueue))


def test_a_batch_delete_removes_unlocked_messages_of_one_list_or_session(make_queue, step):
    """SB-150, SB-151, SB-152, SB-930."""
    queue = make_queue(requires_session=True)
    sent = [Message(b"%d" % i, session_id="ab"[i % 2]) for i in range(6)]
    service_bus.send(queue, [*sent, Message(b"later", session_id="a", scheduled_enqueue_at=now(queue) + MINUTE)])
    assert service_bus.accept_session(queue, "a", max_count=1).messages[0].body == b"0"
    assert service_bus.delete_batch(queue, 10, enqueued_before=now(queue)) == 0
    assert service_bus.delete_batch(queue, 2, session_id="b") == 2
    assert service_bus.delete_batch(queue, 10) == 3
    assert bodies(service_bus.peek(queue)) == ["0", "later"] and ledger_agrees(queue)
    with pytest.raises(InvalidArgument, match="at most 500"):
        service_bus.delete_batch(queue, 501)
    with pytest.raises(InvalidArgument):
        service_bus.delete_batch(queue, 0)


def test_concurrent_sends_keep_each_batch_together(queue):
    """SB-010, SB-004: whatever the order, no number twice and none left out."""
    taken: list[list[int]] = []

    def sender():
        taken.extend(service_bus.send(queue, [Message(b"x") for _ in range(7)]) for _ in range(10))
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=sender) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(numbers == list(range(numbers[0], numbers[0] + 7)) for numbers in taken)
    assert sorted(number for numbers in taken for number in numbers) == list(range(1, 281))


def test_properties_that_grow_too_large_by_abandoning_dead_letter_the_message(queue):
    """3.7: HeaderSizeExceeded. Each change alone is within the limit."""
    service_bus.send(queue, [Message(b"m", properties={f"a{i}": "x" * 10_000 for i in range(4)})])
    (message,) = service_bus.receive(queue, 1)
    assert service_bus.abandon(queue, [message.lock_token], {f"b{i}": "x" * 10_000 for i in range(4)}).settled
    (dead,) = service_bus.receive(queue.dead_letter, 1)
    assert dead.dead_letter_reason == "HeaderSizeExceeded" and set(dead.properties) >= {"a0", "b3"}
    assert service_bus.receive(queue, 1) == [] and ledger_agrees(queue)


def umlauts(prefix: str, size: int) -> dict[str, str]:
    """Application properties of some `size` bytes and half as many characters."""
    return {f"{prefix}{i}": "ü" * 5_000 for i in range(size // 10_000)}


def test_properties_are_measured_in_bytes(queue):
    """2.4: a set of 64 KB may be sent, whatever its characters; each property has at most 32 KB."""
    service_bus.send(queue, [Message(b"m", properties=umlauts("a", 60_000))])
    with pytest.raises(MessageTooLarge, match="set of application properties"):
        service_bus.send(queue, [Message(b"m", properties=umlauts("a", 70_000))])
    with pytest.raises(MessageTooLarge, match="application property 'one' has 33,003 bytes"):
        service_bus.send(queue, [Message(b"m", properties={"one": "€" * 11_000})])


def test_an_abandon_measures_properties_in_bytes(queue):
    """Regression: it counted characters, so that 72 KB passed for 36."""
    service_bus.send(queue, [Message(b"m", properties=umlauts("a", 40_000))])
    (message,) = service_bus.receive(queue, 1)
    service_bus.abandon(queue, [message.lock_token], umlauts("b", 30_000))
    assert service_bus.receive(queue, 1) == []
    (dead,) = service_bus.receive(queue.dead_letter, 1)
    assert dead.dead_letter_reason == "HeaderSizeExceeded"


@pytest.mark.parametrize("settle", [service_bus.defer, service_bus.dead_letter])
def test_deferring_and_dead_lettering_add_no_more_properties_than_may_be_sent(queue, settle):
    service_bus.send(queue, [Message(b"m", properties=umlauts("a", 40_000)), Message(b"n")])
    large, small = service_bus.receive(queue, 2)
    with pytest.raises(MessageTooLarge, match="set of application properties of message 1 has 70,"):
        settle(queue, [small.lock_token, large.lock_token], properties=umlauts("b", 30_000))
    assert settle(queue, [small.lock_token], properties=umlauts("b", 30_000)).settled
    assert settle(queue, [large.lock_token], properties=umlauts("b", 20_000)).settled
    assert ledger_agrees(queue)


def test_stored_and_added_properties_may_have_exactly_the_bytes_of_the_limit(queue):
    """2.4: one byte more is refused, also for a message behind one that has exactly as many."""
    stored, added = {"a": "x" * 30_000, "b": "x" * 30_000, "c": ""}, {"d": "d"}
    rest = 64 * 1024 - len(properties_json(stored | added))
    service_bus.send(queue, [Message(b"m", properties=stored | {"c": "x" * size}) for size in (rest, rest + 1)])
    fits, exceeds = service_bus.receive(queue, 2)
    with pytest.raises(MessageTooLarge, match="of message 2 has 65,537"):
        service_bus.defer(queue, [fits.lock_token, exceeds.lock_token], properties=added)
    assert service_bus.defer(queue, [fits.lock_token], properties=added).settled


def test_a_dead_letter_that_is_abandoned_gets_no_more_properties_than_may_be_sent(queue):
    """There is no list to move it to, as there is for a message of the queue itself."""
    service_bus.send(queue, [Message(b"m", properties=umlauts("a", 40_000))])
    service_bus.dead_letter(queue, tokens(service_bus.receive(queue, 1)))
    (dead,) = service_bus.receive(queue.dead_letter, 1)
    with pytest.raises(MessageTooLarge, match="of message 1 has 70,"):
        service_bus.abandon(queue.dead_letter, [dead.lock_token], umlauts("b", 30_000))
    assert service_bus.abandon(queue.dead_letter, [dead.lock_token], {"c": "d"}).settled
    assert set(service_bus.receive(queue.dead_letter, 1)[0].properties) >= {"a0", "a3", "c"}


def test_a_dead_letter_with_more_properties_than_may_be_sent_is_not_resubmitted(queue):
    """Regression: 72 KB went back into the queue."""
    service_bus.send(queue, [Message(b"m", properties=umlauts("a", 40_000)), Message(b"n")])
    large, small = service_bus.receive(queue, 2)
    service_bus.abandon(queue, [large.lock_token], umlauts("b", 30_000))
    service_bus.dead_letter(queue, [small.lock_token])
    with pytest.raises(MessageTooLarge, match="of message 1 has 70,"):
        service_bus.resubmit(queue.dead_letter, [1, 2])
    assert service_bus.resubmit(queue.dead_letter, [2]) == {2: 3}
    assert len(service_bus.peek(queue.dead_letter)) == 1 and ledger_agrees(queue)


def test_a_queue_that_another_process_deleted_is_not_found(queue):
    """SB-240: also at its first receive."""
    sent(queue, "m")
    connections.current().execute("UPDATE vitrine_entity SET deleted_at = now() WHERE id = %s", [entity_id(queue)])
    for attempt in (service_bus.receive, service_bus.receive_and_delete):
        with pytest.raises(EntityNotFound):
            attempt(queue, 1)
