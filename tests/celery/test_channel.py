"""kombu on the broker, in one process: publish, take, settle, give back, bindings."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import celery
import kombu
import pytest
from kombu.pools import producers

from broker_core import namespaces, reads, service_bus
from broker_core.celery_transport import holdings
from broker_core.celery_transport.channel import GATHERING_SECONDS
from broker_core.celery_transport.holdings import HOLDINGS
from broker_core.celery_transport.transport import SECONDS_BETWEEN_LOOKS
from broker_core.common.errors import BrokerUnavailable, EntityNotFound, NotAllowed
from broker_core.common.types import Actor, EntityAddress, EntityStatus, MessageState
from broker_core.runtime import wake_ups
from broker_core.service_bus import entities
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.values import Message
from tests.eventually import eventually

TASKS = kombu.Queue("tasks", kombu.Exchange(""), routing_key="tasks")


def publish(connection, body="hello", queue=TASKS, **properties):
    kombu.Producer(connection).publish(body, routing_key=queue.name, declare=[queue], **properties)


def settled():
    """Settling is done by a thread: wait for it."""
    assert HOLDINGS.settle_all(5)


def drain(connection, seconds=0.3):
    """Deliver until nothing comes any more."""
    with suppress(TimeoutError):
        while True:
            connection.drain_events(timeout=seconds)


class Inbox:
    """A consumer that keeps what it gets."""

    def __init__(self, connection, *queues, prefetch=0, no_ack=False):
        self.messages = []
        self.channel = connection.channel()
        self.consumer = kombu.Consumer(
            self.channel,
            list(queues) or [TASKS],
            callbacks=[lambda body, message: self.messages.append(message)],
            no_ack=no_ack,
            accept=["json", "pickle", "application/data", "text/plain"],
        )
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    @property
    def bodies(self):
        return [message.payload for message in self.messages]


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_a_message_is_delivered_as_published(connection, peek, serializer):
    body = {"text": "größe", "list": [1, None, 2.5]}
    publish(connection, body, serializer=serializer, headers={"a": 1}, priority=9, correlation_id="c-1")
    inbox = Inbox(connection)
    drain(connection)
    (message,) = inbox.messages
    assert message.payload == body
    assert (message.headers, message.properties["correlation_id"], message.properties["priority"]) == ({"a": 1}, "c-1", 9)
    message.ack()
    settled()
    assert peek() == []


def test_a_body_of_bytes_is_delivered_as_bytes(connection):
    publish(connection, b"\x00\xff", content_type="application/data", content_encoding="binary")
    inbox = Inbox(connection)
    drain(connection)
    assert inbox.messages[0].body == b"\x00\xff"


def test_the_delivery_tag_is_the_lock_token(connection, peek):
    publish(connection)
    inbox = Inbox(connection)
    drain(connection)
    assert inbox.messages[0].delivery_tag in HOLDINGS._holdings
    assert reads.counts(EntityAddress(connection.transport.namespace, "tasks")).locked == 1


def test_a_queue_is_created_with_settings_of_the_transport_options(connect, queue):
    publish(connect(lock_duration=5, max_delivery_count=3))
    settings = entities.get_queue(queue).settings
    assert (settings.lock_duration, settings.max_delivery_count) == (timedelta(seconds=5), 3)
    publish(connect(lock_duration=9))
    assert entities.get_queue(queue).settings.lock_duration == timedelta(seconds=5)  # belongs to whoever administers it


def test_a_rejected_message_is_dead_lettered_with_a_reason(connection, peek):
    publish(connection)
    inbox = Inbox(connection)
    drain(connection)
    inbox.messages[0].reject()
    settled()
    assert peek() == []
    (dead,) = peek(dead_letter=True)
    assert dead.dead_letter_reason == "Rejected"
    assert "worker" in dead.dead_letter_description


def test_requeues_count_until_the_message_is_dead_lettered(connect, peek):
    connection = connect(max_delivery_count=3)
    publish(connection)
    inbox = Inbox(connection)
    for attempt in range(3):
        drain(connection)
        assert inbox.messages[-1].delivery_info["redelivered"] is (attempt > 0)
        inbox.messages[-1].requeue()
        settled()
    drain(connection)
    assert len(inbox.messages) == 3
    (dead,) = peek(dead_letter=True)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "3" in dead.dead_letter_description


def test_a_consumer_takes_at_most_the_prefetch_count(connection, queue):
    for number in range(20):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=6)
    drain(connection)
    assert inbox.bodies == [0, 1, 2, 3, 4, 5]
    assert reads.counts(queue).locked == 6
    for message in inbox.messages[:4]:
        message.ack()
    drain(connection)
    assert inbox.bodies == list(range(10))


def test_an_acknowledgement_from_another_thread_frees_capacity_immediately(connection):
    for number in range(30):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=1)
    inbox.consumer.callbacks[:] = [
        lambda body, message: (inbox.messages.append(message), threading.Timer(0.001, message.ack).start())
    ]
    began = time.monotonic()
    drain(connection)
    assert inbox.bodies == list(range(30))
    assert time.monotonic() - began < 30 * GATHERING_SECONDS


class Loop:
    """What a worker's event loop offers a transport. `tick` is an iteration."""

    def __init__(self):
        self.on_tick, self.timers, self.intervals = set(), [], []

    def add_reader(self, reader, callback):
        self.read = callback

    def remove_reader(self, reader):
        pass

    def call_repeatedly(self, seconds, callback):
        self.intervals.append(seconds)
        return threading.Timer(seconds, callback)

    def call_later(self, seconds, callback):
        self.timers.append((seconds, callback))
        return threading.Timer(seconds, callback)

    def tick(self):
        for callback in self.on_tick:
            callback()


def test_an_event_loop_is_woken_for_prefetch_capacity_only_while_it_accumulates(connection):
    loop = Loop()
    for number in range(6):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=4)
    connection.transport.register_with_event_loop(connection, loop)
    loop.tick()
    assert (inbox.bodies, loop.timers) == ([0, 1, 2, 3], [])
    inbox.channel._last_receive_at = time.monotonic() + 60
    inbox.messages[0].ack()
    loop.tick()
    loop.tick()
    ((seconds, timed),) = loop.timers
    assert (seconds, len(inbox.messages)) == (GATHERING_SECONDS, 4)
    inbox.channel._last_receive_at = 0.0
    timed()
    loop.tick()
    assert (inbox.bodies[4:], len(loop.timers)) == ([4], 1)
    assert all(interval >= 1 for interval in loop.intervals)


def test_a_consumer_waits_briefly_only_while_prefetch_capacity_accumulates(connection, monkeypatch):
    for number in range(6):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=4)
    drain(connection)

    class Waits(Exception):
        pass

    def wait(seconds):
        raise Waits(seconds)

    monkeypatch.setattr(connection.transport._woken, "wait", wait)
    with pytest.raises(Waits) as full:
        connection.drain_events()
    inbox.channel._last_receive_at = time.monotonic() + 60
    inbox.messages[0].ack()
    with pytest.raises(Waits) as gathering:
        connection.drain_events()
    assert (full.value.args, gathering.value.args) == ((SECONDS_BETWEEN_LOOKS,), (GATHERING_SECONDS,))


def test_a_larger_prefetch_count_is_used_immediately(connection, monkeypatch):
    for number in range(3):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=1)
    drain(connection)
    connection.transport._woken.clear()
    inbox.consumer.qos(prefetch_count=3)
    assert connection.transport._woken.is_set()
    drain(connection)
    assert inbox.bodies == [0, 1, 2]


def test_a_consumer_of_empty_queues_runs_no_statement_until_a_message_comes(connection, queue, monkeypatch):
    other = kombu.Queue("other", kombu.Exchange(""), routing_key="other")
    inbox = Inbox(connection, TASKS, other)
    drain(connection)
    calls, call = [], connection.transport.call
    monkeypatch.setattr(connection.transport, "call", lambda *args, **kwargs: (calls.append(args), call(*args, **kwargs))[1])
    drain(connection)
    assert calls == []
    for number, to in enumerate([queue, EntityAddress(queue.namespace, "other"), queue]):
        service_bus.send(to, [Message(f"{number}".encode(), content_type="text/plain")])
        drain(connection)
    assert inbox.bodies == ["0", "1", "2"]


@pytest.fixture
def no_regular_checks(monkeypatch):
    """Only commits and notifications wake waiting calls."""
    wake_ups.wake_ups().stop()
    monkeypatch.setattr(wake_ups, "SECONDS_BETWEEN_CHECKS", 60)
    yield
    wake_ups.wake_ups().stop()


def test_a_consumer_is_woken_by_the_notification_of_another_process(connection, queue, monkeypatch, no_regular_checks):
    inbox = Inbox(connection)
    drain(connection)
    monkeypatch.setattr(wake_ups.WakeUps, "poke", lambda *_: None)  # as if the commit were another process's
    for number in range(5):
        sender = threading.Timer(0.05, service_bus.send, (queue, [Message(b"x", content_type="text/plain")]))
        sender.start()
        connection.drain_events(timeout=5)
        assert len(inbox.messages) == number + 1
        sender.join()
        drain(connection)


@pytest.mark.slow
def test_a_disabled_queue_does_not_delay_the_others(connection, queue):
    other = kombu.Queue("other", kombu.Exchange(""), routing_key="other")
    inbox = Inbox(connection, TASKS, other)
    drain(connection)
    publish(connection, "kept")
    entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    for number in range(3):
        publish(connection, number, queue=other)
        drain(connection, 1.3)
    assert inbox.bodies == [0, 1, 2]
    entities.update_queue(queue, status=EntityStatus.ACTIVE)
    drain(connection, 1.3)
    assert inbox.bodies[3:] == ["kept"]


def test_a_queue_that_requires_sessions_does_not_delay_the_others(connection, queue, no_regular_checks):
    """Nor is it asked again and again (SB-120)."""
    entities.create_queue(queue, requires_session=True)
    service_bus.send(queue, [Message(session_id="1")])
    other = kombu.Queue("other", kombu.Exchange(""), routing_key="other")
    inbox = Inbox(connection, TASKS, other)
    for number in range(3):
        publish(connection, number, queue=other)
        drain(connection)
    assert inbox.bodies == [0, 1, 2]
    service_bus.send(queue, [Message(session_id="1")])
    assert eventually(lambda: calls_of(connection) == 0)


def test_a_queue_that_cannot_be_watched_does_not_delay_the_others(connection, monkeypatch, caplog):
    """As if its namespace had been deleted and created again for another family."""
    other = kombu.Queue("other", kombu.Exchange(""), routing_key="other")
    inbox = Inbox(connection, TASKS, other)
    begin = inbox.channel._begin_watch

    def refusing(queue):
        if queue == "tasks":
            raise NotAllowed("'tasks' is of the family queue_storage.")
        begin(queue)

    monkeypatch.setattr(inbox.channel, "_begin_watch", refusing)
    for number in range(3):
        publish(connection, number, queue=other)
        drain(connection)
    assert inbox.bodies == [0, 1, 2]
    assert "Cannot receive: 'tasks' is of the family" in caplog.text


def calls_of(connection):
    """The number of use cases that a connection calls until nothing comes any more."""
    calls, call = [], connection.transport.call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.transport, "call", lambda *args, **kwargs: (calls.append(args), call(*args, **kwargs))[1])
        drain(connection)
    return len(calls)


def test_a_child_process_does_not_use_the_watches_of_its_parent(connection, queue, monkeypatch):
    watches = Inbox(connection).channel._watches
    drain(connection)
    assert watches.is_empty("tasks")
    monkeypatch.setattr(os, "getpid", lambda pid=os.getpid(): pid + 1)
    parents, now_empty = dict(watches._watches), watches.is_empty("tasks")
    monkeypatch.undo()
    assert not now_empty
    for watch in parents.values():
        watch.wake_ups.unwatch(watch.watched, watch.poke)


def test_closing_releases_unacknowledged_messages_without_counting_a_delivery(connection, peek):
    for number in range(5):
        publish(connection, number)
    inbox = Inbox(connection)
    connection.drain_events(timeout=1)  # the first is handed on, the others wait in the channel
    inbox.channel.close()
    messages = peek()
    assert [(m.body, m.delivery_count) for m in messages] == [(b"%d" % n, 0) for n in range(5)]
    assert service_bus.receive(EntityAddress(connection.transport.namespace, "tasks"), 9)[0].delivery_count == 0
    assert inbox.bodies == [0]


def test_cancelling_a_consumer_releases_messages_it_did_not_receive(connection, queue):
    for number in range(5):
        publish(connection, number)
    inbox = Inbox(connection)
    connection.drain_events(timeout=1)
    inbox.consumer.cancel()
    settled()
    assert reads.counts(queue).locked == 1


def test_a_running_task_keeps_its_lock_during_a_reconnect(connection, peek, monkeypatch):
    publish(connection)
    publish(connection, "second")
    inbox = Inbox(connection)
    drain(connection)
    running = inbox.messages[0].delivery_tag
    monkeypatch.setattr("broker_core.celery_transport.channel._is_running", lambda tag: tag == running)
    connection.close()
    settled()
    address = EntityAddress(inbox.channel._transport.namespace, "tasks")
    assert reads.counts(address).locked == 1
    inbox.messages[0].ack()  # by its token, though its channel is closed
    settled()
    assert [m.body for m in service_bus.peek(address)] == [b"second"]


def test_a_lock_is_renewed_while_its_message_is_unacknowledged(connect, queue):
    connection = connect(lock_duration=5)
    publish(connection)
    Inbox(connection)
    drain(connection, 0.1)
    first = _locked_until(queue)
    assert eventually(lambda: _locked_until(queue) > first)


def _locked_until(queue):
    return reads.list_messages(queue).rows[0].locked_until


def test_a_lost_lock_is_logged(connection, queue, caplog):
    publish(connection)
    inbox = Inbox(connection)
    drain(connection)
    assert namespaces.step_clock(queue.namespace, timedelta(minutes=2))  # the lock ends unnoticed
    with caplog.at_level(logging.WARNING):
        inbox.messages[0].ack()
        settled()
    assert "ended before its message was settled" in caplog.text
    (again,) = service_bus.receive(queue, 1)
    assert again.delivery_count == 1


def test_a_prefetched_message_whose_lock_was_lost_is_not_delivered(connection, queue):
    publish(connection, 1)
    publish(connection, 2)
    inbox = Inbox(connection)
    connection.drain_events(timeout=1)
    namespaces.step_clock(queue.namespace, timedelta(minutes=2))
    service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue, 2)])  # somebody else has had both
    for token in renewer.tokens():
        renewer._lose([token], queue)
    drain(connection)
    assert inbox.bodies == [1]


def test_a_retried_send_keeps_its_message_id(connection, monkeypatch):
    sent = []

    def flaky(address, messages, *, actor):
        sent.append(messages[0].message_id)
        if len(sent) == 1:
            raise BrokerUnavailable("restarting")
        return [1]

    monkeypatch.setattr("broker_core.celery_transport.channel.service_bus.send", flaky)
    app = celery.Celery(broker=connection.as_uri(include_password=True), set_as_current=False)
    task = app.send_task("work")
    assert sent == [task.id, task.id]


def test_a_namespace_deleted_while_in_use_is_created_again(connect, namespace):
    connection = connect()
    namespaces.delete_namespace(namespace)
    publish(connection)
    assert len(service_bus.peek(EntityAddress(namespace, "tasks"))) == 1


def test_with_no_ack_a_message_is_removed_on_delivery(connection, peek):
    publish(connection)
    inbox = Inbox(connection, no_ack=True)
    drain(connection)
    settled()
    assert inbox.bodies == ["hello"]
    assert peek() == []


def test_single_messages_can_be_got(connection, peek):
    publish(connection, 1)
    publish(connection, 2)
    channel = connection.channel()
    assert channel.basic_get("tasks", no_ack=True).payload == 1
    message = channel.basic_get("tasks")
    assert message.payload == 2
    assert channel.basic_get("tasks") is None
    message.ack()
    settled()
    assert peek() == []


def test_a_simple_queue_has_a_length_and_can_be_purged(connection):
    with connection.SimpleQueue("tasks") as simple:
        for number in range(3):
            simple.put(number)
        assert simple.qsize() == 3
        assert simple.clear() == 3
        simple.put("last")
        assert simple.get(timeout=1).payload == "last"


def test_purging_removes_scheduled_messages(connection, peek):
    publish(connection, headers={"eta": (datetime.now(UTC) + timedelta(hours=1)).isoformat()})
    publish(connection)
    assert connection.default_channel.queue_purge("tasks") == 2
    assert peek() == []


def test_an_eta_is_kept_by_the_broker(connection, peek):
    due = datetime.now(UTC) + timedelta(hours=1)
    publish(connection, headers={"eta": due.isoformat()})
    inbox = Inbox(connection)
    drain(connection)
    assert inbox.messages == []
    (waiting,) = peek()
    assert (waiting.state, waiting.scheduled_enqueue_at) == (MessageState.SCHEDULED, due)
    namespaces.step_clock(connection.transport.namespace, timedelta(hours=1))
    drain(connection, 1.5)
    assert len(inbox.messages) == 1


def test_several_queues_are_served_in_turn(connection):
    first, second = kombu.Queue("one", kombu.Exchange("")), kombu.Queue("two", kombu.Exchange(""))
    for number in range(40):
        publish(connection, ["one", number], first)
        publish(connection, ["two", number], second)
    inbox = Inbox(connection, first, second, prefetch=4)
    for _ in range(40):
        connection.drain_events(timeout=1)
        inbox.messages[-1].ack()
    names = [body[0] for body in inbox.bodies]
    assert 10 <= names.count("one") <= 30


def test_a_fanout_reaches_the_queues_bound_by_all_clients(connect):
    news = kombu.Exchange("news", type="fanout")
    inboxes = [Inbox(connect(), kombu.Queue(name, news, auto_delete=True)) for name in ("reader-1", "reader-2")]
    publisher = connect()
    kombu.Producer(publisher, exchange=news).publish("extra", declare=[news])
    for inbox in inboxes:
        drain(inbox.channel._transport.client)
        assert inbox.bodies == ["extra"]


def test_topic_and_direct_exchanges_route_by_key(connect):
    logs, orders = kombu.Exchange("logs", type="topic"), kombu.Exchange("orders", type="direct")
    inbox = Inbox(connect(), kombu.Queue("all", logs, routing_key="app.#"), kombu.Queue("errors", logs, routing_key="*.error"),
                  kombu.Queue("new", orders, routing_key="new"))  # fmt: skip
    publisher = kombu.Producer(connect())
    publisher.publish("to all", exchange=logs, routing_key="app.info", declare=[logs])
    publisher.publish("to both", exchange=logs, routing_key="app.error", declare=[logs])
    publisher.publish("to new", exchange=orders, routing_key="new", declare=[orders])
    publisher.publish("to nobody", exchange=orders, routing_key="old", declare=[orders])
    drain(inbox.channel._transport.client)
    assert sorted(inbox.bodies) == ["to all", "to both", "to both", "to new"]


def test_an_unbound_queue_receives_no_message(connect):
    news = kombu.Exchange("news", type="fanout")
    inbox = Inbox(connect(), kombu.Queue("reader", news))
    inbox.channel.queue_unbind("reader", "news", "reader")
    inbox.channel.queue_unbind("reader", "news", "")
    kombu.Producer(connect(), exchange=news).publish("extra", declare=[news])
    drain(inbox.channel._transport.client)
    assert inbox.messages == []


def test_two_namespaces_are_isolated(connection, connect, db):
    publish(connection)
    with kombu.Connection(f"vitrine://default/{connection.transport.namespace}-b") as other:
        inbox = Inbox(other)
        drain(other)
        assert inbox.messages == []


def test_a_queue_deleted_while_in_use_is_created_again(connection, queue):
    inbox = Inbox(connection)
    drain(connection, 0.1)
    entities.delete_queue(queue)
    publish(connection, "after")  # declared before on this connection, so it is not declared again
    drain(connection, 1.3)  # the regular check finds that the watched queue is gone
    assert inbox.bodies == ["after"]


def test_a_consumer_recreates_its_deleted_queue_with_its_bindings(connect):
    news = kombu.Exchange("news", type="fanout")
    inbox = Inbox(connect(), kombu.Queue("reader", news))
    connection = inbox.channel._transport.client
    drain(connection, 0.1)
    entities.delete_queue(EntityAddress(connection.transport.namespace, "reader"))
    drain(connection, 1.3)
    kombu.Producer(connect(), exchange=news).publish("extra", declare=[news])
    drain(connection)
    assert inbox.bodies == ["extra"]


def test_a_task_for_an_undeclared_queue_is_kept_and_other_messages_are_dropped(connection, caplog):
    producer, namespace = kombu.Producer(connection), connection.transport.namespace
    producer.publish("x", routing_key="late", headers={"task": "t", "id": "1"})
    assert len(service_bus.peek(EntityAddress(namespace, "late"))) == 1
    producer.publish("a reply nobody waits for", routing_key="gone")
    assert "does not exist" in caplog.text
    with pytest.raises(EntityNotFound):
        entities.get_queue(EntityAddress(namespace, "gone"))


def test_a_passive_declaration_creates_no_queue(connection):
    with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
        TASKS(connection.default_channel).queue_declare(passive=True)
    publish(connection)
    assert TASKS(connection.default_channel).queue_declare(passive=True).message_count == 1


def test_a_worker_that_may_not_receive_waits(connection, queue, caplog):
    publish(connection)
    entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    inbox = Inbox(connection)
    drain(connection, 0.2)
    assert inbox.messages == []
    assert caplog.text.count("Cannot receive") == 1
    entities.update_queue(queue, status=EntityStatus.ACTIVE)
    drain(connection, 0.2)
    assert inbox.bodies == ["hello"]


def test_a_message_sent_without_the_transport_reaches_the_consumer(connection, queue):
    inbox = Inbox(connection)
    service_bus.send(queue, [Message(body=b'"by hand"', content_type="application/json")])
    drain(connection)
    assert inbox.bodies == ["by hand"]


def test_a_message_with_a_broken_envelope_is_dead_lettered(connection, queue, peek):
    inbox = Inbox(connection)
    service_bus.send(
        queue, [Message(body=b"x", properties={"kombu": "{"}), Message(body=b'"good"', content_type="application/json")]
    )
    drain(connection)
    settled()
    assert inbox.bodies == ["good"]
    assert [m.dead_letter_reason for m in peek(dead_letter=True)] == ["Rejected"]


def test_the_holder_of_a_lock_names_host_and_process(connection, queue):
    publish(connection)
    Inbox(connection)
    drain(connection)
    assert f"celery@{socket.gethostname()}" in reads.list_messages(queue).rows[0].locked_by


def test_a_database_that_is_down_is_a_connection_error():
    connection = kombu.Connection("vitrine://", transport_options={"dsn": "host=/nonexistent dbname=x"})
    with pytest.raises(connection.connection_errors, match="does not respond"):
        connection.connect()
    with pytest.raises(kombu.exceptions.OperationalError):
        connection.ensure_connection(max_retries=1, interval_start=0)


@pytest.mark.parametrize("url", ["vitrine://", "vitrine://local", "vitrine://default/celery", "vitrine://default"])
def test_alias_and_namespace_may_be_left_out(url, caplog):
    transport = kombu.Connection(url).transport
    assert (transport.database.alias, transport.namespace) == ("default", "celery")


def test_pooled_producers_and_clones_work(connection, peek):
    with producers[connection].acquire(block=True) as producer:
        producer.publish("hello", routing_key="tasks", declare=[TASKS])
    assert len(peek()) == 1


def test_settlements_are_retried_while_the_database_is_unavailable(connection, peek, monkeypatch):

    publish(connection)
    inbox = Inbox(connection)
    drain(connection)
    answers = [BrokerUnavailable("restarting"), None]
    complete = service_bus.complete

    def flaky(*args, **kwargs):
        answer = answers.pop(0)
        if answer:
            raise answer
        return complete(*args, **kwargs)

    monkeypatch.setitem(holdings._ACTIONS, holdings.How.COMPLETE, flaky)
    inbox.messages[0].ack()
    settled()
    assert answers == []
    assert peek() == []


def test_concurrent_acknowledgements_share_statements(connection, monkeypatch):

    calls = []
    complete = service_bus.complete

    def slow(address, tokens, *, actor: Actor):
        calls.append(len(tokens))
        time.sleep(0.02)
        return complete(address, tokens, actor=actor)

    monkeypatch.setitem(holdings._ACTIONS, holdings.How.COMPLETE, slow)
    for number in range(30):
        publish(connection, number)
    inbox = Inbox(connection)
    drain(connection)
    for message in inbox.messages:
        message.ack()
    settled()
    assert sum(calls) == 30
    assert len(calls) < 10


@pytest.fixture
def busy_settling(connection, monkeypatch):
    """The settling thread is busy with a first message until the event is set; the messages of a consumer that has four more."""
    ready, begun, complete = threading.Event(), threading.Event(), service_bus.complete

    def slow(address, tokens, *, actor: Actor):
        begun.set()
        ready.wait(20)
        return complete(address, tokens, actor=actor)

    monkeypatch.setitem(holdings._ACTIONS, holdings.How.COMPLETE, slow)
    for number in range(8):
        publish(connection, number)
    inbox = Inbox(connection, prefetch=4)
    drain(connection)
    assert len(inbox.messages) == 4
    inbox.messages[0].ack()
    assert begun.wait(5)
    yield inbox, ready
    ready.set()


def test_pending_acknowledgements_are_completed_with_the_next_receive(connection, queue, busy_settling):
    inbox, ready = busy_settling
    for message in inbox.messages[1:4]:
        message.ack()
    drain(connection)
    assert inbox.bodies == list(range(8))
    assert [message.sequence_number for message in service_bus.peek(queue)] == [1, 5, 6, 7, 8]
    assert not HOLDINGS.settle_all(0)  # the first one
    ready.set()
    settled()
    assert [message.sequence_number for message in service_bus.peek(queue)] == [5, 6, 7, 8]


def test_acknowledgements_of_a_failed_receive_are_completed_later(connection, queue, busy_settling, monkeypatch):
    inbox, ready = busy_settling
    for message in inbox.messages[1:4]:
        message.ack()

    def fail(*args, **kwargs):
        raise BrokerUnavailable("restarting")

    monkeypatch.setattr("broker_core.celery_transport.channel.service_bus.receive", fail)
    with pytest.raises(BrokerUnavailable):
        drain(connection)
    assert not HOLDINGS.settle_all(0)
    ready.set()
    settled()
    assert [message.sequence_number for message in service_bus.peek(queue)] == [5, 6, 7, 8]


def test_a_lost_lock_is_logged_by_the_next_receive(connection, queue, busy_settling, caplog):
    inbox, _ = busy_settling
    service_bus.complete(queue, [inbox.messages[2].delivery_tag])  # its lock ends
    with caplog.at_level(logging.WARNING):
        for message in inbox.messages[1:4]:
            message.ack()
        drain(connection)
    lost = [record.args[0] for record in caplog.records if "ended before its message was settled" in record.message]
    assert [str(token) for token in lost] == [inbox.messages[2].delivery_tag]


def test_a_forked_child_does_not_inherit_held_messages(connection):
    publish(connection)
    Inbox(connection)
    drain(connection)
    assert HOLDINGS._holdings
    child = os.fork()
    if not child:
        os._exit(bool(HOLDINGS._holdings))
    assert os.waitpid(child, 0)[1] == 0


OUTSIDE_DJANGO = """
from celery import Celery
import broker_core.celery_transport
app = Celery("shop", broker="vitrine://default/shop")
app.send_task("any", retry=False)
"""


def test_without_a_dsn_outside_django_the_error_names_the_setting():
    """An interpreter of its own, because this one has Django settings."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-c", OUTSIDE_DJANGO]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Outside Django, set broker_transport_options['dsn'] of the Celery app" in done.stderr.splitlines()[-1]
