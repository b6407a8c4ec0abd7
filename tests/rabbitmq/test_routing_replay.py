"""The route of a publication, and the replay of the last hour's publications with a draft (RMQ-301 to RMQ-315, RMQ-093)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.routes import Outcome, StepKind, Verdict
from broker_core.common.types import EntityAddress, EntityStatus
from broker_core.rabbitmq import Properties, Publication, RoutingDraft
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.exchanges import BindingDef
from broker_core.rabbitmq.rules.policies import Policy

from .shortcuts import declare


@pytest.fixture
def orders(vhost):
    """The topic exchange `orders`, with queues `eu` and `all`."""
    rabbitmq.declare_exchange(vhost, "orders", "topic")
    for name, key in [("eu", "order.eu.*"), ("all", "#")]:
        declare(vhost, name)
        rabbitmq.bind_queue(vhost, name, "orders", key)
    return vhost


def publish(vhost, *keys, **properties):
    rabbitmq.publish(vhost, [Publication(b"x", "orders", key, Properties(**properties)) for key in keys])


def stored(steps):
    return sorted(step.name for step in steps if step.verdict is Verdict.STORED)


def test_the_route_names_each_binding(orders):
    steps = rabbitmq.route(orders, "orders", "order.us.1")
    assert [(step.depth, step.kind, step.name, step.verdict) for step in steps] == [
        (0, StepKind.EXCHANGE, "orders", Verdict.PASSES),
        (1, StepKind.BINDING, "#", Verdict.MATCHES),
        (2, StepKind.QUEUE, "all", Verdict.STORED),
        (1, StepKind.BINDING, "order.eu.*", Verdict.NO_MATCH),
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.lists(st.sampled_from(["order", "eu", "1", "x"]), max_size=3).map(".".join), cc=st.sampled_from([None, "other"]))
def test_the_route_has_the_same_queues_as_a_publication(orders, key, cc):
    """RMQ-314: also through exchanges bound to exchanges, and an alternate exchange."""
    headers = {"CC": [cc]} if cc else {}
    if "amq.direct" not in {binding.source for binding in rabbitmq.list_bindings(orders)}:
        rabbitmq.bind_exchange(orders, "amq.direct", "orders", "x.#")
        rabbitmq.bind_queue(orders, "eu", "amq.direct", "x.eu")
        rabbitmq.bind_exchange(orders, "orders", "amq.direct", "x.1")
    found = stored(rabbitmq.route(orders, "orders", key, headers))
    (done,) = rabbitmq.publish(orders, [Publication(b"x", "orders", key, Properties(headers=headers))])
    assert found == sorted(name for name, _ in done.queues)


def test_the_route_covers_limits_and_the_default_exchange(vhost):
    """RMQ-305, RMQ-093, RMQ-929."""
    declare(vhost, "full", max_length=0, overflow="reject-publish")
    declare(vhost, "paused")
    rabbitmq.set_status(EntityAddress(vhost, "paused"), EntityStatus.SEND_DISABLED)
    for name, reason in [("full", "full"), ("paused", "paused")]:
        step = rabbitmq.route(vhost, "", name)[-1]
        assert step.verdict is Verdict.REFUSED and reason in step.reason
    assert rabbitmq.route(vhost, "", "nobody")[0].verdict is Verdict.DROPPED
    with pytest.raises(AmqpError):
        rabbitmq.route(vhost, "missing", "k")


def test_the_alternate_exchange_gets_unrouted_messages(vhost):
    rabbitmq.declare_exchange(vhost, "main", "direct", arguments={"alternate-exchange": "amq.fanout"})
    declare(vhost, "rest")
    rabbitmq.bind_queue(vhost, "rest", "amq.fanout")
    assert stored(rabbitmq.route(vhost, "main", "k")) == ["rest"]


def test_publications_are_counted_once(orders):
    """A publication that reached two queues is one."""
    publish(orders, "order.eu.1", "order.eu.1", "order.us.1")
    publish(orders, "order.us.1", headers={"n": 1})
    groups = rabbitmq.published_groups(orders)
    assert {(group.keys, *group.headers): group.count for group in groups} == {
        (("order.eu.1",),): 2, (("order.us.1",),): 1, (("order.us.1",), "n"): 1,
    }  # fmt: skip
    assert rabbitmq.published_groups(orders, exchange="amq.direct") == []


def test_draft_bindings_are_replayed(orders):
    declare(orders, "us")
    publish(orders, "order.eu.1", "order.us.1", "order.us.2")
    draft = RoutingDraft(
        added=(BindingDef("orders", "us", True, "order.us.*"),), removed=(BindingDef("orders", "all", True, "#"),)
    )
    comparison = rabbitmq.replay_routing(orders, draft).comparison
    assert {name: comparison.outcomes[name] for name in (Outcome.ELSEWHERE, Outcome.FEWER)} == {
        Outcome.ELSEWHERE: 2,
        Outcome.FEWER: 1,
    }
    assert {destination.destination: (destination.before, destination.after) for destination in comparison.destinations} == {
        "all": (3, 0), "us": (0, 2), "eu": (1, 1),
    }  # fmt: skip
    with pytest.raises(InvalidArgument):
        rabbitmq.replay_routing(orders, RoutingDraft(removed=(BindingDef("orders", "nobody", True, "#"),)))


def test_a_draft_policy_is_replayed(orders):
    """An alternate exchange set by a policy (RMQ-313)."""
    rabbitmq.unbind_queue(orders, "all", "orders", "#")
    rabbitmq.bind_queue(orders, "all", "amq.fanout")
    publish(orders, "order.eu.1")
    rabbitmq.publish(orders, [Publication(b"x", "amq.fanout", "order.us.1")])
    assert rabbitmq.replay_routing(orders, RoutingDraft()).comparison.changed == 0
    rabbitmq.unbind_queue(orders, "eu", "orders", "order.eu.*")
    policy = Policy("rest", "^orders$", {"alternate-exchange": "amq.fanout"}, "exchanges", 0, False)
    comparison = rabbitmq.replay_routing(orders, RoutingDraft(policy=policy)).comparison
    assert comparison.outcomes[Outcome.FOUND] == 1 and comparison.messages == 2
