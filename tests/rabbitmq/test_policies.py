"""Policies: which apply, what is in force by them, and when (RMQ-200 to RMQ-211)."""

from datetime import timedelta
from typing import Any

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.rules.errors import AmqpError, InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.topology import compiled
from broker_core.store import connections
from broker_core.store.driver import run

SECOND = timedelta(seconds=1)


@pytest.fixture
def declare(vhost):
    """declare(name, **arguments as RabbitMQ names them without x-) -> its address."""

    def make(name="q", type="classic", **arguments):
        values = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return rabbitmq.declare_queue(EntityAddress(vhost, name), type=type, arguments=values).address

    return make


@pytest.fixture
def put(vhost):
    """put(name, definition, pattern="", **more): set a policy."""
    return lambda name, definition, pattern="", **more: rabbitmq.set_policy(vhost, Policy(name, pattern, definition, **more))


@pytest.fixture
def publish(vhost):
    return lambda *bodies: rabbitmq.publish(vhost, [Publication(body.encode(), routing_key="q") for body in bodies])


def effective(address):
    """What is in force as shown, which is what is stored."""
    values = rabbitmq.effective(address).values
    assert rabbitmq.get_queue(address).effective == values
    return values


def columns(address):
    query = "SELECT default_message_time_to_live, auto_delete_on_idle, expiry_mode FROM vitrine_entity WHERE id = %s"
    return tuple(connections.current().execute(query, [rabbitmq.get_queue(address).id]).fetchone())


# Which one applies


def test_only_one_policy_applies(declare, put):
    """RMQ-200"""
    address = declare()
    put("low", {"message-ttl": 1000, "max-length": 10}, priority=1)
    put("high", {"expires": 60000}, priority=5)
    assert effective(address) == {"expires": 60000, "policy": "high"}


def test_of_equal_priorities_the_lowest_name_wins(declare, put):
    """RMQ-201, RMQ-917"""
    put("b", {"max-length": 2})
    put("a", {"max-length": 1})
    address = declare()
    assert effective(address) == {"max_length": 1, "policy": "a"}
    put("c", {"max-length": 3}, priority=0.5)
    assert effective(address)["policy"] == "c"


def test_policy_and_operator_policy_are_merged(declare, put):
    """RMQ-202, RMQ-204: of numbers the least; of two operator policies the one of higher priority."""
    address = declare()
    put("users", {"message-ttl": 1000, "max-length": 100, "dead-letter-exchange": "px"})
    put("operators", {"message-ttl": 500, "expires": 900000}, is_operator=True)
    put("other operators", {"max-length": 1}, is_operator=True, priority=-1)
    assert effective(address) == {
        "message_ttl": 500,
        "expires": 900000,
        "max_length": 100,
        "dead_letter_exchange": "px",
        "policy": "users",
        "operator_policy": "operators",
    }


def test_an_operator_policy_has_fewer_keys(vhost, put):
    """RMQ-203"""
    for definition in ({"dead-letter-exchange": "x"}, {"alternate-exchange": "x"}, {"queue-mode": "lazy"}):
        with pytest.raises(InvalidPolicy, match="are not recognised policy settings"):
            put("p", definition, is_operator=True)
    assert rabbitmq.list_policies(vhost) == []


def test_the_lowest_number_applies_and_for_other_values_the_argument(declare, put):
    """RMQ-205, RMQ-904, RMQ-076, RMQ-049: who won each key is told, and who else said a value."""
    address = declare(message_ttl=5000, max_length=3, dead_letter_exchange="mine", overflow="reject-publish", expires=1000)
    put("p", {"message-ttl": 1000, "max-length": 100, "dead-letter-exchange": "theirs", "overflow": "drop-head", "expires": 4000})
    put("o", {"message-ttl": 500}, is_operator=True)
    settings = rabbitmq.effective(address)
    assert effective(address) == {
        "message_ttl": 500,
        "max_length": 3,
        "dead_letter_exchange": "mine",
        "overflow": "reject-publish",
        "expires": 1000,
        "policy": "p",
        "operator_policy": "o",
    }
    assert settings.sources == {
        "message_ttl": "operator policy o",
        "max_length": "argument",
        "dead_letter_exchange": "argument",
        "overflow": "argument",
        "expires": "argument",
    }
    assert [(c.source, c.value) for c in settings.candidates["message_ttl"]] == [
        ("operator policy o", 500),
        ("policy p", 1000),
        ("argument", 5000),
    ]


def test_effective_policies_are_shown_without_arguments(declare, put):
    """RMQ-206, with its example."""
    address = declare(message_ttl=5000, max_length=3)
    put("p", {"message-ttl": 1000, "max-length": 100, "dead-letter-exchange": "px"})
    put("o", {"message-ttl": 500, "expires": 900000}, is_operator=True)
    settings = rabbitmq.effective(address)
    assert settings.definition == {"dead-letter-exchange": "px", "expires": 900000, "max-length": 100, "message-ttl": 500}
    queue = rabbitmq.get_queue(address)
    assert queue.arguments == {"x-message-ttl": 5000, "x-max-length": 3}
    assert (queue.effective["policy"], queue.effective["operator_policy"]) == ("p", "o")


def test_policies_apply_at_declaration_and_at_every_change(vhost, declare, put):
    """RMQ-207"""
    before = declare("before")
    assert put("p", {"max-length": 5}).created
    after = declare("after")
    assert effective(before) == effective(after) == {"max_length": 5, "policy": "p"}
    change = put("p", {"max-length": 6}, pattern="^b")
    assert (change.created, len(change.queues)) == (False, 2)
    assert (effective(before), effective(after)) == ({"max_length": 6, "policy": "p"}, {})
    assert rabbitmq.delete_policy(vhost, "p").deleted
    assert effective(before) == {}
    assert rabbitmq.delete_policy(vhost, "p") == (False, False, (), ())
    assert not rabbitmq.delete_policy(vhost, "p", operator=True).deleted


def test_server_named_queues_match_too(vhost, put):
    """RMQ-209"""
    put("p", {"max-length": 5}, pattern=r"^amq\.gen-")
    assert effective(rabbitmq.declare_queue(EntityAddress(vhost, "")).address) == {"max_length": 5, "policy": "p"}


def test_a_policy_for_exchanges_never_applies_to_a_queue(vhost, declare, put):
    """RMQ-210"""
    address = declare("same name")
    quorum = declare("quorum", type="quorum")
    rabbitmq.declare_exchange(vhost, "same name")
    put("exchanges", {"alternate-exchange": "ae", "max-length": 1}, apply_to="exchanges")
    put("classic", {"max-length": 7}, apply_to="classic_queues")
    assert effective(address) == {"max_length": 7, "policy": "classic"}
    assert effective(quorum) == {"delivery_limit": 20}
    expected = {"alternate_exchange": "ae", "policy": "exchanges"}
    assert rabbitmq.effective_of_exchange(vhost, "same name").values == expected
    assert rabbitmq.get_exchange(vhost, "same name").effective == expected
    assert rabbitmq.get_exchange(vhost, "amq.topic").effective == expected
    assert rabbitmq.get_exchange(vhost, "").effective == {}


def test_settings_added_by_a_policy_do_not_affect_redeclarations(declare, put):
    """RMQ-211"""
    address = declare()
    put("p", {"dead-letter-exchange": "amq.fanout"})
    assert effective(address)["dead_letter_exchange"] == "amq.fanout"
    assert declare() == address
    with pytest.raises(AmqpError, match="inequivalent arg 'x-dead-letter-exchange'"):
        declare(dead_letter_exchange="amq.fanout")


# What follows


def test_an_alternate_exchange_set_by_policy_routes(vhost, declare, put):
    declare()
    rabbitmq.bind_queue(vhost, "q", "amq.fanout")
    assert run(compiled.current(vhost)).router.route("amq.topic", ["k"]).queues == ()
    put("p", {"alternate-exchange": "amq.fanout"}, pattern="topic$")
    assert run(compiled.current(vhost)).router.route("amq.topic", ["k"]).queues == ("q",)


def test_the_shared_columns_follow_the_policy(declare, put):
    address = declare(message_ttl=5000)
    assert columns(address) == (5 * SECOND, None, "at_head")
    put("p", {"message-ttl": 2000, "expires": 3000})
    assert columns(address) == (2 * SECOND, 3 * SECOND, "at_head")
    put("p", {"max-length": 1})
    assert columns(address) == (5 * SECOND, None, "at_head")


def test_a_policys_expiry_counts_from_its_application(vhost, declare, put):
    """RMQ-048"""
    address = declare()
    namespaces.step_clock(vhost, timedelta(hours=1))
    put("p", {"expires": 1000})
    namespaces.step_clock(vhost, 0.9 * SECOND)
    put("p", {"expires": 1000, "max-length": 5})  # the same life: it goes on
    namespaces.step_clock(vhost, 0.2 * SECOND)
    with pytest.raises(AmqpError, match="no queue 'q'"):
        rabbitmq.declare_queue(address, passive=True)


def test_the_shorter_expiry_applies(vhost, declare, put):
    """RMQ-049"""
    put("p", {"expires": 1000}, pattern="^q")
    declare("q1", expires=4000)
    put("p", {"expires": 4000}, pattern="^q")
    declare("q2", expires=1000)
    put("p", {"expires": 1000}, pattern="q1")
    namespaces.step_clock(vhost, 1.1 * SECOND)
    for name in ("q1", "q2"):
        with pytest.raises(AmqpError, match="no queue"):
            rabbitmq.declare_queue(EntityAddress(vhost, name), passive=True)


def test_a_lower_limit_trims_immediately(vhost, declare, put, publish):
    """RMQ-097, RMQ-208"""
    address = declare()
    publish(*"0123456789")
    put("p", {"max-length": 3})
    assert rabbitmq.declare_queue(address, passive=True).messages == 3
    assert rabbitmq.get(address, no_ack=True).body == b"7"


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_messages_over_a_lower_limit_are_dead_lettered_oldest_first(vhost, declare, put, publish, queue_type):
    """RMQ-930"""
    target = declare("target")
    declare(type=queue_type, dead_letter_exchange="", dead_letter_routing_key="target")
    publish(*"01234")
    put("p", {"max-length": 2}, pattern="^q$")
    assert [rabbitmq.get(target, no_ack=True).body for _ in range(3)] == [b"0", b"1", b"2"]


def test_a_shorter_ttl_applies_to_waiting_messages(vhost, declare, put, publish):
    """RMQ-902, RMQ-903: the instant it had may be earlier, and is kept when the policy goes."""
    address = declare()
    publish("old")
    namespaces.step_clock(vhost, 2 * SECOND)
    publish("new")
    put("p", {"message-ttl": 1500})
    assert rabbitmq.declare_queue(address, passive=True).messages == 1
    rabbitmq.delete_policy(vhost, "p")
    namespaces.step_clock(vhost, 10 * SECOND)
    assert rabbitmq.get(address, no_ack=True).body == b"new"


def test_a_longer_ttl_keeps_the_earlier_expiry_of_a_message(vhost, declare, put, publish):
    """RMQ-903: neither a longer one, nor none."""
    put("p", {"message-ttl": 1000})
    address = declare()
    for change in (lambda: put("p", {"message-ttl": 60000}), lambda: rabbitmq.delete_policy(vhost, "p")):
        put("p", {"message-ttl": 1000})
        publish("short")
        change()
        namespaces.step_clock(vhost, 1.1 * SECOND)
        assert rabbitmq.get(address, no_ack=True) is None


def test_a_time_to_live_that_is_not_retroactive_does_not_affect_waiting_messages(vhost, declare, put, publish):
    """RMQ-902, as 3.10 does it."""
    address = declare()
    rabbitmq.set_queue_option(address, retroactive_ttl=False)
    publish("old")
    put("p", {"message-ttl": 1000})
    publish("new")
    assert columns(address)[0] is None
    namespaces.step_clock(vhost, 5 * SECOND)
    assert rabbitmq.get(address, no_ack=True).body == b"old"
    assert rabbitmq.get(address, no_ack=True) is None
    publish("newer")
    rabbitmq.set_queue_option(address, retroactive_ttl=True)
    assert columns(address)[0] == SECOND


def test_exact_expiry_removes_messages_behind_the_head(vhost, declare, publish):
    """RMQ-901: switched on, it holds at once."""
    address = declare()
    publish("stays")
    expiring = Publication(b"goes", routing_key="q", properties=Properties(expiration="1000"))
    rabbitmq.publish(vhost, [expiring])
    namespaces.step_clock(vhost, 2 * SECOND)
    assert rabbitmq.declare_queue(address, passive=True).messages == 2
    rabbitmq.set_queue_option(address, exact_expiry=True)
    assert columns(address)[2] == "eager"
    assert rabbitmq.declare_queue(address, passive=True).messages == 1
    version = run(compiled.current(vhost)).version
    rabbitmq.set_queue_option(address, exact_expiry=True)
    assert run(compiled.current(vhost)).version == version
    wrong: Any = "yes"
    with pytest.raises(InvalidArgument, match="exact_expiry"):
        rabbitmq.set_queue_option(address, exact_expiry=wrong)


def test_a_time_to_live_is_bounded(put):
    """RMQ-918"""
    with pytest.raises(InvalidPolicy, match="315360000001 is not a valid message TTL"):
        put("p", {"message-ttl": 315_360_000_001})
    assert put("p", {"message-ttl": 315_360_000_000}).created


def test_a_bad_policy_is_refused_and_nothing_changes(vhost, declare, put):
    address = declare()
    put("p", {"max-length": 5})
    version = run(compiled.current(vhost)).version
    for definition, more, text in (
        ({}, {}, "no policy provided"),
        ({"bogus": 1}, {}, "not recognised"),
        ({"max-length": -1}, {}, "-1 is not a valid maximum length"),
        ({"max-length": 1}, {"pattern": "("}, "regular expression"),
        ({"max-length": 1}, {"apply_to": "cats"}, "apply-to"),
        ({"max-length": 1}, {"priority": "1"}, "priority should be a number"),
        ({"max-length": 1}, {"priority": float("nan")}, "priority should be a number"),
    ):
        with pytest.raises(InvalidPolicy, match=text):
            put("p", definition, **more)
    assert effective(address) == {"max_length": 5, "policy": "p"}
    assert run(compiled.current(vhost)).version == version


def test_policies_are_listed_by_rank(vhost, put):
    put("b", {"max-length": 1})
    put("a", {"max-length": 1}, priority=-1.5)
    put("z", {"max-length": 1}, priority=7)
    put("b", {"max-length": 1}, is_operator=True, apply_to="queues", pattern="^x")
    policies = rabbitmq.list_policies(vhost)
    assert [(p.name, p.is_operator, p.priority) for p in policies] == [
        ("z", False, 7),
        ("b", False, 0),
        ("a", False, -1.5),
        ("b", True, 0),
    ]
    assert rabbitmq.list_policies(vhost, operator=True) == [Policy("b", "^x", {"max-length": 1}, "queues", 0, True)]
    assert len(rabbitmq.list_policies(vhost, operator=False)) == 3


def test_policies_affect_only_their_virtual_host(vhost, declare, put):
    rabbitmq.create_vhost(vhost + " 2")
    other = rabbitmq.declare_queue(EntityAddress(vhost + " 2", "q")).address
    put("p", {"max-length": 1})
    assert effective(other) == {}


def test_setting_policies_requires_the_right_to_manage(vhost):
    viewer = Actor("user", "vera", Right.BROWSE)
    with pytest.raises(NotAuthorized):
        rabbitmq.set_policy(vhost, Policy("p", "", {"max-length": 1}), actor=viewer)
    with pytest.raises(NotAuthorized):
        rabbitmq.delete_policy(vhost, "p", actor=viewer)
    assert rabbitmq.list_policies(vhost, actor=viewer) == []


def test_a_policy_applies_to_each_of_a_thousand_queues(vhost, declare, put):
    for number in range(1_000):
        declare(f"q{number}")
    change = put("p", {"message-ttl": 1000, "expires": 60000, "max-length": 10}, pattern="^q")
    assert len(change.queues) == 1_000
    assert {queue.effective["message_ttl"] for queue in rabbitmq.list_queues(vhost)} == {1000}
