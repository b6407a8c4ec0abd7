"""How receives of many connections become few statements, against a broker that only notes what it is asked (no database)."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from uuid import UUID

import pytest

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.http import coalescing
from broker_core.store.driver import Listening, WaitForMessages

from .test_http_codecs import locked, stored

pytestmark = pytest.mark.asyncio

QUEUE = EntityAddress("demo", "orders")
ACTOR = Actor("key", "Root", holder="key:Root@10.0.0.1")


def token(number: int) -> UUID:
    return UUID(int=number)


class Case:
    """A use case by its two faces; hashable, as the real ones are."""

    def __init__(self, aio, steps=None):
        self.aio, self.steps = aio, steps


class RecordingBroker:
    """Answers like the broker; a statement lasts as long as `gate` is closed. `available` is what a receive finds."""

    def __init__(self):
        self.calls, self.released, self.available, self.waits = [], [], [], 0
        self.gate, self.arrival, self.failure = asyncio.Event(), asyncio.Event(), None
        self.gate.set()
        self.release = Case(self._release)
        self.receive = Case(self._receive, self._receive_steps)
        self.receive_and_delete = Case(self._receive_deleting)

    async def _statement(self, *call):
        self.calls.append(call)
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure

    async def _release(self, address, tokens, *, actor):
        self.released += tokens

    async def _receive(self, address, max_count, *, actor):
        await self._statement("receive", address, max_count)
        return self._take(max_count)

    async def _receive_deleting(self, address, max_count, *, actor):
        await self._statement("receive and delete", address, max_count)
        return [stored(sequence_number=number) for number in self._numbers(max_count)]

    def _receive_steps(self, address, max_count, *, max_wait_seconds, actor):
        def inner():
            while True:
                self.calls.append(("wait", address, max_count))
                if found := self._take(max_count):
                    return found
                yield WaitForMessages((1,), max_wait_seconds)

        return (yield Listening((1,), inner()))

    async def run(self, steps):
        """The asynchronous driver's part. No statements are yielded here, so a wait is all there is."""
        value = None
        try:
            while True:
                step = steps.send(value)
                value = await self.run(step.steps) if isinstance(step, Listening) else await self._wait()
        except StopIteration as end:
            return end.value

    async def _wait(self):
        self.waits += 1
        await self.arrival.wait()
        self.arrival.clear()
        self.waits -= 1

    def _numbers(self, count):
        found, self.available = self.available[:count], self.available[count:]
        return found

    def _take(self, count):
        return [locked(sequence_number=n, lock_token=token(n)) for n in self._numbers(count)]

    def arrive(self, *numbers):
        self.available += numbers
        self.arrival.set()


@pytest.fixture
def broker(monkeypatch):
    fake = RecordingBroker()
    monkeypatch.setattr(coalescing, "broker", fake)
    monkeypatch.setattr(coalescing, "aio", SimpleNamespace(run=fake.run))
    return fake


async def settle_down():
    for _ in range(20):
        await asyncio.sleep(0)


def receive(seconds=0.0, actor=ACTOR):
    return asyncio.create_task(coalescing.receive(QUEUE, max_wait_seconds=seconds, actor=actor))


async def test_receives_are_one_statement_and_disjoint(broker):
    broker.available = [1, 2]
    found = await asyncio.gather(receive(), receive(), receive())
    assert [message and message.sequence_number for message in found] == [1, 2, None]
    assert [call[2] for call in broker.calls] == [3]


async def test_message_locked_for_a_cancelled_receive_is_released(broker):
    broker.gate.clear()
    broker.available = [1, 2]
    gone, there = receive(), receive()
    await settle_down()
    gone.cancel()
    await settle_down()
    broker.gate.set()
    assert (await there).sequence_number == 2
    await settle_down()
    assert broker.released == [token(1)]


async def test_receive_cancelled_in_the_moment_of_its_answer_releases(broker):
    broker.available = [1]
    task = receive()
    while broker.available:
        await asyncio.sleep(0)
    task.cancel()  # the message is on its way, the task has not seen it yet
    with suppress(asyncio.CancelledError):
        await task
    await settle_down()
    assert broker.released == [token(1)] or task.result() is not None


async def test_waiting_receivers_share_one_wait_and_the_longest_waiting_is_served(broker):
    first, second = receive(60), receive(60)
    await settle_down()
    assert broker.waits == 1
    broker.arrive(1)
    assert (await first).sequence_number == 1
    await settle_down()
    assert not second.done() and broker.waits == 1
    broker.arrive(2)
    assert (await second).sequence_number == 2


async def test_wait_ends_with_nothing(broker):
    assert await receive(0.01) is None


async def test_wait_that_nobody_wants_takes_no_message(broker):
    task = receive(60)
    await settle_down()
    task.cancel()
    await settle_down()
    broker.arrive(1)
    await settle_down()
    assert (broker.available, broker.released, broker.waits) == ([1], [], 0)
    assert (await receive(60)).sequence_number == 1


async def test_new_waiter_takes_over_a_wait_that_was_given_up(broker):
    gone = receive(60)
    await settle_down()
    gone.cancel()
    await settle_down()
    there = receive(60)
    await settle_down()
    broker.arrive(1)
    assert (await there).sequence_number == 1
    assert broker.released == []


async def test_refusal_while_waiting_reaches_all_who_wait(broker, monkeypatch):
    async def refuse(steps):
        raise EntityNotFound("demo/orders")

    monkeypatch.setattr(coalescing, "aio", SimpleNamespace(run=refuse))
    outcomes = await asyncio.gather(receive(60), receive(60), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [EntityNotFound] * 2
