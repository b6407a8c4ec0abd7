"""How calls of many connections become few statements: against a broker that only writes down what it is asked (no database)."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from broker_core.common.errors import BrokerUnavailable, InvalidArgument, MessageTooLarge
from broker_core.common.types import Actor, EntityAddress, Message, SettleReport
from broker_core.service_bus.http import coalescing

pytestmark = pytest.mark.asyncio

QUEUE = EntityAddress("demo", "orders")
ACTOR = Actor("key", "Root", holder="key:Root@10.0.0.1")
TOO_LARGE = Message(b"too large")


def token(number: int) -> UUID:
    return UUID(int=number)


class Case:
    """A use case as an asynchronous caller sees it; hashable, as the real ones are."""

    def __init__(self, aio):
        self.aio = aio


class RecordingBroker:
    """Answers like the broker; a statement lasts as long as `gate` is closed."""

    def __init__(self):
        self.calls = []
        self.gate, self.failure = asyncio.Event(), None
        self.gate.set()
        self.next_number, self.ids = 1, set()
        self.now, self.seconds_a_message = 0.0, 0.0
        self.send = Case(self._send)
        self.complete = Case(self._complete)

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


@pytest.fixture
def broker(monkeypatch):
    fake = RecordingBroker()
    monkeypatch.setattr(coalescing, "broker", fake)
    monkeypatch.setattr(coalescing, "time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake


async def settle_down():
    for _ in range(20):
        await asyncio.sleep(0)


def send(*bodies, address=QUEUE, actor=ACTOR):
    return asyncio.create_task(coalescing.send(address, [Message(body) for body in bodies], actor=actor))


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
