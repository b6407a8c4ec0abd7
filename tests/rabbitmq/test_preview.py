"""What a policy would do, against what it then does."""

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import NotAuthorized, PreviewOutdated
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.rabbitmq import policy_preview
from broker_core.rabbitmq.messages import tidying
from broker_core.rabbitmq.policy_preview import PolicyEffect
from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import entity_id

SECOND = timedelta(seconds=1)


def queue_of(vhost, name="q", **arguments):
    address = EntityAddress(vhost, name)
    values = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    rabbitmq.declare_queue(address, arguments=values)
    return address


def send(queue, *bodies, **properties):
    published_properties = rabbitmq.Properties(**properties)
    rabbitmq.publish(
        queue.namespace, [rabbitmq.Publication(b, routing_key=queue.path, properties=published_properties) for b in bodies]
    )


def apply(would):
    """Change what the preview changes, if its effect is still the same."""
    return rabbitmq.change_policy(would.vhost, would.name, would.is_operator, would.after, token=would.token)


def effects_of(previewed):
    return [(str(e.what), e.address.path, e.count, e.reason) for e in previewed.effects]


def departures(queue):
    """How many messages left a queue, by the kind of their last event."""
    rows = connections.current().execute(
        "SELECT kind, count(*) FROM vitrine_message_event WHERE entity_id = %s AND kind = ANY (%s) GROUP BY kind",
        [entity_id(queue), [int(k) for k in (EventKind.EXPIRED, EventKind.DROPPED, EventKind.MOVED)]],
    )
    return Counter({EventKind(kind): n for kind, n in rows})


def test_each_key_has_its_value_and_winner_before_and_after(vhost):
    queue = queue_of(vhost, "orders", max_length=50)
    queue_of(vhost, "other")
    rabbitmq.set_policy(vhost, Policy("old", "^ord", {"max-length": 10, "message-ttl": 5_000}, "queues", 1))
    would = rabbitmq.preview_policy(vhost, Policy("new", "^ord", {"max-length": 100, "expires": 60_000}, "queues", 2))
    [change] = would.queues
    assert (change.address, change.policy, change.operator_policy) == (queue, ("old", "new"), (None, None))
    assert [(k.key, k.before, k.before_source, k.after, k.after_source) for k in change.keys] == [
        ("expires", None, None, 60_000, "policy new"),
        ("max_length", 10, "policy old", 50, "argument"),
        ("message_ttl", 5_000, "policy old", None, None),
    ]
    assert (would.before, would.after.name, would.exchanges, would.effects) == (None, "new", (), ())
    assert "1 queue would be deleted with all messages when unused for 1 min" in would.notes[1]
    assert rabbitmq.get_queue(queue).effective["policy"] == "old"


def test_a_changed_alternate_exchange_is_previewed(vhost):
    rabbitmq.declare_exchange(vhost, "way")
    would = rabbitmq.preview_policy(vhost, Policy("ae", "^way", {"alternate-exchange": "amq.fanout"}, "exchanges"))
    [change] = would.exchanges
    assert (change.name, change.policy) == ("way", (None, "ae"))
    assert [(k.key, k.before, k.after, k.after_source) for k in change.keys] == [
        ("alternate_exchange", None, "amq.fanout", "policy ae")
    ]
    apply(would)
    assert rabbitmq.get_exchange(vhost, "way").effective["alternate_exchange"] == "amq.fanout"


def test_a_lowered_limit_trims_from_the_head(vhost):
    """RMQ-097"""
    queue = queue_of(vhost)
    send(queue, *(b"%d" % n for n in range(10)))
    would = rabbitmq.preview_policy(vhost, Policy("p", "", {"max-length": 3}))
    assert effects_of(would) == [
        ("too many", "q", 7, None),
        ("dropped", "q", 7, "maxlen: no dead-letter exchange"),
    ]
    assert would.effects[0].samples == (1, 2, 3, 4, 5)
    assert rabbitmq.get_queue(queue).messages == 10
    apply(would)
    assert rabbitmq.get_queue(queue).messages == 3
    assert departures(queue) == {EventKind.DROPPED: 7}


def test_messages_that_would_expire_do_so_only_at_the_head(vhost):
    """RMQ-012, RMQ-902"""
    queue = queue_of(vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = queue_of(vhost, "dead")
    send(queue, b"a", b"b")
    namespaces.step_clock(vhost, 60 * SECOND)
    send(queue, b"c")
    namespaces.step_clock(vhost, 5 * SECOND)
    would = rabbitmq.preview_policy(vhost, Policy("p", "^q", {"message-ttl": 30_000}))
    assert effects_of(would) == [("expired", "q", 2, None), ("dead-lettered", "q", 2, "expired: to ''")]
    apply(would)
    assert (rabbitmq.get_queue(queue).messages, rabbitmq.get_queue(dead).messages) == (1, 2)


def test_without_retroactive_ttl_no_message_expires(vhost):
    queue = queue_of(vhost)
    rabbitmq.set_queue_option(queue, retroactive_ttl=False)
    send(queue, b"a")
    namespaces.step_clock(vhost, 60 * SECOND)
    would = rabbitmq.preview_policy(vhost, Policy("p", "", {"message-ttl": 30_000}))
    assert would.effects == ()
    assert "retroactive_ttl is off" in would.notes[0]


def test_a_preview_explains_dead_letters_without_a_target(vhost):
    """RMQ-061, RMQ-079"""
    for name, exchange in (("lost", "gone"), ("alone", "amq.fanout")):
        send(queue_of(vhost, name, dead_letter_exchange=exchange), b"x")
    full = queue_of(vhost, "full", max_length=1, overflow="reject-publish")
    send(full, b"x")
    refused = queue_of(vhost, "refused", dead_letter_exchange="", dead_letter_routing_key="full")
    send(refused, b"x", b"y")
    would = rabbitmq.preview_policy(vhost, Policy("p", "^(lost|alone|refused)", {"max-length": 0}))
    assert [(e.address.path, e.count, e.reason) for e in would.effects if e.what is PolicyEffect.DROPPED] == [
        ("alone", 1, "maxlen: The exchange 'amq.fanout' does not route it to any queue (RMQ-079)."),
        ("lost", 1, "maxlen: There is no exchange 'gone' (RMQ-061)."),
        ("refused", 2, "maxlen: the destination queues are full"),
    ]
    apply(would)
    assert departures(refused) == {EventKind.DROPPED: 2}
    assert rabbitmq.get_queue(full).messages == 1


def test_deleting_a_policy_is_previewed(vhost):
    queue = queue_of(vhost)
    rabbitmq.set_policy(vhost, Policy("p", "", {"max-length": 5}, "queues"))
    rabbitmq.set_policy(vhost, Policy("q", "", {"max-length": 2}, "queues", -1))
    send(queue, b"1", b"2", b"3")
    would = rabbitmq.preview_delete_policy(vhost, "p")
    assert (would.before.name, would.after) == ("p", None)
    assert would.queues[0].policy == ("p", "q")
    assert effects_of(would)[0] == ("too many", "q", 1, None)
    apply(would)
    assert [p.name for p in rabbitmq.list_policies(vhost)] == ["q"]
    assert rabbitmq.get_queue(queue).messages == 2
    none = rabbitmq.preview_delete_policy(vhost, "nobody")
    assert none.notes[0] == "No policy has this name."


def test_an_outdated_preview_is_refused(vhost):
    queue = queue_of(vhost)
    send(queue, b"1", b"2")
    policy = Policy("p", "", {"max-length": 1})
    would = rabbitmq.preview_policy(vhost, policy)
    send(queue, b"3")
    with pytest.raises(PreviewOutdated, match="2 messages of .*too many"):
        apply(would)
    assert rabbitmq.list_policies(vhost) == []
    would = rabbitmq.preview_policy(vhost, policy)
    rabbitmq.set_policy(vhost, Policy("p", "", {"max-length": 9}))
    with pytest.raises(PreviewOutdated, match="settings have changed"):
        apply(would)
    assert rabbitmq.get_queue(queue).messages == 3


def test_equal_priorities_are_noted(vhost):
    """RMQ-917"""
    queue_of(vhost)
    rabbitmq.set_policy(vhost, Policy("b", "", {"max-length": 5}))
    would = rabbitmq.preview_policy(vhost, Policy("a", "^q", {"max-length": 6}))
    assert would.notes == ("Another policy of the same priority applies to 1 queue; the lower name wins (RMQ-917).",)


def test_numbers_beyond_the_cap_are_lower_bounds(vhost, monkeypatch):
    monkeypatch.setattr(policy_preview, "SCAN_CAP", 4)
    queue = queue_of(vhost)
    send(queue, *(b"x" for _ in range(10)))
    would = rabbitmq.preview_policy(vhost, Policy("p", "", {"max-length": 3}))
    assert (would.capped, would.scanned) == (True, 4)
    assert str(would.effects[0]) == f"at least 4 messages of {queue}: too many"


def test_a_preview_requires_the_right_to_make_the_change(vhost):
    eve = Actor("user", "eve", Right.OPERATE | Right.BROWSE)
    for call in (
        lambda: rabbitmq.preview_policy(vhost, Policy("p", "", {"max-length": 3}), actor=eve),
        lambda: rabbitmq.preview_delete_policy(vhost, "p", actor=eve),
        lambda: rabbitmq.change_policy(vhost, "p", False, None, actor=eve),
    ):
        with pytest.raises(NotAuthorized):
            call()
    with pytest.raises(InvalidPolicy):
        rabbitmq.preview_policy(vhost, Policy("p", "(", {"max-length": 3}))


DEFINITION = st.fixed_dictionaries(
    {},
    optional={
        "message-ttl": st.sampled_from([0, 5_000, 15_000, 25_000, 60_000]),
        "max-length": st.integers(0, 6),
        "max-length-bytes": st.integers(0, 30),
        "overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "dead-letter-exchange": st.sampled_from(["", "dead", "gone"]),
        "alternate-exchange": st.just("amq.fanout"),
        "expires": st.just(10**9),
    },
).filter(bool)
POLICY = st.builds(
    Policy,
    name=st.sampled_from(["a", "b"]),
    pattern=st.sampled_from(["", "^q1", "^q", "dead"]),
    definition=DEFINITION,
    apply_to=st.sampled_from(["all", "queues", "exchanges", "classic_queues"]),
    priority=st.integers(0, 2),
)
QUEUE = st.tuples(
    st.sampled_from([None, "", "dead", "gone"]),  # dead-letter exchange by argument
    st.sampled_from([0, 3]),  # priorities
    st.booleans(),  # exact expiry
    st.sampled_from([True, True, False]),  # retroactive
)
MESSAGE = st.tuples(
    st.integers(0, 1),  # of which queue
    st.integers(0, 12),  # size
    st.none() | st.sampled_from(["4000", "14000", "40000"]),
    st.integers(0, 3),  # priority
    st.booleans(),  # died in the queue before, so that it would go round
)
STEP = st.one_of(MESSAGE, MESSAGE, MESSAGE, st.integers(1, 9))


def world(queues, steps):
    """A virtual host with two queues and a graveyard, and what is in them."""
    vhost = f"p {uuid.uuid4().hex[:10]}"
    rabbitmq.create_vhost(vhost)
    namespaces.pause_clock(vhost)
    rabbitmq.declare_exchange(vhost, "dead", "fanout")
    queue_of(vhost, "graveyard")
    rabbitmq.bind_queue(vhost, "graveyard", "dead")
    rabbitmq.bind_queue(vhost, "graveyard", "amq.fanout")
    addresses = []
    for number, (exchange, priorities, exact, retroactive) in enumerate(queues, start=1):
        values = {} if exchange is None else {"dead_letter_exchange": exchange}
        address = queue_of(vhost, f"q{number}", **values, **({"max_priority": priorities} if priorities else {}))
        rabbitmq.set_queue_option(address, exact_expiry=exact, retroactive_ttl=retroactive)
        addresses.append(address)
    for step in steps:
        if isinstance(step, int):
            namespaces.step_clock(vhost, step * SECOND)
            continue
        at, size, expiration, priority, again = step
        died = [{"queue": addresses[at].path, "reason": "expired", "count": 1, "exchange": "", "routing-keys": ["x"]}]
        headers = {"x-death": died} if again else {}
        send(addresses[at], b"x" * size, expiration=expiration, priority=priority, headers=headers)
    return vhost, addresses


@settings(max_examples=40)
@given(
    queues=st.lists(QUEUE, min_size=2, max_size=2),
    steps=st.lists(STEP, max_size=14),
    there=st.lists(POLICY, max_size=2),
    change=POLICY | st.sampled_from(["a", "b"]),
    held=st.integers(0, 2),
)
def test_a_preview_predicts_the_effects_of_the_change(broker_database, queues, steps, there, change, held):
    vhost, addresses = world(queues, steps)
    for policy in there:
        rabbitmq.set_policy(vhost, policy)
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        for _ in range(held):
            channel.get("q1")
        run(tidying.after_policy([entity_id(address) for address in addresses]))  # what is due by itself is no policy's doing
        before = {address: departures(address) for address in addresses}
        if isinstance(change, str):
            would = rabbitmq.preview_delete_policy(vhost, change)
        else:
            would = rabbitmq.preview_policy(vhost, change)
        in_force = {a: rabbitmq.get_queue(a).effective for a in addresses}
        apply(would)
        changed = {a for a in addresses if rabbitmq.get_queue(a).effective != in_force[a]}
        assert {q.address for q in would.queues} & set(addresses) == changed
        for address in addresses:
            gone = departures(address)
            gone.subtract(before[address])
            counts = Counter()
            for effect in would.effects:
                if effect.address == address:
                    counts[effect.what] += effect.count
            assert counts[PolicyEffect.SAVED] == 0
            assert counts[PolicyEffect.DEAD_LETTERED] == gone[EventKind.MOVED], (effects_of(would), gone)
            assert counts[PolicyEffect.DROPPED] == gone[EventKind.EXPIRED] + gone[EventKind.DROPPED], (effects_of(would), gone)
            assert counts[PolicyEffect.EXPIRED] + counts[PolicyEffect.TRIMMED] == gone.total()
