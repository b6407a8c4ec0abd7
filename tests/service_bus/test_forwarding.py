"""Forwarding: order, numbers, hops, and where what cannot go stays (SB-170 to SB-178, SB-104)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from psycopg.errors import DeadlockDetected

from broker_core import service_bus, sweeps
from broker_core.common.errors import EntityNotFound, MessageTooLarge, NoSessionAvailable, NotAllowed
from broker_core.common.types import EntityAddress, EntityStatus, EventKind, SubQueue
from broker_core.service_bus.messages import forwarding
from broker_core.service_bus.rules.filters import Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections, driver
from tests.broker_state import bodies, bounds_hold, entity_id, events, ledger_agrees, now
from tests.eventually import eventually

from .made_by import entities

MINUTE = timedelta(minutes=1)


@pytest.mark.made_by_api
def test_messages_are_forwarded_in_order_and_keep_their_original_number(make_queue):
    """SB-170, SB-172."""
    last = make_queue()
    middle = make_queue(forward_to=last.path)
    first = make_queue(forward_to=middle.path)
    service_bus.send(last, [Message(b"own")])
    service_bus.send(first, [Message(b"%d" % i) for i in range(3)])
    messages = service_bus.receive(last, 9)
    assert [m.body for m in messages] == [b"own", b"0", b"1", b"2"]
    assert [m.sequence_number for m in messages] == [1, 2, 3, 4]
    assert [m.enqueued_sequence_number for m in messages] == [None, 1, 2, 3]
    for address in (first, middle, last):
        assert ledger_agrees(address)
    assert service_bus.peek(first) == [] and [e.kind for e in events(first)][-1] == 17


def test_a_forwarding_entity_allows_peek_but_no_receive(make_queue):
    """SB-171, SB-104."""
    target = make_queue()
    source = make_queue(forward_to=target.path)
    other = make_queue(forward_dead_lettered_messages_to=target.path)
    for address in (source, other.dead_letter):
        with pytest.raises(NotAllowed, match="forwarded to"):
            service_bus.receive(address, 1)
        assert service_bus.peek(address) == []
    assert service_bus.receive(source.dead_letter, 1) == []


def test_a_receive_forwards_pending_messages_of_its_sources(make_queue, step):
    """No sweep runs: what comes due at the source is received at the destination (docs/design.md D5)."""
    target = make_queue()
    source = make_queue(forward_to=target.path)
    service_bus.send(source, [Message(b"m", scheduled_enqueue_at=now(source) + MINUTE)])
    assert service_bus.receive(target, 1) == []
    step(2 * MINUTE)
    assert bodies(service_bus.receive(target, 1)) == ["m"]


def test_the_sweep_forwards_messages_sent_before_forwarding_was_set(make_queue):
    target, source = make_queue(), make_queue()
    service_bus.send(source, [Message(b"%d" % i) for i in range(250)])
    entities.update_queue(source, forward_to=target.path)
    assert service_bus.sweeps.forward_messages()["forwarded"] == 250
    assert [m.body for m in service_bus.peek(target, max_count=300)] == [b"%d" % i for i in range(250)]
    assert ledger_agrees(source) and ledger_agrees(target)


def test_a_message_is_forwarded_at_most_four_times(make_queue):
    """SB-173: the message is dead-lettered where it stopped."""
    queues = [make_queue()]
    for _ in range(5):
        queues.append(make_queue(forward_to=queues[-1].path))
    queues.reverse()  # the first forwards to the second, and so on
    service_bus.send(queues[0], [Message(b"m")])
    (dead,) = service_bus.receive(queues[4].dead_letter, 1)
    assert dead.dead_letter_reason == "MaxTransferHopCountExceeded" and dead.dead_letter_source == queues[4].path
    assert service_bus.peek(queues[5]) == []


def test_a_forwarding_cycle_ends_at_the_hop_limit(make_queue):
    """SB-176: circles are not refused."""
    source = make_queue()
    two = make_queue(forward_to=source.path)
    entities.update_queue(source, forward_to=two.path)
    service_bus.send(source, [Message(b"m")])
    assert len(service_bus.peek(source.dead_letter)) + len(service_bus.peek(two.dead_letter)) == 1
    assert ledger_agrees(source) and ledger_agrees(two)


def hop_limit_reached(message) -> bool:
    return message.dead_letter_reason == "MaxTransferHopCountExceeded"


def test_a_queue_that_forwards_to_itself_dead_letters_its_messages(make_queue):
    """SB-173, SB-176: each is stored anew four times; nothing is left to forward."""
    queue = make_queue()
    entities.update_queue(queue, forward_to=queue.path)
    service_bus.send(queue, [Message(b"%d" % i, message_id=f"m{i}") for i in range(3)])
    dead = service_bus.receive(queue.dead_letter, 9)
    assert bodies(dead) == ["0", "1", "2"] and all(map(hop_limit_reached, dead))
    assert [(m.sequence_number, m.enqueued_sequence_number) for m in dead] == [(13, 1), (14, 2), (15, 3)]
    assert [event.kind for event in events(queue)].count(EventKind.FORWARDED) == 12
    assert service_bus.peek(queue) == [] and ledger_agrees(queue) and bounds_hold(queue)
    assert service_bus.sweeps.forward_messages() == {"forwarded": 0}
    with pytest.raises(NotAllowed, match="forwarded to"):
        service_bus.receive(queue, 1)


def test_a_sweep_ends_the_loops_of_more_messages_than_a_call_forwards(make_queue):
    """SB-173: 1,100 messages, each forwarded four times, are 55 batches; a call forwards 50 at most."""
    queue = make_queue()
    for first in range(0, 1100, 275):
        service_bus.send(queue, [Message(b"%d" % i) for i in range(first, first + 275)])
    entities.update_queue(queue, forward_to=queue.path)
    moved, rounds = 0, 0
    while done := service_bus.sweeps.forward_messages()["forwarded"]:
        moved, rounds = moved + done, rounds + 1
    assert moved == 1100 * 5 and rounds == 2
    assert len(service_bus.peek(queue.dead_letter, max_count=2000)) == 1100 and service_bus.peek(queue) == []
    assert ledger_agrees(queue) and bounds_hold(queue)


def test_a_forward_to_itself_is_a_duplicate_where_duplicates_are_detected(make_queue):
    """SB-133, SB-176: as any message with an id that was seen within the window, it is dropped."""
    queue = make_queue(requires_duplicate_detection=True)
    entities.update_queue(queue, forward_to=queue.path)
    service_bus.send(queue, [Message(b"m", message_id="id")])
    assert service_bus.peek(queue) == [] == service_bus.peek(queue.dead_letter)
    (forwarded,) = [event for event in events(queue) if event.kind == EventKind.FORWARDED]
    assert forwarded.details["duplicate"] and ledger_agrees(queue)


def test_a_subscription_that_forwards_to_its_topic_repeats_a_message_four_times(namespace):
    """SB-173, SB-176: each forward is published, so that the other subscriptions get a copy of each; the looping one
    dead-letters the last."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    loop, other = topic.subscription("loop"), topic.subscription("other")
    entities.create_subscription(loop, forward_to="topic")
    entities.create_subscription(other)
    service_bus.send(topic, [Message(b"m")])
    assert bodies(service_bus.peek(other)) == ["m"] * 5
    (dead,) = service_bus.receive(loop.dead_letter, 9)
    assert hop_limit_reached(dead) and dead.dead_letter_source == loop.path
    assert service_bus.peek(loop) == [] and service_bus.sweeps.forward_messages() == {"forwarded": 0}
    assert all(ledger_agrees(address) for address in (topic, loop, other))


def test_rules_apply_to_each_round_of_a_subscription_that_forwards_to_its_topic(namespace):
    """SB-176, SB-212: an action can end the loop earlier."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    first = Rule("first", compile_filter("round IS NULL"), compile_action("SET round = 1"))
    entities.create_subscription(topic.subscription("loop"), rule=first, forward_to="topic")
    entities.create_subscription(topic.subscription("other"))
    service_bus.send(topic, [Message(b"m")])
    assert [m.properties.get("round") for m in service_bus.peek(topic.subscription("other"))] == [None, 1]
    assert service_bus.peek(topic.subscription("loop").dead_letter) == []


def test_two_subscriptions_that_forward_to_their_topic_end_at_the_hop_limit(namespace):
    """SB-173: each copy of one is published to both, so that there are 2 + 4 + 8 + 16 + 32 copies, of which the last 32 stay."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    loops = [topic.subscription(name) for name in ("a", "b")]
    for loop in loops:
        entities.create_subscription(loop, forward_to="topic")
    service_bus.send(topic, [Message(b"m")])
    while service_bus.sweeps.forward_messages()["forwarded"]:
        pass
    assert [len(service_bus.peek(loop.dead_letter, max_count=99)) for loop in loops] == [16, 16]
    assert all(service_bus.peek(loop) == [] and ledger_agrees(loop) for loop in loops)


def test_dead_letters_that_are_forwarded_to_their_queue_are_delivered_again(make_queue):
    """SB-173, SB-178: four times; then they are in the transfer dead-letter queue (SB-917)."""
    queue = make_queue(max_delivery_count=1)
    entities.update_queue(queue, forward_dead_lettered_messages_to=queue.path)
    service_bus.send(queue, [Message(b"m")])
    for number in range(1, 6):
        (message,) = service_bus.receive(queue, 9)
        assert (message.sequence_number, message.delivery_count) == (number, 0)
        service_bus.abandon(queue, [message.lock_token])
    assert service_bus.peek(queue) == [] == service_bus.peek(queue.dead_letter)
    (stuck,) = service_bus.receive(queue.transfer_dead_letter, 9)
    assert hop_limit_reached(stuck) and stuck.enqueued_sequence_number == 1
    assert service_bus.sweeps.forward_messages() == {"forwarded": 0}
    assert ledger_agrees(queue) and bounds_hold(queue)


def test_expired_messages_come_back_where_dead_letters_are_forwarded_to_their_queue(make_queue, step):
    """SB-173, SB-178: with their time-to-live, so that they expire again."""
    queue = make_queue(dead_lettering_on_message_expiration=True)
    entities.update_queue(queue, forward_dead_lettered_messages_to=queue.path)
    service_bus.send(queue, [Message(b"m", time_to_live=MINUTE)])
    for number in range(1, 6):
        assert [m.sequence_number for m in service_bus.peek(queue)] == [number]
        step(2 * MINUTE)
        assert sweeps.expire_messages()["expired"] == 1
        service_bus.sweeps.forward_messages()
    assert service_bus.peek(queue) == [] == service_bus.peek(queue.dead_letter)
    assert bodies(service_bus.peek(queue.transfer_dead_letter)) == ["m"] and ledger_agrees(queue)


def test_a_dead_letter_of_a_subscription_can_be_published_again_by_its_topic(namespace):
    """SB-176, SB-178."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    loop, other = topic.subscription("loop"), topic.subscription("other")
    entities.create_subscription(loop, forward_dead_lettered_messages_to="topic")
    entities.create_subscription(other)
    service_bus.send(topic, [Message(b"m")])
    (message,) = service_bus.receive(loop, 9)
    service_bus.dead_letter(loop, [message.lock_token], "why")
    for copies in (service_bus.receive(loop, 9), service_bus.receive(other, 9)[1:]):
        assert [(m.body, m.properties["DeadLetterReason"]) for m in copies] == [(b"m", "why")]
    assert ledger_agrees(loop) and ledger_agrees(other)


def test_a_loop_through_messages_and_dead_letters_ends_at_the_hop_limit(make_queue):
    """SB-173, SB-917: both forwards count the same hops."""
    queue = make_queue()
    entities.update_queue(queue, forward_to=queue.path, forward_dead_lettered_messages_to=queue.path)
    service_bus.send(queue, [Message(b"m")])
    service_bus.sweeps.forward_messages()
    assert service_bus.peek(queue) == [] == service_bus.peek(queue.dead_letter)
    assert bodies(service_bus.peek(queue.transfer_dead_letter)) == ["m"] and ledger_agrees(queue)


@pytest.fixture
def deadlocks(monkeypatch):
    """The statements that PostgreSQL ended because of a deadlock."""
    found, rows_of = [], driver._rows_of

    def noted(step, connection):
        try:
            return rows_of(step, connection)
        except DeadlockDetected:
            found.append(step)
            raise

    monkeypatch.setattr(driver, "_rows_of", noted)
    return found


def in_threads(*calls):
    """Make these calls at once; returns their results."""

    def closing(call):
        try:
            return call()
        finally:
            connections.close_all_of_this_thread()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(closing, call) for call in calls]]


def dead_letter_some(address, requires_session) -> int:
    """Receive and dead-letter some messages; returns how many."""
    if not requires_session:
        messages = service_bus.receive(address, 5)
    else:
        try:
            session = service_bus.accept_session(address, max_count=5)
        except NoSessionAvailable:
            return 0
        messages = session.messages
    settled = service_bus.dead_letter(address, [message.lock_token for message in messages]).settled if messages else []
    if requires_session:
        service_bus.close_session(session)
    return len(settled)


@pytest.mark.parametrize("requires_session", [False, True])
def test_loops_neither_deadlock_nor_lose_messages_under_concurrency(namespace, requires_session, deadlocks):
    """SB-173, SB-176: senders, receivers that dead-letter, and sweeps at once, on a queue that forwards its messages to itself,
    one that forwards its dead letters to itself, and two subscriptions that forward to their topic."""
    loop, again, topic = (EntityAddress(namespace, name) for name in ("loop", "again", "topic"))
    entities.create_queue(loop, forward_to="loop", requires_session=requires_session)
    entities.create_queue(again, forward_dead_lettered_messages_to="again", requires_session=requires_session)
    entities.create_topic(topic)
    twice = [topic.subscription(name) for name in ("a", "b")]
    for subscription in twice:
        entities.create_subscription(subscription, forward_to="topic", requires_session=requires_session)
    done, messages, received = threading.Event(), 12, []

    def send():
        for i in range(messages // 3):
            for address in (topic, loop, again):
                service_bus.send(address, [Message(b"%d" % i, session_id=f"s{i % 3}")])

    def receive():
        while sum(received) < 5 * messages:
            received.append(dead_letter_some(again, requires_session))

    def sweep():
        while not done.is_set():
            service_bus.sweeps.forward_messages(namespace=namespace)

    def work():
        in_threads(send, send, send, receive, receive)
        done.set()

    in_threads(work, sweep, sweep)
    while service_bus.sweeps.forward_messages(namespace=namespace)["forwarded"]:
        pass
    assert deadlocks == [] and sum(received) == 5 * messages
    assert len(service_bus.peek(loop.dead_letter, max_count=99)) == messages
    assert len(service_bus.peek(again.transfer_dead_letter, max_count=99)) == messages
    for subscription in twice:
        assert len(service_bus.peek(subscription.dead_letter, max_count=999)) == 16 * messages
    for address in (loop, again, *twice):
        assert service_bus.peek(address) == [] and ledger_agrees(address) and bounds_hold(address)


@pytest.mark.made_by_api
def test_messages_of_sessions_are_forwarded_whether_the_destination_has_sessions_or_not(make_queue):
    """SB-175: in order, with their session."""
    with_sessions, without = make_queue(requires_session=True), make_queue()
    for target in (with_sessions, without):
        source = make_queue(requires_session=True, forward_to=target.path)
        service_bus.send(source, [Message(b"%d" % i, session_id=f"s{i % 2}") for i in range(4)])
        assert service_bus.peek(source) == [] and service_bus.peek(source.dead_letter) == [] and ledger_agrees(source)
        with pytest.raises(NotAllowed, match="forwarded to"):
            service_bus.accept_session(source)
        with pytest.raises(NotAllowed, match="forwarded to"):
            service_bus.accept_session(source, "s0")
    assert [bodies(service_bus.accept_session(with_sessions, s, max_count=9).messages) for s in ("s0", "s1")] == [
        ["0", "2"],
        ["1", "3"],
    ]
    assert [(m.body, m.session_id) for m in service_bus.receive(without, 9)] == [
        (b"0", "s0"), (b"1", "s1"), (b"2", "s0"), (b"3", "s1"),
    ]  # fmt: skip
    assert ledger_agrees(with_sessions) and ledger_agrees(without)


def test_sessions_that_wait_are_forwarded_when_forwarding_is_set(make_queue):
    """SB-175: also the messages that were locked, when their lock ends; deferred ones stay."""
    target, source = make_queue(), make_queue(requires_session=True)
    service_bus.send(source, [Message(b"%d" % i, session_id="s") for i in range(4)])
    service_bus.send(source, [Message(b"other", session_id="other")])
    session = service_bus.accept_session(source, "s", max_count=2)
    locked, deferred = session.messages
    service_bus.defer(source, [deferred.lock_token])
    entities.update_queue(source, forward_to=target.path)
    service_bus.sweeps.forward_messages()
    assert bodies(service_bus.peek(target)) == ["2", "3", "other"]
    service_bus.abandon(source, [locked.lock_token])
    service_bus.close_session(session)
    service_bus.sweeps.forward_messages()
    service_bus.sweeps.forget_sessions()
    assert bodies(service_bus.peek(target)) == ["2", "3", "other", "0"]
    assert [m.body for m in service_bus.peek(source)] == [b"1"]
    assert ledger_agrees(source) and bounds_hold(source)
    entities.update_queue(source, forward_to=None)
    service_bus.send(source, [Message(b"later", session_id="s")])
    assert bodies(service_bus.accept_session(source, max_count=9).messages) == ["later"]


def test_dead_letters_of_sessions_are_forwarded(make_queue):
    """SB-175, SB-178: the sessions themselves are received as before."""
    target = make_queue(requires_session=True)
    source = make_queue(requires_session=True, forward_dead_lettered_messages_to=target.path)
    service_bus.send(source, [Message(b"bad", session_id="s"), Message(b"good", session_id="s")])
    bad, good = service_bus.accept_session(source, max_count=9).messages
    service_bus.dead_letter(source, [bad.lock_token], "why")
    service_bus.complete(source, [good.lock_token])
    assert bodies(service_bus.accept_session(target, "s", max_count=9).messages) == ["bad"]
    assert ledger_agrees(source) and ledger_agrees(target)


def test_messages_without_a_session_are_dead_lettered_at_a_subscription_that_forwards_to_sessions(make_queue, namespace):
    """SB-174, SB-175."""
    target, topic = make_queue(requires_session=True), EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    subscription = topic.subscription("s")
    entities.create_subscription(subscription, forward_to=target.path)
    service_bus.send(topic, [Message(b"none"), Message(b"some", session_id="s")])
    (dead,) = service_bus.receive(subscription.dead_letter, 5)
    assert (dead.body, dead.dead_letter_reason) == (b"none", "Session ID is null.")
    assert bodies(service_bus.accept_session(target, max_count=5).messages) == ["some"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (entities.delete_queue, "MessagingEntityNotFoundException"),
        (lambda target: entities.update_queue(target, status=EntityStatus.DISABLED), "MessagingEntityDisabledException"),
        (lambda target: entities.update_queue(target, status=EntityStatus.SEND_DISABLED), "MessagingEntityDisabledException"),
        (
            lambda target: connections.current().execute(
                "UPDATE vitrine_entity SET max_size_in_megabytes = 0 WHERE lower(path) = lower(%s) AND deleted_at IS NULL",
                [target.path],
            ),
            "QuotaExceededException",
        ),
    ],
)
def test_a_message_that_cannot_be_forwarded_is_dead_lettered_at_its_source(make_queue, spoil, reason):
    """SB-174, SB-177, SB-242: the sender is not told."""
    target = make_queue()
    source = make_queue(forward_to=target.path)
    spoil(target)
    assert service_bus.send(source, [Message(b"m")]) == [1]
    (dead,) = service_bus.receive(source.dead_letter, 1)
    assert (dead.body, dead.dead_letter_reason, dead.dead_letter_source) == (b"m", reason, source.path)
    assert dead.dead_letter_description and ledger_agrees(source)


def test_a_session_entity_accepts_only_forwarded_messages_with_a_session(make_queue):
    """SB-175."""
    target = make_queue(requires_session=True)
    source = make_queue(forward_to=target.path)
    service_bus.send(source, [Message(b"none"), Message(b"some", session_id="s")])
    assert service_bus.receive(source.dead_letter, 5)[0].dead_letter_reason == "Session ID is null."
    assert bodies(service_bus.accept_session(target, max_count=5).messages) == ["some"]


def test_forwarding_to_a_topic_applies_its_rules(make_queue, namespace):
    """SB-176."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    where = topic.subscription("s")
    entities.create_subscription(where)
    source = make_queue(forward_to="topic")
    service_bus.send(source, [Message(b"before"), Message(b"m")])
    messages = service_bus.receive(where, 5)
    assert [(m.body, m.enqueued_sequence_number) for m in messages] == [(b"before", 1), (b"m", 2)]


def test_a_subscription_can_forward(make_queue, namespace):
    queue = make_queue()
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("s"), forward_to=queue.path)
    service_bus.send(topic, [Message(b"m")])
    (message,) = service_bus.receive(queue, 1)
    assert (message.body, message.enqueued_sequence_number) == (b"m", 1)


def test_dead_letters_are_forwarded_with_their_reason_and_source(make_queue):
    """SB-104, SB-178, SB-929."""
    graveyard = make_queue()
    queue = make_queue(forward_dead_lettered_messages_to=graveyard.path)
    service_bus.send(queue, [Message(b"m", properties={"n": 1})])
    (message,) = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [message.lock_token], "why", "because")
    (dead,) = service_bus.receive(graveyard, 1)
    assert dead.properties == {"n": 1, "DeadLetterReason": "why", "DeadLetterErrorDescription": "because"}
    assert dead.dead_letter_source == queue.path and dead.enqueued_sequence_number == 1
    assert service_bus.peek(queue.dead_letter) == [] and ledger_agrees(queue) and ledger_agrees(graveyard)


def test_expired_and_failed_dead_letters_are_forwarded(make_queue, step):
    graveyard = make_queue()
    queue = make_queue(
        forward_dead_lettered_messages_to=graveyard.path, dead_lettering_on_message_expiration=True, max_delivery_count=1
    )
    service_bus.send(queue, [Message(b"expires", time_to_live=MINUTE), Message(b"fails")])
    step(2 * MINUTE)
    (message,) = service_bus.receive(queue, 5)
    service_bus.abandon(queue, [message.lock_token])
    reasons = {m.body: m.dead_letter_reason for m in service_bus.receive(graveyard, 5)}
    assert reasons == {b"expires": "TTLExpiredException", b"fails": "MaxDeliveryCountExceeded"}


def test_a_dead_letter_that_cannot_be_forwarded_moves_to_the_transfer_dead_letter_queue(make_queue):
    graveyard = make_queue()
    queue = make_queue(forward_dead_lettered_messages_to=graveyard.path)
    entities.delete_queue(graveyard)
    service_bus.send(queue, [Message(b"m")])
    (message,) = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [message.lock_token], "why")
    (stuck,) = service_bus.receive(queue.transfer_dead_letter, 1)
    assert stuck.dead_letter_reason == "MessagingEntityNotFoundException"
    service_bus.complete(queue.transfer_dead_letter, [stuck.lock_token])
    assert ledger_agrees(queue)


def test_a_forwarded_message_keeps_its_ttl_lowered_by_its_destination(make_queue):
    """SB-040."""
    target = make_queue(default_message_time_to_live=5 * MINUTE)
    source = make_queue(forward_to=target.path)
    service_bus.send(source, [Message(b"long", time_to_live=60 * MINUTE), Message(b"short", time_to_live=MINUTE)])
    assert [m.expires_at - now(target) for m in service_bus.peek(target)] == [5 * MINUTE, MINUTE]


def test_a_destination_detects_duplicates_of_forwarded_messages(make_queue):
    """SB-133."""
    target = make_queue(requires_duplicate_detection=True)
    source = make_queue(forward_to=target.path)
    service_bus.send(target, [Message(b"first", message_id="same")])
    service_bus.send(source, [Message(b"second", message_id="same"), Message(b"other", message_id="other")])
    assert bodies(service_bus.receive(target, 5)) == ["first", "other"]
    assert service_bus.peek(source) == [] and ledger_agrees(source) and ledger_agrees(target)


def set_megabytes(address, megabytes):
    connections.current().execute(
        "UPDATE vitrine_entity SET max_size_in_megabytes = %s WHERE id = %s", [megabytes, entity_id(address)]
    )


def send_via(via, address, *bodies):
    with service_bus.transaction(via=via) as tx:
        tx.send(address, [Message(body, message_id=body[:9].decode()) for body in bodies])


def test_as_many_messages_are_forwarded_as_fit(make_queue):
    """SB-174: of a batch, in order, until the destination is full."""
    target, source = make_queue(), make_queue()
    service_bus.send(source, [Message(b"%02d" % i + b"x" * 100_000) for i in range(12)])
    set_megabytes(target, 1)
    entities.update_queue(source, forward_to=target.path)
    service_bus.sweeps.forward_messages()
    assert [m.body[:2] for m in service_bus.peek(target)] == [b"%02d" % i for i in range(10)]
    assert [m.body[:2] for m in service_bus.peek(source.dead_letter)] == [b"10", b"11"]
    assert ledger_agrees(source) and ledger_agrees(target)


def test_a_message_that_did_not_arrive_is_not_its_own_duplicate(make_queue):
    """SB-166, SB-133: it waits until there is room, and is not dropped as its own duplicate then."""
    via, full = make_queue(), make_queue(requires_duplicate_detection=True)
    set_megabytes(full, 0)
    send_via(via, full, b"one", b"two")
    service_bus.sweeps.forward_messages()
    assert service_bus.peek(full) == []
    set_megabytes(full, 1024)
    service_bus.sweeps.forward_messages()
    assert bodies(service_bus.peek(full)) == ["one", "two"] and ledger_agrees(full) and ledger_agrees(via)


def test_a_full_destination_delays_only_its_own_messages(make_queue):
    """SB-166: more than a batch waits for it."""
    via, full, free = make_queue(), make_queue(), make_queue()
    set_megabytes(full, 0)
    for _ in range(2):
        send_via(via, full, *(b"%d" % i for i in range(60)))
    send_via(via, free, b"past them")
    assert bodies(service_bus.peek(free)) == ["past them"]
    set_megabytes(full, 1024)
    service_bus.sweeps.forward_messages()
    assert bodies(service_bus.peek(full, max_count=200)) == [str(i) for i in range(60)] * 2
    assert all(ledger_agrees(address) for address in (via, full, free))


@pytest.mark.parametrize("via_too", [True, False])
def test_a_message_too_large_for_its_destination_is_dead_lettered(make_queue, namespace, via_too):
    """SB-007, SB-174: by its own size alone; what goes with it arrives. Where it is too large for the entity by whose way it is
    sent, it is refused."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("s"))
    target, via = make_queue(), make_queue()
    small = [entity_id(address) for address in (topic, target, *([via] if via_too else []))]
    connections.current().execute("UPDATE vitrine_entity SET max_message_size_in_kilobytes = 1 WHERE id = ANY (%s)", [small])
    large = b"large" + b"x" * 2000
    for address, arrives in ((target, target), (topic, topic.subscription("s"))):
        if via_too:
            with pytest.raises(MessageTooLarge):
                send_via(via, address, large)
            continue
        send_via(via, address, b"small", large)
        assert bodies(service_bus.peek(arrives)) == ["small"]
        (dead,) = service_bus.receive(via.transfer_dead_letter, 1)
        assert dead.dead_letter_reason == "MessageSizeExceeded"
        service_bus.complete(via.transfer_dead_letter, [dead.lock_token])
    assert ledger_agrees(via) and ledger_agrees(target)


def forward_batch(address, subqueue, **before):
    """Forward a batch; before: what to call with the parameters of statements, by their names, before they are run."""
    steps, rows = forwarding._forward_batch(entity_id(address), subqueue), None
    while True:
        try:
            statement = steps.send(rows)
        except StopIteration:
            return
        before.get(statement.name, lambda params: None)(statement.params)
        cursor = connections.current().execute(statement.sql, statement.params, binary=True)
        rows = cursor.fetchall() if cursor.description else []


def test_messages_of_an_entity_deleted_while_it_forwards_are_removed(make_queue):
    """SB-240: nothing can be dead-lettered there any more, which is no failure of who receives or sends."""
    target, source = make_queue(), make_queue()
    service_bus.send(source, [Message(b"m")])
    entities.update_queue(source, forward_to=target.path)
    entities.delete_queue(target)
    forward_batch(source, SubQueue.MAIN, forward_failed=lambda params: entities.delete_queue(source))
    with pytest.raises(EntityNotFound):
        service_bus.peek(source)
    assert sweeps.remove_deleted_entities()["messages"] >= 1


def test_sources_that_forward_to_the_same_entities_do_not_deadlock(make_queue):
    """Each takes its destinations in the same order, whatever the order of its messages."""
    one, two = make_queue(), make_queue()
    vias = [make_queue(), make_queue()]
    for address in (one, two):
        set_megabytes(address, 0)
    for via, (first, second) in zip(vias, ((one, two), (two, one)), strict=True):
        send_via(via, first, b"m")
        send_via(via, second, b"m")
    for address in (one, two):
        set_megabytes(address, 1024)
    asked = []
    for via in vias:
        forward_batch(via, SubQueue.TRANSFER, deliver=lambda params: asked.append(params["entity_id"]))
    assert asked == [entity_id(one), entity_id(two)] * 2


def test_a_receive_finds_the_source_with_messages_among_many(make_queue, monkeypatch):
    """However many forward to here, and however few are forwarded from at once."""
    target = make_queue()
    sources = [make_queue() for _ in range(7)]
    service_bus.send(sources[-1], [Message(b"m")])
    for source in sources:
        entities.update_queue(source, forward_to=target.path)
    monkeypatch.setattr(forwarding, "ROUNDS", 3)
    assert bodies(service_bus.receive(target, 5)) == ["m"]


def test_expiry_on_activity_does_not_apply_to_a_forwarding_entity(make_queue, step):
    """SB-902, SB-171: what forwards has no receivers, whose activity expiry could wait for."""
    target = make_queue()
    source = make_queue(expiry_mode="on_activity", dead_lettering_on_message_expiration=True)
    service_bus.send(source, [Message(b"m", time_to_live=MINUTE)])
    step(2 * MINUTE)
    assert sweeps.expire_messages()["expired"] == 0
    entities.update_queue(source, forward_to=target.path)
    sweeps.expire_messages()
    assert bodies(service_bus.peek(source.dead_letter)) == ["m"] and service_bus.peek(source) == [] and ledger_agrees(source)


def test_resubmitted_messages_are_forwarded(make_queue):
    """SB-105, SB-170."""
    target, source = make_queue(), make_queue()
    service_bus.send(source, [Message(b"m")])
    service_bus.dead_letter(source, [service_bus.receive(source, 1)[0].lock_token])
    entities.update_queue(source, forward_to=target.path)
    assert service_bus.resubmit(source.dead_letter, [1]) == {1: 2}
    assert bodies(service_bus.peek(target)) == ["m"] and ledger_agrees(source)


@pytest.mark.made_by_core("A listener has connections of its own: what it does is no part of the test's transaction.")
def test_a_message_for_a_destination_being_deleted_is_dead_lettered(make_queue):
    """SB-174: the sender, whose message is stored, is told nothing."""
    target = make_queue()
    source = make_queue(forward_to=target.path)
    numbers, mine = [], connections.current()
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    sender = threading.Thread(target=lambda: numbers.extend(service_bus.send(source, [Message(b"m")])))
    with mine.transaction():
        entities.delete_queue(target)
        sweeps.remove_deleted_entities()
        sender.start()
        eventually(lambda: mine.execute(waiting, [mine.info.backend_pid]).fetchall())
    sender.join(10)
    assert numbers == [1] and ledger_agrees(source)
    (dead,) = service_bus.peek(source.dead_letter)
    assert dead.dead_letter_reason == "MessagingEntityNotFoundException"
