"""Topics: what a subscription gets, by which rule, under which number, how long it lives (SB-210 to SB-221, SB-022, SB-051)."""

import threading
from datetime import timedelta

import pytest

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.errors import EntityDisabled, EntityNotFound, MessageTooLarge, NotAllowed, QuotaExceeded
from broker_core.common.types import EntityAddress, EntityStatus
from broker_core.runtime import caches, entity_cache
from broker_core.service_bus.messages import publishing
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.broker_state import bodies, events, ledger_agrees, now

from .made_by import entities

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def make_topic(namespace):
    def make(**settings):
        address = EntityAddress(namespace, "orders")
        entities.create_topic(address, **settings)
        return address

    return make


@pytest.fixture
def topic(make_topic):
    return make_topic()


def subscribe(topic, name, *rules, **settings):
    """A subscription with these rules, SQL texts or Rules; without any it takes everything."""
    address = topic.subscription(name)
    named_rules = [rule if isinstance(rule, Rule) else Rule(f"rule-{i}", compile_filter(rule)) for i, rule in enumerate(rules)]
    entities.create_subscription(address, rule=named_rules[0] if named_rules else None, **settings)
    for rule in named_rules[1:]:
        entities.create_rule(address, rule)
    return address


def test_every_subscription_gets_its_own_copy(topic):
    first, second = subscribe(topic, "first"), subscribe(topic, "second")
    assert service_bus.send(topic, [Message(b"a"), Message(b"b")]) == [1, 2]
    (a, b) = service_bus.receive(first, 5)
    assert (a.body, b.body) == (b"a", b"b")
    assert [(m.sequence_number, m.enqueued_sequence_number) for m in (a, b)] == [(1, 1), (2, 2)]
    assert a.message_id == service_bus.peek(second)[0].message_id
    service_bus.complete(first, [a.lock_token, b.lock_token])
    assert bodies(service_bus.receive(second, 5)) == ["a", "b"]
    assert ledger_agrees(topic) and ledger_agrees(first) and ledger_agrees(second)


def test_everything_sent_is_in_every_copy(topic):
    copies = subscribe(topic, "all"), subscribe(topic, "too")
    sent = Message(
        b"\x00\xff", message_id="m", session_id="s", subject="hello", content_type="text/x", correlation_id="c", to="t",
        reply_to="r", properties={"n": 7, "f": 1.5, "none": None}, amqp=AmqpSections(user_id=b"u"),
    )  # fmt: skip
    service_bus.send(topic, [sent])
    for copy in copies:
        (got,) = service_bus.receive(copy, 1)
        assert (got.body, got.message_id, got.session_id, got.subject) == (b"\x00\xff", "m", "s", "hello")
        assert got.properties == {"n": 7, "f": 1.5, "none": None}
        assert got.amqp.user_id == b"u" and got.broker_properties["to"] == "t"


def test_a_message_without_matching_subscriptions_is_accepted_and_dropped(topic):
    nobody = subscribe(topic, "nobody", "1 = 0")
    assert service_bus.send(topic, [Message(b"x")]) == [1]
    assert service_bus.receive(nobody, 1) == [] and service_bus.peek(topic) == []
    assert service_bus.send(topic, [Message(b"y")]) == [2]
    (event, _) = events(topic)
    assert (event.kind, event.details["copies"]) == (20, 0)


@pytest.mark.made_by_api
def test_five_rules_of_which_two_have_actions_create_three_copies(topic):
    """SB-211, SB-212, SB-213."""
    rules = [Rule(f"plain-{i}", compile_filter("n > 0")) for i in range(3)]
    rules += [
        Rule(f"acting-{i}", compile_filter("n > 0"), compile_action(f"SET user.by = {i}; SET sys.Label = 'x{i}'"))
        for i in range(2)
    ]
    where = subscribe(topic, "s", *rules)
    service_bus.send(topic, [Message(b"m", subject="old", properties={"n": 1})])
    messages = sorted(service_bus.receive(where, 10), key=lambda m: m.subject)
    assert [m.subject for m in messages] == ["old", "x0", "x1"]
    assert [m.properties.get("RuleName") for m in messages] == [None, "acting-0", "acting-1"]
    assert [m.properties.get("by") for m in messages] == [None, 0, 1]
    assert [m.properties["by"].type for m in messages[1:]] == ["long", "long"]
    assert {m.enqueued_sequence_number for m in messages} == {1}
    assert sorted(m.sequence_number for m in messages) == [1, 2, 3]


@pytest.mark.made_by_api
def test_correlation_filters_match_only_their_subscription(topic):
    wanted = [subscribe(topic, f"c{i}", Rule("r", CorrelationFilter(subject=f"s{i}"))) for i in range(5)]
    service_bus.send(topic, [Message(b"three", subject="s3"), Message(b"none", subject="S3")])
    assert [bodies(service_bus.receive(address, 5)) for address in wanted] == [[], [], [], ["three"], []]


@pytest.mark.made_by_api
def test_rules_apply_to_messages_sent_later(topic):
    """SB-216, SB-221: a rule, or a subscription, changes nothing that is stored."""
    where = subscribe(topic, "s", "color = 'red'")
    service_bus.send(topic, [Message(b"1", properties={"color": "blue"})])
    entities.create_rule(where, Rule("blue", compile_filter("color = 'blue'")))
    late = subscribe(topic, "late")
    service_bus.send(topic, [Message(b"2", properties={"color": "blue"})])
    entities.delete_rule(where, "blue")
    service_bus.send(topic, [Message(b"3", properties={"color": "blue"})])
    assert bodies(service_bus.receive(where, 5)) == ["2"]
    assert bodies(service_bus.receive(late, 5)) == ["2", "3"]


def test_a_message_that_a_rule_cannot_evaluate_is_dead_lettered_or_dropped(topic):
    """SB-218: only where it happens."""
    tells = subscribe(topic, "tells", "amount > 'a'")
    drops = subscribe(topic, "drops", "amount > 'a'", dead_lettering_on_filter_evaluation_exceptions=False)
    fine = subscribe(topic, "fine")
    service_bus.send(topic, [Message(b"m", properties={"amount": 5})])
    (dead,) = service_bus.receive(tells.dead_letter, 1)
    assert dead.dead_letter_reason and dead.dead_letter_description and dead.dead_letter_source == tells.path
    assert service_bus.receive(drops, 1) == [] and service_bus.receive(drops.dead_letter, 1) == []
    assert bodies(service_bus.receive(fine, 1)) == ["m"]
    assert ledger_agrees(tells) and [event.kind for event in events(tells)][:1] == [10]


def test_a_copy_without_a_session_id_is_dead_lettered_where_sessions_are_required(topic):
    """SB-008."""
    sessions = subscribe(topic, "sessions", requires_session=True)
    plain = subscribe(topic, "plain")
    service_bus.send(topic, [Message(b"none"), Message(b"some", session_id="s")])
    assert service_bus.receive(sessions.dead_letter, 1)[0].dead_letter_reason == "Session ID is null."
    assert bodies(service_bus.accept_session(sessions, max_count=5).messages) == ["some"]
    assert bodies(service_bus.receive(plain, 5)) == ["none", "some"]


def test_a_copy_expires_by_the_lowest_of_three_ttls(make_topic, step):
    """SB-022: message, topic and subscription; a copy without a time-to-live of its own lives by the two defaults of now."""
    topic = make_topic(default_message_time_to_live=10 * MINUTE)
    short = subscribe(topic, "short", default_message_time_to_live=5 * MINUTE)
    long = subscribe(topic, "long")
    service_bus.send(
        topic, [Message(b"own", time_to_live=2 * MINUTE), Message(b"longer", time_to_live=60 * MINUTE), Message(b"none")]
    )
    began = now(topic)
    ends = lambda where: [m.expires_at - began for m in service_bus.peek(where)]  # noqa: E731
    assert ends(short) == [2 * MINUTE, 5 * MINUTE, 5 * MINUTE]
    assert ends(long) == [2 * MINUTE, 10 * MINUTE, 10 * MINUTE]
    step(5 * MINUTE)
    assert service_bus.receive(short, 5) == []
    assert bodies(service_bus.receive(long, 5)) == ["longer", "none"]


def test_scheduled_messages_wait_at_the_topic_and_are_filtered_when_due(topic, step):
    """SB-051, SB-047, SB-024: the rules of then, the number of then, the instant they were scheduled for."""
    where = subscribe(topic, "s", "color = 'red'")
    due = now(topic) + MINUTE
    numbers = service_bus.send(
        topic, [Message(b"later", scheduled_enqueue_at=due, time_to_live=MINUTE, properties={"color": "red"}), Message(b"now")]
    )
    assert len(set(numbers)) == 2
    assert bodies(service_bus.peek(topic)) == ["later"] and service_bus.peek(where) == []
    entities.create_rule(where, Rule("all", compile_filter("1 = 1")))
    step(90 * SECOND)
    (message,) = service_bus.receive(where, 5)  # no sweep has run
    assert message.body == b"later" and message.enqueued_at == due and message.expires_at == due + MINUTE
    assert message.enqueued_sequence_number == 3
    assert service_bus.peek(topic) == [] and ledger_agrees(topic) and ledger_agrees(where)


def test_the_sweep_publishes_due_messages_except_of_a_disabled_topic(topic, step):
    where = subscribe(topic, "s")
    service_bus.send(topic, [Message(b"m", scheduled_enqueue_at=now(topic) + MINUTE)])
    entities.update_topic(topic, status=EntityStatus.DISABLED)
    step(2 * MINUTE)
    sweeps.activate_scheduled()
    assert bodies(service_bus.peek(topic)) == ["m"] and service_bus.peek(where) == []
    entities.update_topic(topic, status=EntityStatus.ACTIVE)
    sweeps.activate_scheduled()
    assert service_bus.peek(topic) == [] and bodies(service_bus.receive(where, 1)) == ["m"]


def test_a_scheduled_message_of_a_topic_can_be_cancelled(topic):
    where = subscribe(topic, "s")
    (number,) = service_bus.send(topic, [Message(b"m", scheduled_enqueue_at=now(topic) + MINUTE)])
    service_bus.cancel_scheduled(topic, [number])
    assert service_bus.peek(topic) == [] and service_bus.peek(where) == []


def test_a_scheduled_time_set_by_an_action_applies_at_the_next_entity(topic, make_queue, step):
    """SB-052: it is not honoured in the subscription; where the copy is forwarded to, it is."""
    later = (now(topic) + 10 * MINUTE).strftime("%Y-%m-%dT%H:%M:%SZ")
    rule = Rule("later", compile_filter("1 = 1"), compile_action(f"SET sys.ScheduledEnqueueTimeUtc = '{later}'"))
    where = subscribe(topic, "s", rule)
    queue = make_queue()
    onward = subscribe(topic, "onward", rule, forward_to=queue.path)
    service_bus.send(topic, [Message(b"m")])
    assert bodies(service_bus.receive(where, 1)) == ["m"]
    assert service_bus.peek(onward) == [] and service_bus.receive(queue, 1) == []
    step(11 * MINUTE)
    assert bodies(service_bus.receive(queue, 1)) == ["m"]


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_subscriptions_of_a_send_disabled_topic_deliver(topic, status):
    """SB-231, SB-235."""
    where = subscribe(topic, "s")
    service_bus.send(topic, [Message(b"before")])
    entities.update_topic(topic, status=status)
    with pytest.raises(EntityDisabled):
        service_bus.send(topic, [Message(b"x")])
    assert bodies(service_bus.receive(where, 1)) == ["before"]


def test_a_disabled_subscription_still_receives_copies(topic):
    """SB-234."""
    where = subscribe(topic, "s", status=EntityStatus.DISABLED)
    service_bus.send(topic, [Message(b"m")])
    with pytest.raises(EntityDisabled):
        service_bus.receive(where, 1)
    entities.update_subscription(where, status=EntityStatus.ACTIVE)
    assert bodies(service_bus.receive(where, 1)) == ["m"]


def test_receiving_from_a_topic_and_sending_to_a_subscription_are_refused(topic):
    """SB-013."""
    where = subscribe(topic, "s")
    with pytest.raises(NotAllowed, match="its topic"):
        service_bus.send(where, [Message(b"x")])
    with pytest.raises(NotAllowed, match="subscriptions"):
        service_bus.receive(topic, 1)


def test_a_batch_is_published_completely_or_not_at_all(make_topic):
    """SB-003, SB-007, SB-012: to all subscriptions or none."""
    topic = make_topic()
    where = subscribe(topic, "s")
    with pytest.raises(MessageTooLarge):
        service_bus.send(topic, [Message(b"fits"), Message(b"x" * (256 * 1024 + 1))])
    assert service_bus.peek(where) == []
    connections.current().execute(
        "UPDATE vitrine_entity SET max_size_in_megabytes = 0 WHERE path = 'orders' AND topic_id IS NULL"
    )
    with pytest.raises(QuotaExceeded):
        service_bus.send(topic, [Message(b"fits")])
    assert service_bus.peek(where) == [] and events(where) == []


def test_a_topic_is_deleted_with_its_subscriptions(topic):
    """SB-240, SB-241."""
    where = subscribe(topic, "s")
    service_bus.send(topic, [Message(b"m")])
    entities.delete_topic(topic)
    with pytest.raises(EntityNotFound):
        service_bus.send(topic, [Message(b"m")])
    with pytest.raises(EntityNotFound):
        service_bus.receive(where, 1)
    entities.create_topic(topic)
    again = subscribe(topic, "s")
    assert service_bus.send(topic, [Message(b"new")]) == [1]
    (message,) = service_bus.receive(again, 5)
    assert (message.body, message.sequence_number) == (b"new", 1)


def test_a_purged_copy_makes_room_at_the_topic(make_topic, step):
    """The quota is the topic's, over all its subscriptions (SB-012)."""
    topic = make_topic()
    first, second = subscribe(topic, "first"), subscribe(topic, "second")
    connections.current().execute(
        "UPDATE vitrine_entity SET max_size_in_megabytes = 1 WHERE path = 'orders' AND topic_id IS NULL"
    )
    service_bus.send(topic, [Message(b"x" * 200_000) for _ in range(2)])
    with pytest.raises(QuotaExceeded):
        service_bus.send(topic, [Message(b"x" * 200_000)])
    step(SECOND)
    assert service_bus.purge(first) == 2
    sweeps.roll_up_counts()
    service_bus.send(topic, [Message(b"x" * 200_000)])
    assert len(service_bus.peek(second)) == 3


def test_a_message_that_becomes_due_while_it_is_sent_is_published(topic, namespace):
    """SB-051: with a clock that runs a minute or so between two statements of a send."""
    where = subscribe(topic, "s")
    namespaces.resume_clock(namespace, rate=86_400)
    for i in range(40):
        service_bus.send(topic, [Message(b"m", scheduled_enqueue_at=now(topic) + i * 5 * SECOND)])
    namespaces.pause_clock(namespace)
    namespaces.step_clock(namespace, 60 * MINUTE)
    sweeps.activate_scheduled()
    assert service_bus.peek(topic) == [] and len(service_bus.peek(where)) == 40
    assert ledger_agrees(topic) and ledger_agrees(where)


def test_a_topic_has_room_again_as_soon_as_its_copies_are_received(topic):
    """SB-012: exactly, with and without a roll-up."""
    where = subscribe(topic, "s")
    other = subscribe(topic, "other", "color = 'red'")
    connections.current().execute("UPDATE vitrine_entity SET max_size_in_megabytes = 1 WHERE path = %s", [topic.path])
    for roll_up in (False, False, True, False, False):
        service_bus.send(topic, [Message(b"x" * 200_000, properties={"color": "red"})] * 2)
        with pytest.raises(QuotaExceeded):
            service_bus.send(topic, [Message(b"x" * 200_000)] * 2)
        for address in (where, other):
            assert len(service_bus.receive_and_delete(address, 9)) == 2
        if roll_up:
            sweeps.roll_up_counts()
    assert ledger_agrees(where) and ledger_agrees(other)


def test_cached_entities_may_be_evicted_at_any_time(topic, monkeypatch):
    """Another thread may forget it at once; and what is gone takes no space for ever."""

    class Forgetful(caches.BoundedCache):
        def __setitem__(self, key, value):
            pass

    where = subscribe(topic, "s")
    for module, name in ((entity_cache, "_entities"), (publishing, "_compiled")):
        monkeypatch.setattr(module, name, Forgetful(9))
    service_bus.send(topic, [Message(b"m")])
    assert bodies(service_bus.receive(where, 1)) == ["m"]
    few = caches.BoundedCache(2)
    for number in range(9):
        assert few.keep(number, "kept") == "kept" and len(few) <= 2


def test_concurrent_publishers_do_not_exceed_the_quota(make_topic):
    """SB-012: each waits for the other's copies and counts them."""
    topic = make_topic()
    where = subscribe(topic, "s")
    connections.current().execute(
        "UPDATE vitrine_entity SET max_size_in_megabytes = 1 WHERE path = 'orders' AND topic_id IS NULL"
    )
    taken = []

    def publisher():
        try:
            taken.append(service_bus.send(topic, [Message(b"x" * 240_000), Message(b"x" * 240_000)]))
        except QuotaExceeded:
            pass
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=publisher) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 2 and len(service_bus.peek(where)) == 4


def test_a_scheduled_message_is_published_even_if_the_size_limit_was_lowered(topic, step):
    where = subscribe(topic, "s")
    service_bus.send(topic, [Message(b"x" * 3000, scheduled_enqueue_at=now(topic) + MINUTE)])
    connections.current().execute(
        "UPDATE vitrine_entity SET max_message_size_in_kilobytes = 1 WHERE path = 'orders' AND topic_id IS NULL"
    )
    step(2 * MINUTE)
    assert len(service_bus.receive(where, 1)) == 1
