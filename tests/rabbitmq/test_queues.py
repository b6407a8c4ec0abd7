"""Queues: declaring, declaring again, deleting."""

from datetime import timedelta

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import EntityAddress, HistoryLevel
from broker_core.rabbitmq import Publication, declare_queue, delete_queue
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.table import Typed
from broker_core.rabbitmq.topology import compiled
from broker_core.store import connections
from broker_core.store.driver import run

LOCKED = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '{}'. It could be originally declared on another connection "
    "or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def q(vhost):
    return EntityAddress(vhost, "q")


@pytest.fixture
def connect(vhost):
    """connect() -> the id of an open connection to the virtual host."""
    opened = []

    def open_one():
        opened.append(rabbitmq.connect(vhost))
        return opened[-1].id

    yield open_one
    for connection in opened:
        connection.close()


def refused(code, text):
    """An AmqpError with exactly this text."""
    return pytest.raises(AmqpError, check=lambda exc: exc.text == f"{code} - {text}"[:255])


def publish(vhost, *bodies, queue="q"):
    rabbitmq.publish(vhost, [Publication(body, routing_key=queue) for body in bodies])


def names(vhost):
    return [queue.name for queue in rabbitmq.list_queues(vhost)]


# Declaring


def test_a_new_queue_is_empty_and_deleting_frees_its_name(q):
    assert declare_queue(q) == (q, 0, 0, True)
    assert declare_queue(q) == (q, 0, 0, False)
    assert delete_queue(q) == 0
    assert declare_queue(q).created


def test_a_queue_declared_without_a_name_gets_a_generated_name(vhost):
    stored_queue = [declare_queue(EntityAddress(vhost, "")).address.path for _ in range(2)]
    assert all(name.startswith("amq.gen-") and len(name) == len("amq.gen-") + 22 for name in stored_queue)
    assert stored_queue[0] != stored_queue[1]
    assert not declare_queue(EntityAddress(vhost, stored_queue[0]), passive=True).created
    with refused(
        "ACCESS_REFUSED", f"queue name '{stored_queue[0]}' contains reserved prefix 'amq.*'"
    ):  # RMQ-324: by name, passively
        declare_queue(EntityAddress(vhost, stored_queue[0]))


def test_line_ends_are_removed_from_a_name(vhost):
    """RMQ-925, RMQ-322"""
    assert declare_queue(EntityAddress(vhost, "nl\na\rb")).address.path == "nlab"
    assert names(vhost) == ["nlab"]
    assert not declare_queue(EntityAddress(vhost, "nla\nb")).created


def test_an_invalid_declaration_is_not_stored(vhost, q):
    version = run(compiled.current(vhost)).version
    where = f"queue 'q' in vhost '{vhost}'"
    ttl = f"invalid arg 'x-message-ttl' for {where}: "
    for more, text in (
        ({"arguments": {"x-message-ttl": -1}}, ttl + "{value_negative,-1}"),
        ({"arguments": {"x-message-ttl": "1000"}}, ttl + '"expected integer, got longstr"'),
        ({"arguments": {"x-expires": 0}}, f"invalid arg 'x-expires' for {where}: {{value_zero,0}}"),
        (
            {"arguments": {"x-delivery-limit": 1}},
            f"invalid arg 'x-delivery-limit' for {where} of queue type rabbit_classic_queue",
        ),
        ({"type": "quorum", "durable": False}, f"invalid property 'non-durable' for {where}"),
        ({"type": "stream"}, f"invalid arg 'x-queue-type' for {where}: \"unsupported queue type 'stream'\""),
    ):
        with refused("PRECONDITION_FAILED", text):
            declare_queue(q, **more)
    with refused("ACCESS_REFUSED", "queue name 'amq.foo' contains reserved prefix 'amq.*'"):
        declare_queue(EntityAddress(vhost, "amq.foo"))
    with pytest.raises(InvalidArgument, match="at most 255"):
        declare_queue(EntityAddress(vhost, "é" * 128))
    with pytest.raises(InvalidArgument, match="argument 'a'"):
        declare_queue(q, arguments={"a": object()})
    with pytest.raises(NotAllowed, match="belongs to a connection"):
        declare_queue(q, exclusive=True)
    assert names(vhost) == []
    assert run(compiled.current(vhost)).version == version


def test_a_declaration_is_stored_as_given(vhost, q):
    arguments = {"x-message-ttl": Typed("long", 1000), "x-max-priority": 5, "foo": {"bar": [1, "two", None]}}
    declare_queue(q, durable=False, auto_delete=True, arguments=arguments, history_level=HistoryLevel.LIFECYCLE)
    queue = rabbitmq.get_queue(q)
    assert (queue.type, queue.durable, queue.auto_delete, queue.exclusive) == ("classic", False, True, False)
    assert queue.arguments == arguments
    assert queue.effective == {"message_ttl": 1000, "max_priority": 5}
    assert queue.history_level is HistoryLevel.LIFECYCLE
    assert (queue.owner_id, queue.messages, queue.consumers) == (None, 0, 0)


def test_the_durable_flag_is_stored(vhost):
    """RMQ-329"""
    for durable in (True, False):
        declare_queue(EntityAddress(vhost, f"{durable}"), durable=durable)
    assert [queue.durable for queue in rabbitmq.list_queues(vhost)] == [False, True]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({}, {"durable": False}, "inequivalent arg 'durable' for {}: received 'false' but current is 'true'"),
        ({}, {"auto_delete": True}, "inequivalent arg 'auto_delete' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {"arguments": {"x-message-ttl": 2000}},
            "inequivalent arg 'x-message-ttl' for {}: received '2000' but current is '1000'",
        ),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {},
            "inequivalent arg 'x-message-ttl' for {}: received none but current is the value '1000' of type 'signedint'",
        ),
        (
            {},
            {"arguments": {"x-max-length": 5}},
            "inequivalent arg 'x-max-length' for {}: received the value '5' of type 'signedint' but current is none",
        ),
        (
            {},
            {"type": "quorum"},
            "inequivalent arg 'x-queue-type' for {}: received the value 'quorum' of type 'longstr' but current is none",
        ),
    ],
)
def test_a_different_redeclaration_is_refused(vhost, q, first, second, text):
    declare_queue(q, **first)
    before = rabbitmq.get_queue(q)
    with refused("PRECONDITION_FAILED", text.format(f"queue 'q' in vhost '{vhost}'")):
        declare_queue(q, **second)
    assert rabbitmq.get_queue(q) == before


def test_an_equivalent_redeclaration_is_accepted(q):
    declare_queue(q, arguments={"x-message-ttl": 1000, "foo": 1})
    for again in ({"x-message-ttl": Typed("long", 1000)}, {"x-message-ttl": 1000, "x-queue-type": "classic", "foo": 2}):
        assert not declare_queue(q, arguments=again).created
    assert rabbitmq.get_queue(q).arguments == {"x-message-ttl": 1000, "foo": 1}


def test_a_passive_declaration_only_checks(vhost, q):
    """RMQ-328"""
    with refused("NOT_FOUND", f"no queue 'q' in vhost '{vhost}'"):
        declare_queue(q, passive=True)
    declare_queue(q, arguments={"x-max-length": 5})
    stored_queue = declare_queue(
        q, passive=True, durable=False, exclusive=True, auto_delete=True, type="bogus", arguments={"x-expires": 0}
    )
    assert stored_queue == (q, 0, 0, False)
    assert names(vhost) == ["q"]


def test_declarations_and_deletions_count_ready_messages(vhost, q):
    """RMQ-327"""
    declare_queue(q)
    publish(vhost, b"a", b"b", b"c")
    connection = rabbitmq.connect(vhost)
    assert connection.channel().get("q") is not None
    assert declare_queue(q).messages == declare_queue(q, passive=True).messages == 2
    assert rabbitmq.get_queue(q).messages == 2
    assert delete_queue(q) == 2
    connection.close()


def test_a_declaration_restarts_the_expiry_of_a_queue(vhost, q):
    """RMQ-041: passive or not; without one it is gone, and its name is free."""
    declare_queue(q, arguments={"x-expires": 1000})
    for again in ({"passive": True}, {"arguments": {"x-expires": 1000}}):
        namespaces.step_clock(vhost, timedelta(milliseconds=900))
        assert not declare_queue(q, **again).created
    publish(vhost, b"lost")
    namespaces.step_clock(vhost, timedelta(milliseconds=1100))
    assert declare_queue(q) == (q, 0, 0, True)


# Exclusive queues


def test_an_exclusive_queue_belongs_to_its_connection(vhost, q, connect):
    """RMQ-330"""
    mine, other = connect(), connect()
    assert declare_queue(q, exclusive=True, owner_id=mine).created
    assert rabbitmq.get_queue(q).owner_id == mine
    locked = LOCKED.format("q", vhost)
    for attempt in (
        lambda: declare_queue(q, exclusive=True, owner_id=other),
        lambda: declare_queue(q, owner_id=other),
        lambda: declare_queue(q, owner_id=mine),
        lambda: declare_queue(q, passive=True, owner_id=other),
        lambda: declare_queue(q, passive=True),
        lambda: delete_queue(q, owner_id=other),
        lambda: rabbitmq.bind_queue(vhost, "q", "amq.topic", owner_id=other),
    ):
        with refused("RESOURCE_LOCKED", locked):
            attempt()
    publish(vhost, b"from anywhere")
    assert declare_queue(q, exclusive=True, owner_id=mine).messages == 1
    assert declare_queue(q, passive=True, owner_id=mine).messages == 1
    assert rabbitmq.bind_queue(vhost, "q", "amq.topic", owner_id=mine)
    with refused("RESOURCE_LOCKED", locked):
        rabbitmq.unbind_queue(vhost, "q", "amq.topic", owner_id=other)
    assert delete_queue(q, owner_id=mine) == 1


def test_a_shared_queue_cannot_become_exclusive(vhost, q, connect):
    declare_queue(q)
    with refused("RESOURCE_LOCKED", LOCKED.format("q", vhost)):
        declare_queue(q, exclusive=True, owner_id=connect())


def test_an_ended_connection_cannot_declare_exclusive_queues(vhost, q):
    connection = rabbitmq.connect(vhost)
    connection.close()
    with pytest.raises(AmqpError, match="CONNECTION_FORCED"):
        declare_queue(q, exclusive=True, owner_id=connection.id)
    assert names(vhost) == []


# Deleting


def test_a_missing_queue_is_not_found(vhost, q):
    """RMQ-325"""
    assert delete_queue(q, if_unused=True, if_empty=True) == 0
    missing = f"no queue 'q' in vhost '{vhost}'"
    for attempt in (
        lambda: rabbitmq.bind_queue(vhost, "q", "amq.topic"),
        lambda: rabbitmq.get(q, no_ack=True),
        lambda: rabbitmq.purge_queue(q),
        lambda: rabbitmq.effective(q),
        lambda: rabbitmq.get_queue(q),
    ):
        with refused("NOT_FOUND", missing):
            attempt()


def test_deleting_can_require_an_unused_or_empty_queue(vhost, q):
    """RMQ-326; a message that is held is not ready, so the queue counts as empty."""
    declare_queue(q)
    publish(vhost, b"a")
    with refused("PRECONDITION_FAILED", f"queue 'q' in vhost '{vhost}' not empty"):
        delete_queue(q, if_empty=True)
    with rabbitmq.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("q")
        with refused("PRECONDITION_FAILED", f"queue 'q' in vhost '{vhost}' in use"):
            delete_queue(q, if_unused=True)
        assert channel.get("q").body == b"a"
        assert delete_queue(q, if_empty=True) == 0
    assert names(vhost) == []


def test_a_quorum_queue_is_deleted_without_conditions(vhost, q):
    """RMQ-385: by clients; who operates the broker may have conditions."""
    declare_queue(q, type="quorum")
    for condition in ("unused", "empty"):
        with rabbitmq.connect(vhost) as connection:
            problem = f"cannot delete queue 'q' in vhost '{vhost}'. queue.delete operations with if-{condition} flag set are not"
            with refused("NOT_IMPLEMENTED", f"{problem} supported by quorum queues"):
                connection.channel().delete_queue("q", **{f"if_{condition}": True})
            assert connection.closed is not None
    publish(vhost, b"a")
    with refused("PRECONDITION_FAILED", f"queue 'q' in vhost '{vhost}' not empty"):
        delete_queue(q, if_empty=True)
    assert delete_queue(q, if_unused=True) == 1


def test_deleting_a_queue_dead_letters_no_messages(vhost, q):
    """RMQ-028"""
    declare_queue(EntityAddress(vhost, "dead"))
    declare_queue(q, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    publish(vhost, b"a", b"b")
    assert delete_queue(q) == 2
    assert declare_queue(EntityAddress(vhost, "dead"), passive=True).messages == 0


def test_a_new_queue_of_the_same_name_inherits_nothing(vhost, q):
    declare_queue(q, arguments={"x-max-length": 1})
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "#")
    publish(vhost, b"a")
    old = rabbitmq.get_queue(q).id
    delete_queue(q)
    declare_queue(q)
    new = rabbitmq.get_queue(q)
    assert (new.id != old, new.messages, new.effective) == (True, 0, {})
    assert rabbitmq.list_bindings(vhost) == []
    publish(vhost, b"b")
    assert rabbitmq.get(q, no_ack=True).body == b"b"
    gone = connections.current().execute("SELECT deleted_at IS NOT NULL FROM vitrine_entity WHERE id = %s", [old])
    assert gone.fetchone()[0]
