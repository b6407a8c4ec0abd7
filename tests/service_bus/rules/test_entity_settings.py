"""Names and settings of entities: tables over the pure rules, no database."""

from contextlib import suppress
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.durations import FOREVER
from broker_core.common.entity_defaults import ENTITY_DEFAULTS
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import EntityKind, EntityStatus, ExpiryMode, HistoryLevel, Tier
from broker_core.service_bus.rules.entity_settings import (
    ALL_SETTINGS,
    FIXED,
    FORWARDS,
    IMMUTABLE,
    SETTINGS_TYPE,
    changed_settings,
    check_namespace_name,
    check_path,
    check_policy_name,
    check_setting,
    check_subscription_name,
    check_tier,
    default_settings,
    in_words,
    kind_of,
    new_settings,
    values_of,
)
from broker_core.service_bus.rules.limits import RELAXED, STRICT, Range, of_tier
from broker_core.service_bus.rules.values import QueueSettings, SubscriptionSettings, TopicSettings

S, MIN, MS = timedelta(seconds=1), timedelta(minutes=1), timedelta(milliseconds=1)


@pytest.mark.parametrize("path", ["q", "orders", "a/b/c", "Q.1-x_y~z", "1", "-", "a" * 260, "x/subscription/y"])
def test_paths_that_are_accepted_keep_their_casing(path):
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "1 to 260"),
        ("a" * 261, "1 to 260"),
        (None, "1 to 260"),
        ("/a", "start or end"),
        ("a/", "start or end"),
        ("a//b", "contain //"),
        ("a b", "letters, digits"),
        ("a@b", "letters"),
        ("a?b", "letters"),
        ("a#b", "letters"),
        ("a*b", "letters"),
        ("a\\b", "letters"),
        ("$DeadLetterQueue", "letters"),
        ("bücher", "letters"),
        ("a\n", "letters"),
        ("a/../b", "only of dots"),
        (".", "only of dots"),
    ],
)
def test_invalid_paths_are_refused_with_the_reason(path, said):
    with pytest.raises(InvalidArgument, match=said) as refused:
        check_path(path)
    assert refused.value.name == "path"


@pytest.mark.parametrize("name", ["demo", "a", "sbemulatorns", "My-Space-2", "a" * 50])
def test_valid_namespace_names_are_accepted(name):
    assert check_namespace_name(name) == name


@pytest.mark.parametrize("name", ["", "1a", "a-", "-a", "a.b", "a/b", "a_b", "a" * 51, "é", "a\n", None, 7])
def test_invalid_namespace_names_are_refused(name):
    with pytest.raises(InvalidArgument, match="start with a letter"):
        check_namespace_name(name)


def test_policy_names_have_up_to_256_characters():
    assert [check_policy_name(name) for name in ("a", "a" * 256)] == ["a", "a" * 256]


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a=b", ".a", "a" * 257, None])
def test_policy_names_that_would_break_a_connection_string_are_refused(name):
    with pytest.raises(InvalidArgument):
        check_policy_name(name)


@pytest.mark.parametrize(
    ("name", "lowest", "below", "highest", "above"),
    [
        ("lock_duration", 5 * S, 5 * S - MS, 5 * MIN, 5 * MIN + MS),
        ("max_delivery_count", 1, 0, 2**31 - 1, 2**31),
        ("default_message_time_to_live", S, S - MS, timedelta(days=36_000), None),
        ("auto_delete_on_idle", 5 * MIN, 5 * MIN - S, timedelta(days=36_000), None),
        ("max_size_in_megabytes", 1024, 1023, 81_920, 81_921),
        ("max_message_size_in_kilobytes", 256, 255, 102_400, 102_401),
    ],
)
def test_settings_have_the_ranges_of_the_service(name, lowest, below, highest, above):
    assert check_setting(name, lowest) == lowest
    assert check_setting(name, highest) == highest
    for wrong in filter(lambda v: v is not None, (below, above)):
        with pytest.raises(InvalidArgument) as refused:
            check_setting(name, wrong)
        assert refused.value.name == name
        assert in_words(getattr(STRICT, name)) in refused.value.problem


@pytest.mark.parametrize(
    ("allowed", "text"),
    [
        (Range(S, 5 * MIN), "1 s to 5 min"),
        (Range(S, S), "only 1 s"),
        (Range(5 * MIN, None), "at least 5 min, or never"),
        (Range(1, 2000), "1 to 2,000"),
        (Range(2, 10, step=2), "2 to 10 in steps of 2"),
        (Range(1024, 81_920, step=1024), "1,024 to 81,920 in steps of 1,024"),
    ],
)
def test_a_range_is_described(allowed, text):
    assert in_words(allowed) == text


def test_a_refused_value_is_shown_up_to_80_characters():
    for value, shown in [("x" * 78, f"'{'x' * 78}' must"), ("x" * 79, f"'{'x' * 76}... must")]:
        with pytest.raises(InvalidArgument) as refused:
            check_setting("hidden", value)
        assert refused.value.problem.startswith(shown)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_duration", S),
        ("default_message_time_to_live", MS),
        ("auto_delete_on_idle", S),
        ("max_size_in_megabytes", 1),
        ("max_message_size_in_kilobytes", 1),
    ],
)
def test_relaxed_limits_accept_values_that_strict_limits_refuse(name, value):
    assert check_setting(name, value, RELAXED) == value
    with pytest.raises(InvalidArgument):
        check_setting(name, value, STRICT)


def test_no_relaxed_range_is_narrower_than_the_strict_range():
    for name in ("lock_duration", "max_delivery_count", "default_message_time_to_live", "auto_delete_on_idle"):
        strict, relaxed = getattr(STRICT, name), getattr(RELAXED, name)
        assert relaxed.minimum <= strict.minimum
        assert relaxed.maximum is None or relaxed.maximum >= strict.maximum


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("default_message_time_to_live", None, None),
        ("default_message_time_to_live", FOREVER, None),
        ("auto_delete_on_idle", timedelta.max, None),
        ("status", "receivedisabled", EntityStatus.RECEIVE_DISABLED),
        ("status", EntityStatus.DISABLED, EntityStatus.DISABLED),
        ("expiry_mode", "on_activity", ExpiryMode.ON_ACTIVITY),
        ("history_level", "lifecycle", HistoryLevel.LIFECYCLE),
        ("history_level", 0, HistoryLevel.OFF),
        ("user_metadata", "", None),
        ("user_metadata", "x" * 1024, "x" * 1024),
        ("hidden", True, True),
    ],
)
def test_values_are_normalized(name, given, stored):
    assert check_setting(name, given) == stored
    assert type(check_setting(name, given)) is type(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_duration", None),
        ("lock_duration", 60),
        ("lock_duration", "PT1M"),
        ("lock_duration", -MIN),
        ("default_message_time_to_live", 3600),
        ("default_message_time_to_live", timedelta(0)),
        ("max_delivery_count", True),
        ("max_delivery_count", 3.0),
        ("max_delivery_count", "3"),
        ("max_delivery_count", None),
        ("max_size_in_megabytes", 1500),
        ("status", "Deleting"),
        ("status", None),
        ("expiry_mode", "never"),
        ("expiry_mode", ExpiryMode.AT_HEAD),  # RabbitMQ's
        ("history_level", 3),
        ("history_level", True),
        ("history_level", "everything"),
        ("user_metadata", "x" * 1025),
        ("user_metadata", "a\x00b"),
        ("user_metadata", 5),
        ("hidden", "yes"),
        ("dead_lettering_on_message_expiration", 1),
    ],
)
def test_a_refused_value_names_its_setting(name, value):
    with pytest.raises(InvalidArgument) as refused:
        check_setting(name, value)
    assert refused.value.name == name


def test_omitted_settings_take_the_services_default():
    assert new_settings(EntityKind.QUEUE, {}) == QueueSettings()
    assert new_settings(EntityKind.QUEUE, {"max_delivery_count": 3}) == QueueSettings(max_delivery_count=3)
    assert new_settings(EntityKind.QUEUE, QueueSettings(lock_duration=30 * S)) == QueueSettings(lock_duration=30 * S)


@pytest.mark.parametrize("name", IMMUTABLE)
def test_immutable_settings_cannot_be_changed(name):
    with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
        changed_settings(QueueSettings(), {name: True})


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("value", [True, False])
def test_a_fixed_setting_may_be_repeated(name, value):
    """A client that updates an entity as a whole gives it again."""
    current = new_settings(EntityKind.QUEUE, {name: value})
    changed = changed_settings(current, {name: value, "max_delivery_count": 3})
    assert values_of(changed) == values_of(current) | {"max_delivery_count": 3}
    with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
        changed_settings(current, {name: not value, "max_delivery_count": 3})


@pytest.mark.parametrize("value", [None, 1, "true"])
def test_a_fixed_setting_is_true_or_false(value):
    with pytest.raises(InvalidArgument, match="must be true or false"):
        changed_settings(QueueSettings(requires_session=True), {"requires_session": value})


def test_a_setting_of_another_kind_is_refused_also_if_it_is_off():
    with pytest.raises(InvalidArgument, match="is not a setting of a topic"):
        changed_settings(TopicSettings(), {"requires_session": False})


@pytest.mark.parametrize("forward", FORWARDS)
def test_auto_delete_on_idle_is_kept_beside_a_forward(forward):
    """SB-193."""
    current = new_settings(EntityKind.QUEUE, {"auto_delete_on_idle": 5 * MIN, forward: "other"})
    assert current.auto_delete_on_idle == 5 * MIN
    assert changed_settings(current, {"auto_delete_on_idle": 6 * MIN, forward: "third"}).auto_delete_on_idle == 6 * MIN
    assert changed_settings(current, {forward: "third"}).auto_delete_on_idle == 5 * MIN


def test_an_unknown_setting_is_refused_with_the_valid_settings():
    with pytest.raises(InvalidArgument, match="lock_duration, max_delivery_count"):
        changed_settings(QueueSettings(), {"lock_time": MIN})


def test_an_existing_out_of_range_value_does_not_block_another_change():
    relaxed = new_settings(EntityKind.QUEUE, {"lock_duration": S}, RELAXED)
    assert changed_settings(relaxed, {"max_delivery_count": 3}, STRICT).lock_duration == S


@pytest.mark.parametrize("name", ["s", "All-of.it_1~", "a" * 50])
def test_valid_subscription_names_are_accepted(name):
    assert check_subscription_name(name) == name


@pytest.mark.parametrize("name", ["", "a" * 51, "a/b", "a b", "a@b", "a\\b", "a#b", "a*b", "..", "$Default", None, 5])
def test_invalid_subscription_names_are_refused(name):
    with pytest.raises(InvalidArgument) as refused:
        check_subscription_name(name)
    assert refused.value.name == "subscription"


@pytest.mark.parametrize("path", ["Subscriptions", "a/subscriptions/b", "a/SUBSCRIPTIONS"])
def test_the_word_subscriptions_is_reserved_in_paths(path):
    with pytest.raises(InvalidArgument, match="is reserved for the subscriptions of a topic"):
        check_path(path)


@pytest.mark.parametrize("kind", EntityKind)
def test_each_kind_has_its_own_type_of_settings_and_defaults(kind):
    settings = new_settings(kind, {})
    assert settings == SETTINGS_TYPE[kind]()
    assert kind_of(settings) is kind
    assert new_settings(kind, settings) == settings
    assert values_of(settings) == default_settings(kind)


@pytest.mark.parametrize("kind", EntityKind)
@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("limits", [STRICT, RELAXED], ids=["strict", "relaxed"])
def test_the_defaults_of_a_tier_are_within_its_limits(kind, tier, limits):
    allowed = of_tier(limits, tier)
    check_tier(new_settings(kind, {}, allowed), allowed)


def test_no_tier_exceeds_the_general_limits():
    for tier in Tier:
        strict, relaxed = of_tier(STRICT, tier), of_tier(RELAXED, tier)
        for name in ("subscriptions_per_topic", "session_state", "messages_per_batch_delete", "topics", "sessions"):
            assert getattr(strict, name) <= getattr(STRICT, name)
            assert getattr(relaxed, name) >= getattr(strict, name)


def test_batch_deletes_and_session_states_are_smaller_below_premium():
    assert [of_tier(STRICT, tier).messages_per_batch_delete for tier in Tier] == [500, 500, 4000]
    assert [of_tier(STRICT, tier).session_state for tier in Tier] == [256 * 1024, 256 * 1024, 1024 * 1024]


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.timedeltas(), st.binary(), st.lists(st.integers())
)


@given(name=st.sampled_from(ALL_SETTINGS), value=ANYTHING, kind=st.sampled_from(EntityKind), tier=st.sampled_from(Tier))
def test_every_value_is_accepted_idempotently_or_refused_as_a_broker_error(name, value, kind, tier):
    limits = of_tier(STRICT, tier)
    try:
        stored = check_setting(name, value, limits, kind)
    except BrokerError:
        return
    assert check_setting(name, stored, limits, kind) == stored


@given(ANYTHING)
def test_every_path_is_accepted_or_refused_as_a_broker_error(path):
    with suppress(InvalidArgument):
        assert check_path(path) == path


@pytest.mark.parametrize("kind", [QueueSettings, TopicSettings, SubscriptionSettings])
def test_the_defaults_of_settings_equal_those_of_the_columns(kind):
    """A row has all columns; what a kind of entity lacks keeps the column's default."""
    assert {field.name: getattr(kind(), field.name) for field in fields(kind)}.items() <= ENTITY_DEFAULTS.items()
