"""Clients of the Queue Storage and Service Bus ports: recorded, closed, and gone with their process. Over sockets."""

import pytest

from broker_core import clients, queue_storage
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage import accounts
from tests.eventually import eventually
from tests.fixtures import broker_database  # noqa: F401 - a fixture
from tests.queue_storage.http.client import Client
from tests.wire.listening import ListenerProcess

AGENT = [("User-Agent", "azsdk-python-storage-queue/12.18.1 Python/3.11")]
TEXT = b"<QueueMessage><MessageText>hello</MessageText></QueueMessage>"
OPERATOR = Actor("user", "otto", Right.BROWSE | Right.OPERATE)


@pytest.fixture
def account(transactional_db):
    name = "clientstest"
    queue_storage.create_account(name)
    queue_storage.create_queue(EntityAddress(name, "orders"))
    return name


def connect(port, account):
    return Client(port, account, accounts.get_keys(account).primary_key)


def of(port):
    """The clients of the process at a port."""
    return [row for row in clients.clients() if row.port == port]


def test_a_client_of_the_listener_is_shown_and_can_be_closed(listener, account):
    port = listener.port()
    client = connect(port, account)
    assert client.request("POST", "/orders/messages", body=TEXT, headers=AGENT).status == 201
    assert client.request("GET", "/orders/messages", headers=AGENT).status == 200
    eventually(lambda: [row.messages_out for row in of(port)] == [1])
    (row,) = of(port)
    assert (row.protocol, row.peer, row.is_tls, row.product, row.version) == (
        *("Queue Storage REST", "127.0.0.1", False),
        *("azsdk-python-storage-queue", "12.18.1"),
    )
    assert (row.actor, row.namespace, row.messages_in) == (f"key:{account}", account, 1)
    assert row.last_request == f"GET /{account}/orders/messages" and row.bytes_in == len(TEXT) and row.bytes_out > 100
    assert [(link.address.path, link.direction, link.mode, link.messages) for link in row.links] == [
        ("orders", "sends", "", 1),
        ("orders", "receives", "lease", 1),
    ]
    (lock,) = queue_storage_locks(account)
    assert lock.holder == row.holder, "a lock leads to the client that holds it"
    assert clients.close_client(row.id, "maintenance", actor=OPERATOR)
    assert client._socket.recv(1) == b"", "the kept-alive connection ends"
    assert of(port) == []
    client.close()
    again = connect(port, account)
    assert again.request("GET", "/orders/messages", headers=AGENT).status == 200
    eventually(lambda: of(port))
    again.close()


def queue_storage_locks(account):
    from broker_core import reads
    from broker_core.reads import EntityFilter, LockFilter

    return reads.locks(LockFilter(EntityFilter(namespace=account))).rows


@pytest.mark.slow
def test_the_clients_of_two_processes_are_shown_and_those_of_a_killed_one_vanish(listener, listener_process, account):
    one, other = connect(listener.port(), account), connect(listener_process.port(), account)
    for client in (one, other):
        assert client.request("GET", "/orders", query="comp=metadata", headers=AGENT).status == 200
    eventually(lambda: of(listener.port()) and of(listener_process.port()), 10)
    (row,) = of(listener_process.port())
    assert clients.close_client(row.id, "maintenance", actor=OPERATOR), "of another process"
    assert other._socket.recv(1) == b""
    other.close()
    other = connect(listener_process.port(), account)
    assert other.request("GET", "/orders", query="comp=metadata", headers=AGENT).status == 200
    eventually(lambda: of(listener_process.port()), 10)
    listener_process.kill()
    assert of(listener.port())
    eventually(lambda: not of(listener_process.port()), 30, "the clients of a killed process vanish")
    one.close()
    other.close()


@pytest.mark.slow
def test_a_process_that_is_asked_to_stop_removes_its_clients(account):
    process: ListenerProcess = ListenerProcess().start()
    try:
        client = connect(process.port(), account)
        assert client.request("GET", "/orders", query="comp=metadata", headers=AGENT).status == 200
        eventually(lambda: of(process.port()), 10)
        assert process.terminate() == 0
        assert of(process.port()) == []
        client.close()
    finally:
        process.close()
