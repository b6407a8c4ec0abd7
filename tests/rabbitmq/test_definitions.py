"""RabbitMQ's definitions.json: what is written, what is read, and what became of each object."""

import json
import uuid

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.definitions import Result, export_definitions, import_definitions
from broker_core.rabbitmq.rules.policies import Policy

YEARS = 315_360_000_000


def new_name():
    return f"d {uuid.uuid4().hex[:8]}"


def a_file(vhost, **sections):
    """A whole server's file as RabbitMQ 3.10 writes it."""
    document = {
        "rabbit_version": "3.10.8",
        "users": [{"name": "shop", "password_hash": "x", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []}],
        "vhosts": [{"name": vhost}],
        "permissions": [{"user": "shop", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [],
        "parameters": [
            {"component": "operator_policy", "vhost": vhost, "name": "cap",
             "value": {"pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 86_400_000}}},
            {"component": "shovel", "vhost": vhost, "name": "away", "value": {}},
        ],
        "global_parameters": [{"name": "cluster_name", "value": "demo"}],
        "policies": [
            {"vhost": vhost, "name": "orders", "pattern": "^orders", "apply-to": "queues", "priority": 5,
             "definition": {"dead-letter-exchange": "dlx", "message-ttl": 3_600_000}}
        ],
        "queues": [
            {"vhost": vhost, "name": "orders.new", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 10_000}},
            {"vhost": vhost, "name": "orders.dead", "durable": True, "auto_delete": False,
             "arguments": {"x-queue-type": "quorum"}},
        ],
        "exchanges": [
            {"vhost": vhost, "name": "dlx", "type": "fanout", "durable": True, "auto_delete": False, "internal": False,
             "arguments": {}}
        ],
        "bindings": [
            {"vhost": vhost, "source": "dlx", "destination": "orders.dead", "destination_type": "queue", "routing_key": "",
             "arguments": {}}
        ],
    }  # fmt: skip
    return {**document, **sections}


def results(outcomes):
    return {(o.kind, o.name): o.result for o in outcomes}


def only(outcomes, result):
    return [(o.path, o.problem) for o in outcomes if o.result is result]


def test_a_file_of_a_whole_server_is_imported_object_by_object(broker_database):
    vhost = new_name()
    outcomes = import_definitions(json.dumps(a_file(vhost)))
    assert results(outcomes) == {
        ("virtual host", vhost): Result.CREATED,
        ("operator policy", "cap"): Result.CREATED,
        ("policy", "orders"): Result.CREATED,
        ("queue", "orders.new"): Result.CREATED,
        ("queue", "orders.dead"): Result.CREATED,
        ("exchange", "dlx"): Result.CREATED,
        ("binding", "dlx -> orders.dead"): Result.CREATED,
        ("parameter", "away"): Result.IGNORED,
        ("user", "shop"): Result.IGNORED,
        ("permission", "shop"): Result.IGNORED,
        ("global parameter", "cluster_name"): Result.IGNORED,
    }
    effective = rabbitmq.get_queue(EntityAddress(vhost, "orders.new")).effective
    assert (effective["message_ttl"], effective["max_length"], effective["dead_letter_exchange"]) == (3_600_000, 10_000, "dlx")
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", "dlx")])
    assert rabbitmq.get_queue(EntityAddress(vhost, "orders.dead")).messages == 1


def test_importing_the_same_file_again_changes_nothing(broker_database):
    vhost = new_name()
    import_definitions(a_file(vhost))
    before = export_definitions(vhost)
    again = import_definitions(a_file(vhost))
    assert {o.result for o in again} == {Result.UNCHANGED, Result.IGNORED}
    assert export_definitions(vhost) == before


def test_differing_objects_are_updated_or_kept(broker_database):
    """RMQ-927"""
    vhost = new_name()
    import_definitions(a_file(vhost))
    changed = a_file(vhost)
    changed["vhosts"][0]["description"] = "of the shop"
    changed["policies"][0]["priority"] = 6
    changed["queues"][0]["arguments"] = {"x-max-length": 5}
    changed["queues"][1]["arguments"]["mine"] = 1
    changed["exchanges"][0]["type"] = "topic"
    outcomes = import_definitions(changed)
    assert [(o.kind, o.name, o.result) for o in outcomes if o.result not in (Result.UNCHANGED, Result.IGNORED)] == [
        ("virtual host", vhost, Result.UPDATED),
        ("policy", "orders", Result.UPDATED),
        ("queue", "orders.new", Result.KEPT),
        ("queue", "orders.dead", Result.KEPT),
        ("exchange", "dlx", Result.KEPT),
    ]
    [(_, first), (_, second), (_, third)] = only(outcomes, Result.KEPT)
    assert first.endswith(f"inequivalent arg 'x-max-length' for queue 'orders.new' in vhost '{vhost}': "
                          "received '5' but current is '10000'")  # fmt: skip
    assert second == "it differs in mine, which declarations do not compare"
    assert "inequivalent arg 'type'" in third
    assert rabbitmq.get_queue(EntityAddress(vhost, "orders.new")).arguments == {"x-max-length": 10_000}
    assert namespaces.get_namespace(vhost).description == "of the shop"


def test_invalid_objects_are_named_by_their_path_and_do_not_block_the_others(broker_database):
    vhost = new_name()
    bad = a_file(vhost)
    bad["policies"].append({"vhost": vhost, "name": "loop", "pattern": "(", "definition": {"message-ttl": 1}})
    bad["queues"].append({"vhost": vhost, "name": "long", "arguments": {"x-max-length": -1}})
    bad["queues"].append({"vhost": "nowhere", "name": "lost", "arguments": {}})
    bad["bindings"].append({"vhost": vhost, "source": "missing", "destination": "orders.new", "destination_type": "queue"})
    bad["bindings"].append({"vhost": vhost, "source": "dlx", "destination": "gone", "destination_type": "exchange"})
    outcomes = import_definitions(bad)
    failed = dict(only(outcomes, Result.FAILED))
    assert set(failed) == {
        "policies[1].pattern", "queues[2].arguments.x-max-length", "queues[3]", "bindings[1]", "bindings[2]"
    }  # fmt: skip
    assert "{value_negative,-1}" in failed["queues[2].arguments.x-max-length"]
    assert "nowhere" in failed["queues[3]"]
    assert "no exchange 'missing'" in failed["bindings[1]"]
    assert sum(o.result is Result.CREATED for o in outcomes) == 7
    assert {o.name for o in outcomes if o.result is Result.FAILED} >= {"loop", "long", "lost"}


def test_a_time_to_live_beyond_ten_years_is_lowered_with_a_warning(broker_database):
    """RMQ-918"""
    vhost = new_name()
    wide = a_file(vhost)
    wide["policies"][0]["definition"]["message-ttl"] = 10_100_000_000_000
    [outcome] = [o for o in import_definitions(wide) if o.kind == "policy"]
    assert outcome.result is Result.CREATED
    assert outcome.problem.startswith("policies[0].definition.message-ttl: 10100000000000 is lowered")
    [policy] = rabbitmq.list_policies(vhost, operator=False)
    assert policy.definition["message-ttl"] == YEARS


def test_a_virtual_host_can_be_imported_into_another(vhost):
    other = new_name()
    rabbitmq.create_vhost(other)
    import_definitions(a_file(vhost))
    document = export_definitions(vhost)
    assert "vhosts" not in document and "users" not in document
    assert all("vhost" not in item for section in ("queues", "exchanges", "bindings") for item in document[section])
    assert document["policies"][0]["vhost"] == vhost  # as RabbitMQ has it
    outcomes = import_definitions(json.dumps(document).encode(), other)
    assert {o.result for o in outcomes} == {Result.CREATED} and {o.vhost for o in outcomes} == {other}
    copied = export_definitions(other)
    for policy in copied["policies"] + copied["parameters"]:
        policy["vhost"] = vhost
    assert copied == document


def test_system_and_exclusive_objects_are_not_exported(vhost):
    with rabbitmq.connect(vhost) as connection:
        connection.channel().declare_queue("mine", exclusive=True)
        rabbitmq.declare_queue(EntityAddress(vhost, "temporary"), durable=False)
        rabbitmq.bind_queue(vhost, "temporary", "amq.topic", "a.#")
        document = export_definitions(vhost)
    assert [q["name"] for q in document["queues"]] == ["temporary"]
    assert document["exchanges"] == []
    assert [(b["source"], b["destination"]) for b in document["bindings"]] == [("amq.topic", "temporary")]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        ([], "must be a JSON object"),
        ({"queues": 5}, "must be a list"),
        ({"queues": ["x"]}, "must be an object"),
        ({"queues": [{"vhost": "/"}]}, "is missing"),
    ],
)
def test_an_invalid_file_is_one_problem(broker_database, document, problem):
    [outcome] = import_definitions(document)
    assert outcome.result is Result.FAILED and problem in outcome.problem
    assert "(file)" not in str(outcome)


@pytest.mark.parametrize(
    ("section", "item", "path", "problem"),
    [
        ("queues", '{"name": "a\\ud800"}', "queues[0].name", "character that cannot be stored"),
        ("queues", '{"name": "a", "arguments": {"n": NaN}}', "queues[0].arguments.n", "nan is not a valid JSON number"),
        ("queues", '{"name": "a", "arguments": {"n": 1e999}}', "queues[0].arguments.n", "inf is not a valid JSON number"),
        ("bindings", '{"source": "amq.topic", "destination": "a\\u0000"}', "bindings[0].destination", "cannot be stored"),
        ("policies", '{"name": "p", "pattern": "", "definition": {"ha-params": ["\\ud800"]}}',
         "policies[0].definition.ha-params[0]", "cannot be stored"),
        ("queues", '{"name": "a", "arguments": {"n": ' + "[" * 150 + "]" * 150 + "}}", "queues[0].arguments", "100 deep"),
        ("policies", '{"name": "p", "pattern": "", "definition": {"max-length": 9223372036854775808}}',
         "policies[0].definition.max-length", "is not a valid maximum length"),
    ],
)  # fmt: skip
def test_an_object_that_cannot_be_stored_does_not_block_the_others(vhost, section, item, path, problem):
    text = f'{{"{section}": [{item}], "exchanges": [{{"name": "x", "type": "direct"}}]}}'
    failed, created = sorted(import_definitions(text, vhost), key=lambda outcome: outcome.result, reverse=True)
    assert (failed.result, failed.path, created.result) == (Result.FAILED, path, Result.CREATED)
    assert problem in failed.problem


def test_unknown_members_are_reported_as_ignored(broker_database):
    [outcome] = import_definitions({"shovels": []})
    assert (outcome.path, outcome.result) == ("shovels", Result.IGNORED)


def test_a_file_of_a_whole_server_is_refused_for_one_virtual_host(vhost):
    with pytest.raises(InvalidArgument, match="the file is of a whole server"):
        import_definitions(a_file(vhost), vhost)
    with pytest.raises(EntityNotFound):
        import_definitions({}, "nowhere")
    with pytest.raises(EntityNotFound):
        export_definitions("nowhere")


def test_importing_requires_the_right_to_manage(vhost):
    with pytest.raises(NotAuthorized):
        import_definitions({}, vhost, actor=Actor("user", "eve", Right.OPERATE | Right.BROWSE))
    with pytest.raises(NotAuthorized):
        export_definitions(vhost, actor=Actor("user", "eve", Right.SEND))


def test_names_that_differ_by_case_alone_are_refused(vhost):
    [outcome] = import_definitions({"vhosts": [{"name": vhost.upper()}]})
    assert outcome.result is Result.FAILED and "already exists; names are case-insensitive" in outcome.problem


def test_the_commands_export_and_import_a_file(vhost, tmp_path, capsys):
    import_definitions(a_file(vhost))
    call_command("export_definitions", vhost=vhost)
    file = tmp_path / "definitions.json"
    file.write_text(capsys.readouterr().out)
    other = new_name()
    rabbitmq.create_vhost(other)
    call_command("import_definitions", str(file), vhost=other)
    assert f"created queue 'orders.new' of '{other}'\n" in capsys.readouterr().out
    bad = json.loads(file.read_text())
    bad["queues"].append({"name": ""})
    file.write_text(json.dumps(bad))
    with pytest.raises(CommandError, match="1 of 7 failed"):
        call_command("import_definitions", str(file), vhost=other)
    assert "failed queue (queues[2].name: must not be empty)" in capsys.readouterr().err.replace(f" of '{other}'", "")
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("import_definitions", str(tmp_path / "missing"))
    with pytest.raises(CommandError, match="Nothing was stored"):
        call_command("import_definitions", str(file), vhost="nowhere")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "vhost", "value", "x-max-length"]), inner)
    ),
    max_leaves=6,
)
ITEMS = st.lists(
    JSON
    | st.dictionaries(
        st.sampled_from(
            ["name", "vhost", "type", "durable", "arguments", "source", "destination", "destination_type", "routing_key",
             "pattern", "definition", "priority", "apply-to", "component", "value"]
        ),
        JSON | st.sampled_from(["q", "direct", "queue", "operator_policy", {"message-ttl": 5}]),
    ),
    max_size=3,
)  # fmt: skip
SECTIONS = st.sampled_from(
    ["queues", "exchanges", "bindings", "policies", "parameters", "users", "permissions", "global_parameters", "other"]
)


@settings(max_examples=150)
@given(document=JSON | st.dictionaries(SECTIONS, ITEMS | JSON, max_size=3))
def test_any_file_is_imported_or_refused(vhost, document):
    for outcome in import_definitions(document, vhost):
        assert outcome.problem or outcome.result in (Result.CREATED, Result.UPDATED, Result.UNCHANGED)
        assert str(outcome)


NAMES = st.text("ab.é ", min_size=1, max_size=4).filter(lambda name: name.strip())
ARGUMENTS = st.dictionaries(
    st.sampled_from(["x-max-length", "x-message-ttl", "x-expires", "mine"]), st.integers(1, 10**10), max_size=3
)
QUEUES = st.dictionaries(NAMES, st.tuples(ARGUMENTS, st.booleans(), st.sampled_from(["classic", "quorum"])), max_size=4)
EXCHANGES = st.dictionaries(NAMES, st.sampled_from(["direct", "fanout", "topic", "headers"]), max_size=4)
POLICIES = st.dictionaries(
    NAMES, st.tuples(st.sampled_from(["", "^a", "b$"]), st.integers(-3, 3) | st.just(0.5), st.booleans()), max_size=3
)
BINDINGS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), NAMES, ARGUMENTS), max_size=5)


@settings(max_examples=20)
@given(queues=QUEUES, exchanges=EXCHANGES, policies=POLICIES, bindings=BINDINGS)
def test_an_export_equals_the_export_of_its_import(broker_database, queues, exchanges, policies, bindings):
    vhost, other = new_name(), new_name()
    rabbitmq.create_vhost(vhost)
    for name, (arguments, auto_delete, type) in queues.items():
        flags = {"auto_delete": auto_delete and type == "classic", "type": type}
        rabbitmq.declare_queue(EntityAddress(vhost, name), arguments=arguments, **flags)
    for name, type in exchanges.items():
        rabbitmq.declare_exchange(vhost, name, type)
    for name, (pattern, priority, operator) in policies.items():
        rabbitmq.set_policy(vhost, Policy(name, pattern, {"max-length": 9}, "queues", priority, operator))
    for source, destination, to_queue, key, arguments in bindings:
        ends = list(queues) if to_queue else list(exchanges)
        if exchanges and ends:
            bind = rabbitmq.bind_queue if to_queue else rabbitmq.bind_exchange
            bind(vhost, ends[destination % len(ends)], list(exchanges)[source % len(exchanges)], key, arguments)
    document = export_definitions(vhost)
    assert {o.result for o in import_definitions(document, vhost)} <= {Result.UNCHANGED}
    rabbitmq.create_vhost(other)
    assert {o.result for o in import_definitions(json.dumps(document), other)} <= {Result.CREATED}
    copied = export_definitions(other)
    for policy in copied["policies"] + copied["parameters"]:
        policy["vhost"] = vhost
    assert copied == document
    for name in queues:
        mine, theirs = (rabbitmq.get_queue(EntityAddress(host, name)) for host in (vhost, other))
        assert (theirs.effective, theirs.type) == (mine.effective, mine.type)
