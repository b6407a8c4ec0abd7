"""What storage accounts and virtual hosts have is exported and imported as it was, but for what belongs to connections."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, rabbitmq
from broker_core import queue_storage as storage
from broker_core.common.errors import EntityNotFound, InvalidArgument, MessageNotFound
from broker_core.common.types import EntityAddress, Family, HistoryLevel
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.errors import PopReceiptMismatch
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging, Retention
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store import connections
from broker_core.transfer.importing import import_
from tests.broker_state import entity_id, ledger_agrees

from .test_export import change, content, exported, of_kind

SECOND = timedelta(seconds=1)
QUICKLY = settings(max_examples=25)


def copied_account(account):
    name = f"c{uuid.uuid4().hex[:10]}"
    import_(exported(account), name=name)
    return name


def stored(queue, *but):
    """Every column of every message as text, but its entity and these."""
    rows = connections.current().execute(
        "SELECT to_jsonb(m) - 'entity_id' - %s::text[] FROM vitrine_message AS m WHERE entity_id = %s ORDER BY sequence_number",
        [list(but), entity_id(queue)],
    )
    return [row[0] for row in rows]


def held_in_ledger(queue):
    """The ledger's holds that have not ended: state, until, how many."""
    rows = connections.current().execute(
        "SELECT state, until, sum(n) FROM (SELECT state, until, n FROM vitrine_count_base WHERE entity_id = %(id)s"
        " UNION ALL SELECT state, until, n FROM vitrine_count_delta WHERE entity_id = %(id)s) AS l"
        " WHERE state >= 10 AND until > (SELECT now FROM vitrine_entity_now WHERE id = %(id)s)"
        " GROUP BY state, until HAVING sum(n) <> 0 ORDER BY 1, 2",
        {"id": entity_id(queue)},
    )
    return list(map(tuple, rows))


# Queue Storage


def test_a_storage_queue_is_copied_with_its_options_receipts_and_leases(account):
    jobs, poison = EntityAddress(account, "jobs"), EntityAddress(account, "bad-jobs")
    options: dict[str, Any] = {
        "max_dequeue_count": 3,
        "poison_queue": "bad-jobs",
        "expiry_grace": 90 * SECOND,
        "strict_visibility": True,
        "access_policies": [AccessPolicy("readers", None, "2026-11-21T02:55:46.1234567Z", "r"), AccessPolicy("none")],
    }
    storage.create_queue(jobs, metadata={"Owner": "me"}, history_level=HistoryLevel.LIFECYCLE, **options)
    storage.create_queue(poison)
    delayed = storage.put(jobs, "later", visibility_timeout=600 * SECOND)
    storage.put(jobs, "übel\n", time_to_live=None)
    storage.put(jobs, "extended")
    [leased, extended] = storage.get(jobs, 2, visibility_timeout=60 * SECOND)
    receipt, until = storage.update(jobs, extended.message_id, extended.pop_receipt, visibility_timeout=300 * SECOND)

    copy = EntityAddress(copied_account(account), "jobs")
    assert content(exported(copy.namespace)) == content(exported(account))
    assert stored(copy) == stored(jobs)
    assert held_in_ledger(copy) == held_in_ledger(jobs) != []
    assert ledger_agrees(copy)
    stored_queue = storage.get_queue(copy)
    assert (dict(stored_queue.metadata), stored_queue.history_level, stored_queue.strict_visibility) == (
        {"owner": "me"},
        HistoryLevel.LIFECYCLE,
        True,
    )
    assert list(stored_queue.access_policies) == options["access_policies"]
    assert stored_queue.poison == EntityAddress(copy.namespace, "bad-jobs")

    assert storage.get(copy, 10) == []
    storage.delete(copy, leased.message_id, leased.pop_receipt)
    with pytest.raises(PopReceiptMismatch):
        storage.delete(copy, extended.message_id, extended.pop_receipt)
    storage.delete(copy, delayed.message_id, delayed.pop_receipt)
    namespaces.step_clock(copy.namespace, 301 * SECOND)
    [back] = storage.get(copy, 10)
    assert (back.text, back.dequeue_count, back.inserted_at) == ("extended", 2, extended.inserted_at)


def test_the_service_properties_of_an_account_are_copied_and_its_keys_only_when_asked_for(account):
    rule = CorsRule(("https://shop.example",), ("GET", "PUT"), ("x-ms-*",), ("*",), 60)
    accounts.set_service_properties(account, cors=(rule,), logging=Logging(read=True, retention=Retention(7)))
    of_account = accounts.get_keys(account)
    copy = accounts.get_keys(copied_account(account))
    assert copy.properties == of_account.properties
    assert len({*copy.keys, *of_account.keys}) == 4
    name = f"c{uuid.uuid4().hex[:10]}"
    import_(exported(account, with_keys=True), name=name)
    assert accounts.get_keys(name).keys == of_account.keys
    without = [text for text in exported(account) if '"storage_account"' not in text]
    import_(without, name=f"c{uuid.uuid4().hex[:10]}")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40), st.none() | st.integers(50, 90)),
        st.tuples(st.just("get"), st.integers(1, 3), st.integers(1, 40)),
        st.tuples(st.just("update"), st.integers(0, 5), st.integers(0, 40)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
        st.tuples(st.just("step"), st.integers(1, 40), st.none()),
    ),
    max_size=14,
)


def play(queue, story):
    """Do what a story says; returns the receipts that were given, by message id."""
    held = {}
    for what, number, other in story:
        if what == "put":
            ttl = None if other is None else other * SECOND
            put = storage.put(queue, f"text {number}", visibility_timeout=number * SECOND, time_to_live=ttl)
            held[put.message_id] = put.pop_receipt
        elif what == "get":
            held |= {got.message_id: got.pop_receipt for got in storage.get(queue, number, visibility_timeout=other * SECOND)}
        elif what == "step":
            namespaces.step_clock(queue.namespace, number * SECOND)
        elif held:
            message_id = sorted(held)[number % len(held)]
            try:
                if what == "delete":
                    storage.delete(queue, message_id, held.pop(message_id))
                else:
                    updated = storage.update(queue, message_id, held[message_id], visibility_timeout=other * SECOND)
                    held[message_id] = updated.pop_receipt
            except (MessageNotFound, PopReceiptMismatch):
                held.pop(message_id, None)
    return held


@QUICKLY
@given(story=STEPS, spent_after=st.none() | st.integers(1, 2))
def test_the_import_of_an_accounts_export_gives_an_equal_export(broker_database, story, spent_after):
    account = f"e{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(account, Family.QUEUE_STORAGE)
    namespaces.pause_clock(account)
    queue = EntityAddress(account, "jobs")
    storage.create_queue(queue, max_dequeue_count=spent_after)
    held = play(queue, story)
    lines = exported(account)
    copy = EntityAddress(copied_account(account), "jobs")
    assert content(exported(copy.namespace)) == content(lines)
    for other in {e["path"] for e in of_kind(lines, "entity")}:
        pair = EntityAddress(account, other), EntityAddress(copy.namespace, other)
        assert stored(pair[1]) == stored(pair[0])
        assert held_in_ledger(pair[1]) == held_in_ledger(pair[0])
        assert ledger_agrees(pair[1])
    # Both go on alike: whoever holds a receipt, and whoever gets.
    for message_id, receipt in list(held.items())[:2]:
        assert outcome(queue, message_id, receipt) == outcome(copy, message_id, receipt)
    for address in (queue, copy):
        namespaces.step_clock(address.namespace, 45 * SECOND)
    assert gotten(queue) == gotten(copy)


def outcome(queue, message_id, receipt):
    try:
        return storage.delete(queue, message_id, receipt)
    except (MessageNotFound, PopReceiptMismatch) as exc:
        return type(exc)


def gotten(queue):
    return [(m.message_id, m.text, m.dequeue_count, m.inserted_at, m.expires_at) for m in storage.get(queue, 32)]


STORED_OPTIONS = {"metadata": {}, "expiry_grace": 60, "strict_visibility": False, "access_policies": []}
BAD_STORAGE = [
    ("entity", {"path": "No"}, r"line \d+: entity: .*'No'|2 characters"),
    ("entity", {"kind": "topic"}, r"entity.kind: 'topic' must be one of queue"),
    ("entity", {"options": None}, r"entity.options: is missing"),
    ("entity", {"options": {"metadata": {}, "expiry_grace": 60}}, r"entity.options.strict_visibility: is missing"),
    ("entity", {"options": STORED_OPTIONS | {"metadata": {"1a": "x"}}}, r"line \d+: entity: .*1a"),
    ("entity", {"options": STORED_OPTIONS | {"access_policies": [{"id": ""}]}}, r"entity: access_policies: the id '' must have"),
    ("entity", {"options": STORED_OPTIONS | {"access_policies": [{}]}}, r"access_policies\[0\].id: is missing"),
    ("storage_account", {"properties": {"cors": [{"origins": []}]}}, r"storage_account.properties: are not the properties"),
    ("storage_account", {"properties": {"speed": 1}}, r"storage_account.properties: are not the properties"),
    ("storage_account", {"primary_key": "secret"}, r"storage_account: primary_key: a key must be"),
    (
        "entity",
        {"options": STORED_OPTIONS | {"speed": 1}},
        r"options.speed: is no",
    ),
    ("entity", {"settings": {"history_level": 7, "hidden": False}}, r"entity.settings.history_level: 7 must be"),
    (
        "entity",
        {"settings": {"history_level": 2, "hidden": False, "lock_duration": "PT1M"}},
        r"settings.lock_duration: is not a known field",
    ),
    ("message", {"pop_receipt": "abc"}, r"message.pop_receipt: is not a valid UUID"),
    ("message", {"pop_receipt": None}, r"message.pop_receipt: is missing"),
    ("message", {"visible_at": None}, r"message.visible_at: is missing"),
    ("message", {"hold": "lunch"}, r"message.hold: 'lunch' must be one of get, put, update_before_get, update"),
    ("message", {"list": "dead_letter", "dead_lettered_at": "2026-01-01T00:00:00Z"}, r"message.list: must be main"),
    ("message", {"state": "deferred"}, r"message.state: must be active"),
    ("message", {"priority": 3}, r"message.priority: is not a known field"),
]


@pytest.mark.parametrize(("kind", "fields", "refusal"), BAD_STORAGE)
def test_a_bad_line_of_an_account_is_named(account, kind, fields, refusal):
    queue = EntityAddress(account, "jobs")
    storage.create_queue(queue)
    storage.put(queue, "x")
    lines = exported(account)
    name = f"n{uuid.uuid4().hex[:8]}"
    with pytest.raises(InvalidArgument, match=refusal):
        import_(change(lines, kind, fields), name=name)
    with pytest.raises(EntityNotFound):
        namespaces.get_namespace(name)
    assert import_(lines, name=name)["messages"] == 1


def test_lines_of_a_virtual_host_are_refused_for_an_account(account):
    lines = exported(account)
    lines.insert(2, json.dumps({"exchange": {"name": "x"}}))
    with pytest.raises(InvalidArgument, match="line 3: 'exchange' is not a valid kind of export line"):
        import_(lines, name="other1")


# RabbitMQ


def copied_vhost(vhost):
    name = f"copy/{uuid.uuid4().hex[:10]}"
    import_(exported(vhost), name=name)
    return name


def of(vhost, *paths):
    return [EntityAddress(vhost, path) for path in paths]


def publish(queue, body, **properties):
    message = rabbitmq.Publication(body, routing_key=queue.path, properties=rabbitmq.Properties(**properties))
    return rabbitmq.publish(queue.namespace, [message])


def test_a_virtual_host_is_copied_with_its_exchanges_bindings_and_policies(vhost):
    [orders, plain] = of(vhost, "Orders", "orders")
    arguments = {"x-max-length": 5, "x-dead-letter-exchange": "dlx", "x-max-priority": 7, "mine": table.Typed("byte", 3)}
    rabbitmq.declare_queue(orders, arguments=arguments)
    rabbitmq.declare_queue(plain, durable=False, auto_delete=True, type="classic")
    rabbitmq.declare_exchange(vhost, "dlx", "headers", internal=True, arguments={"alternate-exchange": "amq.fanout"})
    rabbitmq.declare_exchange(vhost, "way", "topic", durable=False, auto_delete=True)
    rabbitmq.bind_queue(vhost, "orders", "dlx", "", {"x-match": "any", "n": 1, "b": b"\x00"})
    rabbitmq.bind_queue(vhost, "Orders", "way", "a.#")
    rabbitmq.bind_queue(vhost, "Orders", "way", "a.*")
    rabbitmq.bind_exchange(vhost, "dlx", "way", "b")
    rabbitmq.set_policy(vhost, Policy("short", "^O", {"max-length": 3, "expires": 60_000}, "queues", 5))
    rabbitmq.set_policy(vhost, Policy("cap", "", {"message-ttl": 1000}, "queues", 0.5, is_operator=True))
    publish(orders, b"x", priority=9)

    copy = copied_vhost(vhost)
    assert content(exported(copy)) == content(exported(vhost))
    for mine, theirs in zip(rabbitmq.list_exchanges(vhost), rabbitmq.list_exchanges(copy), strict=True):
        assert mine == theirs
    assert rabbitmq.list_bindings(copy) == rabbitmq.list_bindings(vhost)
    assert rabbitmq.list_policies(copy) == rabbitmq.list_policies(vhost)
    for path in ("Orders", "orders"):
        [mine, theirs] = [rabbitmq.get_queue(address) for address in of(vhost, path) + of(copy, path)]
        assert (theirs.arguments, theirs.effective, theirs.options) == (mine.arguments, mine.effective, mine.options)
        assert ledger_agrees(theirs.address)
    assert columns(EntityAddress(copy, "Orders")) == columns(orders) != columns(plain)
    rabbitmq.declare_queue(EntityAddress(copy, "Orders"), arguments=arguments)  # the same again
    [delivered] = [rabbitmq.get(address, no_ack=True) for address in of(copy, "Orders")]
    assert bytes(delivered.body) == b"x"


def columns(queue):
    """What reading and expiring go by."""
    return connections.current().execute(
        "SELECT effective, default_message_time_to_live, auto_delete_on_idle, expiry_mode FROM vitrine_entity WHERE id = %s",
        [entity_id(queue)],
    ).fetchone()  # fmt: skip


def test_unacknowledged_messages_are_ready_and_redelivered_in_the_copy(vhost):
    """RMQ-123; a copy is no return, so the count of those stays."""
    [queue] = of(vhost, "q")
    rabbitmq.declare_queue(queue, type="quorum")
    for body in (b"a", b"b", b"c"):
        publish(queue, body)
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        first = channel.get("q")
        channel.nack(first.delivery_tag)
        channel.get("q")
        lines = exported(vhost)
        name = f"copy {uuid.uuid4().hex[:8]}"
        import_(lines, name=name)
    copy = EntityAddress(name, "q")
    assert rabbitmq.get_queue(copy).messages == 3
    assert ledger_agrees(copy)
    assert content(exported(name)) == content(lines)
    deliveries = [rabbitmq.get(copy, no_ack=True) for _ in range(3)]
    assert [(bytes(d.body), d.redelivered, d.delivery_count) for d in deliveries] == [
        (b"a", True, 1),
        (b"b", False, 0),
        (b"c", False, 0),
    ]


def test_objects_that_end_with_a_connection_are_not_exported(vhost):
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        channel.declare_queue("mine", exclusive=True)
        channel.declare_queue("shared", auto_delete=True)
        rabbitmq.bind_queue(vhost, "shared", "amq.fanout")
        channel.consume("shared")
        copy = copied_vhost(vhost)
    assert [q.name for q in rabbitmq.list_queues(copy)] == ["shared"]
    assert [b.destination for b in rabbitmq.list_bindings(copy)] == ["shared"]
    assert rabbitmq.get_queue(EntityAddress(copy, "shared")).options["had_consumer"] is False


def test_bindings_to_an_exclusive_queue_are_left_out(vhost):
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        channel.declare_queue("mine", exclusive=True)
        rabbitmq.bind_queue(vhost, "mine", "amq.fanout", owner_id=connection.id)
        assert of_kind(exported(vhost), "binding") == []


def test_the_expiry_of_an_unused_queue_restarts_in_the_copy(vhost):
    """Its lease begins anew, as at the start of a node (RMQ-047)."""
    [queue] = of(vhost, "q")
    rabbitmq.declare_queue(queue, arguments={"x-expires": 60_000})
    namespaces.step_clock(vhost, 59 * SECOND)
    copy = EntityAddress(copied_vhost(vhost), "q")
    namespaces.step_clock(copy.namespace, 2 * SECOND)
    assert rabbitmq.declare_queue(copy, passive=True).created is False


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
HEADERS = st.dictionaries(
    st.text("abcx-", min_size=1, max_size=4),
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS, st.binary(max_size=6), st.floats(),
            st.decimals(-1000, 1000, places=2), st.builds(table.Typed, st.sampled_from(["byte", "short"]), st.integers(0, 9)),
            st.integers(1, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
        ),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)  # fmt: skip
PUBLISHED = st.tuples(
    st.sampled_from(["publish"]),
    st.binary(max_size=20),
    st.fixed_dictionaries(
        {"headers": HEADERS},
        optional={
            "priority": st.integers(0, 9), "expiration": st.integers(0, 90_000).map(str), "content_type": TEXTS,
            "message_id": TEXTS, "delivery_mode": st.sampled_from([1, 2]), "timestamp": st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        },
    ),
)  # fmt: skip
RABBIT_STEPS = st.lists(
    st.one_of(
        PUBLISHED,
        PUBLISHED,
        st.tuples(st.just("get"), st.none(), st.none()),
        st.tuples(st.just("return"), st.booleans(), st.none()),
        st.tuples(st.just("step"), st.integers(1, 40), st.none()),
    ),
    max_size=12,
)
RABBIT_ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"x-max-priority": st.integers(0, 5), "x-message-ttl": st.integers(0, 60_000), "x-max-length": st.integers(1, 5)}
)


@QUICKLY
@given(story=RABBIT_STEPS, arguments=RABBIT_ARGUMENTS, ttl=st.none() | st.integers(1, 50_000))
def test_the_import_of_a_virtual_hosts_export_gives_an_equal_export(broker_database, story, arguments, ttl):
    vhost = f"e {uuid.uuid4().hex[:10]}"
    rabbitmq.create_vhost(vhost)
    namespaces.pause_clock(vhost)
    [queue] = of(vhost, "q")
    rabbitmq.declare_queue(queue, arguments=arguments)
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        tags = []
        for what, first, second in story:
            if what == "publish":
                publish(queue, first, **second)
            elif what == "step":
                namespaces.step_clock(vhost, first * SECOND)
            elif what == "get":
                tags += [d.delivery_tag for d in [channel.get("q")] if d]
            elif tags:
                channel.nack(tags.pop(), requeue=first)
        if ttl is not None:
            rabbitmq.set_policy(vhost, Policy("p", "", {"message-ttl": ttl}))
        lines = exported(vhost)
        copy = EntityAddress(copied_vhost(vhost), "q")
        assert content(exported(copy.namespace)) == content(lines)
        held = ("lock_token", "locked_by", "owner_id", "ready_priority")
        assert stored(copy, *held) == stored(queue, *held)
        assert columns(copy) == columns(queue)
        assert ledger_agrees(copy)
        assert held_in_ledger(copy) == []
    # What was unacknowledged came back when the connection ended: both go on alike. Where that was too much for the queue, its
    # head left (RMQ-096); the copy has all until something arrives there.
    if "x-max-length" not in arguments:
        assert drained(copy) == drained(queue)


def drained(queue):
    results = []
    while delivery := rabbitmq.get(queue, no_ack=True):
        results.append(
            (bytes(delivery.body), delivery.number, delivery.redelivered, repr(delivery.properties), delivery.message_count)
        )
    return results


BAD_RABBIT = [
    ("exchange", {"type": "x-delayed-message"}, r"line \d+: exchange: .*unknown exchange type 'x-delayed-message'"),
    ("exchange", {"type": "fanout"}, r"line \d+: exchange.type: 'amq.direct' is of the type direct"),
    ("exchange", {"name": "amq.mine"}, r"line \d+: exchange: .*reserved prefix"),
    ("exchange", {"arguments": {"a": 5}}, r"exchange.arguments: must be a table"),
    ("exchange", {"arguments": {"a": ["signedint", "05"]}}, r"exchange.arguments: must be a table"),
    ("exchange", {"arguments": {"a": ["nothing", "5"]}}, r"exchange.arguments: must be a table"),
    ("exchange", {"colour": "red"}, r"exchange.colour: is not a known field"),
    ("rabbitmq_policy", {"pattern": "("}, r"line \d+: rabbitmq_policy: .*pattern"),
    ("rabbitmq_policy", {"definition": {"speed": 1}}, r"line \d+: rabbitmq_policy: .*not recognised policy settings"),
    ("entity", {"path": ""}, r"entity.path: '' is not a valid queue name"),
    ("entity", {"options": {}}, r"entity.options.durable: is missing"),
    ("message", {"properties": None}, r"message.properties: is missing"),
    ("message", {"properties": {"exchange": ""}}, r"message.properties: .* must be an object"),
    ("message", {"application_properties": {"a": "b"}}, r"message.application_properties: .* must be an object"),
    ("message", {"priority": None}, r"message.priority: is required for a priority queue"),
    ("message", {"priority": 256}, r"message.priority: 256 must be"),
    ("message", {"state": "deferred"}, r"message.state: must be active"),
    ("message", {"pop_receipt": str(uuid.UUID(int=1))}, r"message.pop_receipt: is not a known field"),
    ("binding", {"source": "nowhere"}, r"line \d+: binding: .*no exchange 'nowhere'"),
    ("binding", {"destination": "nowhere"}, r"line \d+: binding: .*no queue 'nowhere'"),
    ("binding", {"destination_type": "topic"}, r"binding.destination_type: 'topic' must be one of queue, exchange"),
    ("binding", {"source": ""}, r"line \d+: binding: .*default exchange"),
]


@pytest.mark.parametrize(("kind", "fields", "refusal"), BAD_RABBIT)
def test_a_bad_line_of_a_virtual_host_is_named(vhost, kind, fields, refusal):
    [queue] = of(vhost, "q")
    rabbitmq.declare_queue(queue, arguments={"x-max-priority": 2})
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "a.#")
    rabbitmq.set_policy(vhost, Policy("p", "^q", {"max-length": 9}))
    publish(queue, b"x")
    lines, name = exported(vhost), f"bad {uuid.uuid4().hex[:8]}"
    with pytest.raises(InvalidArgument, match=refusal):
        import_(change(lines, kind, fields), name=name)
    with pytest.raises(EntityNotFound):
        namespaces.get_namespace(name)
    assert import_(lines, name=name)["messages"] == 1


@pytest.mark.parametrize("kind", ["exchange", "rabbitmq_policy", "binding"])
def test_a_duplicate_line_is_refused(vhost, kind):
    [queue] = of(vhost, "q")
    rabbitmq.declare_queue(queue)
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "a.#")
    rabbitmq.set_policy(vhost, Policy("p", "^q", {"max-length": 9}))
    lines = exported(vhost)
    at = next(i for i, line in enumerate(lines) if kind in json.loads(line))
    with pytest.raises(InvalidArgument, match=rf"line {at + 2}: {kind}\.\w+: .*(twice|repeats)"):
        import_([*lines[: at + 1], *lines[at:]], name="twice")


def test_a_virtual_host_has_its_system_exchanges_whatever_the_file_contains(vhost):
    lines = [line for line in exported(vhost) if not line.startswith('{"exchange"')]
    name = f"bare {uuid.uuid4().hex[:8]}"
    import_(lines, name=name)
    assert [(e.name, e.type, e.internal) for e in rabbitmq.list_exchanges(name)] == [
        (e.name, e.type, e.internal) for e in rabbitmq.list_exchanges(vhost)
    ]
