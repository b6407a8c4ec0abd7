"""Reading the official emulator's Config.json (SB 9.3): pure, no database."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.semantics.emulator_config import loads, read

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
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 3,
    }


def test_a_topic_is_reported_by_its_path_as_not_supported_yet():
    plan = read(SHIPPED % TOPIC)
    assert [str(p) for p in plan.unsupported] == ["UserConfig.Namespaces[0].Topics[0]: topics are not supported yet"]
    assert plan.rejected == []
    assert [q.path for q in plan.namespaces[0].queues] == ["queue.1"]


def test_what_only_looks_like_a_comment_or_a_trailing_comma_is_kept():
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
        ("LockDuration", "PT6M", "6 min is out of range: allowed is 5 s to 5 min"),
        ("LockDuration", "PT4S", "4 s is out of range"),
        ("LockDuration", "P10675199D", "is out of range"),
        ("LockDuration", "one minute", "no ISO 8601 duration"),
        ("LockDuration", "P1M", "no ISO 8601 duration"),
        ("LockDuration", 60, "must be a text"),
        ("LockDuration", None, "must be a text"),
        ("MaxDeliveryCount", 0, "0 is out of range: allowed is 1 to 2,147,483,647"),
        ("MaxDeliveryCount", "3", "must be a whole number"),
        ("MaxDeliveryCount", True, "must be a whole number"),
        ("MaxDeliveryCount", 1e400, "no number that JSON has"),
        ("DefaultMessageTimeToLive", "PT0S", "at least 1 s, or never"),
        ("DefaultMessageTimeToLive", "-PT5M", "at least 1 s, or never"),
        ("DeadLetteringOnMessageExpiration", "false", "must be true or false"),
        ("DuplicateDetectionHistoryTimeWindow", "20", "no ISO 8601 duration"),
        ("RequiresSession", "yes", "must be true or false"),
        ("ForwardTo", 5, "must be a text"),
        ("EnableBatchedOperations", 1, "must be true or false"),
        ("Status", "Broken", "Active, Disabled"),
        ("UserMetadata", "x" * 1025, "at most 1,024"),
        ("LockDuratoin", "PT1M", "is not known here"),
    ],
)
def test_a_rejected_value_is_named_by_its_path(key, value, said):
    (problem,) = read(with_properties(**{key: value})).problems
    assert said in problem.text
    assert not problem.unsupported
    assert problem.path in (f"{QUEUE}.Properties.{key}", "(file)")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("RequiresSession", True),
        ("RequiresDuplicateDetection", True),
        ("EnablePartitioning", True),
        ("ForwardTo", "other"),
        ("ForwardDeadLetteredMessagesTo", "other"),
    ],
)
def test_a_setting_not_supported_yet_is_reported_unless_false_or_empty(key, value):
    (problem,) = read(with_properties(**{key: value})).problems
    assert problem.unsupported
    assert problem.path == f"{QUEUE}.Properties.{key}"
    empty = type(value)()
    assert read(with_properties(**{key: empty})).problems == []
    assert read(with_properties(**{key: None})).problems == []


def test_the_window_of_duplicate_detection_counts_only_with_its_flag():
    assert read(with_properties(DuplicateDetectionHistoryTimeWindow="PT20S", RequiresDuplicateDetection=False)).problems == []
    plan = read(with_properties(DuplicateDetectionHistoryTimeWindow="PT20S", RequiresDuplicateDetection=True))
    assert [p.path.rpartition(".")[2] for p in plan.unsupported] == [
        "DuplicateDetectionHistoryTimeWindow",
        "RequiresDuplicateDetection",
    ]


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
        ('{"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "A"}]}}', "UserConfig.Namespaces[1].Name", "there already"),
        ('{"UserConfig": {"Namespaces": [{"Name": "a b"}]}}', "UserConfig.Namespaces[0].Name", "letters"),
        (config({"Name": "q"}, {"Name": "Q"}), "UserConfig.Namespaces[0].Queues[1].Name", "without case"),
        (config({"Name": "/q"}), f"{QUEUE}.Name", "begin or end"),
        (config({"Properties": {}}), f"{QUEUE}.Name", "is missing"),
        (config({"Name": 5}), f"{QUEUE}.Name", "characters"),
        (config("q"), QUEUE, "must be an object"),
        (config({"Name": "q", "Properties": []}), f"{QUEUE}.Properties", "must be an object"),
        (config({"Name": "q", "Props": {}}), f"{QUEUE}.Props", "is not known here"),
        (config(Queues={}), "UserConfig.Namespaces[0].Queues", "must be a list"),
        (config(Topics="t"), "UserConfig.Namespaces[0].Topics", "must be a list"),
        ('{"UserConfig": 1, "userconfig": 2}', "userconfig", "given twice"),
    ],
)
def test_a_wrong_shape_is_named_by_its_path(text, path, said):
    problem = read(text).problems[0]
    assert (problem.path, said in problem.text) == (path, True), problem


def test_all_problems_are_found_in_one_reading():
    plan = read(
        config(
            {"Name": "a", "Properties": {"LockDuration": "PT1H", "MaxDeliveryCount": -1}},
            {"Name": "b c"},
            Topics=[{"Name": "t"}],
        )
    )
    assert [p.path.removeprefix("UserConfig.Namespaces[0].") for p in plan.problems] == [
        "Queues[0].Properties.LockDuration",
        "Queues[0].Properties.MaxDeliveryCount",
        "Queues[1].Name",
        "Topics[0]",
    ]


def test_keys_not_given_take_the_emulators_defaults_only_on_request():
    assert read(config({"Name": "q"})).namespaces[0].queues[0].settings == {}
    (queue,) = read(with_properties(LockDuration="PT30S"), emulator_defaults=True).namespaces[0].queues
    assert queue.settings == {
        "lock_duration": timedelta(seconds=30),
        "default_message_time_to_live": timedelta(hours=1),
        "max_delivery_count": 3,
    }


def test_a_file_nested_without_end_is_a_problem_and_no_crash():
    (problem,) = read("[" * 100_000).problems
    assert "nested too deeply" in problem.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["UserConfig", "Namespaces", "Name", "Queues", "Topics", "Properties", "LockDuration", "ForwardTo", "x"]
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
