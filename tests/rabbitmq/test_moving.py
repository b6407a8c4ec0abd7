"""Moving dead letters back, and any message elsewhere (RMQ-390 to RMQ-394): each way, each reason to stay, everything at once."""

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from broker_core import rabbitmq
from broker_core.common.errors import BrokerError, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.rabbitmq import Back, Properties, Publication, ToExchange, ToQueue
from broker_core.rabbitmq.messages import moving
from broker_core.rabbitmq.messages.moving import DeadLetterOrigin, Left, MoveGroup, Why
from broker_core.rabbitmq.rules.deaths import BEFORE_MOVE, X_DEATH
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.table import plain
from broker_core.store import connections
from tests.broker_state import entity_id, events
from tests.eventually import eventually

from . import shortcuts as r
from .connected import query

BACK, FIRST = Back(), Back(first=True)


def with_dlx(vhost, name, key="dead", **arguments):
    return r.declare(vhost, name, dead_letter_exchange="", dead_letter_routing_key=key, **arguments)


def reject(address, max_count=100):
    rabbitmq.reject(address, r.tokens(*r.take(address, max_count)))


@pytest.fixture
def dead(vhost):
    """A queue for dead letters; `orders` and `bills` have theirs there."""
    address = r.declare(vhost, "dead")
    with_dlx(vhost, "orders")
    with_dlx(vhost, "bills")
    return address


@pytest.fixture
def orders(vhost, dead):
    return EntityAddress(vhost, "orders")


@pytest.fixture
def bills(vhost, dead):
    return EntityAddress(vhost, "bills")


def agree(*addresses):
    return all(r.ledger_agrees(address) for address in addresses)


# Where to


def test_each_message_returns_to_the_queue_that_dead_lettered_it(dead, orders, bills):
    """RMQ-390"""
    r.send(orders, "o1", "o2")
    r.send(bills, "b1")
    reject(bills)
    reject(orders)
    moved = rabbitmq.move(dead, BACK)
    assert (moved.count, moved.arrived, moved.left) == (3, {"bills": 1, "orders": 2}, {})
    assert moved.places == {1: (("bills", 2),), 2: (("orders", 3),), 3: (("orders", 4),)}
    assert r.present(dead) == [] and agree(dead, orders, bills)
    assert r.texts(r.take(orders, 5)) == ["o1", "o2"] and r.texts(r.take(bills, 5)) == ["b1"]


def test_a_message_moves_back_to_its_last_or_first_queue(vhost, dead, orders):
    """RMQ-390: rejected in orders, expired in the queue for retries."""
    retry = with_dlx(vhost, "retry", message_ttl=100)
    slow = with_dlx(vhost, "slow", key="retry")
    for to, arrived in ((BACK, "retry"), (FIRST, "slow")):
        r.send(slow, "x")
        reject(slow)
        r.step(retry, 100)
        r.expire(retry)
        assert rabbitmq.move(dead, to).arrived == {arrived: 1}
        assert r.read_out(EntityAddress(vhost, arrived)) == ["x"]


def test_a_message_moved_back_has_its_original_exchange_and_key(vhost, dead):
    """RMQ-390: to that queue alone, with the exchange and the key by which it had come; so its next death goes the same way."""
    rabbitmq.declare_exchange(vhost, "events", "topic")
    rabbitmq.declare_exchange(vhost, "graves", "topic")
    q, other = r.declare(vhost, "q", dead_letter_exchange="graves"), r.declare(vhost, "other")
    for name in ("q", "other"):
        rabbitmq.bind_queue(vhost, name, "events", "order.#")
    rabbitmq.bind_queue(vhost, "dead", "graves", "order.#")
    r.send(q, "x", exchange="events", key="order.new")
    for _ in range(2):
        reject(q)
        rabbitmq.move(dead, BACK)
    assert r.count(other) == 1
    back = r.get(q)
    assert (r.text(back), back.exchange, back.routing_key) == ("x", "events", "order.new")


def test_blind_keys_are_kept_by_a_move_back_and_end_with_a_new_publication(vhost, dead):
    """RMQ-395: the next death of one that came back goes by all its keys."""
    rabbitmq.declare_exchange(vhost, "graves", "direct")
    blind, other = r.declare(vhost, "blind"), r.declare(vhost, "other", dead_letter_exchange="graves")
    q = r.declare(vhost, "q", dead_letter_exchange="graves")
    for name, key in (("dead", "q"), ("dead", "other"), ("blind", "b")):
        rabbitmq.bind_queue(vhost, name, "graves", key)
    r.send(q, "x", headers={"BCC": ["b"]})
    reject(q)
    rabbitmq.move(dead, BACK)
    reject(q)
    assert r.count(dead) == 1 and r.read_out(blind) == ["x", "x"]
    rabbitmq.move(dead, ToQueue("other"))
    reject(other)
    assert r.count(dead) == 1 and r.read_out(blind) == []


def test_a_move_keeps_all_properties_except_the_deaths(vhost, dead, orders):
    """RMQ-391: properties and headers stay; x-death has another name, so that consumers that count deaths begin anew."""
    values: dict[str, Any] = {"content_type": "a", "delivery_mode": 2, "priority": 7, "message_id": "e", "app_id": "h"}
    properties = Properties(**values, headers={"mine": [1, "x"]}, expiration="60000")
    rabbitmq.publish(vhost, [Publication(b"\x00body", "", "orders", properties)])
    reject(orders)
    rabbitmq.move(dead, BACK)
    back = r.get(orders)
    headers = back.properties.headers
    assert {name: getattr(back.properties, name) for name in values} == values and back.body == b"\x00body"
    assert headers["mine"] == [1, "x"] and headers["x-first-death-queue"] == "orders"
    assert X_DEATH not in headers and [death["queue"] for death in headers[BEFORE_MOVE]] == ["orders"]
    assert back.properties.expiration is None and not back.redelivered and back.delivery_count == 0


def test_a_moved_message_is_not_dropped_as_a_cycle(vhost, orders):
    """RMQ-391, RMQ-072: with its deaths as they were, this one would be dropped in the queue where it died first."""
    dead = with_dlx(vhost, "slow-dead", key="last", message_ttl=100)
    q = with_dlx(vhost, "q", key="slow-dead", message_ttl=100)
    last = r.declare(vhost, "last")
    r.send(q, "x")
    for times in range(1, 4):
        for address in (q, dead):
            r.step(address, 100)
            assert r.expire(address) == 1
        assert r.count(last) == 1
        [(where, _)] = rabbitmq.move(last, FIRST).places[times]
        assert where == "q"
    held = r.get(q)
    assert r.deaths(held) == []
    assert {(d["queue"], plain(d["count"])) for d in held.properties.headers[BEFORE_MOVE]} == {("q", 3), ("slow-dead", 3)}


def test_a_message_moved_twice_keeps_its_origin(vhost, dead, orders):
    """RMQ-391: sorted out into another queue first, then moved back."""
    sorting = r.declare(vhost, "sorting")
    r.send(orders, "x")
    reject(orders)
    rabbitmq.move(dead, ToQueue("sorting"))
    assert rabbitmq.move(sorting, BACK).arrived == {"orders": 1}
    assert r.read_out(orders) == ["x"]


def test_messages_can_be_moved_to_a_named_queue(vhost, dead, orders):
    """RMQ-390: whatever it is, dead letter or not."""
    other = r.declare(vhost, "other", message_ttl=5000)
    r.send(orders, "died")
    reject(orders)
    r.send(dead, "alive", expiration="60000")
    assert rabbitmq.move(dead, ToQueue("other")).arrived == {"other": 2}
    died, alive = r.take(other, 5)
    assert r.texts([died, alive]) == ["died", "alive"]
    assert (alive.exchange, alive.routing_key, alive.properties.expiration) == ("", "other", "60000")
    assert agree(dead, other)


def test_messages_can_be_moved_to_an_exchange(vhost, dead, orders):
    """RMQ-390: to each queue that it leads to, with a key given or the message's own."""
    rabbitmq.declare_exchange(vhost, "fan", "fanout")
    rabbitmq.declare_exchange(vhost, "by key", "direct")
    first, second = r.declare(vhost, "one"), r.declare(vhost, "two")
    for name in ("one", "two"):
        rabbitmq.bind_queue(vhost, name, "fan")
    rabbitmq.bind_queue(vhost, "two", "by key", "mine")
    r.send(dead, "a")
    assert rabbitmq.move(dead, ToExchange("fan")).places == {1: (("one", 1), ("two", 1))}
    assert r.get(first).routing_key == "dead" and r.get(second).exchange == "fan"
    r.send(dead, "b")
    assert rabbitmq.move(dead, ToExchange("by key", "mine")).arrived == {"two": 1}
    assert agree(dead, first, second)


def test_messages_can_be_moved_through_an_exchange_into_the_same_queue(vhost, dead):
    """Each goes round once: what arrives meanwhile is not moved again."""
    rabbitmq.declare_exchange(vhost, "fan", "fanout")
    rabbitmq.bind_queue(vhost, "dead", "fan")
    r.send(dead, "a", "b")
    assert rabbitmq.move(dead, ToExchange("fan")).arrived == {"dead": 2}
    assert r.present(dead) == [3, 4] and agree(dead) and r.read_out(dead) == ["a", "b"]


# What stays, and why


def test_only_the_selected_messages_are_moved(dead, orders):
    r.send(orders, *"abcd")
    reject(orders)
    moved = rabbitmq.move(dead, BACK, [3, 1, 3, 99])
    assert moved.count == 2 and r.present(dead) == [2, 4] and agree(dead, orders)
    assert moved.stayed == {99: Left(Why.GONE)}
    assert r.texts(r.take(orders, 5)) == ["a", "c"]


def test_messages_newer_than_the_preview_are_not_moved(dead, orders):
    r.send(orders, *"ab")
    reject(orders)
    would = rabbitmq.preview_move(dead, BACK)
    r.send(orders, "c")
    reject(orders)
    assert rabbitmq.move(dead, BACK, up_to=would.last_number).count == would.count == 2
    assert r.present(dead) == [3]


def leave_held(vhost, dead, orders):
    r.take(dead, 1)
    return Left(Why.UNACKED)


def leave_expired(vhost, dead, orders):
    rabbitmq.move(dead, ToQueue("brief"))
    r.step(dead, 100)
    return Left(Why.EXPIRED)


def leave_never_died(vhost, dead, orders):
    r.read_out(dead)
    r.send(dead, "fresh")
    return Left(Why.NEVER_DIED)


def leave_died_here(vhost, dead, orders):
    r.read_out(dead)
    brief = EntityAddress(vhost, "brief")
    r.send(brief, "x")
    reject(brief)
    return Left(Why.DIED_IN_THIS_QUEUE)


def leave_no_queue(vhost, dead, orders):
    rabbitmq.delete_queue(orders)
    return Left(Why.NO_QUEUE, "orders")


def leave_refused(vhost, dead, orders):
    r.send(orders, "y")
    r.policy(vhost, pattern="^orders$", max_length=1, overflow="reject-publish")
    return Left(Why.REFUSED, "orders")


@pytest.mark.parametrize(
    ("leave", "source"),
    [
        (leave_held, "dead"), (leave_expired, "brief"), (leave_never_died, "dead"), (leave_died_here, "brief"),
        (leave_no_queue, "dead"), (leave_refused, "dead"),
    ],
)  # fmt: skip
def test_messages_that_cannot_be_moved_stay_and_are_reported(vhost, dead, orders, leave, source):
    """RMQ-392"""
    brief = r.declare(vhost, "brief", message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="brief")
    r.send(orders, "x")
    reject(orders)
    why = leave(vhost, dead, orders)
    address = brief if source == "brief" else dead
    before = r.present(address)
    would, moved = rabbitmq.preview_move(address, BACK), rabbitmq.move(address, BACK)
    assert len(before) == 1 and r.present(address) == before
    assert moved.count == would.count == 0 and moved.left == would.left == {why: 1}
    assert moved.stayed == {before[0]: why}
    assert r.ledger_agrees(address)
    assert not [event for event in events(address) if event.kind == EventKind.MOVED and event.sequence_number in before]


def test_messages_without_a_route_stay(vhost, dead):
    """RMQ-392"""
    r.send(dead, "x")
    assert rabbitmq.move(dead, ToExchange("amq.topic", "nobody")).left == {Left(Why.NO_ROUTE): 1}
    assert r.present(dead) == [1] and r.ledger_agrees(dead)


def test_a_queue_with_limited_room_takes_as_many_as_fit(vhost, dead):
    """RMQ-392, RMQ-093: a refusal is no loss, whatever else the queue does with what it refuses (RMQ-094)."""
    for overflow in ("reject-publish", "reject-publish-dlx"):
        name = f"small {overflow}"
        small = with_dlx(vhost, name, max_length=3, overflow=overflow)
        r.send(small, *"abc")
        reject(small)
        r.send(small, "there")
        numbers = r.present(dead)
        moved = rabbitmq.move(dead, BACK, numbers)
        assert (moved.arrived, moved.left) == ({name: 2}, {Left(Why.REFUSED, name): 1})
        assert r.present(dead) == numbers[2:] and agree(dead, small)
        assert r.texts(r.take(small, 5)) == ["there", "a", "b"]
        r.read_out(dead)


def test_a_message_moves_to_all_queues_of_an_exchange_or_stays(vhost, dead):
    """RMQ-392: one of them refuses, so no copy is lost."""
    rabbitmq.declare_exchange(vhost, "fan", "fanout")
    full, free = r.declare(vhost, "full", max_length=1, overflow="reject-publish"), r.declare(vhost, "free")
    for name in ("full", "free"):
        rabbitmq.bind_queue(vhost, name, "fan")
    r.send(full, "there")
    r.send(dead, "x")
    assert rabbitmq.move(dead, ToExchange("fan")).left == {Left(Why.REFUSED, "full"): 1}
    assert r.present(dead) == [1] and r.present(free) == [] and agree(dead, full, free)


def test_an_invalid_move_is_refused_and_moves_nothing(vhost, dead, orders, connection):
    r.send(orders, "x")
    reject(orders)
    connection.channel().declare_queue("mine", exclusive=True)
    nobody = Actor("user", "viewer", Right.BROWSE | Right.SEND | Right.LISTEN)
    seven: Any = 7
    refused: list[tuple[EntityAddress, Any, dict[str, Any], type[Exception]]] = [
        (EntityAddress(vhost, "none"), BACK, {}, AmqpError),
        (EntityAddress(vhost, "mine"), BACK, {}, AmqpError),
        (dead, ToQueue("none"), {}, AmqpError),
        (dead, ToQueue("dead"), {}, InvalidArgument),
        (dead, ToExchange("none"), {}, AmqpError),
        (dead, ToExchange("", seven), {}, InvalidArgument),
        (dead, BACK, {"actor": nobody}, NotAuthorized),
        (dead, BACK, {"sequence_numbers": ["1"]}, InvalidArgument),
    ]
    for address, to, how, error in refused:
        with pytest.raises(error):
            rabbitmq.move(address, to, **how)
    assert r.present(dead) == [1]
    assert rabbitmq.preview_move(dead, BACK, actor=nobody).count == 1
    assert rabbitmq.move(dead, BACK, []).count == 0


# As a publish


def test_moved_messages_have_the_time_to_live_and_priorities_of_the_target(vhost):
    """RMQ-391, RMQ-080, RMQ-160"""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost, "q", max_priority=5, message_ttl=1000)
    for body, priority in (("low", 1), ("high", 9)):
        r.send(q, body, priority=priority, expiration="500")
    reject(q)
    r.step(dead, 10_000)
    rabbitmq.move(dead, BACK)
    assert events(q, 3)[0].time_to_live == timedelta(seconds=1)
    r.step(q, 999)
    high, low = r.take(q, 5)
    assert r.texts([high, low]) == ["high", "low"]
    rabbitmq.requeue(q, r.tokens(high, low))
    r.step(q, 1)
    assert r.take(q, 5) == []


def test_a_target_that_drops_its_head_drops_it_as_for_a_publish(vhost):
    """RMQ-091: what is pushed out is dead-lettered, so here it comes back behind."""
    dead = r.declare(vhost, "dead")
    q = with_dlx(vhost, "q", max_length=2)
    r.send(q, *"abc")
    reject(q)
    assert r.present(dead) == [1, 2, 3]
    moved = rabbitmq.move(dead, BACK)
    assert moved.count == 3 and agree(dead, q)
    assert r.texts(r.take(q, 5)) == ["b", "c"] and [(r.text(d), r.deaths(d)[0].reason) for d in r.take(dead, 5)] == [
        ("a", "maxlen")
    ]


def test_messages_moved_to_a_zero_ttl_queue_expire_immediately(vhost, dead):
    """RMQ-016"""
    later = r.declare(vhost, "later")
    at_once = with_dlx(vhost, "at once", key="later", message_ttl=0)
    r.send(dead, "x")
    moved = rabbitmq.move(dead, ToQueue("at once"))
    assert moved.count == 1 and r.present(at_once) == [] and agree(dead, at_once, later)
    assert [r.deaths(d)[0].reason for d in r.take(later, 5)] == ["expired"]


def test_a_move_wakes_waiting_consumers_of_the_target(vhost, dead, orders, connection):
    r.send(orders, "x")
    reject(orders)
    channel, deliveries = connection.channel(), []
    channel.consume("orders")
    waiting = threading.Thread(
        target=lambda: (deliveries.extend(channel.deliveries(1, max_wait_seconds=20)), connections.close_all_of_this_thread())
    )
    waiting.start()
    eventually(
        lambda: query(
            "SELECT 1 FROM vitrine_entity_activity WHERE entity_id = %s AND waiting_until > clock_timestamp()", entity_id(orders)
        )
    )
    rabbitmq.move(dead, BACK)
    waiting.join(10)
    assert [bytes(d.body) for d in deliveries] == [b"x"]


# What is told


def test_a_move_is_recorded_in_both_queues(dead, orders):
    """RMQ-393: the old number ends, the new one begins, each names the other."""
    r.send(orders, "x")
    reject(orders)
    rabbitmq.move(dead, BACK, actor=Actor.local("ada"))
    moved, sent = events(dead, 1)[-1], events(orders, 2)[0]
    assert (moved.kind, moved.reason) == (EventKind.MOVED, "moved")
    assert moved.details == {"to": [{"entity": entity_id(orders), "path": "orders", "sequence_number": 2}]}
    assert sent.kind == EventKind.SENT and sent.actor == moved.actor and "ada" in sent.actor
    assert sent.details == {"from": {"entity": entity_id(dead), "path": "dead", "sequence_number": 1, "reason": "moved"}}


def test_a_preview_groups_by_origin_and_reason_and_changes_nothing(vhost, dead, orders, bills):
    """RMQ-394"""
    r.send(orders, "o1", "o2")
    r.send(bills, "b1", expiration="100")
    reject(orders)
    r.step(bills, 100)
    r.expire(bills)
    r.send(dead, "fresh")
    before = (r.present(dead), len(events(dead)))
    would = rabbitmq.preview_move(dead, BACK)
    assert would.groups == (
        MoveGroup(DeadLetterOrigin("orders", "rejected"), ("orders",), 2),
        MoveGroup(DeadLetterOrigin("bills", "expired"), ("bills",), 1),
    )
    assert (would.count, would.arriving) == (3, {"bills": 1, "orders": 2})
    assert would.left == {Left(Why.NEVER_DIED): 1} and not would.capped and would.last_number == 4
    elsewhere = rabbitmq.preview_move(dead, ToQueue("bills"), [1, 4, 77])
    assert elsewhere.arriving == {"bills": 2} and elsewhere.left == {Left(Why.GONE): 1}
    assert (r.present(dead), len(events(dead))) == before


@pytest.fixture
def mixed(vhost, dead, orders, bills):
    """Dead letters 1 and 3 were rejected in orders, 2 and 5 have expired in bills, 4 never died."""
    r.send(orders, "o1")
    reject(orders)
    for name in ("b1", "b2"):
        r.send(bills, name, expiration="100")
        r.step(bills, 100)
        r.expire(bills)
        if name == "b1":
            r.send(orders, "o2")
            reject(orders)
            r.send(dead, "fresh")
    return dead


GROUPS = [
    (DeadLetterOrigin("orders", "rejected"), ToQueue("bills"), {1, 3}),
    (DeadLetterOrigin("bills", "expired"), BACK, {2, 5}),
    (DeadLetterOrigin("bills", "expired", first=True), FIRST, {2, 5}),
    (DeadLetterOrigin(None, None), ToQueue("orders"), {4}),
    (DeadLetterOrigin("orders", "expired"), BACK, set()),
    (DeadLetterOrigin("none", "rejected"), BACK, set()),
]


@pytest.mark.parametrize(("of", "to", "expected"), GROUPS)
def test_only_the_selected_group_is_moved_and_reported(mixed, of, to, expected, small_batches):
    """RMQ-397"""
    before = set(r.present(mixed))
    would = rabbitmq.preview_move(mixed, to, of=of)
    assert {group.origin for group in would.groups} == ({of} if expected else set()) and would.left == {}
    moved = rabbitmq.move(mixed, to, of=of, up_to=would.last_number)
    assert (would.count, moved.count, moved.left) == (len(expected), len(expected), {})
    assert set(moved.places) == expected and set(r.present(mixed)) == before - expected


def test_of_selected_messages_only_those_of_the_group_are_moved(mixed):
    """RMQ-397"""
    of = DeadLetterOrigin("orders", "rejected")
    assert rabbitmq.preview_move(mixed, BACK, [1, 2, 4, 77], of=of).left == {Left(Why.GONE): 1}
    moved = rabbitmq.move(mixed, BACK, [1, 2, 4, 77], of=of)
    assert set(moved.places) == {1} and moved.stayed == {77: Left(Why.GONE)}


def test_messages_of_a_group_that_cannot_be_moved_stay_and_are_reported(mixed, connection):
    """RMQ-397"""
    channel = connection.channel()
    channel.get("dead")
    would = rabbitmq.preview_move(mixed, BACK, of=DeadLetterOrigin("orders", "rejected"))
    assert (would.count, would.left) == (1, {Left(Why.UNACKED): 1})


def test_groups_by_first_and_by_last_death_differ(vhost, dead):
    """RMQ-397"""
    second = with_dlx(vhost, "second")
    first = with_dlx(vhost, "first", key="second")
    r.send(first, "a")
    reject(first)
    reject(second)
    count = lambda of: rabbitmq.preview_move(dead, ToQueue("first"), of=of).count  # noqa: E731
    assert [count(DeadLetterOrigin("second", "rejected")), count(DeadLetterOrigin("first", "rejected"))] == [1, 0]
    assert [
        count(DeadLetterOrigin("second", "rejected", first=True)),
        count(DeadLetterOrigin("first", "rejected", first=True)),
    ] == [0, 1]


def test_a_preview_respects_the_available_room(vhost, dead):
    small = with_dlx(vhost, "small", max_length=3, overflow="reject-publish")
    r.send(small, *"abc")
    reject(small)
    r.send(small, "there")
    would = rabbitmq.preview_move(dead, BACK)
    assert (would.arriving, would.left) == ({"small": 2}, {Left(Why.REFUSED, "small"): 1})


def test_a_preview_warns_of_queues_that_drop_their_heads(vhost, dead):
    """RMQ-394, RMQ-091: by messages or bytes, and whether what leaves is dead-lettered."""
    r.send(dead, "aaaa", "bbbb")
    with_dlx(vhost, "kept", max_length=1)
    r.declare(vhost, "lost", max_length_bytes=7)
    r.declare(vhost, "wide", max_length=2, max_length_bytes=8)
    told = {name: dict(rabbitmq.preview_move(dead, ToQueue(name)).overflowing) for name in ("kept", "lost", "wide", "orders")}
    assert told == {"kept": {"kept": True}, "lost": {"lost": False}, "wide": {}, "orders": {}}
    rabbitmq.move(dead, ToQueue("wide"))
    r.send(dead, "c")
    assert rabbitmq.preview_move(dead, ToQueue("wide")).overflowing == {"wide": False}


def test_a_preview_beyond_the_scan_limit_is_marked_as_capped(dead, monkeypatch):
    monkeypatch.setattr(moving, "SCAN_CAP", 2)
    monkeypatch.setattr(moving, "SCAN_BATCH", 2)
    r.send(dead, *"ab")
    assert not rabbitmq.preview_move(dead, ToQueue("orders")).capped
    r.send(dead, "c")
    would = rabbitmq.preview_move(dead, ToQueue("orders"))
    assert would.capped and (would.count, would.scanned) == (2, 2)


# At once


N = 60


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(moving, "BATCH", 7)


def in_thread(failures, work):
    def guarded():
        try:
            work()
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    return threading.Thread(target=guarded)


def publish_dead_letters(orders, n=N):
    rabbitmq.publish(orders.namespace, [Publication(b"%d" % i, "", "orders") for i in range(n)])
    reject(orders, n)


def test_concurrent_moves_and_a_consumer_take_each_message_once(dead, orders, small_batches):
    """RMQ-393: each message is in one place in the end, whoever took it."""
    publish_dead_letters(orders)
    failures, taken, reports = [], [], []

    def consume():
        for _ in range(20):
            taken.extend(rabbitmq.take(dead, 2, owner_id=r.OWNER, no_ack=True))

    def move():
        reports.append(rabbitmq.move(dead, BACK))

    threads = [in_thread(failures, work) for work in (move, consume, move)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    reports.append(rabbitmq.move(dead, BACK))  # what one skipped because the other was at it, and did not take
    there = r.texts(r.take(orders, 200))
    assert Counter(there + r.texts(taken)) == Counter(str(i) for i in range(N))
    assert sum(report.count for report in reports) == len(there)
    assert {why.why for report in reports for why in report.left} <= {Why.BUSY, Why.UNACKED}
    assert r.present(dead) == [] and agree(dead, orders)


def test_messages_locked_by_another_transaction_are_skipped(dead, orders):
    """RMQ-392: it is not waited for."""
    publish_dead_letters(orders, 3)
    failures, reports = [], []
    with connections.current().transaction():
        query("SELECT 1 FROM vitrine_message WHERE entity_id = %s AND sequence_number = 2 FOR UPDATE", entity_id(dead))
        mover = in_thread(failures, lambda: reports.append(rabbitmq.move(dead, BACK)))
        mover.start()
        mover.join(20)
    assert failures == [] and reports[0].count == 2 and reports[0].stayed == {2: Left(Why.BUSY)}


def test_a_killed_move_loses_no_messages(dead, orders, small_batches):
    """RMQ-393: in the middle of its second batch its connection is cut; that batch is done wholly or not at all."""
    publish_dead_letters(orders, 20)
    failures, mine = [], connections.current()
    blocked = "SELECT pid FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    rabbitmq.move(dead, BACK, list(range(1, 8)))
    with mine.transaction():
        query("SELECT 1 FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE", entity_id(orders))
        mover = in_thread(failures, lambda: rabbitmq.move(dead, BACK))
        mover.start()
        eventually(lambda: query(blocked, mine.info.backend_pid))
        [row, *_] = query(blocked, mine.info.backend_pid)
        query("SELECT pg_terminate_backend(%s)", row.pid)
        mover.join(20)
    assert not mover.is_alive() and [type(f) for f in failures if not isinstance(f, BrokerError)] == []
    assert failures and r.present(dead) == list(range(8, 21)) and agree(dead, orders)
    assert rabbitmq.move(dead, BACK).count == 13
    assert Counter(r.texts(r.take(orders, 50))) == Counter(str(i) for i in range(20))
    assert agree(dead, orders)


def test_a_target_deleted_during_a_move_gets_no_messages(dead, orders):
    """RMQ-392"""
    publish_dead_letters(orders, 3)
    failures, reports, mine = [], [], connections.current()
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    mover = in_thread(failures, lambda: reports.append(rabbitmq.move(dead, BACK)))
    with mine.transaction():
        rabbitmq.delete_queue(orders)
        mover.start()
        eventually(lambda: query(waiting, mine.info.backend_pid))
    mover.join(20)
    assert failures == [] and reports[0].left == {Left(Why.NO_QUEUE, "orders"): 3}
    assert r.present(dead) == [1, 2, 3] and r.ledger_agrees(dead)
