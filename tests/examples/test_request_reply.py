"""The example of questions and answers over a reply queue for each client."""

import asyncio
from datetime import timedelta

import pytest
import request_reply as example

from broker_core import service_bus, sweeps
from broker_core.common.errors import EntityNotFound
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio
from tests.eventually import eventually_aio

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def questions(make_queue):
    yield make_queue()
    await aio.close()


@pytest.fixture
async def servers(questions):
    running = [asyncio.create_task(example.serve(questions, example.square)) for _ in range(2)]
    yield running
    await example.stop(*running)


async def test_each_client_gets_its_own_answers(questions, servers):
    answers = await asyncio.gather(*[example.ask_all(questions, name, range(n, n + 5)) for n, name in enumerate("abcd")])
    assert answers == [[example.square(str(number)) for number in range(n, n + 5)] for n in range(4)]
    assert len(entities.list_queues(questions.namespace)) == 5
    assert not any(server.done() for server in servers)


async def test_question_without_a_server_ends_at_its_deadline(questions, step):
    async with example.Client(questions, "a") as client:
        with pytest.raises(TimeoutError):
            await client.ask("1", within_seconds=0.05)
        assert client.asked == {}
    step(timedelta(seconds=1))
    assert service_bus.receive(questions) == []


async def test_idle_reply_queue_is_deleted_with_its_messages(questions, step, monkeypatch):
    client = example.Client(questions, "crashed")
    monkeypatch.setattr(client, "listen", lambda: asyncio.sleep(0))
    await client.__aenter__()
    service_bus.send(client.replies, [Message(b"nobody will read this")])
    step(example.IDLE)
    sweeps.delete_idle_entities()
    entities.get_queue(client.replies)  # activity is known to 20 seconds
    step(timedelta(seconds=30))
    sweeps.delete_idle_entities()
    with pytest.raises(EntityNotFound):
        entities.get_queue(client.replies)


async def test_answer_for_a_disconnected_client_stops_no_server(questions, servers):
    service_bus.send(questions, [Message(b"1", message_id="q", reply_to="replies/of-nobody")])
    assert await example.ask_all(questions, "a", range(2, 3)) == ["2 x 2 = 4"]
    await eventually_aio(lambda: not service_bus.peek(questions), 10)  # the answer comes before the question is completed
    assert not any(server.done() for server in servers)
