"""Senders that meet at one queue: when they are noticed, and what they are told (docs/design.md D3)."""

import asyncio
import threading

import psycopg
import pytest

from broker_core import service_bus
from broker_core.common.errors import BrokerUnavailable, EntityDisabled, EntityNotFound, ServerBusy
from broker_core.common.types import Actor
from broker_core.runtime import contention
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections, driver, statements
from tests.broker_state import entity_id, ledger_agrees


@pytest.fixture(autouse=True)
def fresh():
    contention._counters.clear()


@pytest.fixture
def contended(monkeypatch):
    """The steps that were made as contended: the entity whose turn they took, or None."""
    made, parts = [], driver.Contended.parts

    def noted(step, server_version):
        made.append(step.entity_id)
        return parts(step, server_version)

    monkeypatch.setattr(driver.Contended, "parts", noted)
    return made


def send(queue, count=1, actor=None):
    return service_bus.send(queue, [Message(b"a")] * count, actor=actor)


def test_a_single_sender_is_never_contended(queue, contended):
    for _ in range(5):
        send(queue)
        send(queue, 30)
    assert contended == []


def test_contention_is_detected_and_assumed_for_some_sends(queue, contended, monkeypatch):
    monkeypatch.setattr(contention, "STAYS", 3)
    assert send(queue) == [1]
    noted = contention._counters.copy()
    contention._counters.clear()
    assert send(queue) == [2]  # somebody else
    contention._counters.update(noted)
    assert send(queue) == [3] and contended == []
    numbers = [send(queue, count) for count in (1, contention.FEW - 1, contention.FEW, 1, 1)]
    assert numbers[0] == [4] and numbers[-1] == [numbers[-2][0] + 1]
    assert contended == [entity_id(queue), entity_id(queue), None]  # small batches take turns, large ones do not
    assert ledger_agrees(queue)


def as_contended(queue):
    (counter,) = contention._counters.values()
    counter.left = contention.STAYS


def test_contended_sends_are_refused_like_other_sends(queue, contended):
    send(queue)
    as_contended(queue)
    entities.update_queue(queue, status="SendDisabled")
    with pytest.raises(EntityDisabled):
        send(queue)
    entities.delete_queue(queue)
    with pytest.raises(EntityNotFound):
        send(queue)
    assert len(contended) == 2


def test_a_contended_send_that_waits_too_long_is_refused_and_stores_nothing(queue, contended):
    send(queue)
    as_contended(queue)
    connections.current().execute("SET lock_timeout = '100ms'")
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as other:
        other.execute("UPDATE vitrine_entity_counter SET next_number = next_number WHERE entity_id = %s", [entity_id(queue)])
        for count in (1, contention.FEW):
            with pytest.raises(ServerBusy):
                send(queue, count)
        other.rollback()
    assert len(contended) == 2 and send(queue) == [2]
    connections.close_all_of_this_thread()


def test_a_flush_that_fails_is_an_unknown_outcome(queue, monkeypatch):
    send(queue)
    as_contended(queue)
    monkeypatch.setitem(statements.SQL, "flush", "SELECT 1 / (SELECT 0) AS flushed")
    with pytest.raises(BrokerUnavailable, match="unknown"):
        send(queue)
    assert len(service_bus.peek(queue)) == 2  # it may be there, and here it is


def test_a_send_in_the_callers_transaction_is_not_contended(queue, contended):
    from django.db import transaction

    send(queue)
    as_contended(queue)
    with transaction.atomic(), connections.callers_transaction():
        assert send(queue) == [2]
    assert contended == []


@pytest.mark.parametrize("count", [1, contention.FEW])
def test_threads_that_contend_get_every_number_once(queue, contended, count):
    numbers, start = [], threading.Barrier(4)

    def sender(actor):
        start.wait()
        for _ in range(10):
            numbers.extend(send(queue, count, actor))
        connections.close_all_of_this_thread()

    threads = [threading.Thread(target=sender, args=[Actor.local(f"thread-{n}")]) for n in range(4)]  # so that none are combined
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 40 * count + 1))
    assert contended and ledger_agrees(queue)


async def test_tasks_that_contend_get_every_number_once(queue, contended):
    async def sender(actor):
        return [number for _ in range(10) for number in await service_bus.send.aio(queue, [Message(b"a")], actor=actor)]

    senders = [sender(Actor.local(f"task-{n}")) for n in range(6)]  # so that none are combined
    numbers = [number for some in await asyncio.gather(*senders) for number in some]
    assert sorted(numbers) == list(range(1, 61)) and contended
    await aio.close()
    assert await asyncio.to_thread(ledger_agrees, queue)
