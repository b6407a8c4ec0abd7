"""The REST API on the port of a listener in this process, on the test database."""

import uuid

import pytest

from broker_core import queue_storage
from broker_core.queue_storage import accounts
from tests.fixtures import broker_database  # noqa: F401 - a fixture

from .client import Client


@pytest.fixture
def port(listener):
    return listener.port("QUEUE_STORAGE_PORT")


@pytest.fixture
def account(transactional_db, port):
    """The name of an account on the wire."""
    name = f"shop{uuid.uuid4().hex[:8]}"
    queue_storage.create_account(name)
    return name


@pytest.fixture
def connection_string(port, account):
    key = accounts.get_keys(account).primary_key
    endpoint = f"http://127.0.0.1:{port}/{account}"
    return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};QueueEndpoint={endpoint}"


@pytest.fixture
def client(port, account):
    connected = Client(port, account, accounts.get_keys(account).primary_key)
    yield connected
    connected.close()
