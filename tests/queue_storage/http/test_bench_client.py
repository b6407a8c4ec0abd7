"""The client of `make bench` (bench.queue_client): it measures requests that are accepted, and does all of them."""

import asyncio

import pytest

from bench import queue_client
from bench.queue_client import CONNECTIONS, Service, Signed
from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts


@pytest.fixture
def service(port, account):
    queue_storage.create_queue(EntityAddress(account, "orders"))
    return Service(port, account, accounts.get_keys(account).primary_key, "orders")


def count(service):
    return queue_storage.approximate_count(EntityAddress(service.account, service.queue))


def test_puts_and_gets_as_many_messages_as_it_says(service):
    assert asyncio.run(queue_client.put(service, 40, '{"a": "b"}')) > 0
    assert count(service) == 40
    assert asyncio.run(queue_client.get_and_delete(service, 30)) > 0
    assert count(service) == 10


def test_an_empty_queue_is_no_measurement(service):
    with pytest.raises(RuntimeError, match="became empty"):
        asyncio.run(queue_client.get_and_delete(service, 1))


def test_an_unexpected_answer_is_no_measurement(service):
    with pytest.raises(AssertionError, match="403"):
        asyncio.run(queue_client.put(Service(service.port, service.account, service.key[:-4] + "AA==", "orders"), 1, "a"))


def test_creates_and_lists_queues(service):
    asyncio.run(queue_client.create_queues(service, [f"queue-{n}" for n in range(CONNECTIONS + 3)]))
    assert len(queue_storage.list_queues(service.account)) == CONNECTIONS + 4
    page = Signed(service).request("GET", "/", [("comp", "list"), ("maxresults", "5")])
    assert len(asyncio.run(queue_client.repeated(service, [page] * 3, 200))) == 2


def test_holds_connections_and_lets_them_go(service):
    async def hold_and_let_go():
        await queue_client.hold(service, 3)
        held = list(queue_client._held)
        await queue_client.let_go()
        await queue_client.come_and_go(service, CONNECTIONS)
        return [connection.transport.is_closing() for connection in held]

    assert asyncio.run(hold_and_let_go()) == [True] * 3 and not queue_client._held
