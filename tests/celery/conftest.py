"""A namespace of its own for each test, and a kombu connection to it."""

import itertools
import uuid

import kombu
import pytest

import broker_core.celery_transport  # noqa: F401  (registers vitrine://)
from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family, Tier

_numbers = itertools.count()


@pytest.fixture
def namespace(db):
    """A new namespace with real time. The broker commits by itself, so what a test leaves stays until the run ends."""
    name = f"celery{next(_numbers)}-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS, tier=Tier.PREMIUM)
    return name


@pytest.fixture
def connect(namespace):
    """connect(**transport_options) -> an open kombu connection to the namespace, closed after the test."""
    opened = []

    def make(**options):
        connection = kombu.Connection(f"vitrine://default/{namespace}", transport_options=options)
        opened.append(connection)
        return connection.connection and connection

    yield make
    for connection in opened:
        connection.release()


@pytest.fixture
def connection(connect):
    return connect()


@pytest.fixture
def queue(namespace):
    """The broker's address of the Celery queue `tasks`; whoever declares that creates it."""
    return EntityAddress(namespace, "tasks")


@pytest.fixture
def peek(queue):
    """peek() -> what the queue holds; peek(dead_letter=True) its dead letters."""
    return lambda dead_letter=False: service_bus.peek(queue.dead_letter if dead_letter else queue)
