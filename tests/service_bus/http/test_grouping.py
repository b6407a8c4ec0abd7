"""How calls of many connections become few statements: against a broker that only writes down what it is asked (no database)."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from uuid import UUID

import pytest

from broker_core.common.errors import BrokerUnavailable, EntityNotFound, InvalidArgument, MessageTooLarge
from broker_core.common.types import Actor, EntityAddress, Message, SettleReport
from broker_core.service_bus.http import coalescing
from broker_core.store.driver import Listening, WaitForMessages

from .test_http_codecs import locked, stored

pytestmark = pytest.mark.asyncio

QUEUE = EntityAddress("demo", "orders")
ACTOR = Actor("key", "Root", holder="key:Root@10.0.0.1")
TOO_LARGE = Message(b"too large")


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
        self.next_number, self.ids = 1, set()
        self.now, self.seconds_a_message = 0.0, 0.0
        self.send = Case(self._send)
        self.complete = Case(self._complete)
        self.release = Case(self._release)
        self.receive = Case(self._receive, self._receive_steps)
        self.receive_and_delete = Case(self._receive_deleting)

    async def _statement(self, *call):
        self.calls.append(call)
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure

    async def _send(self, address, messages, *, actor):
        await self._statement("send", address, len(messages), actor.name)
        self.now += self.seconds_a_message * len(messages)
        if TOO_LARGE in messages:
            raise MessageTooLarge("message", 100, 99)
        return [self._number(message) for message in messages]

    def _number(self, message):
        """A new one, or none for a message whose id was here already."""
        if message.message_id in self.ids:
            return None
        self.ids |= {message.message_id} - {None}
        self.next_number += 1
        return self.next_number - 1

    async def _complete(self, address, tokens, *, actor):
        await self._statement("complete", address, len(tokens))
        return SettleReport(
            tuple((t, t.int) for t in dict.fromkeys(tokens) if t.int < 100), tuple(t for t in tokens if t.int >= 100)
        )

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
    monkeypatch.setattr(coalescing, "time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake


async def settle_down():
    for _ in range(20):
        await asyncio.sleep(0)


def send(*bodies, address=QUEUE, actor=ACTOR):
    return asyncio.create_task(coalescing.send(address, [Message(body) for body in bodies], actor=actor))


def receive(seconds=0.0, actor=ACTOR):
    return asyncio.create_task(coalescing.receive(QUEUE, max_wait_seconds=seconds, actor=actor))


async def test_lone_send_is_one_statement_at_once(broker):
    assert await send(b"a", b"b") == [1, 2]
    assert broker.calls == [("send", QUEUE, 2, "Root")]


async def test_what_gathers_during_a_statement_goes_into_the_next(broker):
    broker.gate.clear()
    first = send(b"a")
    await settle_down()
    others = [send(b"b", b"c"), send(b"d"), send(b"e", b"f")]
    await settle_down()
    broker.gate.set()
    assert await first == [1]
    assert await asyncio.gather(*others) == [[2, 3], [4], [5, 6]]
    assert [call[2] for call in broker.calls] == [1, 5]


async def test_dropped_duplicates_are_told_to_those_who_sent_them(broker):
    """SB-131, SB-135: a batch with one of them, a batch of nothing else, and what came before and after."""
    batches = ["a", "ab", "a", "bcb", "d"]
    sent = [coalescing.send(QUEUE, [Message(message_id=text) for text in batch], actor=ACTOR) for batch in batches]
    assert await asyncio.gather(*sent) == [[1], [None, 2], [None], [None, 3, None], [4]]
    assert len(broker.calls) == 1


async def test_entities_and_actors_do_not_mix(broker):
    others = EntityAddress("demo", "others"), Actor("key", "Other")
    await asyncio.gather(send(b"a"), send(b"b", address=others[0]), send(b"c", actor=others[1]))
    assert sorted(call[2] for call in broker.calls) == [1, 1, 1]


async def test_senders_of_one_key_go_together_wherever_they_are(broker):
    await asyncio.gather(*[send(b"a", actor=Actor("key", "Root", holder=str(n))) for n in range(3)])
    assert [call[2] for call in broker.calls] == [3]


async def test_group_holds_at_most_its_limit_and_a_larger_one_goes_alone(broker):
    sizes = [1, 300, 199, 1, 600, 1]
    await asyncio.gather(*[send(*[b"x"] * size) for size in sizes])
    assert [call[2] for call in broker.calls] == [500, 1, 600, 1]


@pytest.mark.parametrize(
    ("seconds", "groups"), [(0.001, [500, 500]), (0.01, [500, 100, 100, 100, 100, 100]), (5, [500] + [10] * 50)]
)
async def test_groups_are_as_large_as_a_second_allows(broker, seconds, groups):
    broker.seconds_a_message = seconds
    await asyncio.gather(*[send(b"x") for _ in range(1000)])
    assert [call[2] for call in broker.calls] == groups


async def test_group_after_a_slow_moment_is_large_again(broker):
    broker.seconds_a_message = 5
    many = [send(b"x") for _ in range(1020)]
    while len(broker.calls) < 3:
        await asyncio.sleep(0)
    broker.seconds_a_message = 0.001
    await asyncio.gather(*many)
    assert [call[2] for call in broker.calls] == [500, 10, 10, 500]


async def test_refusal_reaches_only_the_request_it_is_about(broker):
    bad = asyncio.create_task(coalescing.send(QUEUE, [TOO_LARGE], actor=ACTOR))
    good = [send(b"a"), send(b"b")]
    assert await asyncio.gather(*good) == [[1], [2]]
    with pytest.raises(MessageTooLarge):
        await bad
    assert [call[2] for call in broker.calls] == [3, 1, 1, 1]


async def test_message_that_is_wrong_by_itself_never_joins_a_group(broker):
    with pytest.raises(InvalidArgument):
        await coalescing.send(QUEUE, [Message(message_id="x" * 129)], actor=ACTOR)
    assert broker.calls == []


async def test_large_bodies_fill_a_group_sooner(broker):
    await asyncio.gather(*[send(b"x" * 2**20) for _ in range(8)])
    assert [call[2] for call in broker.calls] == [3, 3, 2]


async def test_group_whose_fate_is_unknown_is_not_sent_again(broker):
    broker.failure = BrokerUnavailable("down")
    outcomes = await asyncio.gather(send(b"a"), send(b"b"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BrokerUnavailable] * 2
    assert len(broker.calls) == 1
    broker.failure = None
    assert await send(b"c") == [1]


async def test_send_cancelled_before_its_statement_is_not_made(broker):
    broker.gate.clear()
    first = send(b"a")
    await settle_down()
    second, third = send(b"b"), send(b"c")
    await settle_down()
    second.cancel()
    await settle_down()
    broker.gate.set()
    assert await first == [1] and await third == [2]


async def test_completes_are_told_apart(broker):
    tokens = [[token(1)], [token(2), token(200)], [token(1)]]
    reports = await asyncio.gather(*[coalescing.complete(QUEUE, group, actor=ACTOR) for group in tokens])
    assert [call[2] for call in broker.calls] == [4]
    assert reports == [
        SettleReport(((token(1), 1),), ()),
        SettleReport(((token(2), 2),), (token(200),)),
        SettleReport((), (token(1),)),  # settled twice: the second is told so (SB-071)
    ]


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
