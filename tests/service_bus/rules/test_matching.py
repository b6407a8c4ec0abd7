"""Which copies a topic's rules make: by example, and against trying every rule by itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import FilterEvaluationError
from broker_core.common.typed import Typed
from broker_core.service_bus.rules import matching
from broker_core.service_bus.rules.filters import (
    CorrelationFilter,
    FalseFilter,
    MessageView,
    Rule,
    TrueFilter,
    compile_action,
    compile_filter,
)
from broker_core.service_bus.rules.matching import (
    FILTER_EXCEPTION,
    SESSION_ID_IS_NULL,
    Copy,
    RuleIndex,
    SubscriptionRules,
)
from broker_core.service_bus.rules.values import Message

MESSAGE = Message(subject="order", properties={"color": "red", "amount": 5})
RED, BLUE = compile_filter("color = 'red'"), compile_filter("color = 'blue'")
BAD = compile_filter("color > 1")
MARK = compile_action("SET mark = 'm'")
BAD_ACTION = compile_action("SET mark = amount / 0")


def subscription(entity_id, *rules, sessions=False, dead_letter=True):
    rules = [rule if isinstance(rule, Rule) else Rule(f"r{i}", rule) for i, rule in enumerate(rules)]
    return SubscriptionRules(entity_id, sessions, dead_letter, rules)


def match(*subscriptions, message=MESSAGE, **seen):
    return RuleIndex(subscriptions).match(message, **seen)


def test_rules_without_actions_create_one_copy():
    """SB-211."""
    matched = match(
        subscription(1, TrueFilter(), TrueFilter()),
        subscription(2, RED, compile_filter("amount = 5"), CorrelationFilter(subject="order")),
        subscription(3, CorrelationFilter(subject="order"), CorrelationFilter(properties={"color": "red"})),
        subscription(4, BLUE, CorrelationFilter(subject="order")),
    )
    assert sorted(matched.plain) == [1, 2, 3, 4]
    assert not matched.changed


def test_each_rule_with_an_action_creates_its_own_copy():
    """SB-212, SB-215."""
    matched = match(subscription(1, Rule("one", RED, MARK), Rule("two", TrueFilter(), compile_action("SET color = 'x'"))))
    assert not matched.plain
    assert [(copy.rule_name, copy.message.properties) for copy in matched.changed] == [
        ("one", {"color": "red", "amount": 5, "mark": "m", "RuleName": "one"}),
        ("two", {"color": "x", "amount": 5, "RuleName": "two"}),
    ]
    assert MESSAGE.properties == {"color": "red", "amount": 5}


def test_the_rule_name_property_is_always_that_of_the_rule():
    """SB-212: whatever the message and the action say."""
    message = Message(properties={"rulename": "x", "RULENAME": "y"})
    (copy,) = match(subscription(1, Rule("one", TrueFilter(), compile_action("SET RuleName = 'z'"))), message=message).changed
    assert copy.message.properties == {"RuleName": "one"}


def test_five_rules_of_which_two_have_actions_create_three_copies():
    """SB-213; only rules with actions give no plain copy."""
    acting = [Rule("a1", RED, MARK), Rule("a2", TrueFilter(), MARK)]
    matched = match(subscription(1, RED, TrueFilter(), CorrelationFilter(subject="order"), *acting), subscription(2, *acting))
    assert list(matched.plain) == [1]
    assert sorted((copy.entity_id, copy.rule_name) for copy in matched.changed) == [(1, "a1"), (1, "a2"), (2, "a1"), (2, "a2")]


def test_a_message_that_no_rule_matches_is_not_delivered():
    """SB-214, SB-F12: Unknown is no match."""
    unknown = compile_filter("missing = 1")
    matched = match(
        subscription(1), subscription(2, FalseFilter()), subscription(3, BLUE, unknown), subscription(4, Rule("a", unknown, MARK))
    )
    assert list(matched.plain) == []
    assert list(matched.changed) == []


def test_system_properties_change_only_in_the_copy():
    """SB-217, SB-052."""
    action = compile_action(
        "SET sys.MessageId = 'other' SET sys.SessionId = 's' SET sys.ScheduledEnqueueTimeUtc = '2026-01-01T12:00:00Z'"
    )
    (copy,) = match(subscription(1, Rule("a", TrueFilter(), action), sessions=True)).changed
    assert (copy.message.message_id, copy.message.session_id, copy.message.scheduled_enqueue_at.hour) == ("other", "s", 12)
    assert copy.dead_letter_reason is None
    assert MESSAGE.message_id is None


@pytest.mark.parametrize("bad", [Rule("bad", BAD), Rule("bad", BAD, MARK), Rule("bad", TrueFilter(), BAD_ACTION)])
@pytest.mark.parametrize("dead_letter", [True, False])
def test_a_failing_rule_replaces_all_copies_of_its_subscription(bad, dead_letter):
    """SB-218, SB-F19: one dead letter, or nothing; other subscriptions are not concerned."""
    rules = [TrueFilter(), CorrelationFilter(subject="order"), Rule("a", RED, MARK), bad, Rule("z", RED, MARK)]
    matched = match(subscription(1, *rules, dead_letter=dead_letter), subscription(2, RED), subscription(3, TrueFilter()))
    assert sorted(matched.plain) == [2, 3]
    if not dead_letter:
        assert not matched.changed
        return
    (copy,) = matched.changed
    assert copy.message is MESSAGE
    assert (copy.entity_id, copy.rule_name, copy.dead_letter_reason) == (1, "bad", FILTER_EXCEPTION)
    assert copy.dead_letter_description.startswith("Rule 'bad': column ")


def test_a_failing_shared_filter_fails_for_each_subscription():
    """SB-218: and of several that fail the first rule is named."""
    other = compile_filter("amount / 0 = 1")
    matched = match(subscription(1, BAD, other), subscription(2, other, BAD), subscription(3, RED))
    assert {copy.entity_id: copy.dead_letter_description for copy in matched.changed} == {
        1: "Rule 'r0': column 7: a string cannot be compared with a number",
        2: "Rule 'r0': column 8: division by zero",
    }
    assert list(matched.plain) == [3]


@pytest.mark.parametrize("properties", [{"color": 5}, {"color": True, "amount": 1}, {}, {"color": None}])
def test_an_index_lookup_hides_no_evaluation_failure(properties):
    """SB-218, SB-F11."""
    message = Message(properties=properties)
    matched = match(subscription(1, compile_filter("color = 'red' AND 1 / 0 = 1")), message=message)
    assert [copy.dead_letter_reason for copy in matched.changed] == [FILTER_EXCEPTION]


@pytest.mark.parametrize("text", ["color <> 'blue'", "color = 'blue' OR amount = 5", "color > 'blue'", "NOT color = 'blue'"])
def test_only_a_decisive_equality_is_indexed(text):
    assert list(match(subscription(1, compile_filter(text))).plain) == [1]


@pytest.mark.parametrize(("color", "expected"), [("5", [1]), ("6", [2]), (5, [3]), (6, [])])
def test_equal_texts_with_different_parameters_are_different_filters(color, expected):
    """SB-F14."""
    values = {1: "5", 2: "6", 3: 5}
    subscriptions = [
        subscription(i, compile_filter("color = @x OR color = @x", {"x": value}), dead_letter=False)
        for i, value in values.items()
    ]
    assert list(match(*subscriptions, message=Message(properties={"color": color})).plain) == expected


def test_a_copy_that_could_not_be_stored_is_a_failure():
    """SB-218: a session id that differs from the partition key (SB-009), and what is too long."""
    message = Message(session_id="a", partition_key="a", properties={"long": "x" * 200})
    for action in ("SET sys.SessionId = 'b'", "SET sys.MessageId = long"):
        (copy,) = match(subscription(1, Rule("a", TrueFilter(), compile_action(action))), message=message).changed
        assert copy.dead_letter_reason == FILTER_EXCEPTION
        assert "is invalid" in copy.dead_letter_description


def test_a_copy_without_a_session_id_is_dead_lettered_where_sessions_are_required():
    """SB-008: plain copies, and changed ones unless the action sets the id."""
    rules = [Rule("set", TrueFilter(), compile_action("SET sys.SessionId = 's'")), Rule("mark", TrueFilter(), MARK)]
    subscriptions = [
        subscription(1, TrueFilter(), sessions=True),
        subscription(2, TrueFilter()),
        subscription(3, RED, *rules, sessions=True),
    ]
    index = RuleIndex([*subscriptions, subscription(4, BAD, sessions=True)])
    matched = index.match(MESSAGE)
    assert list(matched.plain) == [2]
    assert {(copy.entity_id, copy.rule_name): copy.dead_letter_reason for copy in matched.changed} == {
        (1, None): SESSION_ID_IS_NULL,
        (3, None): SESSION_ID_IS_NULL,
        (3, "set"): None,
        (3, "mark"): SESSION_ID_IS_NULL,
        (4, "r0"): FILTER_EXCEPTION,
    }
    text = "Session enabled entity doesn't allow a message whose session identifier is null."
    assert {copy.dead_letter_description for copy in matched.changed if copy.dead_letter_reason == SESSION_ID_IS_NULL} == {text}
    matched = index.match(Message(session_id="s", properties=MESSAGE.properties))
    assert sorted(matched.plain) == [1, 2, 3]


def test_filters_and_actions_see_the_broker_properties():
    """SB-F15."""
    matched = match(
        subscription(1, compile_filter("sys.SequenceNumber = 7 AND sys.Size = 9")),
        subscription(2, Rule("a", TrueFilter(), compile_action("SET number = sys.SequenceNumber"))),
        sequence_number=7,
        size=9,
    )
    assert list(matched.plain) == [1]
    number = matched.changed[0].message.properties["number"]
    assert (number, number.type) == (7, "long")


def test_matches_that_do_not_depend_on_the_message_are_precomputed():
    """The answer is one and the same object: no cost for each subscription; nor does a filter that says 1 = 1 make one."""
    index = RuleIndex([subscription(i, TrueFilter() if i % 2 else compile_filter("1 = 1")) for i in range(1000)])
    assert index.match(MESSAGE) is index.match(Message())
    assert list(index.match(MESSAGE).plain) == list(range(1000))


def test_filters_that_cannot_match_are_not_evaluated(monkeypatch):
    """Correlation filters are looked up, equal SQL filters asked once, and those that begin with another text not at all."""
    asked = []

    def counting(text):
        filter = compile_filter(text)
        return replace(filter, matches=lambda view: asked.append(text) or filter.matches(view))

    monkeypatch.setattr(CorrelationFilter, "matches", lambda self, view: pytest.fail("tried one by one"))
    leading = [subscription(i, counting(f"color = 'c{i}' AND amount = 5")) for i in range(100)]
    same = [subscription(100 + i, counting("amount = 5 OR color = 'blue'")) for i in range(100)]
    looked_up = [subscription(200 + i, CorrelationFilter(properties={"amount": i})) for i in range(100)]
    index = RuleIndex([*leading, *same, *looked_up])
    matched = index.match(Message(properties={"color": "c7", "amount": 5}))
    assert sorted(matched.plain) == [7, *range(100, 200), 205]
    assert sorted(asked) == ["amount = 5 OR color = 'blue'", "color = 'c7' AND amount = 5"]


# Against trying every rule by itself

TEXTS = [
    "color = 'red'",
    "'blue' = color AND amount > 1",
    "color = 'red' AND amount / (amount - 5) = 1",
    "color = 'red' OR amount = 5",
    "color <> 'red'",
    "sys.Label = 'order' AND color <> 'x'",
    "sys.label = 'other'",
    "color > 1",
    "amount IN (1, 5)",
    "missing = 1",
    "1 = 1",
    "1 = 0",
    "1 / 0 = 1",
    "NOT EXISTS(color)",
]
FILTERS = st.one_of(
    st.sampled_from(TEXTS).map(compile_filter),
    st.sampled_from([1, 5, "red", "blue", 5.0]).map(lambda value: compile_filter("color = @x AND 1 = 1", {"x": value})),
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.sampled_from(["order", "other"]).map(lambda text: CorrelationFilter(subject=text)),
    st.sampled_from(["red", 5, True, 1]).map(lambda value: CorrelationFilter(properties={"Color": value})),
    st.sampled_from([5, 1, True]).map(
        lambda value: CorrelationFilter(subject="order", properties={"amount": value, "color": "red"})
    ),
)
ACTIONS = st.none() | st.sampled_from(
    [
        "SET mark = 1",
        "SET mark = 1 / (amount - 5)",
        "SET sys.SessionId = 'new'",
        "REMOVE color",
        "SET sys.MessageId = color + color",
    ]
).map(compile_action)
SUBSCRIPTIONS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.lists(st.tuples(FILTERS, ACTIONS), max_size=4)), max_size=5
).map(
    lambda rows: [
        SubscriptionRules(i, sessions, dead, [Rule(f"r{n}", filter, action) for n, (filter, action) in enumerate(rules)])
        for i, (sessions, dead, rules) in enumerate(rows)
    ]
)
MESSAGES = st.builds(
    Message,
    subject=st.sampled_from([None, "order", "other"]),
    session_id=st.sampled_from([None, "s"]),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "color": st.sampled_from(["red", "blue", 5, True, None, Typed("symbol", "red")]),
            "AMOUNT": st.sampled_from([1, 5, 5.0, True, "x"]),
        },
    ),
)


def one_by_one(subscription, message):
    """The copies of one subscription, rule by rule, plain ones too."""
    view = MessageView.of(message)
    current = None
    try:
        matched = []
        for current in subscription.rules:
            if current.filter.matches(view) is True:
                matched.append(current)
        made = [Copy(subscription.entity_id, message)] if any(rule.action is None for rule in matched) else []
        for current in matched:
            if current.action is not None:
                made.append(Copy(subscription.entity_id, current.copy(message), current.name))
    except FilterEvaluationError as exc:
        text = f"Rule {current.name!r}: {exc}"
        made = [Copy(subscription.entity_id, message, current.name, FILTER_EXCEPTION, text)]
        return made if subscription.dead_letter_filter_errors else []
    if subscription.requires_session:
        made = [
            copy
            if copy.message.session_id is not None
            else Copy(copy.entity_id, copy.message, copy.rule_name, SESSION_ID_IS_NULL, matching.SESSION_ID_IS_NULL_DESCRIPTION)
            for copy in made
        ]
    return made


@given(SUBSCRIPTIONS, MESSAGES)
def test_the_index_agrees_with_evaluating_every_rule(subscriptions, message):
    """SB-211 to SB-214, SB-218, SB-008."""
    matched = RuleIndex(subscriptions).match(message)
    assert len(set(matched.plain)) == len(matched.plain)
    copies = [*(Copy(entity_id, message) for entity_id in matched.plain), *matched.changed]
    expected = [copy for subscription in subscriptions for copy in one_by_one(subscription, message)]
    assert sorted(copies, key=repr) == sorted(expected, key=repr)
