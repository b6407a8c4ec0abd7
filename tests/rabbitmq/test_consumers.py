"""Consumers: who may consume, who gets what, what follows when one goes, and what a publisher hands over at once."""

import threading
import time

import pytest

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument, ServerBusy
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.connections import channels
from broker_core.rabbitmq.messages import local_consumers
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store import connections
from tests.broker_state import has_waiting_receiver, ledger_agrees
from tests.eventually import eventually

from . import shortcuts
from .connected import as_another_process, bodies, is_there, query, send


def test_a_consumer_tag_is_unique_on_its_channel(connection, queue):
    channel, other = connection.channel(), connection.channel()
    tag = channel.consume("q")
    assert tag.startswith("amq.ctag-") and len(tag) == len("amq.ctag-") + 22
    assert channel.consume("q", tag="t") == "t"
    assert other.consume("q", tag="t") == "t"
    with pytest.raises(InvalidArgument, match="tag: "):
        channel.consume("q", tag="t" * 256)
    with pytest.raises(AmqpError, match="^NOT_ALLOWED - attempt to reuse consumer tag 't'$") as refused:
        channel.consume("q", tag="t")
    assert (refused.value.reply_code, refused.value.is_connection_error) == (530, True)


def test_consumers_are_registered_in_the_database(connection, channel, queue):
    channel.qos(7)
    channel.consume("q", tag="t", no_ack=True, arguments={"x-priority": -3, "other": "x"})
    (row,) = query("SELECT * FROM vitrine_consumer WHERE connection_id = %s", connection.id)
    assert (row.channel, row.tag, row.no_ack, row.exclusive, row.priority, row.prefetch) == (1, "t", True, False, -3, 7)
    assert row.arguments == {"x-priority": ["signedint", "-3"], "other": ["longstr", "x"]}
    assert rabbitmq.declare_queue(queue, passive=True).consumers == 1
    with pytest.raises(AmqpError, match="^PRECONDITION_FAILED - queue 'q' in vhost '.*' in use$"):
        rabbitmq.delete_queue(queue, if_unused=True)
    channel.cancel("t")
    assert rabbitmq.declare_queue(queue, passive=True).consumers == 0


def test_an_exclusive_consumer_excludes_other_consumers(connection, queue):
    text = f"^ACCESS_REFUSED - queue 'q' in vhost '{queue.namespace}' in exclusive use$"
    with as_another_process(), rabbitmq.connect(queue.namespace) as another:
        channel = connection.channel()
        channel.consume("q", tag="t")
        with pytest.raises(AmqpError, match=text) as refused:
            another.channel().consume("q", exclusive=True)
        assert (refused.value.reply_code, refused.value.is_connection_error) == (403, False)
        channel.cancel("t")
        another.channel().consume("q", exclusive=True)
        with pytest.raises(AmqpError, match=text):
            channel.consume("q")
        assert connection.channel().get("q") is None  # getting is nobody's to forbid


@pytest.mark.parametrize(("value", "kind"), [("5", "longstr"), (True, "bool"), (None, "void")])
def test_a_priority_that_is_not_an_integer_is_refused(connection, queue, value, kind):
    text = f"^PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '.*': \"expected integer, got {kind}\"$"
    with pytest.raises(AmqpError, match=text):
        connection.channel().consume("q", arguments={"x-priority": value})
    assert query("SELECT 1 FROM vitrine_consumer") == []


def test_consumers_of_a_channel_get_messages_in_turns(channel, queue):
    send(queue, *"012345")
    for tag in "abc":
        channel.consume("q", tag=tag)
    assert [d.consumer_tag for d in channel.deliveries(6)] == ["a", "b", "c"] * 2


def test_round_robin_does_not_depend_on_when_consumers_poll(channel, queue):
    """RMQ-145"""
    for tag in "ab":
        channel.consume("q", tag=tag)
    served = []
    for body in "01234":
        send(queue, body)
        served += [d.consumer_tag for d in channel.deliveries(5)]
        if body == "2":
            channel.consume("q", tag="c")
    assert served == ["a", "b", "a", "b", "a"]
    send(queue, "5")
    assert [d.consumer_tag for d in channel.deliveries(5)] == ["c"]


def test_consumers_with_and_without_acknowledgement_take_turns(channel, queue):
    """RMQ-145"""
    channel.consume("q", tag="a", no_ack=True)
    channel.consume("q", tag="b")
    served = []
    for body in "0123":
        send(queue, body)
        served += [d.consumer_tag for d in channel.deliveries(5)]
    assert served == ["a", "b", "a", "b"]


def test_a_quorum_queue_refuses_exclusive_consumers(connection, channel):
    """RMQ-386"""
    channel.declare_queue("quorum", type="quorum")
    channel.consume("quorum", exclusive=True)
    channel.consume("quorum")
    assert connection.channel().consume("quorum", exclusive=True)


def test_a_get_from_a_quorum_queue_with_a_single_active_consumer_is_refused(connection, channel, vhost):
    """RMQ-387"""
    for type in ("classic", "quorum"):
        channel.declare_queue(type, type=type, arguments={"x-single-active-consumer": True})
        send(EntityAddress(vhost, type), "a")
    assert channel.get("classic").body == b"a"
    with pytest.raises(AmqpError) as refused:
        channel.get("quorum")
    assert refused.value.text == (
        f"RESOURCE_LOCKED - cannot obtain access to locked queue 'quorum' in vhost '{vhost}'. basic.get operations are not "
        "supported by quorum queues with single active consumer"
    )
    assert not channel.is_open and connection.closed is None


def test_queues_of_a_channel_take_turns(connection, channel):
    for name in ("one", "two"):
        send(channel.declare_queue(name).address, *"012345")
        channel.consume(name, tag=name)
    assert {channel.deliveries(1)[0].consumer_tag for _ in range(2)} == {"one", "two"}


def test_higher_priorities_are_served_first(channel, queue):
    send(queue, *"012345")
    channel.qos(2)
    channel.consume("q", tag="low")
    channel.consume("q", tag="high", priority=5)
    channel.consume("q", tag="too", arguments={"x-priority": 5})
    assert [d.consumer_tag for d in channel.deliveries(1)] == ["high"]
    assert [d.consumer_tag for d in channel.deliveries(5)] == ["too", "high", "too", "low", "low"]
    assert channel.deliveries(5) == []


def test_a_refusal_of_one_queue_loses_no_delivery_of_another(connection, channel, monkeypatch):
    first, second = (channel.declare_queue(name).address for name in ("one", "two"))
    for address in (first, second):
        send(address, "a")
        channel.consume(address.path)
    take_for = channels.delivering.take_for

    def busy_at_two(plan):
        if plan[0].address == second:
            raise ServerBusy("try again")
        return take_for(plan)

    monkeypatch.setattr(channels.delivering, "take_for", busy_at_two)
    deliveries, refused = [], 0
    for _ in range(2):
        try:
            deliveries += channel.deliveries(5)
        except ServerBusy:
            refused += 1
    assert bodies(deliveries) == "a" and deliveries[0].address == first
    with pytest.raises(ServerBusy):
        channel.deliveries(5)
    monkeypatch.undo()
    assert [d.address for d in channel.deliveries(5)] == [second]


def test_a_waiting_consumer_of_higher_priority_on_another_channel_is_served_first(connection, queue):
    low, high = connection.channel(), connection.channel()
    low.consume("q", tag="low")
    high.consume("q", tag="high", priority=1)
    high.asked = 1  # as within a call that waits
    send(queue, "a")
    assert low.deliveries(5) == []
    high.asked = 0  # whoever does not fetch keeps nobody waiting
    assert bodies(low.deliveries(5)) == "a"


def test_a_single_active_consumer_gets_all_messages_until_the_next_takes_over(connection):
    vhost = connection.vhost
    address = connection.channel().declare_queue("sac", arguments={"x-single-active-consumer": True}).address
    with as_another_process(), rabbitmq.connect(vhost) as another:
        first, second, third = connection.channel(), another.channel(), connection.channel()
        first.consume("sac", tag="1")
        second.consume("sac", tag="2")
        third.consume("sac", tag="3")
        send(address, *"0123")
        assert second.deliveries(5) == third.deliveries(5) == []
        assert bodies(first.deliveries(5)) == "0123"
        send(address, "a", "b")
        first.cancel("1")
        assert third.deliveries(5) == []
        assert bodies(second.deliveries(1)) == "a"
        assert list(first.unacked) == [1, 2, 3, 4]
        another.close()
        assert [(d.body, d.redelivered) for d in third.deliveries(5)] == [(b"a", True), (b"b", False)]
        with pytest.raises(AmqpError, match="^ACCESS_REFUSED - queue 'sac' .* in exclusive use$"):
            connection.channel().consume("sac", exclusive=True)


def test_the_next_consumer_is_woken_when_the_single_active_consumer_ends(connection):
    address = connection.channel().declare_queue("sac", arguments={"x-single-active-consumer": True}).address
    active, next_ = connection.channel(), connection.channel()
    active.consume("sac", tag="1")
    next_.consume("sac", tag="2")
    send(address, "a")
    results = []

    def wait():
        results.extend(next_.deliveries(5, max_wait_seconds=20))
        connections.close_all_of_this_thread()

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: next_.waits and has_waiting_receiver(address))
    active.cancel("1")
    thread.join(10)
    assert bodies(results) == "a"


def test_waiting_for_deliveries_ends_with_the_first_delivery(channel, queue):
    channel.consume("q")
    other = channel.connection.channel().declare_queue("other").address
    channel.consume("other")
    began = time.monotonic()
    assert channel.deliveries(5, max_wait_seconds=0.2) == []
    assert time.monotonic() - began >= 0.2
    results = []

    def wait():
        results.extend(channel.deliveries(5, max_wait_seconds=20))
        connections.close_all_of_this_thread()

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: channel.waits and has_waiting_receiver(other))
    send(other, "x")
    thread.join(10)
    assert bodies(results) == "x" and not channel.waits


def test_cancelling_a_consumer_requeues_no_messages(channel, queue):
    send(queue, "a", "b")
    channel.consume("q", tag="t")
    assert bodies(channel.deliveries(1)) == "a"
    channel.cancel("t")
    assert channel.deliveries(5) == []
    assert rabbitmq.declare_queue(queue, passive=True).messages == 1
    channel.ack(1)
    assert ledger_agrees(queue)


def test_cancelling_an_unknown_tag_succeeds(channel):
    channel.cancel("nobody")


def test_a_deleted_queue_cancels_its_consumers_and_the_channel_stays_open(connection, channel, queue):
    channel.consume("q", tag="t")
    send(queue, "before")
    assert bodies(channel.deliveries(1)) == "before"
    rabbitmq.delete_queue(queue)
    rabbitmq.declare_queue(queue)
    send(queue, "a")
    assert channel.deliveries(5) == []  # those of a queue made anew are not restored
    assert (channel.cancelled, channel.consumers) == (["t"], {})
    assert query("SELECT 1 FROM vitrine_consumer WHERE connection_id = %s", connection.id) == []
    assert channel.get("q").body == b"a"


def test_redeclaring_a_queue_as_exclusive_cancels_the_old_consumers(connection, channel, queue):
    channel.consume("q", tag="t")
    send(queue, "before")
    assert bodies(channel.deliveries(1)) == "before"
    rabbitmq.delete_queue(queue)
    with rabbitmq.connect(queue.namespace) as another:
        another.channel().declare_queue("q", exclusive=True)
        send(queue, "a")
        assert channel.deliveries(5) == []
        assert channel.cancelled == ["t"] and channel.is_open


def test_consuming_from_a_missing_queue_is_refused(connection):
    with pytest.raises(AmqpError, match="^NOT_FOUND - no queue 'none' in vhost") as refused:
        connection.channel().consume("none")
    assert refused.value.reply_code == 404


def test_an_auto_delete_queue_is_deleted_with_its_last_consumer(connection):
    channel = connection.channel()
    address = channel.declare_queue("brief", auto_delete=True).address
    send(address, "a")
    first, second = connection.channel(), connection.channel()
    first.consume("brief")
    second.consume("brief", tag="t")
    assert bodies(second.deliveries(1)) == "a"
    first.close()
    assert is_there(address)
    second.cancel("t")
    assert not is_there(address)
    second.ack(1)


def test_only_one_of_several_concurrent_exclusive_consumers_is_accepted(vhost, queue, fresh_epoch):
    """Side by side, from connections of their own: exactly one of them may."""
    opened = [rabbitmq.connect(vhost) for _ in range(4)]
    done = []

    def consume(connection):
        try:
            done.append(connection.channel().consume("q", exclusive=True))
        except AmqpError as refused:
            done.append(refused.reply_code)
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=consume, args=(each,)) for each in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(map(str, done))[:3] == ["403"] * 3 and len(done) == 4
    for each in opened:
        each.close()


# What lives for no time


def test_a_zero_ttl_message_goes_to_a_consumer_with_capacity(channel, queue):
    no_time = {"properties": rabbitmq.Properties(expiration="0")}
    channel.consume("q")
    send(queue, *"01234", **no_time)
    assert bodies(channel.deliveries(10)) == "01234"
    assert channel.unacked.keys() == {1, 2, 3, 4, 5}
    assert shortcuts.ledger_agrees(queue)
    channel.ack(0, multiple=True)
    assert ledger_agrees(queue)


def test_a_zero_ttl_message_without_a_consumer_with_capacity_expires_immediately(connection):
    vhost = connection.vhost
    channel = connection.channel()
    dead = channel.declare_queue("dead").address
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    address = channel.declare_queue("now", arguments=arguments).address
    consuming = connection.channel()
    consuming.qos(2)
    consuming.consume("now")
    send(address, *"01234")
    assert rabbitmq.declare_queue(dead, passive=True).messages == 3
    assert bodies(consuming.deliveries(10)) == "01"
    send(address, "5")  # they are not acknowledged: there is no room
    assert channel.get("now") is None
    consuming.close()
    assert channel.get("now") is None
    assert rabbitmq.declare_queue(dead, passive=True).messages == 6
    assert ledger_agrees(EntityAddress(vhost, "now")) and ledger_agrees(dead)


def test_a_dead_letter_with_a_zero_ttl_goes_to_a_consumer_with_capacity(connection):
    """RMQ-016, RMQ-922: it is handed to a consumer that has room, or goes on at once."""
    channel = connection.channel()
    last = channel.declare_queue("last").address
    channel.declare_queue(
        "now", arguments={"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last"}
    )
    q = channel.declare_queue("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "now"}).address
    consuming = connection.channel()
    consuming.qos(2)
    consuming.consume("now")
    send(q, *"01234")
    for _ in range(5):
        channel.reject(channel.get("q").delivery_tag, requeue=False)
    assert bodies(consuming.deliveries(10)) == "01"
    assert rabbitmq.declare_queue(last, passive=True).messages == 3
    assert channel.get("now") is None
    assert ledger_agrees(EntityAddress(connection.vhost, "now")) and ledger_agrees(last) and ledger_agrees(q)


def test_a_zero_ttl_message_delivered_to_a_closing_channel_is_requeued(connection, queue, monkeypatch):
    channel = connection.channel()
    channel.consume("q")
    buffer = local_consumers.Consumer.buffer

    def close_first(consumer, deliveries):
        channel.close()
        return buffer(consumer, deliveries)

    monkeypatch.setattr(local_consumers.Consumer, "buffer", close_first)
    send(queue, "a", properties=rabbitmq.Properties(expiration="0"))
    assert query("SELECT 1 FROM vitrine_message WHERE owner_id = %s", connection.id) == []
    assert connection.channel().get("q") is None  # its life is over
    assert ledger_agrees(queue)


def test_zero_ttl_messages_are_shared_by_all_consumers_with_capacity(connection):
    channel, other = connection.channel(), connection.channel()
    address = channel.declare_queue("now", arguments={"x-message-ttl": 0}).address
    for each in (channel, other):
        each.qos(2)
        each.consume("now")
    send(address, *"01234")
    assert (bodies(channel.deliveries(5)), bodies(other.deliveries(5))) == ("02", "13")
    assert channel.get("now") is None
    for each in (channel, other):
        each.ack(0, multiple=True)
    assert ledger_agrees(address)


def test_only_an_active_local_consumer_takes_messages_immediately(connection):
    channel = connection.channel()
    channel.declare_queue("sac", arguments={"x-single-active-consumer": True})
    entity_id = query("SELECT id FROM vitrine_entity WHERE path = 'sac' AND deleted_at IS NULL")[0].id

    def eligible_consumers():
        return [consumer.tag for consumer in local_consumers.eligible_consumers(entity_id)]

    assert eligible_consumers() == []
    with as_another_process(), rabbitmq.connect(connection.vhost) as another:
        other = another.channel()
        other.consume("sac", tag="first")
        channel.consume("sac", tag="second")
        assert eligible_consumers() == ["first"]
        other.cancel("first")
        assert eligible_consumers() == []  # until it has seen that it is its turn
        channel.deliveries(1)
        assert eligible_consumers() == ["second"]
    channel.close()
    assert eligible_consumers() == []


def test_turns_are_limited_by_the_available_capacity():
    class Fake:
        credit = 4

    first, second = Fake(), Fake()

    def consumer(channel, prefetch=0, priority=0, no_ack=False):
        return local_consumers.Consumer(0, channel, None, 1, "", no_ack, priority, prefetch, True)

    a, b, c, d = consumer(first, 1), consumer(first), consumer(second, 9, priority=1), consumer(second, priority=-1, no_ack=True)
    assert local_consumers.in_turns([a, b, c, d], 20) == [c, c, c, c, a, b, b, b, *[d] * 12]
    assert local_consumers.in_turns([a, b], 2) == [a, b]
    assert local_consumers.in_turns([], 5) == []
