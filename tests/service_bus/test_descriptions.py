"""Entities as a whole: pages by name, and changes that replace all settings, against a real database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, LimitReached, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, HistoryLevel, Right, Tier
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule
from broker_core.service_bus.rules.values import GivenPolicy, Message

QUEUE, TOPIC, SUBSCRIPTION = EntityKind.QUEUE, EntityKind.TOPIC, EntityKind.SUBSCRIPTION
ORDERS, NEWS = EntityAddress("space", "orders"), EntityAddress("space", "news")
ALL = NEWS.subscription("all")
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def space(in_one_transaction):
    namespaces.create_namespace("space", Family.SERVICE_BUS)


def test_settings_that_are_not_given_take_their_defaults_in_one_revision():
    entities.create_queue(ORDERS, lock_duration=2 * MINUTE, max_delivery_count=3, requires_session=True, history_level="off")
    before = len(reads.revisions(ORDERS))
    entity = entities.replace_entity(ORDERS, QUEUE, {"max_delivery_count": 5}).entity
    settings = entity.settings
    assert (settings.lock_duration, settings.max_delivery_count) == (MINUTE, 5)
    assert settings.requires_session  # fixed
    assert settings.history_level is HistoryLevel.OFF  # the service does not know it
    assert len(reads.revisions(ORDERS)) == before + 1


def test_defaults_are_those_of_the_tier():
    namespaces.create_namespace("large", Family.SERVICE_BUS, tier=Tier.PREMIUM)
    queue = EntityAddress("large", "q")
    entities.create_queue(queue, max_message_size_in_kilobytes=2048)
    assert entities.replace_entity(queue, QUEUE, {}).entity.settings.max_message_size_in_kilobytes == 1024


def test_properties_that_are_only_kept_are_replaced_but_for_the_fixed_ones():
    kept = {"EnablePartitioning": True, "EnableBatchedOperations": False}
    entities.create_entity(ORDERS, QUEUE, {"kept_properties": kept})
    replaced = entities.replace_entity(ORDERS, QUEUE, {"kept_properties": {"IsAnonymousAccessible": True}})
    assert replaced.entity.settings.kept_properties == {"EnablePartitioning": True, "IsAnonymousAccessible": True}
    with pytest.raises(InvalidArgument, match="EnablePartitioning: cannot be changed"):
        entities.replace_entity(ORDERS, QUEUE, {"kept_properties": {"EnablePartitioning": False}})


def test_an_entity_of_another_kind_is_not_replaced():
    entities.create_queue(ORDERS)
    with pytest.raises(InvalidArgument, match="is a queue; a topic is required"):
        entities.replace_entity(ORDERS, TOPIC, {})
    with pytest.raises(EntityNotFound):
        entities.describe_entities("space", SUBSCRIPTION, ORDERS, max_count=9)


def test_nothing_is_created_if_a_policy_is_refused():
    with pytest.raises(InvalidArgument, match="primary"):
        entities.create_entity(ORDERS, QUEUE, {}, policies=[GivenPolicy("p", send=True, primary_key="short")])
    with pytest.raises(LimitReached):
        entities.create_entity(ORDERS, QUEUE, {}, policies=[GivenPolicy(f"p{n}", send=True) for n in range(13)])
    with pytest.raises(InvalidArgument, match="two are called 'P'"):
        entities.create_entity(ORDERS, QUEUE, {}, policies=[GivenPolicy("p", send=True), GivenPolicy("P", send=True)])
    with pytest.raises(EntityNotFound):
        entities.get_queue(ORDERS)


def test_policies_are_replaced_and_keep_what_is_not_given():
    entities.create_entity(ORDERS, QUEUE, {}, policies=[GivenPolicy("a", send=True), GivenPolicy("b", listen=True)])
    first, second = shared_access.list_policies(ORDERS)
    same = [GivenPolicy("A", send=True, primary_key=first.primary_key), GivenPolicy("b", listen=True)]
    shared_access.replace_policies(ORDERS, same)
    assert shared_access.list_policies(ORDERS) == [first, second]  # also when they were changed
    swapped = GivenPolicy("a", send=True, primary_key=first.secondary_key, secondary_key=first.primary_key)
    entities.replace_entity(ORDERS, QUEUE, {}, policies=[swapped, GivenPolicy("c", manage=True)])
    left = shared_access.list_policies(ORDERS)
    assert [policy.name for policy in left] == ["a", "c"]
    assert left[0].keys == first.keys[::-1] and left[0].updated_at > first.updated_at
    entities.replace_entity(ORDERS, QUEUE, {})
    assert shared_access.list_policies(ORDERS) == left


def test_pages_are_by_name_and_complete():
    names = ["B", "a", "a/b", "c~d", "z.9"]
    for name in reversed(names):
        entities.create_queue(EntityAddress("space", name))
    entities.create_topic(NEWS)
    namespaces.create_namespace("other", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("other", "q"))

    def page(first: int, most: int) -> list[str]:
        return [each.entity.address.path for each in entities.describe_entities("SPACE", QUEUE, first=first, max_count=most)]

    everything = page(0, 100)
    assert sorted(everything) == sorted(names)
    assert page(0, 2) + page(2, 2) + page(4, 2) == everything and page(5, 2) == []
    assert [each.entity.address for each in entities.describe_entities("space", TOPIC, max_count=9)] == [NEWS]


def test_counts_are_those_of_the_overview():
    entities.create_queue(ORDERS)
    service_bus.send(ORDERS, [Message(b"x" * 100) for _ in range(4)])
    locked = service_bus.receive(ORDERS, 3)
    service_bus.dead_letter(ORDERS, [locked[0].lock_token])
    service_bus.defer(ORDERS, [locked[1].lock_token])
    described, shown = entities.describe_entity(ORDERS), reads.entity(ORDERS)
    counts = shown.counts
    assert described.counts.active == counts.active + counts.deferred == 3
    assert (described.counts.dead_letter, described.counts.total) == (counts.dead_letter, counts.total) == (1, 4)
    assert described.size_bytes == shown.size_bytes


def test_a_topic_has_the_bytes_and_the_last_use_of_its_subscriptions():
    entities.create_topic(NEWS)
    entities.create_subscription(ALL)
    entities.create_rule(ALL, Rule("red", CorrelationFilter(subject="red")))
    service_bus.send(NEWS, [Message(b"x" * 1000, subject="red")])
    topic, subscription = entities.describe_entity(NEWS), entities.describe_entity(ALL)
    assert topic.size_bytes == subscription.size_bytes + reads.entity(NEWS).size_bytes > 1000
    assert (topic.subscriptions, topic.sql_filters, topic.correlation_filters) == (1, 1, 1)
    assert topic.counts.total == 0 and subscription.counts.total == 1
    before = topic.accessed_at
    assert entities.describe_entity(ALL).accessed_at <= before
    service_bus.receive(ALL, 1)
    assert entities.describe_entity(NEWS).accessed_at >= before


def test_an_entity_that_was_never_used_has_no_last_use():
    assert entities.create_entity(ORDERS, QUEUE, {}).accessed_at is None
    assert entities.replace_entity(ORDERS, QUEUE, {}).accessed_at is not None  # a change is a use (SB-190)


def test_only_administrators_see_and_change_entities_whole():
    entities.create_queue(ORDERS)
    listens = Actor("key", "listens", Right.LISTEN | Right.BROWSE | Right.SEND, namespace="space")
    calls = [
        lambda: entities.describe_entity(ORDERS, actor=listens),
        lambda: entities.describe_entities("space", QUEUE, max_count=1, actor=listens),
        lambda: entities.create_entity(NEWS, TOPIC, {}, actor=listens),
        lambda: entities.replace_entity(ORDERS, QUEUE, {}, actor=listens),
        lambda: shared_access.replace_policies(ORDERS, [], actor=listens),
    ]
    for call in calls:
        with pytest.raises(NotAuthorized):
            call()


def test_a_subscription_gets_the_rule_that_is_given():
    entities.create_topic(NEWS)
    entities.create_entity(ALL, SUBSCRIPTION, {}, rule=Rule("mine"))
    assert [stored.rule.name for stored in entities.list_rules(ALL)] == ["mine"]
    with pytest.raises(EntityExists):
        entities.create_entity(ALL, SUBSCRIPTION, {})


def test_rules_are_read_by_name_and_page():
    entities.create_topic(NEWS)
    entities.create_subscription(ALL)
    for name in ("b", "!first", "A"):
        entities.create_rule(ALL, Rule(name))
    assert [stored.rule.name for stored in entities.list_rules(ALL)][0] == "$Default"
    everything = [stored.rule.name for stored in entities.list_rules(ALL)]
    assert sorted(everything) == ["!first", "$Default", "A", "b"]
    assert [stored.rule.name for stored in entities.list_rules(ALL, first=1, max_count=2)] == everything[1:3]
    assert entities.get_rule(ALL, "B").rule == Rule("b")
    with pytest.raises(EntityNotFound):
        entities.get_rule(ALL, "none")
