"""Values that remember their wire type read as the values they are."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.typed import Typed
from broker_core.rabbitmq.rules import deaths, table
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties
from broker_core.service_bus.rules.filters import compile_action
from broker_core.service_bus.rules.values import Message

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_count_of_a_death_is_numeric():
    headers = deaths.dead_letter(
        {}, {}, queue="q", reason=deaths.Reason.EXPIRED, at=NOON, exchange="", routing_keys=("q",)
    ).headers
    (death,) = table.decode(table.encode(headers))["x-death"]
    assert death["count"] == 1 and not death["count"] > 3 and death["count"] + 1 == 2
    assert table.encode(death)["count"] == ["long", "1"]


def test_values_set_by_a_rule_are_numeric():
    made = compile_action("SET a = 1; SET b = a + 1.5").apply(Message()).properties
    decoded = decode_properties(encode_properties(made))
    assert decoded == {"a": 1, "b": 2.5} and decoded["a"] * 2 == 2 and sorted([2, decoded["a"]]) == [1, 2]
    assert encode_properties(decoded)["a"] == ["long", "1"]


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_typed_integer_behaves_as_an_int(n):
    number = Typed("long", n)
    assert number == n and hash(number) == hash(n) and {n: "found"}[number] == "found"
    assert (str(number), f"{number}", f"{number:,}", json.dumps(number)) == (str(n), str(n), f"{n:,}", str(n))
    assert number + 1 == n + 1 and type(number + 1) is int and -number == -n
    assert isinstance(number, int) and number.type == "long" and type(number.value) is int


@pytest.mark.parametrize(
    "value", [7, 0.5, Decimal("1.50"), "red", b"\xff", True, None, NOON], ids=lambda value: type(value).__name__
)
def test_a_value_keeps_its_type_when_it_is_copied(value):
    typed = Typed("x", value)
    assert (typed.type, typed.value, type(typed.value)) == ("x", value, type(value))
    assert str(typed) == str(value)
    for twin in (copy.copy(typed), copy.deepcopy(typed), pickle.loads(pickle.dumps(typed))):
        assert (repr(twin), twin, hash(twin)) == (repr(typed), typed, hash(typed))
    with pytest.raises(AttributeError):
        typed.type = "y"


@pytest.mark.parametrize("value", [7, 0.5, Decimal("1.50"), "red", b"\xff"])
def test_numbers_texts_and_bytes_equal_their_values(value):
    assert Typed("x", value) == value == Typed("y", value)
    assert json.dumps([Typed("x", 7), Typed("x", 0.5), Typed("x", "red")]) == '[7, 0.5, "red"]'


def test_non_numeric_values_are_distinguished_by_type():
    assert Typed("boolean", True) != Typed("bit", True)
    assert Typed("boolean", True) != True  # noqa: E712
