"""Correlation filters, and how rules are kept."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import FilterEvaluationError, InvalidArgument, InvalidFilter
from broker_core.common.typed import Typed
from broker_core.service_bus.rules.filters import (
    CorrelationFilter,
    FalseFilter,
    MessageView,
    Rule,
    TrueFilter,
    compile_action,
    compile_filter,
    rule_from_json,
    rule_to_json,
)
from broker_core.service_bus.rules.filters.correlation import FIELDS
from broker_core.service_bus.rules.values import Message

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def matches(filter, **message):
    return filter.matches(MessageView.of(Message(**message)))


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_compared_with_the_property_of_its_name(field):
    """SB-F16."""
    wanted: dict[str, Any] = {field: "x"}
    filter = CorrelationFilter(**wanted)
    assert matches(filter, **wanted)
    assert not matches(filter, **{field: "X"})
    assert not matches(filter)
    assert not matches(filter, **{other: "x" for other in FIELDS if other != field})


def test_properties_that_are_not_a_mapping_are_shown_up_to_80_characters():
    text: Any = "x" * 80
    with pytest.raises(InvalidArgument, match=f"must be a mapping, not '{'x' * 79}$"):
        CorrelationFilter(properties=text)


def test_all_given_properties_must_be_equal():
    """SB-F16."""
    filter = CorrelationFilter(subject="order", to="t", properties={"Color": "red", "amount": 5})
    right = {"subject": "order", "to": "t", "properties": {"COLOR": "red", "amount": 5, "more": 1}}
    assert matches(filter, **right)
    for change in (
        {"subject": "o"},
        {"to": None},
        {"properties": {"color": "red"}},
        {"properties": {"color": "Red", "amount": 5}},
    ):
        assert not matches(filter, **right | change)


EQUAL = [
    (5, Typed("long", 5), 5.0, Decimal(5), Typed("ubyte", 5)),
    ("5", Typed("symbol", "5")),
    (True,),
    (False,),
    (0, -0.0),
    (1,),
    (b"5",),
    (NOON, Typed("datetime-offset", "2026-01-01T13:00:00+01:00")),
    (timedelta(seconds=5),),
    (UUID(int=5),),
    (str(UUID(int=5)),),
    ("",),
]


def test_values_are_equal_only_within_their_type():
    """SB-F17."""
    for i, group in enumerate(EQUAL):
        for j, other in enumerate(EQUAL):
            for wanted in group:
                for value in other:
                    filter = CorrelationFilter(properties={"a": wanted})
                    assert matches(filter, properties={"A": value}) is (i == j), (wanted, value)


def test_a_null_is_equal_to_nothing():
    """SB-F17."""
    assert not matches(CorrelationFilter(properties={"a": 0}), properties={"a": None})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "has no conditions"),
        ({"subject": None, "properties": {}}, "has no conditions"),
        ({"subject": 5}, "subject: must be a string, not int"),
        ({"subject": "\x00"}, "NUL"),
        ({"properties": {"a": None}}, "'a'.*never equals anything"),
        ({"properties": {"a": float("nan")}}, "'a'.*never equals anything"),
        ({"properties": {"a": []}}, "'a'"),
        ({"properties": {"": 1}}, "non-empty"),
        ({"properties": {"a": 1, "A": 1}}, "'A'.*twice"),
    ],
)
def test_an_empty_or_invalid_filter_is_refused(fields, problem):
    """SB-F16."""
    with pytest.raises(InvalidArgument, match=problem):
        CorrelationFilter(**fields)


VALUES = st.sampled_from([value for group in EQUAL for value in group if not isinstance(value, bytes)])
SUBJECTS = st.sampled_from([None, "x", "y"])


@given(
    st.dictionaries(st.sampled_from(["a", "B", "c"]), VALUES, min_size=1),
    SUBJECTS,
    st.dictionaries(st.sampled_from(["A", "b", "c"]), VALUES),
    SUBJECTS,
)
def test_a_correlation_filter_agrees_with_the_equivalent_sql_filter(wanted, subject, properties, message_subject):
    """SB-F16, SB-F17: but for values of different kinds, which SQL cannot compare and this holds for unequal."""
    terms = [f"{name} = @{name}" for name in wanted] + (["sys.Label = @label"] if subject else [])
    same = compile_filter(" AND ".join(terms), wanted | {"label": subject or ""})
    view = MessageView.of(Message(subject=message_subject, properties=properties))
    try:
        expected = same.matches(view) is True
    except FilterEvaluationError:
        expected = False
    assert CorrelationFilter(subject=subject, properties=wanted).matches(view) is expected


# Rules


@pytest.mark.parametrize("name", ["$Default", "a", "x" * 50, "a rule, with 'signs' and ü"])
def test_valid_rule_names_are_accepted(name):
    """SB-F20."""
    assert Rule(name).name == name


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "a\\b", "a@b", "a?b", "a#b", "a\x00b", "a\ud800", None, 5])
def test_invalid_rule_names_are_refused(name):
    """SB-F20."""
    with pytest.raises(InvalidArgument, match="rule name"):
        Rule(name)


RULES = [
    Rule("$Default"),
    Rule("none", FalseFilter()),
    Rule("sql", compile_filter("a = @x AND b < @y", {"@x": Typed("long", 5), "y": NOON})),
    Rule("act", TrueFilter(), compile_action("SET a = @x; REMOVE b", {"x": 1.5})),
    Rule("correlation", CorrelationFilter(subject="s", to="", properties={"A": Typed("ubyte", 5), "b": UUID(int=1)})),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_stored_rule_round_trips(rule):
    """SB-F20."""
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule


def test_rules_have_their_stored_form():
    """SB-F20: true and false are kept as such, not as 1=1 and 1=0."""
    assert rule_to_json(RULES[0]) == {"name": "$Default", "filter": {"type": "true"}, "action": None}
    assert rule_to_json(RULES[1])["filter"] == {"type": "false"}
    assert rule_to_json(RULES[2])["filter"] == {
        "type": "sql",
        "expression": "a = @x AND b < @y",
        "parameters": {"@x": ["long", "5"], "y": ["timestamp", "2026-01-01T12:00:00+00:00"]},
    }
    assert rule_to_json(RULES[3])["action"] == {"expression": "SET a = @x; REMOVE b", "parameters": {"x": ["double", "1.5"]}}
    assert rule_to_json(RULES[4])["filter"] == {
        "type": "correlation",
        "subject": "s",
        "to": "",
        "properties": {"A": ["ubyte", "5"], "b": ["uuid", "00000000-0000-0000-0000-000000000001"]},
    }


def test_an_invalid_stored_rule_is_refused():
    """SB-F20."""
    for stored in (
        {},
        {"name": "a"},
        {"name": "a", "filter": None},
        {"name": "a", "filter": {"type": "correlation", "other": "x"}},
    ):
        with pytest.raises(InvalidArgument, match="not a valid stored rule"):
            rule_from_json(stored)
    with pytest.raises(InvalidArgument, match="must be sql, correlation, true or false"):
        rule_from_json({"name": "a", "filter": {"type": "x"}})
    with pytest.raises(InvalidFilter, match="column 1"):
        rule_from_json({"name": "a", "filter": {"type": "sql", "expression": "a", "parameters": {}}})
