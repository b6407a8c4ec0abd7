"""How RabbitMQ's facts are put into words, and what people type into values. No database."""

from datetime import UTC, datetime

import pytest

from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules import errors, table
from broker_core.rabbitmq.rules.policies import OPERATOR_KEYS, Policy
from explorer.rabbitmq import presenters
from explorer.rabbitmq.forms.keys import BY_ARGUMENT, BY_EFFECTIVE, KEYS, POLICY_KEYS, value_text
from explorer.rabbitmq.forms.policy import PolicyForm
from explorer.rabbitmq.forms.table import rows_of, table_value
from explorer.rabbitmq.forms.topology import ValueField
from explorer.rabbitmq.policy_effects import PolicyTarget, rulings

TTL, LENGTH, DLX = (BY_ARGUMENT[name] for name in ("x-message-ttl", "x-max-length", "x-dead-letter-exchange"))


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [(TTL, "60000", 60_000), (TTL, "1 min 30 s", 90_000), (TTL, "PT5S", 5_000), (TTL, "-1", -1),
     (TTL, "soon", "soon"), (TTL, "never", "never"), (TTL, "", None), (LENGTH, "1,000", 1000), (LENGTH, "many", "many"),
     (DLX, '""', ""), (DLX, "", None),
     (BY_ARGUMENT["x-single-active-consumer"], "true", True)],
)  # fmt: skip
def test_a_value_is_parsed_by_its_unit_and_non_numeric_values_stay_text(key, typed, value):
    assert ValueField(key).clean(typed) == value


def test_key_names_are_unique_and_operator_keys_are_those_of_the_broker():
    assert len({key.name for key in KEYS}) == len(KEYS) == len(BY_EFFECTIVE)
    offered = {key.policy for key in PolicyForm(is_operator=True).policy_keys}
    assert offered <= set(OPERATOR_KEYS) and "dead-letter-exchange" not in offered and "message-ttl" in offered
    grouped = {field.name for _, fields in PolicyForm().groups() for field in fields}
    assert grouped == {key.name for key in POLICY_KEYS}, "no key is left out of the page"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [(TTL, 90_000, "1 min 30 s (90,000 ms)"), (TTL, 250, "250 ms"), (LENGTH, 12_000, "12,000"),
     (DLX, "", '"" (the default exchange)'),
     (None, True, "yes")],
)  # fmt: skip
def test_values_are_formatted_with_their_unit(key, value, text):
    assert value_text(key, value) == text


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("string", " a ", " a "), ("number", "7", 7), ("number", "7.5", 7.5), ("boolean", "True", True), ("void", "x", None),
     ("list", '[1, "a"]', [1, "a"]), ("table", '{"a": [true]}', {"a": [True]}),
     ("timestamp", "2026-01-02T03:04:05.9", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))],
)  # fmt: skip
def test_a_typed_row_is_parsed(kind, text, value):
    assert table_value("name", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [("number", "ten"), ("number", "nan"), ("number", "inf"), ("boolean", "1"), ("list", "{}"), ("table", "[]"),
     ("list", "[NaN]"), ("table", '{"a": 1e999}'),
     ("list", "[" * 100_000), ("timestamp", "soon"), ("bytes", "x")],
)  # fmt: skip
def test_an_invalid_typed_row_is_refused_by_name(kind, text):
    with pytest.raises(InvalidArgument, match="'name'"):
        table_value("name", kind, text)


def test_typed_rows_round_trip():
    values = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None, "f": [1], "g": {"h": "i"}, "t": datetime(2026, 1, 2, tzinfo=UTC)}
    assert {name: table_value(name, kind, text) for name, kind, text in rows_of(values)} == values


def _death(**changes):
    at = datetime(2026, 1, 2, tzinfo=UTC)
    return {"count": 2, "reason": "expired", "queue": "q", "time": at, "exchange": "", "routing-keys": ["k"]} | changes


def test_deaths_are_shown_oldest_first():
    """RMQ-066: the header has the newest first."""
    stored = table.encode({"x-death": [_death(queue="second", reason="rejected"), _death(**{"original-expiration": "500"})]})[
        "x-death"
    ]
    first, second = presenters.deaths(stored)
    assert (first.queue, first.because, first.count, first.expiration) == ("q", "expired", 2, "500")
    assert (second.queue, second.because, second.routing_keys) == ("second", "a consumer rejected it", ("k",))


@pytest.mark.parametrize(
    "header", ["text", 5, ["a", 1], [], [{"count": "many", "time": 2**62, "routing-keys": "k"}], {"count": 1}, None]
)
def test_an_invalid_x_death_is_ignored(header):
    """RMQ-914: publishers may send what they like."""
    found = presenters.deaths(table.encode({"x-death": header})["x-death"])
    assert all(death.count == 1 and death.at is None and death.routing_keys == () for death in found)
    assert presenters.deaths(None) == []


def test_features_show_the_effective_settings_of_any_source():
    options = {"durable": True, "auto_delete": True, "arguments": {"x-message-ttl": ["long", "1"], "x-note": ["longstr", "a"]}}
    effective = {"message_ttl": 1, "max_length": 5, "dead_letter_exchange": "", "single_active_consumer": False}
    assert [tag.word for tag in presenters.queue_features(options, effective)] == ["D", "AD", "TTL", "DLX", "Lim", "Args"]


def test_a_legend_explains_each_abbreviation_of_a_list_once():
    durable = presenters.queue_features({"durable": True, "arguments": {}}, {})
    limited = presenters.queue_features({"durable": True, "arguments": {}}, {"max_length": 5, "message_ttl": 1})
    assert presenters.legend([durable, limited]) == [("D", "Durable"), ("TTL", "Message time-to-live"), ("Lim", "Max length")]
    assert presenters.legend([]) == []


def test_policy_effects_name_winners_losers_and_ties():
    low, high, tied = (
        Policy("low", "", {"expires": 1}),
        Policy("high", "^a", {"expires": 1}, priority=2),
        Policy("tie", "a", {"expires": 1}),
    )
    operator = Policy("op", "", {"expires": 1}, is_operator=True)
    judged = {
        ruling.policy.name: ruling
        for ruling in rulings(
            [high, low, tied, operator], [PolicyTarget("ab", "queue", "classic"), PolicyTarget("ba", "exchange")]
        )
    }
    assert [t.name for t in judged["high"].applies] == ["ab"] and [t.name for t in judged["low"].applies] == ["ba"]
    assert [(lost.target.name, lost.winner, lost.tied) for lost in judged["tie"].loses] == [
        ("ab", "high", False),
        ("ba", "low", True),
    ]
    assert len(judged["op"].applies) == 2 and judged["op"].loses == [], "operator policies do not compete with the others"


@pytest.mark.parametrize(
    "refusal",
    [errors.default_exchange_refused(), errors.reserved_queue_name("amq.q"), errors.not_found_exchange("/", "e"),
     errors.queue_not_empty("/", "q"), errors.locked_queue("/", "q"), errors.internal_exchange("/", "e"),
     errors.unknown_exchange_type("x"), errors.invalid_property("auto-delete", "/", "q"),
     errors.unsupported_argument("x-max-priority", "/", "q", "quorum")],
)  # fmt: skip
def test_each_error_has_advice(refusal):
    assert refusal.advice


def test_a_self_explanatory_error_has_no_advice():
    assert InvalidArgument("name", "is given twice").advice == ""
