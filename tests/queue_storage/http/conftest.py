"""The REST API on a port of its own, in a thread of this process, on the test database."""

import socket
import threading

import pytest

from broker_core import queue_storage
from broker_core.queue_storage import accounts
from tests.eventually import eventually


@pytest.fixture(scope="module")
def _server(django_db_setup):
    import uvicorn

    from broker_core.queue_storage.http import application
    from explorer.site.bounded_http import BoundedHttp

    listening = socket.create_server(("127.0.0.1", 0))
    options = {"lifespan": "off", "log_level": "warning", "server_header": False, "date_header": False}
    server = uvicorn.Server(uvicorn.Config(application, http=BoundedHttp, timeout_graceful_shutdown=1, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    eventually(lambda: server.started, 10)
    yield "http://127.0.0.1:{}".format(listening.getsockname()[1])
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def account(transactional_db, _server):
    """The name of an account with queues on the wire."""
    queue_storage.create_account("shop")
    return "shop"


@pytest.fixture
def connection_string(_server, account):
    key = accounts.get_keys(account).primary_key
    return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};QueueEndpoint={_server}/{account}"
