"""What a process owns in the database, how it is known to be alive, and what ends with a connection."""

import asyncio
import gc
import os
import random
import threading
import time
from contextlib import suppress

import pytest

from broker_core import namespaces, rabbitmq, reads
from broker_core.common.errors import BrokerUnavailable, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EventKind, Family, Right
from broker_core.rabbitmq.connections import channels, ending
from broker_core.rabbitmq.connections import connections as rabbit
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.rabbitmq.rules.errors import AmqpError, ConnectionLost
from broker_core.reads import EventFilter
from broker_core.runtime import processes
from broker_core.store import aio, connections
from tests.broker_state import ledger_agrees
from tests.eventually import eventually

from .connected import as_another_process, bodies, is_there, query, send

LEASE_IS_OVER = "UPDATE vitrine_broker_process SET lease_until = clock_timestamp() WHERE epoch = %s"

pytestmark = pytest.mark.usefixtures("fresh_epoch")


def test_a_process_has_one_epoch_with_a_lease_and_a_lock(vhost):
    with rabbit.connect(vhost, "first") as first, rabbit.connect(vhost) as second:
        (row,) = query("SELECT epoch, lease_until - clock_timestamp() AS lease FROM vitrine_broker_process")
        assert processes.LEASE.total_seconds() - 2 < row.lease.total_seconds() <= processes.LEASE.total_seconds()
        assert query(
            "SELECT epoch, name, actor FROM vitrine_connection WHERE id = ANY (%s) ORDER BY id", [first.id, second.id]
        ) == [
            (row.epoch, "first", str(first.actor)),
            (row.epoch, second.actor.name, str(second.actor)),
        ]
        assert query("SELECT pg_try_advisory_lock(hashtextextended('vitrine epoch ' || %s, 0))", row.epoch) == [(False,)]
    assert query("SELECT 1 FROM vitrine_connection WHERE id = ANY (%s)", [first.id, second.id]) == []
    with pytest.raises(AmqpError, match="^CONNECTION_FORCED"):
        first.channel()


def test_a_lease_is_renewed_but_never_after_its_end(vhost):
    connection = rabbit.connect(vhost)
    process = processes.current()
    query(LEASE_IS_OVER + " RETURNING epoch", process.epoch)
    process._renew()
    assert query("SELECT lease_until > clock_timestamp() + interval '13 s' AS renewed FROM vitrine_broker_process") == [(True,)]
    query(LEASE_IS_OVER + " RETURNING epoch", process.epoch)
    assert rabbit.recover_dead() == {"connections": 1}
    with pytest.raises(processes._DeclaredDead):
        process._renew()
    assert query("SELECT 1 FROM vitrine_broker_process") == []
    connection.close()


def test_a_process_stopped_for_longer_than_its_lease_starts_a_new_epoch(vhost, queue):
    old = rabbit.connect(vhost, "old")
    channel = old.channel()
    epoch = processes.current().epoch
    processes.current()._valid_until = time.monotonic() - 0.001
    with pytest.raises(ConnectionLost, match="^CONNECTION_FORCED - connection 'old' is lost: its process was stopped"):
        channel.get("q")
    with pytest.raises(ConnectionLost):
        old.channel()
    with rabbit.connect(vhost) as new:
        assert processes.current().epoch > epoch
        assert query("SELECT id FROM vitrine_connection") == [(new.id,)]  # the old one was ended by who joined
    old.close()


def test_a_broken_session_ends_the_epoch_immediately(vhost, queue):
    connection = rabbit.connect(vhost)
    send(queue, "a")
    assert connection.channel().get("q").body == b"a"
    process = processes.current()
    pid = process._keeper.info.backend_pid
    query("SELECT pg_terminate_backend(%s, 5000)", pid)
    eventually(lambda: process.lost)
    with pytest.raises(ConnectionLost, match="the database has ended the session"):
        connection.channel()
    with rabbit.connect(vhost) as another:
        delivery = another.channel().get("q")
        assert (delivery.body, delivery.redelivered) == (b"a", True)


def test_an_unknown_virtual_host_is_refused(broker_database, vhost):
    for name in ("nope", vhost.upper()):
        with pytest.raises(AmqpError, match=f"^NOT_ALLOWED - vhost {name} not found$") as refused:
            rabbit.connect(name)
        assert (refused.value.reply_code, refused.value.is_connection_error) == (530, True)
    namespaces.create_namespace("service-bus", Family.SERVICE_BUS)
    with pytest.raises(AmqpError, match="not found"):
        rabbit.connect("service-bus")
    with pytest.raises(InvalidArgument, match="name: "):
        rabbit.connect(vhost, "n" * 256)
    assert query("SELECT 1 FROM vitrine_connection") == []


def test_an_actor_with_only_the_right_to_send_can_connect_but_not_receive(vhost, queue):
    with rabbit.connect(vhost, actor=Actor("key", "sender", Right.SEND)) as connection:
        channel = connection.channel()
        channel.publish([rabbitmq.Publication(b"a", routing_key="q")])
        for refused in (lambda: channel.get("q"), lambda: channel.consume("q")):
            with pytest.raises(NotAuthorized, match="LISTEN"):
                refused()
    with pytest.raises(NotAuthorized):
        rabbit.connect(vhost, actor=Actor("key", "manager", Right.MANAGE))


def test_closing_a_connection_requeues_its_messages_in_their_original_order(vhost, queue):
    send(queue, *"abcd")
    connection = rabbit.connect(vhost)
    first, second = connection.channel(), connection.channel()
    assert [first.get("q").body, second.get("q").body, first.get("q").body] == [b"a", b"b", b"c"]
    connection.close()
    connection.close()
    with rabbit.connect(vhost) as another:
        deliveries = [another.channel().get("q") for _ in range(4)]
        assert [(d.body, d.redelivered) for d in deliveries] == [(b"a", True), (b"b", True), (b"c", True), (b"d", False)]
    assert ledger_agrees(queue)


def test_closing_a_connection_deletes_its_exclusive_queues(vhost):
    connection = rabbit.connect(vhost)
    channel = connection.channel()
    mine = channel.declare_queue("mine", exclusive=True).address
    channel.declare_queue("others")
    send(mine, "a")
    with rabbit.connect(vhost) as another:
        for use in ("get", "consume", "declare_queue", "delete_queue"):
            with pytest.raises(AmqpError, match="^RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine'"):
                getattr(another.channel(), use)("mine")
        assert channel.get("mine").body == b"a"
        connection.close()
        assert not is_there(mine)
        with pytest.raises(AmqpError, match=f"^NOT_FOUND - no queue 'mine' in vhost '{vhost}'$"):
            another.channel().get("mine")
        assert another.channel().get("others") is None


def test_an_auto_delete_queue_is_deleted_with_its_last_consumer(vhost):
    """It lives on while it never had one, and a get does not arm it."""
    with rabbit.connect(vhost) as connection, rabbit.connect(vhost) as another:
        channel = connection.channel()
        address = channel.declare_queue("brief", auto_delete=True).address
        assert channel.get("brief") is None
        channel.close()
        assert is_there(address)
        first, second = connection.channel(), another.channel()
        tag = first.consume("brief")
        second.consume("brief")
        first.cancel(tag)
        assert is_there(address)
        another.close()
        assert not is_there(address)


def test_dead_processes_are_recovered_by_their_lock_or_their_lease(vhost, queue):
    send(queue, "a", "b")
    with as_another_process():
        killed = rabbit.connect(vhost, "killed")
        killed.channel().get("q")
        killed.channel().declare_queue("temporary", exclusive=True)
        assert rabbit.recover_dead() == {}  # it lives
    with as_another_process():
        stopped = rabbit.connect(vhost, "stopped")  # joining, it looks for the dead
        assert query("SELECT name FROM vitrine_connection") == [("stopped",)]
        assert not is_there(EntityAddress(vhost, "temporary"))
        held = stopped.channel()
        assert held.get("q").body == b"a"
        query(LEASE_IS_OVER + " RETURNING epoch", processes.current().epoch)
        assert rabbit.recover_dead() == {"connections": 1}
        assert rabbit.recover_dead() == {}
        with rabbit.connect(vhost) as new:  # this process does not know yet that it is dead: the row says so
            assert new.channel().get("q").body == b"a"
            with pytest.raises(
                ConnectionLost, match="its process was declared dead"
            ):  # the zombie's late acknowledgement changes nothing
                held.ack(1)
            assert [row.n for row in query("SELECT count(*) AS n FROM vitrine_message WHERE owner_id = %s", new.id)] == [1]
    assert ledger_agrees(queue)


def test_a_connection_closed_by_an_operator_raises_for_its_client(vhost, queue):
    send(queue, "a")
    connection = rabbit.connect(vhost)
    channel = connection.channel()
    channel.get("q")
    with as_another_process():
        assert rabbit.force_close(connection.id)
        assert not rabbit.force_close(connection.id)
    eventually(lambda: connection.closed)
    with pytest.raises(AmqpError, match="^CONNECTION_FORCED - Closed via management plugin$"):
        channel.ack(1)
    with rabbit.connect(vhost) as another:
        assert another.channel().get("q").redelivered


def test_channels_have_numbers_and_end_with_their_connection(vhost):
    with rabbit.connect(vhost) as connection:
        first, second = connection.channel(), connection.channel()
        assert (first.number, second.number) == (1, 2)
        with pytest.raises(AmqpError, match="^CHANNEL_ERROR - second 'channel.open' seen"):
            connection.channel(2)
        first.close()
        assert connection.channel().number == 1
        with pytest.raises(AmqpError, match="^CHANNEL_ERROR - expected 'channel.open'"):
            first.get("q")
    with pytest.raises(AmqpError, match="^CONNECTION_FORCED"):
        second.get("q")


def test_use_cases_can_be_awaited(vhost, queue):
    send(queue, "a", "b")

    async def story():
        connection = await rabbit.connect.aio(vhost)
        channel = connection.channel()
        got = await channels.get.aio(channel, "q")
        await channels.consume.aio(channel, "q", tag="t")
        delivered = await channels.deliveries.aio(channel, 10, max_wait_seconds=5)
        await channels.ack.aio(channel, got.delivery_tag)
        await rabbit.close.aio(connection)
        await aio.close()
        return got.body, bodies(delivered)

    assert asyncio.run(story()) == (b"a", "b")
    with rabbit.connect(vhost) as connection:
        assert [connection.channel().get("q").body] == [b"b"]


def test_concurrent_connections_lose_no_messages(vhost, queue):
    """Threads with connections of their own take, acknowledge some, and end in every way, while others look for the dead."""
    send(queue, *map(str, range(300)))
    acknowledged, failures = [], []

    def client(seed):
        dice = random.Random(seed)
        try:
            for _ in range(8):
                visit(dice)
        except Exception as exc:
            failures.append(exc)
        finally:
            connections.close_all_of_this_thread()

    def visit(dice):
        with rabbit.connect(vhost) as connection:
            channel = connection.channel()
            channel.declare_queue(exclusive=True)
            channel.declare_queue("shared", auto_delete=True)
            channel.qos(dice.choice((0, 5)))
            channel.consume("q", tag="q", no_ack=False)
            with suppress(AmqpError):  # somebody's last consumer may have taken it away
                connection.channel().consume("shared")
            for delivery in channel.deliveries(8):
                if dice.random() < 0.6:
                    channel.ack(delivery.delivery_tag)
                    acknowledged.append(int(delivery.body))
                elif dice.random() < 0.5:
                    channel.nack(delivery.delivery_tag)
            match dice.randrange(4):
                case 0:
                    channel.close()
                case 1:
                    channel.cancel("q")
                case 2:
                    rabbit.force_close(connection.id)
            rabbit.recover_dead()

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == [] and not any(thread.is_alive() for thread in threads)
    assert query("SELECT 1 FROM vitrine_connection") == query("SELECT 1 FROM vitrine_consumer") == []
    assert [row.path for row in query("SELECT path FROM vitrine_entity_now WHERE namespace_name = %s", vhost)] == ["q"]
    with rabbit.connect(vhost) as connection:
        channel = connection.channel()
        channel.consume("q")
        left = [int(delivery.body) for delivery in channel.deliveries(1000)]
        channel.ack(0, multiple=True)
    assert left == sorted(left) and acknowledged
    assert sorted(acknowledged + left) == list(range(300))
    assert ledger_agrees(queue)


def test_a_forked_child_does_not_use_the_session_of_its_parent(vhost):
    """Else the parent's lock would outlive the parent."""
    connection = rabbit.connect(vhost)
    child = os.fork()
    if child == 0:
        try:
            connection.channel()
        except ConnectionLost:
            os._exit(0 if processes.current() is None else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    connection.channel()
    connection.close()


def test_messages_of_an_unreferenced_connection_are_requeued(vhost, queue, monkeypatch):
    monkeypatch.setattr(processes, "RENEW_SECONDS", 0.05)
    send(queue, "a")
    forgotten, kept = rabbit.connect(vhost, "forgotten"), rabbit.connect(vhost, "kept")
    assert bodies([forgotten.channel().get(queue.path)]) == "a"
    del forgotten
    gc.collect()
    eventually(rabbitmq.end_connections)
    assert bodies([kept.channel().get(queue.path)]) == "a"
    kept.close()


def test_ending_a_connection_is_retried_after_a_failure(vhost, queue, monkeypatch):
    monkeypatch.setattr(processes, "RENEW_SECONDS", 0.05)
    send(queue, "a")
    connection = rabbit.connect(vhost, "cut off")
    connection.channel().get(queue.path)
    with monkeypatch.context() as patched, pytest.raises(BrokerUnavailable):
        patched.setattr(ending, "end", _cut_off)
        connection.close()
    eventually(rabbitmq.end_connections)
    with rabbit.connect(vhost) as other:
        assert bodies([other.channel().get(queue.path)]) == "a"


def _cut_off(connection_id):
    raise BrokerUnavailable("the server closed the connection")
    yield


def test_the_events_and_locks_of_a_connection_name_its_actor(vhost):
    """Whatever the connection is called: a receiver is one actor, which settles under the same name."""
    queue = EntityAddress(vhost, "q")
    rabbitmq.declare_queue(queue)
    rabbitmq.publish(vhost, [Publication(b"x", "", "q", Properties())] * 2)
    scanner = Actor("process", "scanner", Right.ALL)
    with rabbit.connect(vhost, "scanner's first connection", actor=scanner) as connection:
        channel = connection.channel()
        channel.qos(1)
        channel.consume("q")
        [delivery] = channel.deliveries(1)
        got = channel.get("q")
        assert {row.locked_by for row in reads.list_messages(queue).rows} == {"process:scanner"}
        [row] = browsing.connections_of("process:scanner")
        assert (row.name, row.actor, row.vhost) == ("scanner's first connection", "process:scanner", vhost)
        assert [consumer.actor for consumer in browsing.consumers(vhost)] == ["process:scanner"]
        channel.ack(delivery.delivery_tag)
        channel.ack(got.delivery_tag)
    assert browsing.connections_of("process:scanner") == []
    kinds = (EventKind.RECEIVED, EventKind.COMPLETED)
    found = reads.events(EventFilter(entity_id=reads.entity(queue).id, kinds=kinds)).rows
    assert {event.actor for event in found} == {"process:scanner"} and len(found) == 4
