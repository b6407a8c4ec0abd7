"""Topics, subscriptions, rules, tiers and forwards as configuration, against a real database."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.errors import (
    BrokerError,
    EntityExists,
    EntityNotFound,
    InvalidArgument,
    NotAllowed,
    NotAuthorized,
)
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, Right, Tier
from broker_core.models import Entity, Rule
from broker_core.service_bus import configured_limits
from broker_core.service_bus.rules.filters import CorrelationFilter, TrueFilter, compile_action, compile_filter
from broker_core.service_bus.rules.filters import Rule as RuleValue
from broker_core.service_bus.rules.values import Message, QueueSettings, SubscriptionSettings, TopicSettings
from broker_core.store import connections

from .made_by import API, entities

NEWS = EntityAddress("space", "News")
ALL = NEWS.subscription("All")
ORDERS = EntityAddress("space", "orders")
VIEWER = Actor("user", "vera", Right.BROWSE)
MIN = timedelta(minutes=1)
RED = RuleValue("red", compile_filter("color = 'red'"))
PATHS = pytest.mark.made_by_core("In the administration API, the path of a request says what it is for.")


@pytest.fixture(autouse=True)
def space(request, made_by):
    """A namespace with a topic that has one subscription, all in a transaction that is rolled back; unless several connections
    are to see it."""
    if "namespace" in request.fixturenames:
        yield
        return
    request.getfixturevalue("db")
    with nullcontext() if made_by == API else connections.callers_transaction():
        namespaces.create_namespace("space", Family.SERVICE_BUS)
        entities.create_topic(NEWS)
        entities.create_subscription(ALL)
        yield


def named(name: str, value: Any) -> dict[str, Any]:
    """One setting, to be given by name."""
    return {name: value}


def rules_version():
    return Entity.objects.get(path="News", deleted_at=None).rules_version


def names_of_rules(subscription=ALL):
    return [stored.rule.name for stored in entities.list_rules(subscription)]


# Topics and subscriptions


@pytest.mark.made_by_api
def test_new_topics_and_subscriptions_have_the_services_defaults_and_keep_their_casing():
    assert entities.get_topic(EntityAddress("SPACE", "news")).settings == TopicSettings()
    subscription = entities.get_subscription(EntityAddress("space", "NEWS/subscriptions/ALL"))
    assert subscription.settings == SubscriptionSettings()
    assert (str(subscription.address), subscription.name, subscription.topic) == ("space/News/Subscriptions/All", "All", NEWS)
    assert subscription.topic_id == entities.get_topic(NEWS).id


@pytest.mark.made_by_api
def test_settings_round_trip():
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
    )
    other = EntityAddress("space", "other")
    assert entities.create_topic(other, topic).settings == topic
    assert entities.get_topic(other).settings == topic
    assert entities.create_subscription(other.subscription("s"), subscription).settings == subscription
    assert entities.get_entity(other.subscription("S")).settings == subscription


def test_settings_unknown_to_the_service_round_trip():
    wanted = SubscriptionSettings(expires_whole_sessions=False, drops_locks_on_change=True, peek_shows_default_expiry=False)
    mine = NEWS.subscription("mine")
    assert entities.create_subscription(mine, wanted).settings == wanted
    assert entities.get_entity(mine).settings == wanted


def test_a_subscription_has_the_spelling_of_its_topic():
    made = entities.create_subscription(EntityAddress("SPACE", "nEWS/SUBSCRIPTIONS/Mine"))
    assert str(made.address) == "space/News/Subscriptions/Mine"


@pytest.mark.made_by_api
def test_a_queue_and_a_topic_cannot_have_the_same_name():
    with pytest.raises(EntityExists):
        entities.create_queue(EntityAddress("space", "news"))
    entities.create_queue(ORDERS)
    with pytest.raises(EntityExists):
        entities.create_topic(EntityAddress("space", "ORDERS"))


def test_ensure_creates_an_entity_once_and_does_not_change_it():
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
        pytest.param(
            entities.create_queue,
            EntityAddress("space", "a/Subscriptions/b"),
            InvalidArgument,
            "reserved for the subscriptions",
            marks=PATHS,
        ),
        (entities.create_topic, EntityAddress("space", "subSCRIPTIONS"), InvalidArgument, "reserved for the subscriptions"),
        pytest.param(entities.create_subscription, NEWS, InvalidArgument, "is not a subscription; use the form", marks=PATHS),
        (entities.create_subscription, NEWS.subscription("a b"), InvalidArgument, "letters, digits"),
        pytest.param(entities.create_subscription, NEWS.subscription("a/b"), InvalidArgument, "letters, digits", marks=PATHS),
        (entities.create_subscription, NEWS.subscription("s" * 51), InvalidArgument, "1 to 50"),
        (entities.create_subscription, ALL, EntityExists, "already exists"),
        (entities.create_subscription, ORDERS.subscription("s"), EntityNotFound, "space/orders"),
        pytest.param(entities.create_subscription, ALL.dead_letter, InvalidArgument, "sub-queue", marks=PATHS),
    ],
)
def test_an_invalid_entity_is_refused_and_nothing_is_stored(create, address, error, said):
    before = len(entities.list_entities("space"))
    with pytest.raises(error, match=said):
        create(address)
    assert len(entities.list_entities("space")) == before


def test_a_queue_has_no_subscriptions():
    entities.create_queue(ORDERS)
    with pytest.raises(InvalidArgument, match="is a queue; a topic is required"):
        entities.create_subscription(ORDERS.subscription("s"))


@PATHS
@pytest.mark.parametrize("ask", [entities.get_queue, entities.update_queue, entities.delete_queue])
def test_an_entity_of_an_unexpected_kind_is_refused_by_name(ask):
    with pytest.raises(InvalidArgument, match="is a topic; a queue is required"):
        ask(NEWS)


@pytest.mark.made_by_api
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


@pytest.mark.made_by_api
def test_deleting_a_topic_deletes_its_subscriptions_and_frees_the_names():
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
def test_changes_of_the_fan_out_increase_the_version_of_the_rules(change):
    before = rules_version()
    change()
    assert rules_version() == before + 1


def test_other_changes_do_not_increase_the_version_of_the_rules():
    before = rules_version()
    entities.update_subscription(ALL, lock_duration=2 * MIN, dead_lettering_on_filter_evaluation_exceptions=True)
    entities.update_topic(NEWS, user_metadata="x")
    with pytest.raises(EntityExists):
        entities.create_subscription(ALL)
    assert rules_version() == before


def test_an_update_changes_only_the_given_settings():
    entities.update_subscription(ALL, max_delivery_count=3)
    entities.update_entity(ALL, status="Disabled")
    assert entities.get_subscription(ALL).settings == SubscriptionSettings(max_delivery_count=3, status=EntityStatus.DISABLED)
    assert names_of_rules() == ["$Default"]


@pytest.mark.parametrize(
    ("address", "change"),
    [
        (NEWS, {"requires_duplicate_detection": True}),
        (ALL, {"requires_session": True}),
        (ALL, {"path": "News/Subscriptions/other"}),
    ],
)
def test_immutable_settings_cannot_be_changed(address, change):
    with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
        entities.update_entity(address, **change)


@pytest.mark.parametrize(
    ("address", "change"),
    [(NEWS, {"lock_duration": MIN}), (NEWS, {"requires_session": True}), (ALL, {"max_size_in_megabytes": 1})],
)
def test_a_setting_of_another_kind_is_refused_with_the_valid_settings(address, change):
    with pytest.raises(InvalidArgument, match="is not a setting of a (topic|subscription); valid settings are .*user_metadata"):
        entities.update_entity(address, **change)


def test_the_window_of_duplicate_detection_can_be_changed():
    queue = entities.create_queue(ORDERS, requires_duplicate_detection=True)
    assert queue.settings.requires_duplicate_detection
    changed = entities.update_queue(ORDERS, duplicate_detection_history_time_window=7 * 24 * 60 * MIN)
    assert changed.settings.duplicate_detection_history_time_window == timedelta(days=7)
    with pytest.raises(InvalidArgument, match="20 s to 7 days"):
        entities.update_queue(ORDERS, duplicate_detection_history_time_window=timedelta(seconds=19))


@pytest.mark.made_by_api
@pytest.mark.parametrize(
    ("address", "status", "allowed"),
    [
        (NEWS, "SendDisabled", True),
        (NEWS, "Disabled", True),
        (NEWS, "ReceiveDisabled", False),
        (ALL, "ReceiveDisabled", True),
        (ALL, "Disabled", True),
        (ALL, "SendDisabled", False),
    ],
)
def test_each_kind_has_its_valid_statuses(address, status, allowed):
    """SB-231, SB-232."""
    if allowed:
        assert entities.update_entity(address, status=status).settings.status == status
        return
    with pytest.raises(InvalidArgument, match="must be one of Active"):
        entities.update_entity(address, status=status)


# Rules


def test_a_new_subscription_matches_every_message_by_default():
    (only,) = entities.list_rules(ALL)
    assert only.rule == RuleValue("$Default", TrueFilter())
    mine = NEWS.subscription("mine")
    entities.create_subscription(mine, rule=RED)
    (only,) = entities.list_rules(mine)
    assert (only.rule.name, only.rule.filter.text) == ("red", "color = 'red'")


@pytest.mark.made_by_api
def test_rules_round_trip():
    correlated = RuleValue("both", CorrelationFilter(subject="x", properties={"size": 5, "rush": True}))
    acting = RuleValue("Acting", compile_filter("size > @least", {"@least": 3}), compile_action("SET seen = 'yes'"))
    for rule in (correlated, acting):
        stored = entities.create_rule(ALL, rule)
        assert stored == next(stored_rule for stored_rule in entities.list_rules(ALL) if stored_rule.rule.name == rule.name)
    by_name = {stored.rule.name: stored.rule for stored in entities.list_rules(ALL)}
    assert list(by_name) == ["$Default", "Acting", "both"]
    assert by_name["both"] == correlated
    assert (by_name["Acting"].filter.key, by_name["Acting"].action.text) == (acting.filter.key, "SET seen = 'yes'")


@pytest.mark.made_by_api
def test_a_replaced_rule_keeps_its_creation_time():
    first = entities.create_rule(ALL, RED)
    replaced = entities.update_rule(ALL, RuleValue("RED", compile_filter("color = 'dark red'")))
    assert (replaced.rule.name, replaced.rule.filter.text) == ("red", "color = 'dark red'")
    assert replaced.created_at == first.created_at
    assert names_of_rules() == ["$Default", "red"]


def test_a_subscription_may_have_no_rules():
    entities.delete_rule(ALL, "$DEFAULT")
    assert names_of_rules() == []


@pytest.mark.made_by_api
def test_existing_rules_are_not_created_again_and_missing_rules_not_found():
    entities.create_rule(ALL, RED)
    with pytest.raises(EntityExists, match="space/News/Subscriptions/All/Rules/RED"):
        entities.create_rule(ALL, RuleValue("RED"))
    for missing in (
        lambda: entities.update_rule(ALL, RuleValue("blue")),
        lambda: entities.delete_rule(ALL, "blue"),
        lambda: entities.create_rule(NEWS.subscription("none"), RED),
    ):
        with pytest.raises(EntityNotFound):
            missing()
    assert names_of_rules() == ["$Default", "red"]


@pytest.mark.made_by_core("It is about the arguments of functions.")
def test_the_rules_of_a_topic_and_a_rule_that_is_a_text_are_refused():
    with pytest.raises(InvalidArgument, match="is a topic; a subscription is required"):
        entities.list_rules(NEWS)
    text: Any = "color = 'red'"
    with pytest.raises(InvalidArgument, match="must be a Rule"):
        entities.create_rule(ALL, text)
    assert names_of_rules() == ["$Default"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: entities.create_topic(EntityAddress("space", "new"), actor=VIEWER),
        lambda: entities.create_subscription(NEWS.subscription("new"), actor=VIEWER),
        lambda: entities.update_topic(NEWS, hidden=True, actor=VIEWER),
        lambda: entities.delete_subscription(ALL, actor=VIEWER),
        lambda: entities.create_rule(ALL, RED, actor=VIEWER),
        lambda: entities.update_rule(ALL, RuleValue("$Default"), actor=VIEWER),
        lambda: entities.delete_rule(ALL, "$Default", actor=VIEWER),
    ],
)
def test_changing_requires_the_right_to_manage_and_reading_does_not(change):
    with pytest.raises(NotAuthorized) as refused:
        change()
    assert refused.value.right == "MANAGE"
    assert [len(entities.list_entities("space", actor=VIEWER)), len(entities.list_rules(ALL, actor=VIEWER))] == [2, 1]


def test_a_subscription_gets_no_earlier_messages():
    """SB-221."""
    late = NEWS.subscription("late")
    service_bus.send(NEWS, [Message(b"before")])
    entities.create_subscription(late)
    service_bus.send(NEWS, [Message(b"after")])
    assert [m.body for m in service_bus.peek(late)] == [b"after"]
    assert [m.body for m in service_bus.peek(ALL)] == [b"before", b"after"]


# Quotas


@pytest.fixture
def narrow(monkeypatch):
    """narrow(name=number): limits in force that a test can reach."""

    def set_to(**numbers):
        for name, number in numbers.items():
            monkeypatch.setattr(configured_limits, "STRICT", replace(configured_limits.STRICT, **{name: number}))

    return set_to


@pytest.mark.made_by_api
def test_the_subscriptions_and_filters_of_a_topic_are_limited(narrow):
    narrow(subscriptions_per_topic=2, sql_filters_per_topic=3, correlation_filters_per_topic=1)
    entities.create_subscription(NEWS.subscription("second"))
    with pytest.raises(NotAllowed, match="has 2 subscriptions, the maximum"):
        entities.create_subscription(NEWS.subscription("third"))
    entities.create_rule(ALL, RED)
    with pytest.raises(NotAllowed, match="has 3 SQL filters"):
        entities.create_rule(ALL, RuleValue("blue", compile_filter("color = 'blue'")))
    entities.create_rule(ALL, RuleValue("c", CorrelationFilter(to="a")))
    with pytest.raises(NotAllowed, match="has 1 correlation filters"):
        entities.create_rule(ALL, RuleValue("d", CorrelationFilter(to="b")))
    entities.update_rule(ALL, RuleValue("c", CorrelationFilter(to="b")))
    entities.update_rule(ALL, RuleValue("red", compile_filter("color = 'dark red'")))
    with pytest.raises(NotAllowed, match="has 3 SQL filters"):
        entities.update_rule(ALL, RuleValue("c", compile_filter("1=0")))


def test_the_queues_and_topics_of_a_namespace_are_limited(narrow):
    narrow(entities_per_namespace=2)
    entities.create_queue(ORDERS)
    with pytest.raises(NotAllowed, match="has 2 queues and topics, the maximum"):
        entities.create_topic(EntityAddress("space", "another"))
    entities.create_subscription(NEWS.subscription("not-counted"))
    entities.delete_queue(ORDERS)
    entities.create_topic(EntityAddress("space", "another"))


# Tiers


def test_a_basic_namespace_has_only_queues():
    namespaces.create_namespace("basic", Family.SERVICE_BUS, tier="Basic")
    queue = EntityAddress("basic", "q")
    assert namespaces.get_namespace("basic").tier is Tier.BASIC
    with pytest.raises(NotAllowed, match="Basic, which does not support topics"):
        entities.create_topic(EntityAddress("basic", "t"))
    entities.create_queue(queue)
    for setting, value in (
        ("requires_session", True),
        ("requires_duplicate_detection", True),
        ("forward_to", "q"),
        ("forward_dead_lettered_messages_to", "q"),
    ):
        with pytest.raises(InvalidArgument, match="in a namespace of the tier Basic") as refused:
            entities.create_queue(EntityAddress("basic", "p"), **named(setting, value))
        assert refused.value.name == setting
    assert [q.address.path for q in entities.list_queues("basic")] == ["q"]


def test_a_basic_namespace_limits_the_time_to_live():
    namespaces.create_namespace("basic", Family.SERVICE_BUS, tier=Tier.BASIC)
    queue = entities.create_queue(EntityAddress("basic", "q"))
    assert queue.settings.default_message_time_to_live == timedelta(days=14)
    with pytest.raises(InvalidArgument, match="1 s to 14 days"):
        entities.update_queue(queue.address, default_message_time_to_live=timedelta(days=15))
    entities.update_queue(queue.address, default_message_time_to_live=MIN)
    never = entities.update_queue(queue.address, default_message_time_to_live=None)
    assert never.settings.default_message_time_to_live == timedelta(days=14)


@pytest.mark.parametrize(
    ("tier", "default", "largest"), [("basic", 256, 256), ("standard", 256, 256), ("premium", 1024, 102_400)]
)
def test_the_tier_determines_the_maximum_message_size(tier, default, largest):
    namespaces.create_namespace("other", Family.SERVICE_BUS, tier=tier)
    queue = entities.create_queue(EntityAddress("other", "q"))
    assert queue.settings.max_message_size_in_kilobytes == default
    entities.update_queue(queue.address, max_message_size_in_kilobytes=largest)
    with pytest.raises(InvalidArgument, match=f"{largest:,}"):
        entities.update_queue(queue.address, max_message_size_in_kilobytes=largest + 1)


def test_relaxed_limits_raise_the_sizes_of_a_tier_but_add_no_features(settings):
    settings.VITRINE_LIMITS = "relaxed"
    entities.create_queue(ORDERS, max_message_size_in_kilobytes=102_400)
    namespaces.create_namespace("basic", Family.SERVICE_BUS, tier="basic")
    with pytest.raises(NotAllowed, match="does not support topics"):
        entities.create_topic(EntityAddress("basic", "t"))


def test_the_tier_can_be_changed_if_all_entities_comply():
    with pytest.raises(NotAllowed, match="'space' cannot be basic: 'space/News' does not fit"):
        namespaces.update_namespace("space", tier="basic")
    entities.delete_topic(NEWS)
    entities.create_queue(ORDERS)
    with pytest.raises(
        NotAllowed, match="'space/orders' does not fit. default_message_time_to_live: never is too large: the maximum is 14 d"
    ):
        namespaces.update_namespace("space", tier="basic")
    entities.update_queue(ORDERS, default_message_time_to_live=MIN)
    assert namespaces.update_namespace("space", tier="basic").tier is Tier.BASIC
    assert namespaces.update_namespace("space", tier="premium", description="now large").description == "now large"
    entities.update_queue(ORDERS, max_message_size_in_kilobytes=1024)
    with pytest.raises(NotAllowed, match="1,024 is too large: the maximum is 256 in a namespace of the tier Standard"):
        namespaces.update_namespace("space", tier="standard")


@pytest.mark.parametrize("tier", ["gold", "", None, 3])
def test_an_unknown_tier_is_refused(tier):
    with pytest.raises(InvalidArgument, match="must be one of basic, standard, premium"):
        namespaces.create_namespace("other", Family.SERVICE_BUS, tier=tier)


# Forwards (SB-171, SB-175 to SB-177, SB-193, SB-242)


@pytest.mark.made_by_api
@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_destination_must_exist_and_keeps_its_spelling(setting):
    entities.create_queue(ORDERS)
    target = EntityAddress("space", "Target")
    with pytest.raises(InvalidArgument, match="'target' is not a queue or topic of 'space'; create it first") as refused:
        entities.update_queue(ORDERS, **named(setting, "target"))
    assert refused.value.name == setting
    entities.create_queue(target)
    changed = entities.update_queue(ORDERS, **named(setting, "target"))
    assert getattr(changed.settings, setting) == "Target"
    entities.delete_queue(target)  # SB-242
    kept = entities.update_queue(ORDERS, user_metadata="x", **named(setting, "Target"))
    assert getattr(kept.settings, setting) == "Target"
    assert getattr(entities.update_queue(ORDERS, **named(setting, None)).settings, setting) is None


@pytest.mark.made_by_api
@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_an_entity_can_forward_to_itself_and_a_subscription_to_its_topic(setting):
    """SB-176: also one that is being created; the path is spelled as the entity's."""
    new = EntityAddress("space", "New")
    made = entities.create_queue(new, **named(setting, "new"))
    assert getattr(made.settings, setting) == "New" and entities.get_queue(new) == made
    entities.create_queue(ORDERS)
    assert getattr(entities.update_queue(ORDERS, **named(setting, "ORDERS")).settings, setting) == "orders"
    assert getattr(entities.update_subscription(ALL, **named(setting, "news")).settings, setting) == "News"
    made = entities.create_subscription(NEWS.subscription("s"), **named(setting, "NEWS"))
    assert getattr(made.settings, setting) == "News"


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_an_entity_cannot_forward_to_a_subscription(setting):
    """SB-177: not even to itself."""
    for forward in ("News/Subscriptions/All", "News/Subscriptions/s"):
        with pytest.raises(InvalidArgument, match="reserved for the subscriptions of a topic") as refused:
            entities.update_subscription(ALL, **named(setting, forward))
        assert refused.value.name == setting


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_an_entity_with_sessions_can_forward_and_be_a_destination(setting):
    """SB-175."""
    entities.create_queue(ORDERS, requires_session=True)
    entities.update_subscription(ALL, **named(setting, "orders"))
    entities.create_queue(EntityAddress("space", "plain"))
    assert getattr(entities.update_queue(ORDERS, **named(setting, "plain")).settings, setting) == "plain"
    made = entities.create_subscription(NEWS.subscription("s"), requires_session=True, **named(setting, "plain"))
    assert made.settings.requires_session and getattr(made.settings, setting) == "plain"


@pytest.mark.made_by_api
def test_an_update_may_repeat_a_fixed_setting_but_not_change_it():
    entities.create_queue(ORDERS, requires_session=True)
    fixed: dict[str, Any] = {"requires_session": True, "requires_duplicate_detection": False}
    updated = entities.update_queue(ORDERS, **fixed, max_delivery_count=3).settings
    assert (updated.requires_session, updated.requires_duplicate_detection, updated.max_delivery_count) == (True, False, 3)
    for name, value in fixed.items():
        with pytest.raises(InvalidArgument, match="cannot be changed after creation") as refused:
            entities.update_queue(ORDERS, **(fixed | {name: not value}), max_delivery_count=4)
        assert refused.value.name == name
    assert entities.get_queue(ORDERS).settings == updated


def test_longer_forwarding_loops_are_allowed():
    """SB-176."""
    other = EntityAddress("space", "other")
    entities.create_queue(ORDERS)
    entities.create_queue(other, forward_to="orders")
    assert entities.update_queue(ORDERS, forward_to="other").settings.forward_to == "other"


@pytest.mark.made_by_api
def test_auto_delete_on_idle_can_be_combined_with_forwarding():
    """SB-193."""
    entities.create_queue(ORDERS)
    made = entities.create_subscription(NEWS.subscription("s"), forward_to="orders", auto_delete_on_idle=5 * MIN)
    assert made.settings.auto_delete_on_idle == 5 * MIN
    entities.update_subscription(ALL, auto_delete_on_idle=5 * MIN)
    assert entities.update_subscription(ALL, forward_to="orders").settings.auto_delete_on_idle == 5 * MIN
    assert entities.update_subscription(ALL, auto_delete_on_idle=6 * MIN).settings.auto_delete_on_idle == 6 * MIN
    assert entities.update_subscription(ALL, forward_to=None).settings.auto_delete_on_idle == 6 * MIN


# What is in effect


def test_a_subscriptions_time_to_live_is_limited_by_its_topics():
    """SB-022."""
    life = "default_message_time_to_live"
    assert entities.effective(ALL)[life] == (None, "default")
    entities.update_topic(NEWS, **named(life, timedelta(days=1)))
    assert entities.effective(NEWS)[life] == (timedelta(days=1), "entity")
    assert entities.effective(ALL)[life] == (timedelta(days=1), "topic")
    entities.update_subscription(ALL, **named(life, timedelta(days=2)))
    assert entities.effective(ALL)[life] == (timedelta(days=1), "topic")
    entities.update_subscription(ALL, **named(life, MIN))
    assert entities.effective(ALL)[life] == (MIN, "entity")


def test_settings_of_a_tier_have_the_tier_as_their_source():
    namespaces.create_namespace("basic", Family.SERVICE_BUS, tier="basic")
    queue = EntityAddress("basic", "q")
    entities.create_queue(queue)
    settings = entities.effective(queue)
    assert settings["default_message_time_to_live"] == (timedelta(days=14), "tier")
    assert settings["lock_duration"] == (MIN, "default")
    assert (settings["lock_duration"].value, settings["lock_duration"].source) == (MIN, "default")
    entities.update_queue(queue, default_message_time_to_live=timedelta(days=13))
    assert entities.effective(queue)["default_message_time_to_live"].source == "entity"


def test_each_kind_shows_its_own_settings():
    entities.create_queue(ORDERS)
    for address, settings in ((ORDERS, QueueSettings), (NEWS, TopicSettings), (ALL, SubscriptionSettings)):
        effective = entities.effective(address)
        assert set(effective) == set(settings.__dataclass_fields__)
        assert {source for _, source in effective.values()} == {"default"}


# Locks


@pytest.mark.parametrize("drops", [False, True])
def test_a_change_drops_locks_if_configured(drops):
    """SB-072, SB-907."""
    entities.create_queue(ORDERS, drops_locks_on_change=drops)
    service_bus.send(ORDERS, [Message(b"x")])
    (held,) = service_bus.receive(ORDERS)
    keeper = Actor("key", "keeper", Right.MANAGE)
    entities.update_queue(ORDERS, max_delivery_count=10, actor=keeper)  # what it is already
    entities.update_queue(ORDERS, user_metadata="changed", actor=keeper)
    assert len(service_bus.complete(ORDERS, [held.lock_token]).lost) == drops
    assert [m.delivery_count for m in service_bus.receive(ORDERS)] == ([1] if drops else [])


# Several connections at once


def at_once(*calls):
    """What each call returned, or the BrokerError it raised; each on a connection of its own."""

    def run(call):
        try:
            return call()
        except BrokerError as refusal:
            return refusal
        finally:
            connections.close_all_of_this_thread()

    with ThreadPoolExecutor(len(calls)) as executor:
        return [future.result(timeout=30) for future in [executor.submit(run, call) for call in calls]]


def test_concurrent_changes_of_a_topic_being_deleted_do_not_deadlock(namespace):
    """No deadlock, and nothing of it is left: the topic's row is locked before its subscriptions'."""
    topic = EntityAddress(namespace, "t")
    for _ in range(5):
        entities.create_topic(topic)
        subscriptions = [topic.subscription(f"s{i}") for i in range(4)]
        for address in subscriptions:
            entities.create_subscription(address)
        outcomes = at_once(
            lambda: service_bus.send(topic, [Message(b"x")]),
            lambda: entities.update_subscription(subscriptions[0], dead_lettering_on_filter_evaluation_exceptions=False),
            lambda: entities.create_rule(subscriptions[1], RED),
            lambda: entities.delete_topic(topic),
            lambda: entities.delete_subscription(subscriptions[3]),
            lambda: entities.create_subscription(topic.subscription("new")),
        )
        assert all(type(outcome) is EntityNotFound for outcome in outcomes if isinstance(outcome, BrokerError)), outcomes
        assert entities.list_entities(namespace) == []


def test_the_subscription_limit_holds_for_concurrent_creations(namespace, narrow):
    narrow(subscriptions_per_topic=3)
    topic = EntityAddress(namespace, "t")
    entities.create_topic(topic)
    outcomes = at_once(*(lambda i=i: entities.create_subscription(topic.subscription(f"s{i}")) for i in range(6)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LimitReached"] * 3 + ["Subscription"] * 3
    assert len(entities.list_subscriptions(topic)) == 3
    assert Entity.objects.get(id=entities.get_topic(topic).id).rules_version == 4
