"""Listeners as processes: stopped, killed, and side by side on one database."""

import uuid
from contextlib import closing

import pytest

from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts
from tests.queue_storage.http.client import Client
from tests.wire.listening import ListenerProcess

BODY = b"<QueueMessage><MessageText>text</MessageText></QueueMessage>"


@pytest.fixture
def queue(transactional_db):
    name = f"shop{uuid.uuid4().hex[:8]}"
    queue_storage.create_account(name)
    return queue_storage.create_queue(EntityAddress(name, "orders")).address


def connected(process, queue):
    key = accounts.get_keys(queue.namespace).primary_key
    return closing(Client(process.port("QUEUE_STORAGE_PORT"), queue.namespace, key))


def put(process, queue):
    with connected(process, queue) as client:
        assert client.request("POST", "/orders/messages", body=BODY).status == 201


def texts(queue):
    return [message.text for message in queue_storage.peek(queue, 32)]


@pytest.mark.slow
def test_a_killed_listener_loses_nothing_and_starts_again_on_its_sockets(listener_process, queue):
    put(listener_process, queue)
    listener_process.kill()
    assert len(texts(queue)) == 1
    listener_process.start()
    put(listener_process, queue)
    assert len(texts(queue)) == 2


@pytest.mark.slow
def test_sigterm_ends_it_and_clients_that_connect_meanwhile_are_served_by_the_next(listener_process, queue):
    with connected(listener_process, queue) as idle:
        assert idle.request("GET", "/orders/messages", "peekonly=true").status == 200
        assert listener_process.terminate() == 0
    listener_process.start()
    put(listener_process, queue)


@pytest.mark.slow
def test_two_processes_serve_one_database(listener_process, queue):
    with closing(ListenerProcess().start()) as other:
        put(listener_process, queue)
        with connected(other, queue) as client:
            assert client.request("GET", "/orders/messages").root.findtext("QueueMessage/MessageText") == "text"
