"""A call that is cancelled ends, whatever happens in that moment, and leaves nothing locked that nobody was given."""

import asyncio
import inspect
import logging

import pytest

from broker_core import queue_storage, service_bus
from broker_core.common.errors import ServerBusy
from broker_core.common.types import EntityAddress
from broker_core.runtime import dispatcher
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections, statements
from broker_core.store.driver import Atomically
from broker_core.store.statements import call
from tests.broker_state import entity_id, ledger_agrees
from tests.cancellation import cancelled
from tests.eventually import eventually_aio

ROUNDS = 60


@pytest.mark.parametrize("turns", range(4))
async def test_a_receive_cancelled_while_a_wake_up_arrives_ends(queue, turns):
    task = asyncio.create_task(service_bus.receive.aio(queue, max_wait_seconds=60))
    try:
        waiting = await eventually_aio(lambda: [each for each in listeners(queue) if each.signal._notify])
        waiting[0].signal.set()
        for _ in range(turns):  # of the loop, between the wake-up and the receive's next step
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
    finally:
        service_bus.send(queue, [Message()])  # frees a receive that goes on
        await asyncio.wait([task])
        await aio.close()


async def test_the_steps_of_a_cancelled_call_are_closed(broker_database):
    ended = []

    def inner():
        try:
            yield call("wait_for_it")
        finally:
            ended.append("inner")

    def outer():
        try:
            yield Atomically(inner())
        finally:
            ended.append("outer")

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(statements.SQL, "wait_for_it", "SELECT pg_sleep(30)")
        patched.setitem(statements._KINDS, "wait_for_it", {})
        task = asyncio.create_task(aio.run(steps := outer()))
        await eventually_aio(_sleeps)
        task.cancel()
        await asyncio.wait({task}, timeout=20)
    assert task.cancelled() and ended == ["inner", "outer"] and inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED
    await aio.close()


async def _sleeps():
    text = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%' AND state = 'active'"
    return bool(await asyncio.to_thread(lambda: connections.current().execute(text).fetchall()))


def listeners(address):
    """The calls of this process that wait for messages of a queue."""
    number = entity_id(address)
    return [
        listener
        for (_, watched, _), found in dispatcher._dispatchers.items()
        if watched.entity_id == number
        for listener in found._listeners
    ]


def fetched(text, address):
    return connections.current().execute(text, [entity_id(address)]).fetchall()


def locked(address):
    """The tokens of messages that are locked, or invisible."""
    text = "SELECT lock_token FROM vitrine_message WHERE entity_id = %s AND (locked_until IS NOT NULL OR hold_kind IS NOT NULL)"
    return [row.lock_token for row in fetched(text, address)]


def delivery_counts(address):
    return {row.delivery_count for row in fetched("SELECT delivery_count FROM vitrine_message WHERE entity_id = %s", address)}


def tokens(messages):
    return [message.lock_token for message in messages]


async def flat(calls, **how):
    messages = [message for some in await cancelled(calls, **how) for message in some]
    await aio.close()
    return messages


@pytest.mark.parametrize("name", ["receive", "receive_from"])
async def test_messages_locked_by_a_cancelled_receive_are_released(queue, name):
    service_bus.send(queue, [Message()] * ROUNDS)
    asked = queue if name == "receive" else [queue]
    got = await flat(getattr(service_bus, name).aio(asked, 3) for _ in range(ROUNDS))
    assert 0 < len(got) < 3 * ROUNDS
    assert set(locked(queue)) == set(tokens(got))
    assert delivery_counts(queue) == {0} and ledger_agrees(queue)
    service_bus.release(queue, tokens(got))
    assert len(service_bus.receive(queue, ROUNDS)) == ROUNDS


async def test_a_cancelled_wait_leaves_no_arriving_messages_locked(queue):
    calls = (service_bus.receive.aio(queue, max_wait_seconds=60) for _ in range(ROUNDS))
    got = await flat(calls, seconds=0.03, meanwhile=lambda: service_bus.send(queue, [Message()]))
    assert got and set(locked(queue)) == set(tokens(got))
    assert delivery_counts(queue) == {0} and ledger_agrees(queue)


async def test_deferred_messages_of_a_cancelled_receive_stay_deferred(queue):
    (number,) = service_bus.send(queue, [Message()])
    service_bus.defer(queue, tokens(service_bus.receive(queue)))
    for n in range(ROUNDS):
        for some in await cancelled([service_bus.receive_deferred.aio(queue, [number])], seconds=0.0002 * n):
            service_bus.release(queue, tokens(some))
        assert locked(queue) == []
    await aio.close()
    assert delivery_counts(queue) == {0} and len(service_bus.receive_deferred(queue, [number])) == 1


@pytest.mark.parametrize("session_id", [None, "s"])
async def test_a_session_accepted_by_a_cancelled_call_is_released(make_queue, session_id):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(session_id="s")] * 3)
    held = "SELECT 1 FROM vitrine_session WHERE entity_id = %s AND lock_token IS NOT NULL"
    for n in range(ROUNDS):
        for session in await cancelled([service_bus.accept_session.aio(queue, session_id, max_count=2)], seconds=0.0002 * n):
            assert len(session.messages) == 2 and service_bus.close_session(session)
        assert locked(queue) == [] == fetched(held, queue)
    await aio.close()
    assert delivery_counts(queue) == {0} and ledger_agrees(queue)


async def test_messages_of_a_cancelled_session_receive_are_next_in_the_session(make_queue):
    queue = make_queue(requires_session=True)
    numbers = service_bus.send(queue, [Message(session_id="s")] * ROUNDS)
    session = service_bus.accept_session(queue, "s")
    got = await flat(service_bus.receive_from_session.aio(session) for _ in range(ROUNDS))
    assert 0 < len(got) < ROUNDS and set(locked(queue)) == set(tokens(got))
    rest = service_bus.receive_from_session(session, ROUNDS)
    assert [message.sequence_number for message in got + rest] == numbers
    assert delivery_counts(queue) == {0} and ledger_agrees(queue)


async def test_a_cancelled_get_does_not_count_and_its_messages_are_visible(account):
    queue = EntityAddress(account, "orders")
    queue_storage.create_queue(queue, max_dequeue_count=1)
    for _ in range(8):
        queue_storage.put(queue, "x")
    got = await flat(queue_storage.get.aio(queue, 2) for _ in range(ROUNDS))
    assert len(locked(queue)) == len(got) and ledger_agrees(queue)
    rest = queue_storage.get(queue, 32)
    assert {message.dequeue_count for message in got + rest} == {1}
    assert len({message.message_id for message in got + rest}) == 8


async def test_a_refused_release_is_logged_and_the_call_is_cancelled(queue, monkeypatch, caplog):
    def busy(messages, asked):
        raise ServerBusy("no connection is free")
        yield

    monkeypatch.setattr(service_bus.receive, "_on_cancel", busy)
    service_bus.send(queue, [Message()] * ROUNDS)
    with caplog.at_level(logging.WARNING, "broker_core.store.aio"):
        got = await flat(service_bus.receive.aio(queue) for _ in range(ROUNDS))
    assert len(caplog.records) == len(locked(queue)) - len(got) > 0
    assert "could not release what a cancelled call had acquired: no connection is free" in caplog.text
