"""Reading the official emulator's Config.json: pure, no database."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.service_bus.rules.emulator_config import loads, read
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule

# The shape the emulator ships: comments, a queue, and a topic with filters.
SHIPPED = """{
  // The one namespace of the emulator
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false,   /* no sessions */
            }
          },
        ],
        "Topics": [%s],
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""
TOPIC = """{
  "Name": "topic.1",
  "Properties": { "DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": false },
  "Subscriptions": [ { "Name": "subscription.1", "Rules": [ { "Name": "r", "Properties": { "FilterType": "Correlation",
      "CorrelationFilter": { "ContentType": "application/text" // , "CorrelationId": "id1"
      } } } ] } ]
}"""
QUEUE = "UserConfig.Namespaces[0].Queues[0]"
SUBSCRIPTION = "UserConfig.Namespaces[0].Topics[0].Subscriptions[0]"


def config(*queues, **namespace):
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": list(queues), **namespace}]}})


def with_properties(**properties):
    return config({"Name": "q", "Properties": properties})


def test_the_shipped_shape_is_read_with_its_comments_and_trailing_commas():
    plan = read(SHIPPED % "")
    assert plan.problems == []
    (namespace,) = plan.namespaces
    (queue,) = namespace.queues
    assert (namespace.name, queue.path) == ("sbemulatorns", "queue.1")
    assert queue.settings == {
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": timedelta(hours=1),
        "forward_to": None,
        "forward_dead_lettered_messages_to": None,
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 3,
        "requires_duplicate_detection": False,
        "requires_session": False,
    }


def test_a_topic_is_read_with_its_subscriptions_and_rules():
    plan = read(SHIPPED % TOPIC)
    assert plan.problems == []
    (topic,) = plan.namespaces[0].topics
    assert (topic.path, topic.where) == ("topic.1", "UserConfig.Namespaces[0].Topics[0]")
    assert topic.settings == {"default_message_time_to_live": timedelta(hours=1), "requires_duplicate_detection": False}
    (subscription,) = topic.subscriptions
    assert (subscription.name, subscription.settings) == ("subscription.1", {})
    (plan,) = subscription.rules
    assert plan.rule == Rule("r", CorrelationFilter(content_type="application/text"))
    assert plan.where == f"{SUBSCRIPTION}.Rules[0]"


def with_rules(*rules):
    return config(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": list(rules)}]}])


def with_rule(**properties):
    return with_rules({"Name": "r", "Properties": properties})


def test_sql_rules_are_read_with_their_actions():
    plan = read(
        with_rules(
            {
                "Name": "r",
                "Properties": {
                    "FilterType": "Sql",
                    "SqlFilter": {"SqlExpression": "a > 5"},
                    "Action": {"SqlExpression": "SET b = 1"},
                },
            },
            {"Name": "all", "Properties": {"filtertype": "sql", "sqlFilter": {"sqlExpression": "1=1"}, "Action": None}},
        )
    )
    assert plan.problems == []
    first, second = (rule.rule for rule in plan.namespaces[0].topics[0].subscriptions[0].rules)
    assert (first.name, first.filter.text, first.action.text) == ("r", "a > 5", "SET b = 1")
    assert (second.name, second.filter.text, second.action) == ("all", "1=1", None)


def test_a_correlation_rule_is_read_with_all_its_conditions():
    keys = {"ContentType": "a", "CorrelationId": "b", "Label": "c", "MessageId": "d", "ReplyTo": "e", "ReplyToSessionId": "f"}
    values = {**keys, "SessionId": "g", "To": "h", "Properties": {"color": "red", "size": 5, "rush": True}}
    plan = read(with_rule(FilterType="Correlation", CorrelationFilter=values))
    assert plan.problems == []
    assert plan.namespaces[0].topics[0].subscriptions[0].rules[0].rule.filter == CorrelationFilter(
        content_type="a",
        correlation_id="b",
        subject="c",
        message_id="d",
        reply_to="e",
        reply_to_session_id="f",
        session_id="g",
        to="h",
        properties={"color": "red", "size": 5, "rush": True},
    )


@pytest.mark.parametrize(
    ("properties", "where", "said"),
    [
        ({}, "FilterType", "must be Correlation or Sql"),
        ({"FilterType": "Tag"}, "FilterType", "must be Correlation or Sql"),
        ({"FilterType": "Sql"}, "SqlFilter", "is missing"),
        ({"FilterType": "Correlation", "CorrelationFilter": []}, "CorrelationFilter", "must be an object"),
        ({"FilterType": "Correlation", "CorrelationFilter": {}}, "CorrelationFilter", "has no conditions"),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Subject": "x"}}, "CorrelationFilter.Subject", "is unknown"),
        ({"FilterType": "Correlation", "CorrelationFilter": {"To": 5}}, "CorrelationFilter", "must be a string"),
        (
            {"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"a": None}}},
            "CorrelationFilter.Properties.a",
            "must be a string, a number",
        ),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Properties": 1}}, "CorrelationFilter.Properties", "object"),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a >"}}, "SqlFilter.SqlExpression", "column 4"),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": 5}}, "SqlFilter.SqlExpression", "text"),
        (
            {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}, "Action": {"SqlExpression": "SET"}},
            "Action.SqlExpression",
            "column 4",
        ),
        (
            {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}, "CorrelationFilter": {"To": "x"}},
            "CorrelationFilter",
            "no meaning where FilterType is Sql",
        ),
    ],
)
def test_an_invalid_rule_is_named_by_its_path(properties, where, said):
    problem = read(with_rule(**properties)).problems[0]
    assert problem.path == f"{SUBSCRIPTION}.Rules[0].Properties.{where}"
    assert said in problem.text


def test_comment_and_comma_characters_in_strings_are_kept():
    text = r'{"a": "http://x/*y*/,}", "b": "say \"//\" ,]", "c": [1, 2 , /* , */ ], }'
    assert loads(text) == {"a": "http://x/*y*/,}", "b": 'say "//" ,]', "c": [1, 2]}


@pytest.mark.parametrize(
    ("key", "value", "name", "stored"),
    [
        ("MaxDeliveryCount", 2000, "max_delivery_count", 2000),
        ("DefaultMessageTimeToLive", "P14D", "default_message_time_to_live", timedelta(days=14)),
        ("DefaultMessageTimeToLive", "PT1S", "default_message_time_to_live", timedelta(seconds=1)),
        ("DefaultMessageTimeToLive", "P10675199DT2H48M5.4775807S", "default_message_time_to_live", None),
        ("LockDuration", "PT5S", "lock_duration", timedelta(seconds=5)),
        ("AutoDeleteOnIdle", "PT5M", "auto_delete_on_idle", timedelta(minutes=5)),
        ("Status", "SendDisabled", "status", "SendDisabled"),
        ("UserMetadata", "mine", "user_metadata", "mine"),
        ("maxdeliverycount", 7, "max_delivery_count", 7),
    ],
)
def test_ranges_wider_than_the_emulators_are_accepted(key, value, name, stored):
    plan = read(with_properties(**{key: value}))
    assert plan.problems == []
    assert plan.namespaces[0].queues[0].settings == {name: stored}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("LockDuration", "PT6M", "6 min is out of range; allowed: 5 s to 5 min"),
        ("LockDuration", "PT4S", "4 s is out of range"),
        ("LockDuration", "P10675199D", "is out of range"),
        ("LockDuration", "one minute", "must be an ISO 8601 duration"),
        ("LockDuration", "P1M", "must be an ISO 8601 duration"),
        ("LockDuration", 60, "must be an ISO 8601 duration"),
        ("LockDuration", None, "must be an ISO 8601 duration"),
        ("MaxDeliveryCount", 0, "0 is out of range; allowed: 1 to 2,147,483,647"),
        ("MaxDeliveryCount", "3", "must be a whole number"),
        ("MaxDeliveryCount", True, "must be a whole number"),
        ("MaxDeliveryCount", 1e400, "not a valid JSON number"),
        ("DefaultMessageTimeToLive", "PT0S", "at least 1 s, or never"),
        ("DefaultMessageTimeToLive", "-PT5M", "at least 1 s, or never"),
        ("DeadLetteringOnMessageExpiration", "false", "must be true or false"),
        ("DuplicateDetectionHistoryTimeWindow", "20", "must be an ISO 8601 duration"),
        ("RequiresSession", "yes", "must be true or false"),
        ("ForwardTo", 5, "must be the path of a queue or topic"),
        ("EnableBatchedOperations", 1, "must be true or false"),
        ("EnablePartitioning", "true", "must be true or false"),
        ("EntityAvailabilityStatus", "Gone", "must be one of Available, Limited"),
        ("Status", "Broken", "Active, Disabled"),
        ("UserMetadata", "x" * 1025, "at most 1,024"),
        ("LockDuratoin", "PT1M", "is unknown"),
    ],
)
def test_a_rejected_value_is_named_by_its_path(key, value, said):
    (problem,) = read(with_properties(**{key: value})).problems
    assert said in problem.text
    assert problem.path in (f"{QUEUE}.Properties.{key}", "(file)")


def test_properties_without_effect_are_kept():
    """SB-940."""
    given = {"EnablePartitioning": True, "EnableBatchedOperations": False, "supportordering": True, "EnableExpress": None}
    plan = read(with_properties(**given, EntityAvailabilityStatus="Limited"))
    assert plan.problems == []
    assert plan.namespaces[0].queues[0].settings == {
        "kept_properties": {
            "EnablePartitioning": True,
            "EnableBatchedOperations": False,
            "SupportOrdering": True,
            "EntityAvailabilityStatus": "Limited",
        }
    }


def test_properties_that_only_topics_have_are_unknown_for_a_queue():
    (problem,) = read(with_properties(FilteringMessagesBeforePublishing=True)).problems
    assert problem.path == f"{QUEUE}.Properties.FilteringMessagesBeforePublishing"
    assert "is unknown" in problem.text


def test_the_first_namespace_names_the_database():
    two = read('{"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}}')
    assert ([each.name for each in two.namespaces], two.namespace, read("{}").namespace) == (["a", "b"], "a", None)


def test_a_rejected_value_is_shown_up_to_60_characters():
    for value, shown in [("x" * 58, f'"{"x" * 58}" must'), ("x" * 59, f'"{"x" * 56}... must')]:
        (problem,) = read(json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Behaviour": value}]}})).problems
        assert problem.text.startswith(shown)


@pytest.mark.parametrize("key", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning", "ForwardTo"])
def test_null_means_the_default_where_the_default_is_off(key):
    assert read(with_properties(**{key: None})).problems == []


@pytest.mark.parametrize("forward", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
def test_an_entity_with_sessions_may_forward(forward):
    """SB-175."""
    assert read(with_properties(RequiresSession=True, **{forward: "other"})).problems == []


def test_each_kind_has_its_own_properties():
    content = config(Topics=[{"Name": "t", "Properties": {"LockDuration": "PT1M"}}])
    assert [p.path for p in read(content).problems] == ["UserConfig.Namespaces[0].Topics[0].Properties.LockDuration"]


def test_the_duplicate_detection_window_applies_only_with_its_flag():
    window = {"DuplicateDetectionHistoryTimeWindow": "PT30S"}
    (without,) = read(with_properties(**window, RequiresDuplicateDetection=False)).namespaces[0].queues
    assert without.settings == {"requires_duplicate_detection": False}
    (with_it,) = read(with_properties(**window, RequiresDuplicateDetection=True)).namespaces[0].queues
    assert with_it.settings["duplicate_detection_history_time_window"] == timedelta(seconds=30)
    (problem,) = read(with_properties(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT5S")).problems
    assert "20 s to 7 days" in problem.text


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("", "(file)", "line 1, column 1"),
        ("{\n  // here\n  'a': 1}", "(file)", "line 3, column 3"),
        ("[]", "(file)", "must be an object"),
        ("{}", "UserConfig", "is missing"),
        ('{"UserConfig": {}}', "UserConfig.Namespaces", "at least one"),
        ('{"UserConfig": {"Namespaces": []}}', "UserConfig.Namespaces", "at least one"),
        ('{"UserConfig": {"Namespaces": {}}}', "UserConfig.Namespaces", "must be a list"),
        ('{"UserConfig": {"Namespaces": [7]}}', "UserConfig.Namespaces[0]", "must be an object"),
        ('{"UserConfig": {"Namespaces": [{}]}}', "UserConfig.Namespaces[0].Name", "is missing"),
        ('{"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "A"}]}}', "UserConfig.Namespaces[1].Name", "already exists"),
        ('{"UserConfig": {"Namespaces": [{"Name": "a b"}]}}', "UserConfig.Namespaces[0].Name", "letters"),
        (config({"Name": "q"}, {"Name": "Q"}), "UserConfig.Namespaces[0].Queues[1].Name", "case-insensitive"),
        (config({"Name": "/q"}), f"{QUEUE}.Name", "start or end"),
        (config({"Properties": {}}), f"{QUEUE}.Name", "is missing"),
        (config({"Name": 5}), f"{QUEUE}.Name", "characters"),
        (config("q"), QUEUE, "must be an object"),
        (config({"Name": "q", "Properties": []}), f"{QUEUE}.Properties", "must be an object"),
        (config({"Name": "q", "Props": {}}), f"{QUEUE}.Props", "is unknown"),
        (config(Queues={}), "UserConfig.Namespaces[0].Queues", "must be a list"),
        (config(Topics="t"), "UserConfig.Namespaces[0].Topics", "must be a list"),
        (
            config({"Name": "q"}, Topics=[{"Name": "Q"}]),
            "UserConfig.Namespaces[0].Topics[0].Name",
            "case-insensitive",
        ),
        (config(Topics=[{"Name": "t", "Subscriptions": [{"Name": "a/b"}]}]), f"{SUBSCRIPTION}.Name", "letters"),
        (with_rules({"Name": "a/b", "Properties": {}}), f"{SUBSCRIPTION}.Rules[0].Name", "/ "),
        (with_rules({"Name": "r"}), f"{SUBSCRIPTION}.Rules[0].Properties", "is missing"),
        ('{"UserConfig": 1, "userconfig": 2}', "userconfig", "given twice"),
    ],
)
def test_a_wrong_structure_is_named_by_its_path(text, path, said):
    problem = read(text).problems[0]
    assert (problem.path, said in problem.text) == (path, True), problem


def test_all_problems_are_reported_together():
    plan = read(
        config(
            {"Name": "a", "Properties": {"LockDuration": "PT1H", "MaxDeliveryCount": -1}},
            {"Name": "b c"},
            Topics=[{"Name": "t", "Subscriptions": [{}]}],
        )
    )
    assert [p.path.removeprefix("UserConfig.Namespaces[0].") for p in plan.problems] == [
        "Queues[0].Properties.LockDuration",
        "Queues[0].Properties.MaxDeliveryCount",
        "Queues[1].Name",
        "Topics[0].Subscriptions[0].Name",
    ]


def test_keys_not_given_take_the_emulators_defaults_only_on_request():
    assert read(config({"Name": "q"})).namespaces[0].queues[0].settings == {}
    (queue,) = read(with_properties(LockDuration="PT30S"), emulator_defaults=True).namespaces[0].queues
    assert queue.settings == {
        "lock_duration": timedelta(seconds=30),
        "default_message_time_to_live": timedelta(hours=1),
        "max_delivery_count": 3,
    }


def test_a_deeply_nested_file_is_reported_as_a_problem():
    (problem,) = read("[" * 100_000).problems
    assert "nested too deeply" in problem.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "UserConfig",
                    "Namespaces",
                    "Name",
                    "Queues",
                    "Topics",
                    "Subscriptions",
                    "Rules",
                    "Properties",
                    "FilterType",
                    "SqlFilter",
                    "ForwardTo",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_read_or_has_problems(document):
    plan = read(json.dumps(document))
    assert plan.problems or plan.namespaces


@given(st.text())
def test_any_text_is_read_or_has_problems(text):
    plan = read(text)
    assert plan.problems or plan.namespaces
