"""The REST API on a port of its own, in a thread of this process, on the test database."""

import socket
import threading
import uuid
from typing import Any

import pytest

from broker_core import queue_storage
from broker_core.queue_storage import accounts
from tests.eventually import eventually
from tests.fixtures import broker_database  # noqa: F401 - a fixture

from .client import Client


@pytest.fixture(scope="module")
def port(django_db_setup):
    import uvicorn

    from broker_core.queue_storage.http import application
    from broker_core.wire.bounded_http import BoundedHttp

    listening = socket.create_server(("127.0.0.1", 0))
    options: dict[str, Any] = {"lifespan": "off", "log_level": "warning", "server_header": False, "date_header": False}
    server = uvicorn.Server(uvicorn.Config(application, http=BoundedHttp, timeout_graceful_shutdown=1, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    eventually(lambda: server.started, 10)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)


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
