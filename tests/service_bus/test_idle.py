"""Which activity keeps a topic and its subscriptions from being deleted (SB-191 to SB-195, SB-918, SB-919)."""

import threading
from datetime import timedelta

import pytest

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import EntityAddress, MessageState
from broker_core.service_bus.entities.rows import lock_entity
from broker_core.service_bus.rules.filters import Rule, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import call
from tests.broker_state import now

from .made_by import entities

MIN = timedelta(minutes=1)
NEVER_MATCHES = Rule("none", compile_filter("1=0"))


@pytest.fixture
def topic(namespace):
    """A topic that nothing deletes."""
    return entities.create_topic(EntityAddress(namespace, "topic")).address


@pytest.fixture
def subscription(topic):
    """A subscription that goes after five idle minutes."""
    return entities.create_subscription(topic.subscription("s"), auto_delete_on_idle=5 * MIN).address


@pytest.fixture
def brief_topic(namespace):
    """A topic that goes after five idle minutes, with a subscription that would stay."""
    address = EntityAddress(namespace, "brief")
    entities.create_topic(address, auto_delete_on_idle=5 * MIN)
    entities.create_subscription(address.subscription("s"))
    return address


def is_there(address):
    sweeps.delete_idle_entities()
    try:
        entities.get_entity(address)
    except EntityNotFound:
        return False
    return True


def test_an_idle_subscription_is_deleted_and_frees_its_name(topic, subscription, step):
    step(5 * MIN)
    assert is_there(subscription)  # activity is written every 20 s at most: never early
    step(timedelta(seconds=20))
    assert not is_there(subscription)
    assert entities.list_subscriptions(topic) == []
    entities.create_subscription(subscription)


@pytest.mark.parametrize(
    ("act", "alive"),
    [
        (service_bus.receive, True),
        (service_bus.receive_and_delete, True),
        (service_bus.peek, True),
        (lambda s: entities.update_subscription(s, max_delivery_count=5), True),
        (lambda s: entities.create_rule(s, NEVER_MATCHES), True),
        (lambda s: entities.update_rule(s, Rule("$Default")), True),
        (lambda s: entities.delete_rule(s, "$Default"), False),  # SB-196
        (lambda s: (entities.get_subscription(s), entities.list_rules(s), entities.effective(s)), False),
        (lambda s: service_bus.send(s.topic, [Message(b"arrives")]), False),  # SB-919
        (lambda s: entities.update_topic(s.topic, user_metadata="x"), False),
        (lambda s: entities.create_subscription(s.topic.subscription("sister")), False),
    ],
)
def test_operations_on_a_subscription_count_as_activity(topic, subscription, step, act, alive):
    """SB-192."""
    service_bus.send(topic, [Message(b"a")])
    step(4 * MIN)
    act(subscription)
    step(4 * MIN)
    assert is_there(subscription) == alive
    step(2 * MIN)
    assert not is_there(subscription)


@pytest.mark.parametrize(
    "act",
    [
        lambda t: service_bus.send(t, [Message(b"a")]),
        lambda t: entities.update_topic(t, user_metadata="x"),
        lambda t: entities.create_subscription(t.subscription("new")),
        lambda t: service_bus.receive(t.subscription("s")),
        lambda t: service_bus.peek(t.subscription("s")),
        lambda t: entities.update_subscription(t.subscription("s"), user_metadata="x"),
        lambda t: entities.create_rule(t.subscription("s"), NEVER_MATCHES),
    ],
)
def test_activity_of_a_subscription_counts_as_activity_of_its_topic(brief_topic, step, act):
    """SB-191."""
    step(4 * MIN)
    act(brief_topic)
    step(4 * MIN)
    assert is_there(brief_topic)
    step(2 * MIN)
    assert not is_there(brief_topic)
    with pytest.raises(EntityNotFound):
        entities.get_subscription(brief_topic.subscription("s"))


@pytest.mark.made_by_api
def test_reading_does_not_count_as_activity_of_a_topic(brief_topic, step):
    step(4 * MIN)
    entities.get_topic(brief_topic), entities.list_subscriptions(brief_topic), entities.effective(brief_topic)
    step(2 * MIN)
    assert not is_there(brief_topic)


def test_scheduled_messages_keep_a_topic_alive(brief_topic, step):
    """SB-191, SB-918."""
    service_bus.send(brief_topic, [Message(b"a", scheduled_enqueue_at=now(brief_topic) + timedelta(hours=2))])
    step(timedelta(hours=1))
    assert is_there(brief_topic)


@pytest.mark.parametrize("to", ["other", "source"])
def test_auto_delete_on_idle_is_not_acted_on_while_a_queue_forwards(namespace, step, to):
    """SB-193: also to itself; forwarding its dead letters only does not keep it."""
    source, dead = EntityAddress(namespace, "source"), EntityAddress(namespace, "dead")
    entities.create_queue(EntityAddress(namespace, "other"))
    entities.create_queue(source, forward_to=to, auto_delete_on_idle=5 * MIN)
    entities.create_queue(dead, forward_dead_lettered_messages_to="other", auto_delete_on_idle=5 * MIN)
    step(timedelta(days=1))
    assert is_there(source) and not is_there(dead)
    assert entities.get_queue(source).settings.auto_delete_on_idle == 5 * MIN


def test_a_forwarding_subscription_keeps_itself_and_its_topic_alive(brief_topic, queue, step):
    """SB-193: it is as good as a receiver that never leaves."""
    entities.create_subscription(brief_topic.subscription("f"), forward_to=queue.path, auto_delete_on_idle=5 * MIN)
    step(timedelta(days=1))
    assert is_there(brief_topic.subscription("f"))
    assert is_there(brief_topic)
    entities.update_subscription(brief_topic.subscription("f"), forward_to=None)  # its own setting is in effect again
    step(5 * MIN)
    assert is_there(brief_topic.subscription("f"))
    step(timedelta(seconds=20))
    assert not is_there(brief_topic.subscription("f"))
    assert not is_there(brief_topic)


def test_a_waiting_receiver_keeps_its_subscription_and_the_topic_alive(brief_topic, step):
    """SB-195."""
    waited_on = brief_topic.subscription("s")
    entities.update_subscription(waited_on, auto_delete_on_idle=5 * MIN)
    number = entities.get_entity(waited_on).id
    step(10 * MIN)
    waiter = threading.Thread(
        target=lambda: (service_bus.receive(waited_on, max_wait_seconds=1.5), connections.close_all_of_this_thread())
    )
    waiter.start()
    waits = "SELECT waiting_until > clock_timestamp() FROM vitrine_entity_activity WHERE entity_id = %s"
    while not connections.current().execute(waits, [number]).fetchone()[0]:
        pass
    step(10 * MIN)
    assert is_there(brief_topic)
    assert is_there(waited_on)
    waiter.join()


# What ends the protection by scheduled messages, and what counts as a send (docs/design.md D19)


@pytest.fixture
def short_lived_queue(make_queue):
    """A queue that goes after five idle minutes."""
    return make_queue(auto_delete_on_idle=5 * MIN)


def schedule(address, after):
    return service_bus.send(address, [Message(b"later", scheduled_enqueue_at=now(address) + after)])


def idle_entities():
    def steps():
        return (yield call("idle_entities"))

    return run(steps())


def is_idle_from_now_on(address, step):
    """Whether the entity's idleness begins now: it is there for five more minutes, and then goes."""
    if not is_there(address):
        return False
    step(5 * MIN)
    was_there = is_there(address)
    step(timedelta(seconds=20))
    return was_there and not is_there(address)


@pytest.mark.parametrize("past", [timedelta(0), timedelta(hours=3)])
def test_a_queue_is_idle_only_after_its_last_scheduled_message_has_appeared(short_lived_queue, step, past):
    """SB-918. past: how long the message has been due when it is activated."""
    schedule(short_lived_queue, timedelta(hours=1)), schedule(short_lived_queue, timedelta(hours=2))
    step(timedelta(hours=2) + past)
    assert sweeps.activate_scheduled() == {"activated": 2}
    assert is_idle_from_now_on(short_lived_queue, step)


def test_a_topic_is_idle_only_after_its_last_scheduled_message_has_appeared(brief_topic, step):
    schedule(brief_topic, timedelta(hours=2))
    step(timedelta(hours=2))
    assert sweeps.activate_scheduled() == {"activated": 1}
    assert is_idle_from_now_on(brief_topic, step)


def test_a_queue_is_idle_only_after_its_last_scheduled_message_was_cancelled(short_lived_queue, step):
    """SB-918."""
    numbers = schedule(short_lived_queue, timedelta(hours=2))
    step(timedelta(hours=1))
    service_bus.cancel_scheduled(short_lived_queue, numbers)
    assert is_idle_from_now_on(short_lived_queue, step)


@pytest.mark.parametrize(
    "take_away",
    [
        lambda queue, numbers: service_bus.purge(queue, states=[MessageState.SCHEDULED]),
        lambda queue, numbers: service_bus.move(queue, numbers, "other", states=[MessageState.SCHEDULED]),
    ],
)
def test_a_queue_is_idle_only_after_its_last_scheduled_message_was_removed(short_lived_queue, step, take_away):
    entities.create_queue(EntityAddress(short_lived_queue.namespace, "other"))
    numbers = schedule(short_lived_queue, timedelta(hours=2))
    step(timedelta(hours=1))
    take_away(short_lived_queue, numbers)
    assert is_idle_from_now_on(short_lived_queue, step)


def test_purging_other_messages_does_not_count_as_activity(short_lived_queue, step):
    service_bus.send(short_lived_queue, [Message()])
    step(4 * MIN)
    service_bus.purge(short_lived_queue)
    step(timedelta(seconds=80))
    assert not is_there(short_lived_queue)


def test_a_resubmitted_dead_letter_counts_as_a_send(short_lived_queue, step):
    """SB-105, SB-190."""
    service_bus.send(short_lived_queue, [Message(b"a")])
    [message] = service_bus.receive(short_lived_queue)
    service_bus.dead_letter(short_lived_queue, [message.lock_token], "test")
    step(5 * MIN)
    service_bus.resubmit(short_lived_queue, [message.sequence_number])
    assert is_idle_from_now_on(short_lived_queue, step)


def test_an_idle_check_of_an_entity_that_was_used_since_deletes_nothing(short_lived_queue, step):
    """The sweep found it idle; then a message was sent."""
    step(timedelta(minutes=6))
    [row] = idle_entities()
    service_bus.send(short_lived_queue, [Message(b"just in time")])
    assert run(definition_of(row.family).delete_idle(row)) is False
    assert is_there(short_lived_queue)


def test_an_idle_check_does_not_delete_another_entity_of_that_name(short_lived_queue, step):
    step(timedelta(minutes=6))
    [row] = idle_entities()
    entities.delete_queue(short_lived_queue)
    assert run(definition_of(row.family).delete_idle(row)) is False
    entities.create_queue(short_lived_queue)
    assert run(definition_of(row.family).delete_idle(row)) is False
    assert is_there(short_lived_queue)


def test_a_protected_entity_is_deleted_on_idle(short_lived_queue, topic, subscription, step):
    """SB-197."""
    for address in (short_lived_queue, subscription):
        namespaces.set_protected(address, True)
    step(timedelta(minutes=5, seconds=20))
    assert sweeps.delete_idle_entities() == {"deleted": sorted(map(str, (short_lived_queue, subscription)))}


def test_a_topic_with_a_protected_subscription_is_deleted_on_idle(brief_topic, step):
    namespaces.set_protected(brief_topic.subscription("s"), True)
    step(timedelta(minutes=5, seconds=20))
    assert not is_there(brief_topic)


def test_refusals_of_a_sweep_are_counted_and_do_not_stop_it(make_queue, step, monkeypatch):
    queues = [make_queue(auto_delete_on_idle=5 * MIN) for _ in range(5)]
    step(timedelta(minutes=5, seconds=20))

    def locked(address, kind):
        if address != queues[1]:
            raise NotAllowed("no")
        return (yield from lock_entity(address, kind))

    monkeypatch.setattr("broker_core.service_bus.entities.lifecycle.lock_entity", locked)
    outcome = sweeps.delete_idle_entities()
    reasons = set(outcome.pop("reasons"))
    assert outcome == {"deleted": [str(queues[1])], "refused": 4}
    assert len(reasons) == 3 and reasons < {f"{queue}: no" for queue in queues if queue != queues[1]}


@pytest.mark.parametrize("statement", ["touch_by_send", "touch_by_receive"])
def test_a_use_that_comes_after_the_deletion_records_nothing(namespace, statement):
    """Regression: the first send to a topic that was being deleted was refused as if its message could not be stored."""
    queue = EntityAddress(namespace, "gone")
    entity_id = entities.create_queue(queue).id
    entities.delete_queue(queue)

    def touch():
        yield call(statement, entity_id=entity_id)

    run(touch())
