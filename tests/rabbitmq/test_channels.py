"""Channels: delivery tags, acknowledgements, prefetch, what comes back when they close, and the time to acknowledge."""

import pytest

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import BROKER, EntityAddress, EventKind
from broker_core.rabbitmq.connections import channels
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.rules.errors import AmqpError
from tests.broker_state import events, ledger_agrees
from tests.eventually import eventually

from .connected import as_another_process, bodies, is_there, query, send, step


def get_all(channel, queue="q"):
    """All that is ready, for good."""
    results = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        results.append(delivery)
    return results


def test_a_consumer_gets_all_messages_in_order(channel, queue):
    for body in "abcde":
        send(queue, body)
    channel.consume("q")
    assert bodies(channel.deliveries(2)) + bodies(channel.deliveries(10)) == "abcde"


def test_delivery_tags_count_from_one_on_each_channel_for_gets_and_consumers(connection, queue):
    send(queue, *"abcd")
    first, second = connection.channel(), connection.channel()
    assert first.get("q").delivery_tag == 1
    assert second.get("q").delivery_tag == 1
    first.consume("q", tag="t")
    assert [(d.delivery_tag, d.consumer_tag) for d in first.deliveries(10)] == [(2, "t"), (3, "t")]


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
@pytest.mark.parametrize("tag", [0, 1, 99])
def test_an_unknown_tag_closes_the_channel(connection, queue, settle, tag):
    send(queue, "a", "b")
    channel = connection.channel()
    assert channel.get("q").delivery_tag == 1
    channel.ack(1)
    assert channel.get("q").delivery_tag == 2
    with pytest.raises(AmqpError, match=f"^PRECONDITION_FAILED - unknown delivery tag {tag}$") as refused:
        getattr(channel, settle)(tag)
    assert (refused.value.reply_code, refused.value.is_connection_error) == (406, False)
    with pytest.raises(AmqpError, match="unknown delivery tag"):  # the channel is over, the connection is not
        channel.get("q")
    assert connection.channel().get("q").body == b"b"


def test_multiple_includes_all_up_to_the_tag_and_zero_means_all(connection, queue):
    send(queue, *"abcd")
    channel = connection.channel()
    channel.ack(0, multiple=True)  # there are none, and that is fine
    assert bodies([channel.get("q") for _ in range(4)]) == "abcd"
    channel.ack(2)
    channel.ack(3, multiple=True)
    assert list(channel.unacked) == [4]
    with pytest.raises(AmqpError, match="unknown delivery tag 3$"):
        channel.ack(3, multiple=True)
    channel = connection.channel()
    assert bodies([channel.get("q")]) == "d"
    channel.nack(0, multiple=True)
    assert channel.unacked == {}
    assert bodies(get_all(channel)) == "d"
    assert ledger_agrees(queue)


def test_tags_of_another_channel_are_unknown(connection, queue):
    send(queue, "a")
    connection.channel().get("q")
    with pytest.raises(AmqpError, match="unknown delivery tag 1$"):
        connection.channel().ack(1)


def test_with_no_ack_messages_are_removed_immediately_and_prefetch_is_ignored(channel, queue):
    send(queue, *"abcd")
    channel.qos(1)
    assert channel.get("q", no_ack=True).body == b"a"
    channel.consume("q", no_ack=True)
    assert bodies(channel.deliveries(10)) == "bcd"
    assert channel.unacked == {}
    assert query("SELECT count(*) AS n FROM vitrine_message WHERE entity_id = %s", events(queue)[0].entity_id) == [(0,)]


def test_reject_and_nack_requeue_or_drop(channel, queue):
    send(queue, *"abcd")
    for _ in range(4):
        channel.get("q")
    channel.reject(1)
    channel.reject(2, requeue=False)
    channel.nack(4, multiple=True)
    assert [(d.body, d.redelivered) for d in get_all(channel)] == [(b"a", True), (b"c", True), (b"d", True)]


def test_a_requeue_restores_the_original_position(channel, queue):
    send(queue, *"01234")
    for _ in range(3):
        channel.get("q")
    channel.nack(2)
    channel.nack(1)
    assert bodies(get_all(channel)) == "0134"


def test_requeueing_all_messages_keeps_the_order(channel, queue):
    send(queue, *"abc")
    for _ in range(3):
        channel.get("q")
    channel.nack(0, multiple=True)
    assert bodies(get_all(channel)) == "abc"


def test_a_quorum_queue_has_the_same_position_and_counts_returns(channel):
    channel.declare_queue("quorum", type="quorum")
    send(EntityAddress(channel.connection.vhost, "quorum"), *"01234")
    for _ in range(3):
        channel.get("quorum")
    channel.nack(2)
    channel.nack(1)
    deliveries = get_all(channel, "quorum")
    assert bodies(deliveries) == "0134"
    assert [d.delivery_count for d in deliveries] == [1, 1, 0, 0]


def test_closing_a_channel_requeues_in_order_and_only_what_was_delivered_is_redelivered(connection, queue):
    send(queue, *"0123")
    channel, other = connection.channel(), connection.channel()
    assert bodies([channel.get("q"), other.get("q"), channel.get("q")]) == "012"
    with channel:
        pass
    assert [(d.body, d.redelivered) for d in get_all(connection.channel())] == [(b"0", True), (b"2", True), (b"3", False)]
    other.ack(1)
    channel.close()
    assert ledger_agrees(queue)


def test_recover_requeues_all_messages_of_the_channel(connection, queue):
    send(queue, *"ab")
    channel = connection.channel()
    assert bodies([channel.get("q"), channel.get("q")]) == "ab"
    channel.recover()
    assert [(d.body, d.redelivered) for d in get_all(channel)] == [(b"a", True), (b"b", True)]
    with pytest.raises(AmqpError, match="^NOT_IMPLEMENTED - requeue=false$") as refused:
        channel.recover(requeue=False)
    assert refused.value.reply_code == 540
    with pytest.raises(AmqpError, match="NOT_IMPLEMENTED"):  # it ended the connection
        connection.channel()


def test_acknowledging_a_delivery_of_a_deleted_queue_succeeds(channel, queue):
    send(queue, *"abc")
    for _ in range(3):
        channel.get("q")
    channel.delete_queue("q")
    channel.ack(1)
    rabbitmq.declare_queue(queue)  # another one of this name has nothing to do with it
    send(queue, "new")
    channel.nack(2)
    channel.reject(3, requeue=False)
    assert bodies(get_all(channel)) == "new"


def test_a_get_returns_the_number_of_ready_messages_behind_it(channel, queue):
    send(queue, *"abc")
    delivery = channel.get("q")
    assert (delivery.delivery_tag, delivery.redelivered, delivery.exchange, delivery.routing_key) == (1, False, "", "q")
    assert (delivery.message_count, delivery.body) == (2, b"a")
    channel.ack(1)
    get_all(channel)
    assert channel.get("q") is None


def test_an_empty_name_means_the_last_declared_queue(connection, channel):
    for use in ("get", "consume", "delete_queue"):
        with pytest.raises(AmqpError, match="^NOT_FOUND - no previously declared queue$"):
            getattr(connection.channel(), use)()
    channel.declare_queue("a")
    address = channel.declare_queue().address
    assert address.path.startswith("amq.gen-")
    send(address, "x")
    assert channel.get().body == b"x"
    assert channel.delete_queue() == 0
    assert not is_there(address)


def test_prefetch_applies_to_each_consumer_that_starts_afterwards(channel, queue):
    send(queue, *"0123456789")
    channel.consume("q", tag="before")
    channel.cancel("before")
    channel.qos(3)
    channel.consume("q", tag="a")
    channel.consume("q", tag="b")
    channel.qos(1)  # for those that begin from now on
    deliveries = channel.deliveries(100)
    assert [d.consumer_tag for d in deliveries] == ["a", "b"] * 3
    assert channel.deliveries(100) == []
    channel.ack(deliveries[0].delivery_tag)
    assert [(d.consumer_tag, d.body) for d in channel.deliveries(100)] == [("a", b"6")]
    channel.nack(deliveries[1].delivery_tag)
    assert [(d.consumer_tag, d.body) for d in channel.deliveries(100)] == [("b", b"1")]


def test_global_prefetch_is_shared_and_can_change_at_any_time(channel, queue):
    send(queue, *"0123456789")
    channel.qos(3, global_=True)
    channel.consume("q", tag="a")
    channel.consume("q", tag="b")
    assert len(channel.deliveries(100)) == 3
    channel.qos(5, global_=True)
    assert len(channel.deliveries(100)) == 2
    channel.qos(0, global_=True)
    assert len(channel.deliveries(100)) == 5
    channel.ack(0, multiple=True)
    assert channel.outstanding == 0


def test_per_consumer_and_global_prefetch_both_apply(channel, queue):
    send(queue, *"0123456789")
    channel.qos(2)
    channel.qos(3, global_=True)
    channel.consume("q", tag="a")
    assert len(channel.deliveries(100)) == 2
    channel.consume("q", tag="b")
    assert [d.consumer_tag for d in channel.deliveries(100)] == ["b"]


def test_a_get_ignores_prefetch(channel, queue):
    send(queue, *"abc")
    channel.qos(1)
    channel.qos(1, global_=True)
    channel.consume("q")
    assert bodies(channel.deliveries(10)) == "a"
    assert bodies([channel.get("q"), channel.get("q")]) == "bc"
    channel.ack(1)
    send(queue, "d")
    assert bodies(channel.deliveries(10)) == "d"  # and what was got takes no room


def test_bad_prefetch_counts_are_refused(connection):
    for prefetch in (-1, 65_536, True, 1.5, "1"):
        with pytest.raises(InvalidArgument, match="prefetch: .*must be a whole number"):
            connection.channel().qos(prefetch)
    with pytest.raises(AmqpError, match=r"^NOT_IMPLEMENTED - prefetch_size!=0 \(10\)$"):
        connection.channel().qos(0, prefetch_size=10)


def test_a_quorum_queue_refuses_global_prefetch(connection):
    channel = connection.channel()
    channel.declare_queue("ql", type="quorum")
    channel.qos(1, global_=True)
    with pytest.raises(AmqpError, match="^NOT_IMPLEMENTED - queue 'ql' in vhost '.*' does not support global qos$") as refused:
        channel.consume("ql")
    assert (refused.value.reply_code, refused.value.is_connection_error) == (540, True)


def test_a_channel_error_closes_the_channel_and_requeues_its_messages(connection, queue):
    send(queue, "a")
    channel = connection.channel()
    channel.declare_queue("brief", auto_delete=True)
    channel.consume("brief")
    channel.get("q")
    with pytest.raises(AmqpError, match="^NOT_FOUND"):
        channel.get("none")
    assert not is_there(EntityAddress(queue.namespace, "brief"))
    assert connection.channel().get("q").redelivered


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_delivery_not_acknowledged_in_time_is_requeued_and_closes_its_channel(connection, kind):
    """Also one that was got (RMQ-126)."""
    address = connection.channel().declare_queue("slow", type=kind).address
    send(address, *"abc")
    channel, other = connection.channel(), connection.channel()
    assert bodies([channel.get("slow"), other.get("slow")]) == "ab"
    step(connection.vhost, channels.DEFAULT_TIMEOUT / 2)
    assert channel.get("slow").body == b"c"
    other.ack(1)
    step(connection.vhost, channels.DEFAULT_TIMEOUT / 2 - 1)
    assert channels.end_overdue() == {}
    step(connection.vhost, 1)
    assert channels.end_overdue() == {"overdue": 1}
    assert channels.end_overdue() == {}
    eventually(lambda: channel._overdue)
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 2 timed out. Timeout value used: 1800000 ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    with pytest.raises(AmqpError) as refused:
        channel.get("slow")
    assert (refused.value.text, refused.value.is_connection_error) == (text, False)
    assert [(d.body, d.redelivered) for d in get_all(other, "slow")] == [(b"a", True), (b"c", True)]
    assert ledger_agrees(address)


def test_a_released_delivery_is_requeued_and_its_tag_is_unknown(connection, queue):
    """RMQ-928: an operator releases one message. The channel keeps its others, and closes when it settles that one (RMQ-112)."""
    send(queue, *"abc")
    channel, other = connection.channel(), connection.channel()
    assert bodies([channel.get(queue.path), channel.get(queue.path), other.get(queue.path)]) == "abc"
    assert rabbitmq.release(queue, [1, 99], reason="stuck") == [1]
    assert rabbitmq.release(queue, [1]) == []
    eventually(lambda: channel._released)
    channel.ack(2)
    assert [(d.body, d.redelivered) for d in get_all(connection.channel(), queue.path)] == [(b"a", True)]
    with pytest.raises(AmqpError) as refused:
        channel.ack(1)
    text = "PRECONDITION_FAILED - unknown delivery tag 1: its delivery was released by an operator"
    assert refused.value.text == text and not channel.is_open
    other.ack(1)
    assert ledger_agrees(queue)


def test_the_credit_of_a_released_delivery_returns_to_its_consumer(connection, queue):
    """RMQ-928, RMQ-140"""
    channel = connection.channel()
    channel.qos(1)
    channel.consume("q")
    send(queue, *"ab")
    [first] = channel.deliveries(2)
    assert rabbitmq.release(queue, [1]) == [1]
    eventually(lambda: channel._released)
    [again] = channel.deliveries(2)
    assert (first.delivery.body, again.delivery.body, again.delivery.redelivered) == (b"a", b"a", True)
    channel.ack(again.delivery_tag)
    assert ledger_agrees(queue)


def test_a_late_acknowledgement_is_refused_whether_or_not_the_channel_was_notified(connection, queue):
    send(queue, "a")
    channel = connection.channel()
    channel.get("q")
    step(connection.vhost, channels.DEFAULT_TIMEOUT)
    channel.ack(1)  # nobody has looked yet: as RabbitMQ, which looks once a minute
    send(queue, "b")
    held = channel.get("q")
    delivering.requeue(queue, [held.token])
    with pytest.raises(AmqpError, match="^PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"):
        channel.ack(2)


def test_deliveries_that_were_never_fetched_become_overdue(connection, queue):
    channel = connection.channel()
    channel.consume("q")
    send(queue, "a", properties=rabbitmq.Properties(expiration="0"))
    step(connection.vhost, channels.DEFAULT_TIMEOUT)
    assert channels.end_overdue() == {"overdue": 1}
    eventually(lambda: channel._overdue)
    with pytest.raises(AmqpError, match="timed out"):
        channel.deliveries(1)
    assert connection.channel().get("q") is None  # its life was over long ago
    assert ledger_agrees(queue)


def test_messages_delivered_to_an_ended_connection_are_requeued(connection, queue):
    """A process that is stopped within a receive may go on with it when its connection has been ended by others."""
    send(queue, "a")
    ended = rabbitmq.connect(queue.namespace)
    ended.close()
    assert delivering.get(queue, owner_id=ended.id).body == b"a"
    assert channels.end_overdue() == {"overdue": 1}
    assert connection.channel().get("q").redelivered


@pytest.mark.parametrize("ended", ["the connection", "the delivery"])
def test_deliveries_ended_by_a_closed_connection_or_a_timeout_count_as_failed(connection, ended):
    """RMQ-121: a connection that ends, and a timeout, are failed deliveries like others; the history names who moved them."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 0}
    address = connection.channel().declare_queue("strict", arguments=arguments).address
    other = rabbitmq.connect(address.namespace)
    send(address, "a")
    assert bodies([other.channel().get("strict")]) == "a"
    if ended == "the connection":
        assert rabbitmq.force_close(other.id)
    else:
        step(connection.vhost, channels.DEFAULT_TIMEOUT)
        assert channels.end_overdue() == {"overdue": 1}
    last = events(address, 1)[-1]
    assert (last.kind, last.reason, last.actor) == (EventKind.DROPPED, "delivery_limit", BROKER)
    assert connection.channel().get("strict") is None and ledger_agrees(address)


def test_a_queue_can_have_its_own_acknowledgement_timeout(connection):
    channel = connection.channel()
    address = channel.declare_queue("quick", arguments={"x-consumer-timeout": 60_000}).address
    never = channel.declare_queue("never", arguments={"x-consumer-timeout": 0}).address
    send(address, "a")
    send(never, "n")
    assert bodies([channel.get("quick"), channel.get("never")]) == "an"
    step(connection.vhost, 60_000)
    with as_another_process():
        assert channels.end_overdue() == {"overdue": 1}
    eventually(lambda: channel._overdue)
    with pytest.raises(AmqpError, match="Timeout value used: 60000 ms"):
        channel.publish([])
    assert channels.end_overdue() == {}
