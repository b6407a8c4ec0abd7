"""Topics, subscriptions, rules, tiers and forwards as configuration, against a real database (SB 1.1 to 1.4, 2.4)."""

from datetime import timedelta

import pytest

from broker_core import entities
from broker_core.models import Entity, Rule
from broker_core.semantics.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.semantics.filters import CorrelationFilter, TrueFilter, compile_action, compile_filter
from broker_core.semantics.filters import Rule as RuleValue
from broker_core.semantics.types import (
    Actor,
    EntityAddress,
    EntityStatus,
    QueueSettings,
    Right,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from broker_core.store import connections

NEWS = EntityAddress("space", "News")
ALL = NEWS.subscription("All")
ORDERS = EntityAddress("space", "orders")
VIEWER = Actor("user", "vera", Right.BROWSE)
MIN = timedelta(minutes=1)
RED = RuleValue("red", compile_filter("color = 'red'"))


@pytest.fixture(autouse=True)
def space(db):
    """A namespace with a topic that has one subscription, all in a transaction that is rolled back."""
    with connections.callers_transaction():
        entities.create_namespace("space")
        entities.create_topic(NEWS)
        entities.create_subscription(ALL)
        yield


def rules_version():
    return Entity.objects.get(path="News", deleted_at=None).rules_version


def names_of_rules(subscription=ALL):
    return [stored.rule.name for stored in entities.list_rules(subscription)]


# Topics and subscriptions


def test_new_ones_have_the_services_defaults_and_keep_their_casing():
    assert entities.get_topic(EntityAddress("SPACE", "news")).settings == TopicSettings()
    found = entities.get_subscription(EntityAddress("space", "NEWS/subscriptions/ALL"))
    assert found.settings == SubscriptionSettings()
    assert (str(found.address), found.name, found.topic) == ("space/News/Subscriptions/All", "All", NEWS)
    assert found.topic_id == entities.get_topic(NEWS).id


def test_settings_come_back_as_they_were_given():
    topic = TopicSettings(
        default_message_time_to_live=timedelta(days=1),
        auto_delete_on_idle=5 * MIN,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(seconds=20),
        max_size_in_megabytes=2048,
        status=EntityStatus.SEND_DISABLED,
        user_metadata="mine",
    )
    subscription = SubscriptionSettings(
        lock_duration=5 * MIN,
        max_delivery_count=3,
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        requires_session=True,
        status=EntityStatus.RECEIVE_DISABLED,
        expires_whole_sessions=False,
        drops_locks_on_change=True,
    )
    other = EntityAddress("space", "other")
    assert entities.create_topic(other, topic).settings == topic
    assert entities.get_topic(other).settings == topic
    assert entities.create_subscription(other.subscription("s"), subscription).settings == subscription
    assert entities.get_entity(other.subscription("S")).settings == subscription


def test_a_subscription_takes_the_spelling_of_its_topic():
    made = entities.create_subscription(EntityAddress("SPACE", "nEWS/SUBSCRIPTIONS/Mine"))
    assert str(made.address) == "space/News/Subscriptions/Mine"


def test_queues_and_topics_share_their_names():
    with pytest.raises(EntityExists):
        entities.create_queue(EntityAddress("space", "news"))
    entities.create_queue(ORDERS)
    with pytest.raises(EntityExists):
        entities.create_topic(EntityAddress("space", "ORDERS"))


def test_ensure_creates_once_and_then_leaves_alone():
    other = EntityAddress("space", "other")
    topic = entities.ensure_topic(other, user_metadata="first")
    assert entities.ensure_topic(other, user_metadata="second") == topic
    mine = other.subscription("mine")
    first = entities.ensure_subscription(mine, rule=RED)
    assert entities.ensure_subscription(mine, max_delivery_count=3) == first
    assert names_of_rules(mine) == ["red"]


@pytest.mark.parametrize(
    ("create", "address", "error", "said"),
    [
        (entities.create_queue, EntityAddress("space", "a/Subscriptions/b"), InvalidArgument, "stands for the subscriptions"),
        (entities.create_topic, EntityAddress("space", "subSCRIPTIONS"), InvalidArgument, "stands for the subscriptions"),
        (entities.create_subscription, NEWS, InvalidArgument, "no subscription's"),
        (entities.create_subscription, NEWS.subscription("a b"), InvalidArgument, "letters, digits"),
        (entities.create_subscription, NEWS.subscription("a/b"), InvalidArgument, "letters, digits"),
        (entities.create_subscription, NEWS.subscription("s" * 51), InvalidArgument, "1 to 50"),
        (entities.create_subscription, ALL, EntityExists, "already exists"),
        (entities.create_subscription, ORDERS.subscription("s"), EntityNotFound, "space/orders"),
        (entities.create_subscription, ALL.dead_letter, InvalidArgument, "sub-queue"),
    ],
)
def test_what_cannot_be_created_is_refused_and_nothing_is_stored(create, address, error, said):
    before = len(entities.list_entities("space"))
    with pytest.raises(error, match=said):
        create(address)
    assert len(entities.list_entities("space")) == before


def test_a_queue_has_no_subscriptions():
    entities.create_queue(ORDERS)
    with pytest.raises(InvalidArgument, match="is a queue, where a topic is needed"):
        entities.create_subscription(ORDERS.subscription("s"))


@pytest.mark.parametrize("ask", [entities.get_queue, entities.update_queue, entities.delete_queue])
def test_a_kind_that_was_not_asked_for_is_named(ask):
    with pytest.raises(InvalidArgument, match="is a topic, where a queue is needed"):
        ask(NEWS)


def test_lists_are_by_kind_and_by_address():
    entities.create_queue(ORDERS)
    entities.create_subscription(NEWS.subscription("a"))
    assert [s.name for s in entities.list_subscriptions(NEWS)] == ["a", "All"]
    assert [t.address for t in entities.list_topics("space")] == [NEWS]
    assert [q.address for q in entities.list_queues("space")] == [ORDERS]
    assert [e.address.path for e in entities.list_entities("space")] == [
        "News",
        "News/Subscriptions/a",
        "News/Subscriptions/All",
        "orders",
    ]
    with pytest.raises(EntityNotFound):
        entities.list_subscriptions(EntityAddress("space", "nothing"))


def test_deleting_a_topic_takes_its_subscriptions_and_frees_the_names():
    """SB-240, SB-241."""
    first = entities.get_subscription(ALL)
    entities.delete_topic(NEWS)
    for look in (entities.get_topic, entities.get_entity):
        with pytest.raises(EntityNotFound):
            look(NEWS)
    with pytest.raises(EntityNotFound):
        entities.get_subscription(ALL)
    assert not Rule.objects.filter(subscription=first.id).exists()
    entities.create_queue(NEWS)
    entities.delete_entity(NEWS)
    entities.create_topic(NEWS)
    assert entities.list_subscriptions(NEWS) == []
    assert entities.create_subscription(ALL).id != first.id


@pytest.mark.parametrize(
    "change",
    [
        lambda: entities.create_subscription(NEWS.subscription("new")),
        lambda: entities.delete_subscription(ALL),
        lambda: entities.create_rule(ALL, RED),
        lambda: entities.update_rule(ALL, RuleValue("$default", compile_filter("1=0"))),
        lambda: entities.delete_rule(ALL, "$default"),
        lambda: entities.update_subscription(ALL, dead_lettering_on_filter_evaluation_exceptions=False),
    ],
)
def test_what_changes_the_fan_out_raises_the_version_of_the_rules(change):
    before = rules_version()
    change()
    assert rules_version() == before + 1


def test_what_changes_nothing_of_the_fan_out_leaves_the_version():
    before = rules_version()
    entities.update_subscription(ALL, lock_duration=2 * MIN, dead_lettering_on_filter_evaluation_exceptions=True)
    entities.update_topic(NEWS, user_metadata="x")
    with pytest.raises(EntityExists):
        entities.create_subscription(ALL)
    assert rules_version() == before
