"""Clients in the database: recorded by their process, read, closed from another one, and gone with their process."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from broker_core import clients
from broker_core.clients.recording import Recorder, remove_the_dead
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.runtime import processes
from broker_core.store import aio, connections, driver
from broker_core.wire.clients import Direction, Registry
from tests.eventually import eventually_aio
from tests.fixtures import broker_database  # noqa: F401 - a fixture

from . import rows

ORDERS = EntityAddress("shop", "orders", SubQueue.DEAD_LETTER)
KEY = Actor("key", "app", Right.SEND, "key:app@10.0.0.7")
READER, OPERATOR = Actor("user", "vera", Right.BROWSE), Actor("user", "otto", Right.BROWSE | Right.OPERATE)

pytestmark = pytest.mark.usefixtures("broker_database", "own_epoch")


@pytest.fixture
def own_epoch():
    processes.leave_all()
    yield
    processes.leave_all()


def query(text, *params):
    cursor = connections.current().execute(text, params or None)
    return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def here():
    """A recorder of its own registry; reads in a thread, as pages do."""
    registry = Registry()
    recorder = Recorder(registry)
    yield SimpleNamespace(registry=registry, recorder=recorder, record=recorder.record)
    await recorder.stop()
    await aio.close()


def opened(here, **of):
    client = here.registry.opened("AMQP 1.0", "10.0.0.7:4711", **{"is_tls": True, "port": 5671, **of})
    client.identify("azure-servicebus", "7.14", "Python")
    client.authenticated(KEY, "shop")
    return client


async def read(*args, **kwargs):
    return await asyncio.to_thread(clients.clients, *args, **kwargs)


async def test_a_client_is_recorded_with_its_links(here):
    client = opened(here)
    client.since -= 60
    client.messages_in, client.messages_out, client.bytes_in, client.bytes_out = 3, 4, 500, 600
    link = client.link(ORDERS, Direction.RECEIVES, "peek-lock", name="r-1", channel=2)
    link.credit, link.unsettled, link.messages = 10, 3, 4
    await here.record()
    (row,) = await read(actor=READER)
    assert (row.protocol, row.peer, row.port, row.is_tls) == ("AMQP 1.0", "10.0.0.7:4711", 5671, True)
    assert (row.product, row.version, row.description) == ("azure-servicebus", "7.14", "Python")
    assert (row.actor, row.holder, row.namespace) == ("key:app", "key:app@10.0.0.7", "shop")
    assert (row.messages_in, row.messages_out, row.bytes_in, row.bytes_out) == (3, 4, 500, 600)
    assert 59 < (row.now - row.since).total_seconds() < 90 and row.process == Actor.local().name
    (found,) = row.links
    assert (found.address, found.direction, found.mode, found.name) == (ORDERS, "receives", "peek-lock", "r-1")
    assert (found.credit, found.unsettled, found.messages, found.channel) == (10, 3, 4, 2)
    again = await asyncio.to_thread(clients.client, row.id, actor=READER)
    assert replace(again, now=row.now) == row


async def test_only_what_has_changed_is_written_and_what_ended_goes(here, monkeypatch):
    written = []
    run = aio.run

    async def noted(steps):
        if steps.__name__ == "_write":
            params = steps.gi_frame.f_locals["params"]
            written.append([len(json.loads(params["clients"])), len(json.loads(params["links"])), params["ended"]])
        return await run(steps)

    monkeypatch.setattr(aio, "run", noted)
    one, other = opened(here), opened(here)
    link = one.link(ORDERS, Direction.SENDS)
    await here.record()
    await here.record()
    assert written == [[2, 1, []]]
    other.bytes_in += 1
    await here.record()
    assert written[1] == [1, 0, []]
    link.unsettled = 1
    await here.record()
    assert written[2][1] == 1
    one.unlink(link.number)
    here.registry.closed(other)
    await here.record()
    assert written[3][2] == [other.number]
    (row,) = await read()
    assert row.links == () and query("SELECT count(*) AS n FROM vitrine_client_link")[0].n == 0


async def test_rates_are_averages_of_some_seconds_and_fall_to_zero(here, monkeypatch):
    at = [1000.0]
    monkeypatch.setattr("broker_core.clients.recording.time", SimpleNamespace(monotonic=lambda: at[0], time=time.time))
    client = opened(here)
    link = client.link(ORDERS, Direction.SENDS)
    rates = []
    for step in range(10):
        await here.record()
        (row,) = await read()
        rates.append((row.messages_per_second, row.bytes_per_second, row.links[0].messages_per_second))
        at[0] += 1
        if step < 3:
            client.messages_in, client.bytes_in, link.messages = (
                client.messages_in + 10,
                client.bytes_in + 1000,
                link.messages + 10,
            )
    assert rates[:4] == [(0, 0, 0), (10, 1000, 10), (10, 1000, 10), (10, 1000, 10)]
    assert rates[5] == (6, 600, 6) and rates[9] == (0, 0, 0)


async def test_texts_that_the_database_cannot_store_are_replaced(here):
    client = opened(here)
    client.last_request = "GET /a\x00b\ud800/" + "x" * 1000
    client.link(EntityAddress("shop", "or\x00ders"), Direction.SENDS, name="\x00")
    await here.record()
    (row,) = await read()
    assert row.last_request.startswith("GET /a\ufffdb\ufffd/x") and row.links[0].address.path == "or\ufffdders"


async def test_nothing_is_done_without_clients(here):
    await here.record()
    assert processes.current() is None


async def test_an_operator_closes_a_client_of_another_process(here):
    reasons = []

    def close(reason):
        reasons.append(reason)
        here.registry.clients.clear()

    opened(here, close=close)
    await here.record()
    (row,) = await read()
    with pytest.raises(NotAuthorized):
        await asyncio.to_thread(clients.close_client, row.id, "because", actor=READER)
    assert await asyncio.to_thread(clients.close_client, row.id, "it floods the queue", actor=OPERATOR)
    assert await read() == []
    await eventually_aio(lambda: reasons == ["it floods the queue"])
    assert not await asyncio.to_thread(clients.close_client, row.id, "again", actor=OPERATOR)
    await here.record()
    assert await read() == []


@pytest.mark.parametrize("client_id", ["", "1", "1-", "x-1", "1-2-3", "1-" + "9" * 30, "٣-1"])
def test_ids_that_are_none(client_id):
    assert clients.client(client_id) is None
    with pytest.raises(InvalidArgument):
        clients.close_client(client_id, "because")


@pytest.mark.parametrize("reason", ["", "x" * 201, "two\nlines", None])
def test_reasons_that_are_none(reason):
    with pytest.raises(InvalidArgument):
        clients.close_client("1-1", reason)


async def test_clients_are_found_by_actor_and_holder(here):
    opened(here)
    other = opened(here)
    other.authenticated(Actor("key", "app", Right.SEND, "key:app@10.0.0.8"), "shop")
    await here.record()
    assert len(await read(of_actor="key:app")) == 2 and await read(of_actor="key:ap") == []
    assert [row.holder for row in await read(holders=["key:app@10.0.0.8", "key:x"])] == ["key:app@10.0.0.8"]
    assert await read(holders=[]) == []


async def test_a_new_epoch_has_all_clients_again(here):
    client = opened(here)
    client.link(ORDERS, Direction.SENDS)
    await here.record()
    query("UPDATE vitrine_broker_process SET lease_until = to_timestamp(0) WHERE epoch = %s", processes.current().epoch)
    assert await read() == []
    client.bytes_in += 1
    await here.record()  # nothing is written for a process that was declared dead
    assert await read() == []
    await here.record()
    (row,) = await read()
    assert len(row.links) == 1
    driver.run(remove_the_dead())
    assert len(query("SELECT epoch FROM vitrine_client")) == 1


async def test_a_recorder_that_stops_removes_its_clients(here):
    here.recorder.start()
    opened(here, close=lambda reason: None)
    await eventually_aio(read)
    await here.recorder.stop()
    assert await read() == []


def test_the_clients_of_a_killed_process_vanish():
    client_id = rows.connect(ORDERS)
    epoch = int(client_id.split("-")[0])
    assert [row.id for row in clients.clients()] == [client_id]
    driver.run(remove_the_dead())  # its lock is free: nobody holds the session
    assert clients.clients() == []
    for table in ("vitrine_client", "vitrine_client_link", "vitrine_broker_process"):
        assert query(f"SELECT 1 FROM {table} WHERE epoch = %s", epoch) == [], table
