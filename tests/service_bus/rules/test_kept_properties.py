"""Properties that are kept for clients without effect (SB-940): tables over the pure rules, and their storage."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind
from broker_core.service_bus.rules.entity_settings import SETTINGS_TYPE, changed_settings, new_settings
from broker_core.service_bus.rules.kept_properties import AVAILABILITY, FIXED_KEPT, KEPT_OF, check_kept, effective_kept

QUEUE, TOPIC, SUBSCRIPTION = EntityKind.QUEUE, EntityKind.TOPIC, EntityKind.SUBSCRIPTION
DEFAULTS = {
    QUEUE: {
        "EnableBatchedOperations": True,
        "EnableExpress": False,
        "EnablePartitioning": False,
        "EntityAvailabilityStatus": "Available",
        "IsAnonymousAccessible": False,
        "SupportOrdering": True,
    },
    TOPIC: {
        "EnableBatchedOperations": True,
        "EnableExpress": False,
        "EnablePartitioning": False,
        "EnableSubscriptionPartitioning": False,
        "EntityAvailabilityStatus": "Available",
        "FilteringMessagesBeforePublishing": False,
        "IsAnonymousAccessible": False,
        "SupportOrdering": True,
    },
    SUBSCRIPTION: {"EnableBatchedOperations": True, "EntityAvailabilityStatus": "Available"},
}


def values_of_kind(kind):
    """Any values of any of the properties of a kind."""
    texts, flags = st.sampled_from(AVAILABILITY), st.booleans()
    return st.fixed_dictionaries({}, optional={n: texts if n == "EntityAvailabilityStatus" else flags for n in KEPT_OF[kind]})


OF_ANY_KIND = st.sampled_from(EntityKind).flatmap(lambda kind: st.tuples(st.just(kind), values_of_kind(kind)))


@pytest.mark.parametrize("kind", EntityKind)
def test_each_kind_has_its_properties_with_the_services_defaults(kind):
    assert effective_kept(kind, {}) == DEFAULTS[kind]
    assert list(effective_kept(kind, {})) == list(KEPT_OF[kind]) == sorted(DEFAULTS[kind])
    assert check_kept(kind, DEFAULTS[kind]) == {}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {}),
        ({"EnableBatchedOperations": False}, {"EnableBatchedOperations": False}),
        ({"EntityAvailabilityStatus": "limited"}, {"EntityAvailabilityStatus": "Limited"}),
        ({"EntityAvailabilityStatus": "AVAILABLE"}, {}),
        ({"SupportOrdering": True}, {}),
        ({"SupportOrdering": False}, {"SupportOrdering": False}),
        ({"SupportOrdering": False, "EnablePartitioning": True}, {"EnablePartitioning": True}),
        ({"SupportOrdering": True, "EnablePartitioning": True}, {"EnablePartitioning": True, "SupportOrdering": True}),
        ({"SupportOrdering": False, "EnablePartitioning": False}, {"SupportOrdering": False}),
    ],
)
def test_only_values_that_differ_from_their_defaults_are_stored(given, stored):
    assert check_kept(QUEUE, given) == stored


def test_stored_properties_are_sorted_by_name():
    given = dict.fromkeys(("IsAnonymousAccessible", "EnablePartitioning", "FilteringMessagesBeforePublishing"), True)
    assert list(check_kept(TOPIC, given)) == ["EnablePartitioning", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible"]


def test_a_partitioned_entity_does_not_support_ordering_by_default():
    assert effective_kept(QUEUE, {"EnablePartitioning": True})["SupportOrdering"] is False
    assert effective_kept(TOPIC, {"EnablePartitioning": True, "SupportOrdering": True})["SupportOrdering"] is True


@pytest.mark.parametrize(
    ("kind", "given", "name", "said"),
    [
        (QUEUE, {"EnablePartitioning": 1}, "EnablePartitioning", "^EnablePartitioning: 1 must be true or false"),
        (QUEUE, {"EnableExpress": "true"}, "EnableExpress", "'true' must be true or false"),
        (QUEUE, {"SupportOrdering": None}, "SupportOrdering", "None must be true or false"),
        (QUEUE, {"EntityAvailabilityStatus": "Creating"}, "EntityAvailabilityStatus", "one of Available, Limited, Renaming"),
        (TOPIC, {"EntityAvailabilityStatus": True}, "EntityAvailabilityStatus", "True must be one of Available"),
        (QUEUE, {"EnableSubscriptionPartitioning": False}, "EnableSubscriptionPartitioning", "not a property of a queue"),
        (SUBSCRIPTION, {"EnablePartitioning": False}, "EnablePartitioning", "EnableBatchedOperations, EntityAvailabilityStatus$"),
        (QUEUE, {"enablepartitioning": True}, "enablepartitioning", "valid names are EnableBatchedOperations, EnableExpress"),
        (QUEUE, {5: True}, "5", "not a property"),
        (QUEUE, ["EnableExpress"], "kept_properties", "must map names of properties to their values"),
        (QUEUE, None, "kept_properties", "must map"),
        (QUEUE, {"EnableExpress": "x" * 100}, "EnableExpress", r"'x{76}\.\.\. must be"),
    ],
)
def test_an_invalid_property_is_named_with_what_is_allowed(kind, given, name, said):
    with pytest.raises(InvalidArgument, match=said) as refused:
        check_kept(kind, given)
    assert refused.value.name == name


@given(OF_ANY_KIND)
def test_properties_are_normalized_idempotently_and_read_as_given(of_kind):
    kind, given_values = of_kind
    stored = check_kept(kind, given_values)
    assert check_kept(kind, stored) == stored
    shown = effective_kept(kind, stored)
    assert given_values.items() <= shown.items()
    assert check_kept(kind, shown) == stored
    assert tuple(shown) == KEPT_OF[kind]


@pytest.mark.parametrize("kind", EntityKind)
def test_settings_with_properties_are_compared_hashed_and_pickled(kind):
    plain, kept = SETTINGS_TYPE[kind](), new_settings(kind, {"kept_properties": {"EnableBatchedOperations": False}})
    assert kept != plain
    assert kept == pickle.loads(pickle.dumps(kept))
    assert len({plain, kept, new_settings(kind, kept)}) == 2


def test_a_change_replaces_all_properties():
    first = new_settings(QUEUE, {"kept_properties": {"EnableBatchedOperations": False, "IsAnonymousAccessible": True}})
    second = changed_settings(first, {"kept_properties": {"SupportOrdering": False}})
    assert second.kept_properties == {"SupportOrdering": False}
    assert changed_settings(second, {"max_delivery_count": 3}).kept_properties == {"SupportOrdering": False}


@pytest.mark.parametrize("name", FIXED_KEPT)
@pytest.mark.parametrize("value", [True, False])
def test_a_fixed_property_can_be_repeated_but_not_changed(name, value):
    current = new_settings(TOPIC, {"kept_properties": {name: value}})
    same = changed_settings(current, {"kept_properties": {name: value, "IsAnonymousAccessible": True}})
    assert effective_kept(TOPIC, same.kept_properties)[name] is value
    with pytest.raises(InvalidArgument, match=f"^{name}: cannot be changed after creation; delete and recreate the topic"):
        changed_settings(current, {"kept_properties": {name: not value}})
    if value:
        with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
            changed_settings(current, {"kept_properties": {}})
