"""What policies may say, which one applies, and what is in force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.rabbitmq.rules import policies
from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy, effective_exchange, effective_queue, merged_definition, select

TTL = {"message-ttl": 1000}


def a_policy(name="p", pattern="", definition=TTL, **options):
    return Policy(name, pattern, definition, **options)


def refusal(document, **options):
    with pytest.raises(InvalidPolicy) as refused:
        policies.parse("p", document, **options)
    return refused.value.reason


def test_the_bounds_of_ranges_are_accepted():
    for definition in (
        {"message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 0},
        {"delivery-limit": 0, "consumer-timeout": 0},
        {"message-ttl": 315_360_000_000, "expires": 315_360_000_000},
    ):
        assert policies.parse("p", {"pattern": "", "definition": definition}).definition == definition


WHOLE_NUMBERS = {
    "message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 0, "delivery-limit": 0, "consumer-timeout": 0,
    "max-in-memory-length": 0, "max-in-memory-bytes": 0, "stream-max-segment-size-bytes": 0, "initial-cluster-size": 0,
    "target-group-size": 0,
}  # fmt: skip


@pytest.mark.parametrize("key", WHOLE_NUMBERS)
def test_an_integer_out_of_range_is_refused(key):
    least, most = WHOLE_NUMBERS[key], 315_360_000_000 if key in ("message-ttl", "expires") else 2**63 - 1
    for value in (least, most):
        assert policies.parse("p", {"pattern": "", "definition": {key: value}}).definition == {key: value}
    for value in (least - 1, most + 1, True, 1.0, "1"):
        assert " is not a valid " in refusal({"pattern": "", "definition": {key: value}})


@pytest.mark.parametrize(
    "definition", [{}, {"bogus": 1}, {"expires": 0}, {"message-ttl": "1000"}, {"max-length": -1}, {"overflow": "x"}]
)
def test_a_refused_definition_comes_with_advice(definition):
    with pytest.raises(InvalidPolicy) as refused:
        policies.parse("p", {"pattern": "", "definition": definition})
    assert refused.value.advice


def test_the_advice_for_a_time_to_live_names_its_maximum():
    with pytest.raises(InvalidPolicy) as refused:
        policies.parse("p", {"pattern": "", "definition": {"message-ttl": -1}})
    assert refused.value.advice == "Enter a whole number that is not negative: milliseconds, at most 315360000000."


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pattern": "("}, 'pattern should be regular expression but is invalid: {"missing )",1}'),
        ({"pattern": 5}, "pattern should be a binary but was 5"),
        (
            {"apply-to": "x"},
            "apply-to 'x' unrecognised; should be one of: 'queues', 'classic_queues', 'quorum_queues', 'streams', 'exchanges', "
            "or 'all'",
        ),
        ({"priority": "1"}, 'priority should be a number, actually was <<"1">>'),
        ({"priority": True}, "priority should be a number, actually was true"),
        ({"priority": float("inf")}, "priority should be a number, actually was inf"),
        ({"priority": 10**309}, f"priority should be a number, actually was {10**309}"),
        ({"definition": {}}, "no policy provided"),
        ({"definition": []}, "parse error while reading policy: []"),
        ({"definition": {"bogus": 1, "b": ""}}, '[{<<"b">>,<<>>},{<<"bogus">>,1}] are not recognised policy settings'),
        ({"definition": {"expires": 0}, "pattern": "(", "priority": "x"}, "0 is not a valid queue expiry"),
        ({"definition": {"y": 1, "x": 2}}, '[{<<"x">>,2},{<<"y">>,1}] are not recognised policy settings'),
        ({"definition": {"queue-version": True}}, "true is not a valid queue-version value"),
        ({"definition": {"bogus": 1}}, '[{<<"bogus">>,1}] are not recognised policy settings'),
        ({"definition": {"max-priority": 5}}, '[{<<"max-priority">>,5}] are not recognised policy settings'),  # RMQ-162
        ({"definition": {"message-ttl": -1}}, "-1 is not a valid message TTL"),
        ({"definition": {"message-ttl": "5"}}, '<<"5">> is not a valid message TTL'),
        ({"definition": {"message-ttl": 315360000001}}, "315360000001 is not a valid message TTL"),  # RMQ-918
        ({"definition": {"expires": 0}}, "0 is not a valid queue expiry"),
        ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
        ({"definition": {"max-length-bytes": -1}}, "-1 is not a valid maximum length in bytes"),
        ({"definition": {"overflow": "bogus"}}, '<<"bogus">> is not a valid overflow value'),
        ({"definition": {"dead-letter-exchange": 5}}, "5 is not a valid dead letter exchange name"),
        ({"definition": {"dead-letter-strategy": "bogus"}}, '<<"bogus">> is not a valid dead letter strategy'),
        ({"definition": {"delivery-limit": -1}}, "-1 is not a valid delivery limit"),
        ({"definition": {"alternate-exchange": 5}}, "5 is not a valid alternate exchange name"),
        ({"definition": {"ha-params": float("nan")}}, "nan is not a valid mirroring setting"),
        ({"definition": {1: 1, "b": 2}}, '[{1,1},{<<"b">>,2}] are not recognised policy settings'),
        ({"definition": {"queue-mode": "bogus"}}, '<<"bogus">> is not a valid queue-mode value'),
    ],
)
def test_bad_policies_have_exact_texts(changes, reason):
    assert refusal({"pattern": "", "definition": TTL, **changes}) == reason


def test_a_recursive_value_is_refused_with_its_beginning():
    endless: list = []
    endless.append(endless)
    for key in ("message-ttl", "ha-params"):
        assert refusal({"pattern": "", "definition": {key: endless}}).startswith("[" * 21 + "...]")


def test_pattern_and_definition_are_required():
    assert refusal({"definition": TTL}) == "[{key_missing,pattern}]"
    assert refusal({"pattern": ""}) == "[{key_missing,definition}]"


def test_any_number_is_accepted_as_a_priority():
    for priority in (0, -5, 1.5, 10**9):
        assert policies.parse("p", {"pattern": "", "definition": TTL, "priority": priority}).priority == priority
    assert policies.parse("p", {"pattern": "", "definition": TTL}) == Policy("p", "", TTL, "all", 0)


@pytest.mark.parametrize("name", ["p", "x" * 255, "é" * 127])
def test_names_that_are_accepted(name):
    assert policies.parse(name, {"pattern": "", "definition": TTL}).name == name


@pytest.mark.parametrize("name", ["", 5, None, "x" * 256, "é" * 128, "a\x00b"])
def test_names_that_are_refused(name):
    with pytest.raises(InvalidPolicy, match="name should be a text of 1 to 255 bytes, actually was "):
        policies.parse(name, {"pattern": "", "definition": TTL})


def test_values_of_a_list_are_accepted():
    definition = {"overflow": "reject-publish", "queue-mode": "lazy", "queue-version": 2, "dead-letter-strategy": "at-most-once"}
    assert policies.parse("p", {"pattern": "", "definition": definition}).definition == definition


def test_keys_without_effect_are_accepted():
    for definition in ({"alternate-exchange": "ae"}, {"dead-letter-routing-key": "k"}, {"ha-mode": "all"}, {"max-age": "1D"}):
        policies.parse("p", {"pattern": "", "apply-to": "queues", "definition": definition})
    in_force = effective_queue({}, a_policy(definition={"alternate-exchange": "ae", "ha-mode": "all", "queue-mode": "lazy"}))
    assert in_force.values == {"policy": "p"}


def test_an_operator_policy_has_fewer_keys():
    for key in ("dead-letter-exchange", "alternate-exchange", "queue-mode"):
        reason = refusal({"pattern": "", "definition": {key: "x"}}, is_operator=True)
        assert reason == f'[{{<<"{key}">>,<<"x">>}}] are not recognised policy settings'
    definition = {"message-ttl": 1, "expires": 1, "max-length": 1, "max-length-bytes": 1, "delivery-limit": 1}
    assert policies.parse("p", {"pattern": "", "definition": definition}, is_operator=True).is_operator


def test_the_highest_priority_applies_alone():
    low = a_policy("low", definition={"message-ttl": 1, "max-length": 5}, priority=1)
    high = a_policy("high", definition={"expires": 1}, priority=5)
    unfit = a_policy("unfit", "^other", priority=9)
    assert select([low, high, unfit], "q", "queue", "classic") == (high, None)
    assert effective_queue({}, high).values == {"expires": 1, "policy": "high"}
    operators = [a_policy("a", priority=1, is_operator=True), a_policy("b", priority=2, is_operator=True)]
    assert select([low, *operators], "q", "queue", "classic") == (low, operators[1])
    assert policies.ranking([low, high], "q", "queue", "classic") == [high, low]
    assert select([], "q", "queue", "classic") == (None, None)


def test_of_equal_priorities_the_lowest_name_wins():
    same = [a_policy("b"), a_policy("a"), a_policy("c", priority=-1.5)]
    assert select(same, "q", "queue", "classic")[0].name == "a"


@pytest.mark.parametrize(
    ("apply_to", "applies"),
    [
        ("all", "cqe"),
        ("queues", "cq"),
        ("exchanges", "e"),
        ("classic_queues", "c"),
        ("quorum_queues", "q"),
        ("streams", ""),
    ],
)
def test_a_policy_applies_to_its_types(apply_to, applies):
    policy = a_policy(apply_to=apply_to)
    found = [
        letter
        for letter, object_type, queue_type in (("c", "queue", "classic"), ("q", "queue", "quorum"), ("e", "exchange", None))
        if policy.applies_to("any", object_type, queue_type)
    ]
    assert "".join(found) == applies


def test_a_policy_with_a_key_of_another_type_of_queue_does_not_apply():
    for key, value, fits in (
        ("dead-letter-strategy", "at-most-once", "quorum"),
        ("max-in-memory-length", 5, "classic quorum"),
        ("queue-mode", "lazy", "classic"),
        ("ha-mode", "all", "classic"),
        ("max-age", "1D", ""),
        ("delivery-limit", 5, "quorum"),
        ("alternate-exchange", "ae", "classic quorum"),
    ):
        policy = a_policy(definition={key: value, "message-ttl": 1})
        kinds = [kind for kind in ("classic", "quorum") if select([policy], "q", "queue", kind)[0]]
        assert kinds == fits.split(), key


def test_the_lowest_number_applies():
    in_force = effective_queue(
        {"x-message-ttl": 5000, "x-max-length": 50},
        a_policy(definition={"message-ttl": 1000, "max-length": 100, "expires": 7}),
        a_policy("cap", definition={"message-ttl": 500}, is_operator=True),
    )
    assert in_force.values == {"message_ttl": 500, "max_length": 50, "expires": 7, "policy": "p", "operator_policy": "cap"}
    assert in_force.sources == {"message_ttl": "operator policy cap", "max_length": "argument", "expires": "policy p"}
    assert [(c.source, c.value, c.wins) for c in in_force.candidates["message_ttl"]] == [
        ("operator policy cap", 500, True),
        ("policy p", 1000, False),
        ("argument", 5000, False),
    ]


def test_a_larger_target_group_size_wins_between_policies():
    mine, theirs = a_policy(definition={"target-group-size": 5}), a_policy("o", definition={"target-group-size": 3})
    assert merged_definition(mine, theirs) == {"target-group-size": 5}
    assert merged_definition(theirs, mine) == {"target-group-size": 5}


def test_the_argument_wins_where_values_are_no_numbers():
    values = {"x-dead-letter-exchange": "mine", "x-dead-letter-routing-key": "k", "x-overflow": "drop-head"}
    policy = a_policy(definition={"dead-letter-exchange": "theirs", "dead-letter-routing-key": "t", "overflow": "reject-publish"})
    in_force = effective_queue(values, policy)
    assert in_force.values == {
        "dead_letter_exchange": "mine",
        "dead_letter_routing_key": "k",
        "overflow": "drop-head",
        "policy": "p",
    }
    assert set(in_force.sources.values()) == {"argument"}
    assert effective_queue({}, policy).values["dead_letter_exchange"] == "theirs"


def test_the_operators_overflow_beats_the_policys():
    mine, theirs = a_policy(definition={"overflow": "drop-head"}), a_policy("o", definition={"overflow": "reject-publish"})
    assert effective_queue({}, mine, theirs).values["overflow"] == "reject-publish"
    assert merged_definition(mine, theirs) == {"overflow": "reject-publish"}


def test_the_merged_definition_leaves_arguments_out():
    in_force = effective_queue(
        {"x-message-ttl": 5000, "x-max-length": 3, "x-dead-letter-exchange": "ax"},
        a_policy(definition={"message-ttl": 1000, "max-length": 100, "dead-letter-exchange": "px"}),
        a_policy("cap", definition={"message-ttl": 500, "expires": 900000}, is_operator=True),
    )
    assert in_force.definition == {
        "dead-letter-exchange": "px",
        "expires": 900000,
        "max-length": 100,
        "message-ttl": 500,
    }
    assert (in_force.values["message_ttl"], in_force.values["max_length"]) == (500, 3)
    assert in_force.values["dead_letter_exchange"] == "ax"


def test_the_argument_wins_over_the_policys_alternate_exchange():
    policy = a_policy(definition={"alternate-exchange": "theirs", "message-ttl": 1})
    assert effective_exchange({"alternate-exchange": "mine"}, policy).values == {"alternate_exchange": "mine", "policy": "p"}
    assert effective_exchange({}, policy).values["alternate_exchange"] == "theirs"
    assert effective_exchange({}).values == {}


def test_a_quorum_queue_has_a_delivery_limit():
    assert effective_queue({}).values == {}
    settings = effective_queue({}, queue_type="quorum")
    assert (settings.values, settings.sources) == ({"delivery_limit": 20}, {"delivery_limit": "default"})
    assert effective_queue({"x-delivery-limit": -1}, queue_type="quorum").values == {}
    assert effective_queue({}, a_policy(definition={"delivery-limit": 0}), queue_type="quorum").values["delivery_limit"] == 0
    assert effective_queue({"x-delivery-limit": -1}, a_policy(definition={"delivery-limit": 3}), queue_type="quorum").values == {
        "delivery_limit": 3,
        "policy": "p",
    }


def test_some_settings_can_be_set_only_by_argument():
    settings = effective_queue({"x-max-priority": 5, "x-single-active-consumer": True})
    assert settings.values == {"max_priority": 5, "single_active_consumer": True}


NUMBERS = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout")
TEXTS = ("dead-letter-exchange", "dead-letter-routing-key", "overflow")
DEFINITIONS = st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 9)).flatmap(
    lambda numbers: st.dictionaries(st.sampled_from(TEXTS), st.sampled_from(["a", "b", "c"])).map(lambda t: numbers | t)
)


@given(DEFINITIONS, DEFINITIONS | st.none(), DEFINITIONS | st.none())
def test_the_effective_settings_agree_with_a_naive_merge(given_, users, operators):
    sides = [{f"x-{k}": v for k, v in given_.items()}, users or {}, operators or {}]
    user, operator = (d and a_policy(n, definition=d) for n, d in (("u", users), ("o", operators)))
    settings = effective_queue(sides[0], user or None, operator or None)
    for key in (*NUMBERS, *TEXTS):
        said = [value for value in (given_.get(key), sides[2].get(key), sides[1].get(key)) if value is not None]
        name = key.replace("-", "_")
        wanted = None if not said else min(said) if key in NUMBERS else said[0]
        assert settings.values.get(name) == wanted
        assert sorted(map(str, said)) == sorted(str(c.value) for c in settings.candidates.get(name, ()))
        assert [c.wins for c in settings.candidates.get(name, ())] == [i == 0 for i in range(len(said))]
    assert settings.values.keys() - {"policy", "operator_policy"} == settings.sources.keys() == settings.candidates.keys()
