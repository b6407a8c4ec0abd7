"""The route of a message through a topic, and the replay of the last hour's messages with a draft of a rule (SB-170, SB-210)."""

from datetime import timedelta

import pytest

from broker_core import service_bus
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAuthorized
from broker_core.common.routes import Outcome, Verdict
from broker_core.common.types import Actor, EntityAddress, EntityStatus
from broker_core.service_bus import RuleDraft
from broker_core.service_bus.rules.filters import Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from tests.broker_state import bodies

from .made_by import entities
from .test_topics import subscribe


@pytest.fixture
def topic(namespace):
    address = EntityAddress(namespace, "orders")
    entities.create_topic(address)
    return address


def large(limit):
    return Rule("large", compile_filter(f"amount > {limit}"))


def send(topic, *amounts):
    service_bus.send(topic, [Message(str(amount).encode(), properties={"amount": amount}) for amount in amounts])


def path(steps):
    return [(step.depth, step.kind.value, step.name, step.verdict) for step in steps]


@pytest.mark.made_by_api
def test_the_route_names_each_decision(topic):
    subscribe(topic, "all")
    subscribe(topic, "large", large(100))
    steps = service_bus.route(topic, Message(properties={"amount": 7}))
    assert path(steps) == [
        (0, "topic", "orders", Verdict.PASSES),
        (1, "subscription", "all", Verdict.PASSES),
        (2, "rule", "$Default", Verdict.MATCHES),
        (2, "queue", "all", Verdict.STORED),
        (1, "subscription", "large", Verdict.NO_COPY),
        (2, "rule", "large", Verdict.NO_MATCH),
    ]
    assert steps[4].reason == "No rule matches."


def test_the_route_follows_forwards_to_the_last_queue(namespace, topic):
    """SB-170, SB-173: on to another topic, and at most four times."""
    next_topic, queue = EntityAddress(namespace, "archive"), EntityAddress(namespace, "end")
    entities.create_topic(next_topic)
    entities.create_queue(queue)
    subscribe(topic, "on", forward_to="archive")
    subscribe(next_topic, "kept", forward_to="end")
    steps = service_bus.route(topic, Message(b"x"))
    assert (3, "topic", "archive", Verdict.PASSES) in path(steps)
    assert [step.name for step in steps if step.verdict is Verdict.STORED] == ["end"]
    assert [step.depth for step in steps] == [0, 1, 2, 2, 3, 4, 5, 5, 6]
    service_bus.send(topic, [Message(b"x")])
    assert bodies(service_bus.peek(queue)) == ["x"]


def test_the_route_of_a_loop_ends_at_the_hop_limit(topic):
    """SB-173, SB-176."""
    subscribe(topic, "loop", forward_to=topic.path)
    steps = service_bus.route(topic, Message(b"x"))
    assert [str(step.kind) for step in steps].count("topic") == 5
    assert steps[-1].verdict is Verdict.DEAD and "MaxTransferHopCountExceeded" in steps[-1].reason


def test_the_route_of_many_loops_is_shortened(topic):
    """Of five such subscriptions there would be 781 publications."""
    for name in "abcde":
        subscribe(topic, name, forward_to=topic.path)
    steps = service_bus.route(topic, Message(b"x"))
    published = [step for step in steps if step.kind == "topic"]
    shown = [step for step in published if not step.reason]
    assert len(shown) == 50 and len(published) < 100
    assert {step.reason for step in published if step.reason} == {
        "What follows is not shown: the route has more than 50 publications."
    }


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (lambda t, s: entities.set_status(t, EntityStatus.SEND_DISABLED), Verdict.REFUSED, "SendDisabled"),
        (lambda t, s: entities.update_subscription(s, forward_to=None), Verdict.STORED, ""),
        (lambda t, s: entities.delete_queue(EntityAddress(t.namespace, "end")), Verdict.DEAD, "could not be found"),
        (lambda t, s: entities.set_status(EntityAddress(t.namespace, "end"), EntityStatus.DISABLED), Verdict.DEAD, "Disabled"),
    ],
)
def test_limits_end_the_route(namespace, topic, change, verdict, reason):
    entities.create_queue(EntityAddress(namespace, "end"))
    address = subscribe(topic, "on", forward_to="end")
    change(topic, address)
    last = service_bus.route(topic, Message(b"x"))[-1]
    assert last.verdict is verdict and reason in last.reason


def test_a_message_without_session_is_dead_lettered(topic):
    """SB-008."""
    subscribe(topic, "ordered", requires_session=True)
    last = service_bus.route(topic, Message(b"x"))[-1]
    assert last.verdict is Verdict.DEAD and "session" in last.reason


def test_an_action_lists_its_changes(topic):
    rule = Rule("mark", compile_filter("amount > 1"), compile_action("SET urgent = 'yes'; REMOVE amount"))
    address = subscribe(topic, "marked", rule)
    last = service_bus.route(address, Message(properties={"amount": 2}))[-1]
    assert last.reason == "Modified by rule mark."
    assert last.changes == ("amount: removed", "urgent: yes (new)", "RuleName: mark (new)")


def test_a_filter_that_fails_is_a_step(topic):
    """SB-218."""
    subscribe(topic, "broken", "amount / 0 > 1", dead_lettering_on_filter_evaluation_exceptions=True)
    steps = service_bus.route(topic, Message(properties={"amount": 2}))
    assert [step.verdict for step in steps][2:] == [Verdict.FAILS, Verdict.DEAD]


def test_a_replay_of_the_current_rules_changes_nothing(topic):
    address = subscribe(topic, "large", large(100))
    send(topic, 50, 150, 250)
    comparison = service_bus.replay_rules(topic, RuleDraft(address, "large", large(100)))
    assert comparison.comparison.messages == 3 and comparison.comparison.changed == 0 and not comparison.capped


def test_a_draft_shows_messages_with_changed_routes(topic):
    """The same counts as sending the messages again after the change."""
    address = subscribe(topic, "large", large(100))
    small = subscribe(topic, "small", "amount <= 100")
    send(topic, 50, 150, 250)
    service_bus.complete(small, [service_bus.receive(small, 1)[0].lock_token])  # messages that are gone count too
    comparison = service_bus.replay_rules(topic, RuleDraft(address, "large", large(200))).comparison
    assert comparison.outcomes[Outcome.DROPPED] == 1 and comparison.changed == 1
    (change, other) = comparison.destinations
    assert (change.destination.subscription, change.before, change.after, change.lost) == (address, 2, 1, [2])
    assert (other.destination.subscription, other.before, other.after) == (small, 1, 1)
    entities.update_rule(address, large(200))
    send(topic, 50, 150, 250)
    assert bodies(service_bus.peek(address, from_sequence_number=3)) == ["250"]


def test_a_replay_covers_deleted_and_new_rules(topic):
    address = subscribe(topic, "large", large(100))
    send(topic, 150)
    assert service_bus.replay_rules(topic, RuleDraft(address, "LARGE", None)).comparison.outcomes[Outcome.DROPPED] == 1
    tagged = Rule("tag", compile_filter("amount > 0"), compile_action("SET tag = 1"))
    assert service_bus.replay_rules(topic, RuleDraft(address, None, tagged)).comparison.outcomes[Outcome.MORE] == 1
    assert service_bus.replay_rules(topic, RuleDraft(address, "large", tagged)).comparison.outcomes[Outcome.MODIFIED] == 1


def test_the_newest_published_messages_come_first(topic):
    subscribe(topic, "large", large(100))
    service_bus.send(topic, [Message(b"a", subject="first"), Message(b"b", subject="second", properties={"amount": 700})])
    second, first = service_bus.published_messages(topic)  # newest first
    assert [publication.message.subject for publication in (first, second)] == ["first", "second"]
    assert (first.copies, second.copies, second.message.properties) == (0, 1, {"amount": 700})


def test_messages_of_more_than_an_hour_ago_are_not_replayed(topic, monkeypatch):
    subscribe(topic, "all")
    send(topic, 1)
    monkeypatch.setattr(service_bus.routing, "WINDOW_SECONDS", -int(timedelta(hours=1).total_seconds()))
    assert service_bus.published_messages(topic) == []


def test_invalid_drafts_are_refused(topic):
    address = subscribe(topic, "large", large(100))
    with pytest.raises(EntityNotFound):
        service_bus.replay_rules(topic, RuleDraft(address, "none", None))
    with pytest.raises(InvalidArgument):
        service_bus.replay_rules(topic, RuleDraft(address, None, large(3)))
    with pytest.raises(NotAuthorized):
        service_bus.route(topic, Message(b"x"), actor=Actor("user", "eve"))
