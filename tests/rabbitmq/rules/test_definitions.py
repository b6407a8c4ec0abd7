"""RabbitMQ's definitions.json: read and written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.rabbitmq.rules import definitions
from broker_core.rabbitmq.rules.arguments import ExchangeDef, QueueDef
from broker_core.rabbitmq.rules.definitions import (
    BindingItem,
    Definitions,
    ExchangeItem,
    PolicyItem,
    QueueItem,
    VhostItem,
    parse,
)
from broker_core.rabbitmq.rules.exchanges import BindingDef
from broker_core.rabbitmq.rules.policies import Policy

EXAMPLE = {
    "rabbit_version": "3.10.8",
    "users": [{"name": "shop", "password_hash": "x", "hashing_algorithm": "h", "tags": ["management"], "limits": {}}],
    "vhosts": [{"name": "/"}, {"name": "shop"}],
    "permissions": [{"user": "shop", "vhost": "shop", "configure": "", "write": ".*", "read": ".*"}],
    "topic_permissions": [],
    "parameters": [
        {
            "component": "operator_policy",
            "vhost": "shop",
            "name": "cap",
            "value": {"pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 86400000}},
        },
        {"component": "shovel", "vhost": "shop", "name": "s", "value": {}},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "demo"}],
    "policies": [
        {
            "vhost": "shop",
            "name": "orders",
            "pattern": "^orders",
            "apply-to": "queues",
            "priority": 5,
            "definition": {"dead-letter-exchange": "dlx", "message-ttl": 3600000},
        }
    ],
    "queues": [
        {"vhost": "shop", "name": "orders.new", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 10000}},
        {"vhost": "shop", "name": "dead", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}},
    ],
    "exchanges": [
        {
            "vhost": "shop",
            "name": "dlx",
            "type": "fanout",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "vhost": "shop",
            "source": "dlx",
            "destination": "dead",
            "destination_type": "queue",
            "routing_key": "",
            "arguments": {},
        }
    ],
}


def test_a_definitions_file_is_parsed():
    parsed = parse(json.dumps(EXAMPLE))
    assert not parsed.problems and not parsed.warnings
    assert [v.name for v in parsed.vhosts] == ["/", "shop"]
    assert [(p.policy.name, p.policy.is_operator, p.policy.priority) for p in parsed.policies] == [
        ("cap", True, 0),
        ("orders", False, 5),
    ]
    assert [(q.queue.name, q.queue.type, dict(q.queue.arguments)) for q in parsed.queues] == [
        ("orders.new", "classic", {"x-max-length": 10000}),
        ("dead", "quorum", {"x-queue-type": "quorum"}),
    ]
    assert [(e.vhost, e.exchange.name, e.exchange.type) for e in parsed.exchanges] == [("shop", "dlx", "fanout")]
    assert parsed.bindings[0].binding == BindingDef("dlx", "dead")
    assert [note.path for note in parsed.not_taken] == [
        "parameters[1]",
        "users[0]",
        "permissions[0]",
        "global_parameters[0]",
    ]


def test_a_definitions_file_round_trips():
    parsed = parse(EXAMPLE)
    again = parse(json.loads(json.dumps(definitions.format(parsed))))
    assert not again.problems
    for member in ("vhosts", "policies", "queues", "exchanges", "bindings"):
        assert getattr(again, member) == getattr(parsed, member)
    assert [p["name"] for p in definitions.format(parsed)["parameters"]] == ["cap"]


def test_a_file_of_one_virtual_host_has_only_its_objects():
    written = definitions.format(parse(EXAMPLE), vhost="shop", versions={"product_name": "RabbitMQ"})
    assert not {"users", "vhosts", "permissions"} & written.keys() and written["product_name"] == "RabbitMQ"
    assert all("vhost" not in item for section in ("queues", "exchanges", "bindings") for item in written[section])
    assert all(item["vhost"] == "shop" for section in ("policies", "parameters") for item in written[section])
    again = parse(written, vhost="other")
    assert {q.vhost for q in again.queues} == {"other"} and not again.problems
    assert definitions.format(parse(EXAMPLE), vhost="/")["queues"] == []


def test_a_file_is_json_whatever_the_arguments_are():
    queue = QueueDef("q", arguments={"x": float("nan"), "y": [float("inf"), -1.5]})
    written = definitions.format(Definitions(vhosts=[VhostItem("/")], queues=[QueueItem("/", queue)]))
    [again] = json.loads(json.dumps(written, allow_nan=False))["queues"]
    assert again["arguments"] == {"x": "nan", "y": ["inf", -1.5]}


def test_exclusive_and_system_objects_are_not_written():
    written = definitions.format(
        Definitions(
            vhosts=[VhostItem("/")],
            queues=[QueueItem("/", QueueDef("mine", owner_id=7)), QueueItem("/", QueueDef("all"))],
            exchanges=[ExchangeItem("/", ExchangeDef(name)) for name in ("", "amq.direct", "x")],
            bindings=[
                BindingItem("/", BindingDef(source, queue)) for source in ("", "amq.direct", "x") for queue in ("mine", "all")
            ],
        )
    )
    assert [q["name"] for q in written["queues"]] == ["all"]
    assert [e["name"] for e in written["exchanges"]] == ["x"]
    assert [(b["source"], b["destination"]) for b in written["bindings"]] == [("amq.direct", "all"), ("x", "all")]


A_QUEUE = {"vhost": "/", "name": "q"}
A_POLICY = {"vhost": "/", "name": "p", "pattern": "", "definition": {"expires": 1}}
AN_EXCHANGE = {"vhost": "/", "name": "x", "type": "headers"}
A_BINDING = {"vhost": "/", "source": "x", "destination": "q"}


@pytest.mark.parametrize(
    ("document", "path", "text"),
    [
        ("{", "(file)", "is not valid JSON"),
        ([], "(file)", "must be a JSON object"),
        ({"queues": {}}, "queues", "must be a list"),
        ({"queues": [5]}, "queues[0]", "must be an object"),
        ({"queues": [{"name": "q"}]}, "queues[0].vhost", "is missing"),
        ({"queues": [{"vhost": "/"}]}, "queues[0].name", "is missing"),
        ({"queues": [{"vhost": "/", "name": 5}]}, "queues[0].name", "must be a string, not 5"),
        ({"queues": [{"vhost": "/", "name": ""}]}, "queues[0].name", "must not be empty"),
        ({"queues": [{"vhost": "/", "name": "q" * 256}]}, "queues[0].name", "has 256 bytes"),
        ({"queues": [A_QUEUE, {**A_QUEUE, "durable": "yes"}]}, "queues[1].durable", "must be true or false"),
        ({"queues": [{**A_QUEUE, "arguments": 5}]}, "queues[0].arguments", "must be an object"),
        (
            {"queues": [{**A_QUEUE, "arguments": {"x-message-ttl": "5"}}]},
            "queues[0].arguments.x-message-ttl",
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
        ),
        ({"queues": [{**A_QUEUE, "arguments": {"n" * 256: 1}}]}, "queues[0].arguments", "argument"),
        ({"queues": [{**A_QUEUE, "type": "stream"}]}, "queues[0].arguments.x-queue-type", "unsupported queue type 'stream'"),
        ({"queues": [A_QUEUE, A_QUEUE]}, "queues[1]", "the queue 'q' appears twice, first at queues[0]"),
        ({"vhosts": [{"name": ""}]}, "vhosts[0].name", "must have 1 to 255"),
        ({"exchanges": [{**AN_EXCHANGE, "type": "x-delayed"}]}, "exchanges[0].type", "unknown exchange type 'x-delayed'"),
        ({"exchanges": [{**AN_EXCHANGE, "name": "amq.new"}]}, "exchanges[0]", "contains reserved prefix"),
        (
            {"exchanges": [AN_EXCHANGE], "bindings": [{**A_BINDING, "arguments": {"x-match": "some"}}]},
            "bindings[0].arguments",
            "Invalid x-match",
        ),
        ({"bindings": [{**A_BINDING, "source": ""}]}, "bindings[0].source", "default exchange"),
        ({"bindings": [{**A_BINDING, "destination_type": "topic"}]}, "bindings[0].destination_type", "must be 'queue' or"),
        ({"bindings": [{"vhost": "/", "source": "x"}]}, "bindings[0].destination", "is missing"),
        ({"policies": [{**A_POLICY, "pattern": "("}]}, "policies[0].pattern", "missing )"),
        (
            {"policies": [{**A_POLICY, "definition": {"expires": 0}}]},
            "policies[0].definition.expires",
            "0 is not a valid queue expiry",
        ),
        ({"policies": [{"vhost": "/", "name": "p", "pattern": ""}]}, "policies[0].definition", "key_missing"),
        ({"policies": [{**A_POLICY, "priority": "1"}]}, "policies[0].priority", "should be a number"),
        ({"policies": [{**A_POLICY, "apply-to": "x"}]}, "policies[0].apply-to", "unrecognised"),
        (
            {"parameters": [{"component": "operator_policy", "vhost": "/", "name": "o", "value": {**A_POLICY, "pattern": "["}}]},
            "parameters[0].value.pattern",
            "missing terminating ]",
        ),
        (
            {"parameters": [{"component": "operator_policy", "vhost": "/", "name": "o"}]},
            "parameters[0].value",
            "must be an object",
        ),
    ],
)
def test_every_problem_has_its_path(document, path, text):
    (problem,) = parse(document).problems
    assert problem.path == path and text in problem.text
    assert str(problem) == f"{problem.path}: {problem.text}"


def test_all_problems_are_found_and_the_rest_is_kept():
    parsed = parse({"queues": [{**A_QUEUE, "durable": 1}, A_QUEUE, {"name": "x"}], "policies": [5, A_POLICY]})
    assert [p.path for p in parsed.problems] == ["policies[0]", "queues[0].durable", "queues[2].vhost"]
    assert [q.queue.name for q in parsed.queues] == ["q"] and [p.policy.name for p in parsed.policies] == ["p"]


def test_a_time_to_live_over_ten_years_is_lowered_with_a_warning():
    parsed = parse({"policies": [{**A_POLICY, "definition": {"message-ttl": 10100000000000, "expires": 5}}]})
    assert parsed.policies[0].policy.definition == {"message-ttl": 315360000000, "expires": 5}
    assert [(w.path, w.text) for w in parsed.warnings] == [
        ("policies[0].definition.message-ttl", "10100000000000 is lowered to 315360000000, which is ten years")
    ]


def test_a_time_to_live_of_ten_years_is_kept_without_a_warning():
    parsed = parse({"policies": [{**A_POLICY, "definition": {"message-ttl": 315360000000}}]})
    assert parsed.policies[0].policy.definition == {"message-ttl": 315360000000} and parsed.warnings == []


def test_unknown_members_are_reported_as_warnings():
    assert [str(w) for w in parse({"streams": []}).warnings] == ["streams: is unknown and was ignored"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.dictionaries(
    st.sampled_from(
        [
            *("vhost", "name", "type", "durable", "arguments", "source", "destination", "destination_type", "routing_key"),
            *("pattern", "definition", "priority", "apply-to", "component", "value", "user"),
        ]
    ),
    JSON | st.sampled_from(["q", "/", "direct", "operator_policy", {"expires": 1}]),
)
SECTIONS = st.sampled_from(
    ["vhosts", "queues", "exchanges", "bindings", "policies", "parameters", "users", "permissions", "global_parameters"]
)


@given(st.dictionaries(SECTIONS, JSON | st.lists(MEMBERS, max_size=3)) | JSON)
def test_any_document_is_read_or_has_problems(document):
    parsed = parse(document)
    assert isinstance(parsed, Definitions)
    again = parse(definitions.format(parsed))
    assert not again.problems
    for member in ("queues", "bindings", "policies"):
        assert len(getattr(again, member)) == len(getattr(parsed, member))


def test_a_policy_round_trips():
    policy = Policy("p", "^a", {"max-length": 1}, "exchanges", -1.5)
    written = definitions.format(Definitions(policies=[PolicyItem("/", policy)]))
    assert parse(written).policies[0].policy == policy
