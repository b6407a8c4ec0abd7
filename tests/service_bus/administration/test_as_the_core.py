"""Any settings and any rules, given by a client, are stored and read as if they had been given to the core."""

import os
from collections.abc import Mapping
from datetime import UTC, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.common.types import EntityAddress, EntityKind
from broker_core.service_bus import entities as core
from broker_core.service_bus.rules.entity_settings import FIXED, STATUSES
from broker_core.service_bus.rules.filters import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    TrueFilter,
    compile_action,
    compile_filter,
    rule_to_json,
)
from broker_core.service_bus.rules.kept_properties import FIXED_KEPT
from tests.service_bus.rules.test_kept_properties import values_of_kind

from .entities import SETTINGS, AdministrationEntities

EXAMPLES = 200 if os.environ.get("VITRINE_CLIENTS") else 15
NUMBERS = count()
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
IN_XML = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r")
TEXTS = st.text(IN_XML, max_size=20)


LONG = st.none() | st.timedeltas(5 * MINUTE, 364_999 * DAY)
VALID = {
    "lock_duration": st.timedeltas(timedelta(seconds=5), 5 * MINUTE),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "default_message_time_to_live": LONG,
    "auto_delete_on_idle": LONG,
    "dead_lettering_on_message_expiration": st.booleans(),
    "dead_lettering_on_filter_evaluation_exceptions": st.booleans(),
    "requires_session": st.booleans(),
    "requires_duplicate_detection": st.booleans(),
    "duplicate_detection_history_time_window": st.timedeltas(timedelta(seconds=20), 7 * DAY),
    "forward_to": st.sampled_from([None, "T", "t"]),
    "forward_dead_lettered_messages_to": st.sampled_from([None, "T", "t"]),
    "max_size_in_megabytes": st.sampled_from([1024, 5120, 81_920]),
    "user_metadata": st.none() | TEXTS,
}


def settings_of_kind(kind: EntityKind):
    valid = {name: values for name, values in VALID.items() if name in SETTINGS[kind]}
    own = {"status": st.sampled_from(STATUSES[kind]), "kept_properties": values_of_kind(kind)}
    return st.fixed_dictionaries({}, optional=valid | own)


def changes_after(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The second settings, but for what cannot be changed, which is as in the first."""
    kept, before = second.get("kept_properties", {}), first.get("kept_properties", {})
    fixed = {name: before[name] for name in FIXED_KEPT if name in before}
    changeable = {name: value for name, value in kept.items() if name not in FIXED_KEPT}
    return {name: value for name, value in second.items() if name not in FIXED} | {"kept_properties": fixed | changeable}


OF_ANY_KIND = st.sampled_from(EntityKind).flatmap(
    lambda kind: st.tuples(st.just(kind), settings_of_kind(kind), settings_of_kind(kind))
)
VALUES = (
    TEXTS
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(-10_000 * DAY, 10_000 * DAY)
)
CORRELATIONS = st.builds(
    CorrelationFilter,
    subject=TEXTS,
    to=st.none() | TEXTS,
    session_id=st.none() | TEXTS,
    properties=st.dictionaries(st.text(IN_XML, min_size=1, max_size=9), VALUES, max_size=3),
)
PARAMETERS = st.fixed_dictionaries({"@a": VALUES, "@b": VALUES})
FILTERS = (
    st.just(TrueFilter())
    | st.just(FalseFilter())
    | CORRELATIONS
    | PARAMETERS.map(lambda values: compile_filter("x = @a OR\r\n y <> @b AND z LIKE '<&%'", values))
)
ACTIONS = st.none() | PARAMETERS.map(lambda values: compile_action("SET x = @a; SET y = @b", values))


@pytest.fixture
def api(listener, namespace):
    made = AdministrationEntities(listener.port("SERVICE_BUS_PORT"))
    core.create_topic(EntityAddress(namespace, "T"))
    yield made
    made.close()


def create(makes, address, kind, given_settings):
    return getattr(makes, f"create_{kind}")(address, **given_settings)


@given(OF_ANY_KIND)
@settings(max_examples=EXAMPLES)
def test_any_settings(api, namespace, drawn):
    kind, first, second = drawn
    by_core, by_api = (EntityAddress(namespace, f"{prefix}{next(NUMBERS)}") for prefix in "ca")
    if kind is EntityKind.SUBSCRIPTION:
        by_core, by_api = (EntityAddress(namespace, "T").subscription(address.path) for address in (by_core, by_api))
    assert create(core, by_core, kind, first).settings == create(api, by_api, kind, first).settings
    assert core.get_entity(by_api).settings == core.get_entity(by_core).settings
    changes = changes_after(first, second)
    assert core.update_entity(by_core, **changes).settings == api.update_entity(by_api, **changes).settings
    assert core.get_entity(by_api).settings == core.get_entity(by_core).settings
    for address in (by_core, by_api):
        core.delete_entity(address)


@given(FILTERS, ACTIONS, FILTERS)
@settings(max_examples=EXAMPLES)
def test_any_rules(api, namespace, rule_filter, action, later):
    by_core, by_api = (EntityAddress(namespace, "T").subscription(f"{prefix}{next(NUMBERS)}") for prefix in "ca")
    for address in (by_core, by_api):
        core.create_subscription(address)
    for change, rule in (("create_rule", Rule("r", rule_filter, action)), ("update_rule", Rule("r", later))):
        getattr(core, change)(by_core, rule)
        answered = getattr(api, change)(by_api, rule)
        stored = [rule_to_json(found.rule) for found in (core.get_rule(by_core, "r"), core.get_rule(by_api, "r"))]
        assert stored[0] == stored[1] == rule_to_json(answered.rule) == rule_to_json(api.get_rule(by_api, "r").rule)
    for address in (by_core, by_api):
        core.delete_subscription(address)
