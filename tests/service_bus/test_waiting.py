"""Calls that wait for messages or sessions, in threads and in event loops (docs/design.md D8)."""

import asyncio
import os
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

from broker_core import service_bus
from broker_core.common.errors import (
    EntityDisabled,
    EntityNotFound,
    NoSessionAvailable,
    NotAllowed,
    SessionCannotBeLocked,
    SessionLockLost,
)
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.runtime import dispatcher, wake_ups
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections, driver
from tests.broker_state import entity_id, events, ledger_agrees
from tests.cancellation import cancelled
from tests.eventually import eventually, eventually_aio

LONG = 30


class Call:
    """A call in a thread of its own. result: what it returned, or raised."""

    def __init__(self, use_case, *args, **kwargs):
        self._thread = threading.Thread(target=self._run, args=(use_case, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, use_case, args, kwargs):
        try:
            self.result = use_case(*args, **kwargs)
        except Exception as exc:
            self.result = exc
        finally:
            connections.close_all_of_this_thread()

    def ended(self, seconds=10.0):
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return self.result


def waiting(address):
    """How many calls of this process wait for messages of an entity, and have looked."""
    number = entity_id(address)
    return sum(
        len(found._listeners)
        for (_, watched, _), found in list(dispatcher._dispatchers.items())
        if watched.entity_id == number and not found._is_running and not found._is_due
    )


def begin(count, use_case, *args, address=None, **kwargs):
    """So many calls that wait, and have looked."""
    calls = [Call(use_case, *args, **{"max_wait_seconds": LONG} | kwargs) for _ in range(count)]
    eventually(lambda: waiting(address or args[0]) == count)
    return calls


@pytest.fixture
def statements(monkeypatch):
    """The statements of this process's threads and loops, by name."""
    counted = Counter()
    plain, plain_aio = driver._execute, aio._execute_on

    def counting(statement, connection):
        counted[statement.name] += 1
        return plain(statement, connection)

    async def counting_aio(statement, connection):
        counted[statement.name] += 1
        return await plain_aio(statement, connection)

    monkeypatch.setattr(driver, "_execute", counting)
    monkeypatch.setattr(aio, "_execute_on", counting_aio)
    return counted


@pytest.fixture
def alone(monkeypatch):
    """No thread listens for other processes or asks for ready entities: only commits of this process wake its calls."""
    connections.close_all()
    monkeypatch.setattr(wake_ups.WakeUps, "_start", lambda self: None)


def test_one_statement_serves_several_receivers(queue, statements):
    calls = [
        Call(service_bus.receive, queue, 2, max_wait_seconds=LONG, actor=Actor("key", "Root", Right.ALL, name)) for name in "abc"
    ]
    eventually(lambda: waiting(queue) == 3)
    statements.clear()
    service_bus.send(queue, [Message(str(n).encode()) for n in range(5)])
    received = [call.ended() for call in calls]
    assert sorted(map(len, received)) == [1, 2, 2]
    assert sorted(message.sequence_number for some in received for message in some) == [1, 2, 3, 4, 5]
    assert statements["receive_in_turns"] == 1 and not statements["receive"]
    rows = connections.current().execute(
        "SELECT locked_by, lock_token FROM vitrine_message WHERE entity_id = %s ORDER BY sequence_number", [entity_id(queue)]
    )
    assert {row.lock_token: row.locked_by for row in rows.fetchall()} == {
        message.lock_token: name for name, some in zip("abc", received, strict=True) for message in some
    }
    assert Counter(event.actor for event in events(queue) if event.kind == EventKind.RECEIVED) == dict(
        zip("abc", map(len, received), strict=True)
    )
    assert len({str(message.lock_token)[:18] for some in received for message in some}) == 5  # nobody can derive another's token
    assert ledger_agrees(queue)
    for some in received:
        assert service_bus.complete(queue, [message.lock_token for message in some]).lost == ()
    assert ledger_agrees(queue)


def test_receive_and_delete_calls_are_served_in_turns(queue, statements):
    calls = [
        Call(service_bus.receive_and_delete, queue, 2, max_wait_seconds=LONG, actor=Actor("key", "Root", Right.ALL, name))
        for name in "ab"
    ]
    eventually(lambda: waiting(queue) == 2)
    statements.clear()
    service_bus.send(queue, [Message(str(n).encode()) for n in range(3)])
    received = [call.ended() for call in calls]
    assert sorted(map(len, received)) == [1, 2] and statements["receive_and_delete_in_turns"] == 1
    assert Counter(event.actor for event in events(queue) if event.kind == EventKind.RECEIVED_AND_DELETED) == dict(
        zip("ab", map(len, received), strict=True)
    )
    assert ledger_agrees(queue)


def test_a_commit_of_this_process_wakes_receivers_without_a_notification(queue, alone):
    (call,) = begin(1, service_bus.receive, queue)
    service_bus.send(queue, [Message(b"a")])
    assert [message.body for message in call.ended()] == [b"a"]


async def test_a_commit_of_a_thread_wakes_receivers_of_a_loop_without_a_notification(queue, alone):
    task = asyncio.create_task(service_bus.receive.aio(queue, max_wait_seconds=LONG))
    await eventually_aio(lambda: waiting(queue))
    await asyncio.to_thread(service_bus.send, queue, [Message(b"a")])
    assert [message.body for message in await asyncio.wait_for(task, 10)] == [b"a"]
    await aio.close()


@pytest.mark.parametrize("settle", ["abandon", "release"])
def test_a_message_that_becomes_available_again_wakes_a_receiver(queue, alone, settle):
    service_bus.send(queue, [Message(b"a")])
    (held,) = service_bus.receive(queue)
    (call,) = begin(1, service_bus.receive, queue)
    getattr(service_bus, settle)(queue, held.lock_token)
    assert [message.body for message in call.ended()] == [b"a"]


def test_a_dead_letter_wakes_a_receiver_of_the_dead_letter_queue(queue, alone):
    service_bus.send(queue, [Message(b"a")])
    (held,) = service_bus.receive(queue)
    (call,) = begin(1, service_bus.receive, queue.dead_letter, address=queue)
    service_bus.dead_letter(queue, held.lock_token)
    assert [message.body for message in call.ended()] == [b"a"]


def test_messages_of_the_main_list_do_not_wake_receivers_of_the_dead_letter_queue(queue, alone, statements):
    begin(1, service_bus.receive, queue.dead_letter, address=queue, max_wait_seconds=1.0)
    statements.clear()
    service_bus.send(queue, [Message(b"a")])
    time.sleep(0.2)
    assert not statements["receive"]


def test_a_copy_of_a_topic_wakes_the_receiver_of_its_subscription(namespace, alone):
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("s"))
    (call,) = begin(1, service_bus.receive, topic.subscription("s"))
    service_bus.send(topic, [Message(b"a")])
    assert [message.body for message in call.ended()] == [b"a"]


def test_a_message_sent_without_a_notification_is_found_within_a_second(queue, no_wake_ups):
    """As by a process that was killed between its commit and its notification."""
    (call,) = begin(1, service_bus.receive, queue)
    watched = wake_ups.wake_ups()._entities[entity_id(queue)]
    eventually(lambda: watched.marked_until and watched.check_at is None)  # the checks of the beginning are over
    service_bus.send(queue, [Message(b"a")])
    assert [message.body for message in call.ended()] == [b"a"]


def test_due_messages_and_ended_locks_are_found_while_waiting(queue, step):
    service_bus.send(queue, [Message(b"locked")])
    service_bus.receive(queue)
    (call,) = begin(1, service_bus.receive, queue)
    step(timedelta(minutes=2))
    assert [message.body for message in call.ended()] == [b"locked"]


def test_many_idle_receivers_run_few_statements(queue, make_queue, statements):
    async def wait():
        other = make_queue()
        tasks = [
            asyncio.create_task(service_bus.receive.aio(each, max_wait_seconds=LONG))
            for each in [queue, other]
            for _ in range(100)
        ]
        await eventually_aio(lambda: waiting(queue) + waiting(other) == 200, 30)
        await asyncio.sleep(0.3)
        statements.clear()
        await asyncio.sleep(2.5)
        counts = dict(statements)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await aio.close()
        return counts

    received = asyncio.run(wait())
    assert received.keys() <= {"watch_entities"} and received["watch_entities"] <= 4


def test_receivers_of_a_deleted_queue_are_refused(queue):
    calls = begin(5, service_bus.receive, queue)
    entities.delete_queue(queue)
    assert {type(call.ended()) for call in calls} == {EntityNotFound}
    assert all(str(queue) in str(call.result) for call in calls)


def test_receivers_of_a_disabled_queue_are_refused(queue):
    calls = begin(5, service_bus.receive, queue)
    entities.update_queue(queue, status="ReceiveDisabled")
    assert {type(call.ended()) for call in calls} == {EntityDisabled}


def test_receivers_of_a_queue_that_now_forwards_are_refused(queue, make_queue):
    """SB-171."""
    calls = begin(3, service_bus.receive, queue)
    entities.update_queue(queue, forward_to=make_queue().path)
    assert {type(call.ended()) for call in calls} == {NotAllowed}


@pytest.fixture
def no_wake_ups(monkeypatch):
    """Nothing that this process does wakes its calls, nor do notifications: they learn of it by the check of all entities."""
    monkeypatch.setattr(wake_ups.WakeUps, "poke", lambda *_: None)


def test_receivers_of_a_queue_that_now_has_sessions_are_refused(queue, no_wake_ups):
    """SB-110. A queue gets sessions only by being created anew."""
    calls = begin(3, service_bus.receive, queue)
    recreate_entity(queue, requires_session=True)
    assert {type(call.ended()) for call in calls} <= {NotAllowed, EntityNotFound}


def test_receivers_of_a_recreated_queue_get_its_messages(queue, no_wake_ups):
    calls = begin(3, service_bus.receive, queue)
    recreate_entity(queue)
    service_bus.send(queue, [Message(b"new")] * 3)
    ended = [call.ended() for call in calls]
    assert all(isinstance(outcome, EntityNotFound) or [m.body for m in outcome] == [b"new"] for outcome in ended)
    assert ledger_agrees(queue)


def recreate_entity(address, **settings):
    entities.delete_queue(address)
    entities.create_queue(address, **settings)


@pytest.mark.slow
def test_each_session_goes_to_one_waiting_receiver(make_queue):
    """SB-113."""
    queue = make_queue(requires_session=True)
    calls = begin(3, service_bus.accept_session, queue, max_wait_seconds=4)
    service_bus.send(queue, [Message(session_id=text) for text in "ab"])
    ended = [call.ended() for call in calls]
    sessions = [each for each in ended if not isinstance(each, Exception)]
    assert {each.session_id for each in sessions} == {"a", "b"} and len(sessions) == 2
    assert [type(each) for each in ended if isinstance(each, Exception)] == [NoSessionAvailable]
    for session in sessions:
        assert [m.session_id for m in service_bus.receive_from_session(session)] == [session.session_id]


def test_a_closed_session_goes_to_one_waiting_receiver(make_queue):
    queue = make_queue(requires_session=True)
    held = service_bus.accept_session(queue, "s")
    calls = begin(2, service_bus.accept_session, queue, "s", max_wait_seconds=3)
    assert service_bus.close_session(held)
    ended = [call.ended() for call in calls]
    assert sorted(type(each).__name__ for each in ended) == ["Session", SessionCannotBeLocked.__name__]


def test_a_message_of_a_locked_session_wakes_its_receiver(make_queue, alone):
    queue = make_queue(requires_session=True)
    session = service_bus.accept_session(queue, "s")
    (call,) = begin(1, service_bus.receive_from_session, session, address=queue)
    service_bus.send(queue, [Message(b"other", session_id="t"), Message(b"own", session_id="s")])
    assert [message.body for message in call.ended()] == [b"own"]


def test_a_waiting_receiver_is_notified_that_its_session_is_lost(make_queue, step):
    """SB-117."""
    queue = make_queue(requires_session=True)
    session = service_bus.accept_session(queue, "s")
    (call,) = begin(1, service_bus.receive_from_session, session, address=queue)
    step(timedelta(minutes=2))
    assert isinstance(call.ended(), SessionLockLost)


async def test_cancelled_receivers_leave_no_message_locked(queue):
    """With others that stay, which run the rounds, and get what those that went would have got, or what is released (SB-926)."""
    staying = [asyncio.create_task(_receive_forever(queue, got := [])) for _ in range(2)]
    calls = (service_bus.receive.aio(queue, 2, max_wait_seconds=LONG) for _ in range(40))
    some = await cancelled(calls, seconds=0.03, meanwhile=lambda: service_bus.send(queue, [Message()] * 3))
    for task in staying:
        task.cancel()
    await asyncio.wait(staying)
    await aio.close()
    del got
    text = "SELECT count(lock_token) AS n, max(delivery_count) AS failed FROM vitrine_message WHERE entity_id = %s"
    (row,) = connections.current().execute(text, [entity_id(queue)]).fetchall()
    assert row.n == sum(map(len, some)) and not row.failed and ledger_agrees(queue)


async def _receive_forever(queue, got):
    while True:
        messages = await service_bus.receive.aio(queue, 2, max_wait_seconds=LONG)
        await aio.run_uncancelled(service_bus.complete.aio(queue, [message.lock_token for message in messages]))
        got += messages


async def test_a_message_deleted_for_a_cancelled_receiver_goes_to_another(queue, monkeypatch):
    gone = asyncio.create_task(service_bus.receive_and_delete.aio(queue, max_wait_seconds=LONG))
    await eventually_aio(lambda: waiting(queue))
    stays = asyncio.create_task(service_bus.receive_and_delete.aio(queue, max_wait_seconds=LONG))
    await eventually_aio(lambda: waiting(queue) == 2)
    hand_out = dispatcher.Dispatcher._hand_out

    def without_the_first(self, given):
        (first, *_) = list(self._listeners)
        del self._listeners[first]
        try:
            return hand_out(self, given)
        finally:
            self._listeners[first] = 1

    monkeypatch.setattr(dispatcher.Dispatcher, "_hand_out", without_the_first)
    await asyncio.to_thread(service_bus.send, queue, [Message(b"a")])
    assert [message.body for message in await asyncio.wait_for(stays, 10)] == [b"a"]
    gone.cancel()
    await asyncio.wait([gone])
    await aio.close()


def test_an_interrupted_thread_releases_its_messages(queue, monkeypatch):
    """As by KeyboardInterrupt between the delivery and the return of its call."""
    interrupted = threading.Event()

    class Interrupt(BaseException):
        pass

    def wait(signal, seconds):
        signal._event.wait(seconds)
        if threading.current_thread().name == "interrupted" and signal.is_set():
            interrupted.wait(5)
            raise Interrupt

    monkeypatch.setattr("broker_core.store.signals.Signal.wait", wait)

    def receive():
        with pytest.raises(Interrupt):
            service_bus.receive(queue, max_wait_seconds=LONG)
        connections.close_all_of_this_thread()

    thread = threading.Thread(target=receive, name="interrupted")
    thread.start()
    eventually(lambda: waiting(queue) == 1)
    other = Call(service_bus.receive, queue, max_wait_seconds=LONG)
    eventually(lambda: waiting(queue) == 2)
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    interrupted.set()
    thread.join(10)
    (held,) = other.ended()
    (released,) = service_bus.receive(queue, max_wait_seconds=LONG)
    assert {held.body, released.body} == {b"a", b"b"} and released.delivery_count == 0


def test_calls_continue_after_the_connections_of_the_process_were_closed(queue):
    (call,) = begin(1, service_bus.receive, queue)
    connections.close_all()
    monitor = wake_ups.wake_ups()
    monitor.expect(entity_id(queue))  # as the waiting call itself does now and then
    service_bus.send(queue, [Message(b"a")])
    assert [message.body for message in call.ended()] == [b"a"]


def test_a_forked_child_waits_independently_of_its_parent(queue):
    (call,) = begin(1, service_bus.receive, queue)
    pid = os.fork()
    if pid == 0:
        try:
            service_bus.send(queue, [Message(b"from the child")] * 2)
            messages = service_bus.receive(queue, max_wait_seconds=LONG)
            os._exit(len(messages))
        except BaseException:
            os._exit(99)
    assert [message.body for message in call.ended()] == [b"from the child"]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_a_receive_in_the_callers_transaction_sees_its_own_sends(queue):
    from django.db import transaction

    with transaction.atomic(), connections.callers_transaction():
        service_bus.send(queue, [Message(b"a")])
        (message,) = service_bus.receive(queue, max_wait_seconds=5)
        assert message.body == b"a"
        assert service_bus.receive(queue, max_wait_seconds=0.1) == []
