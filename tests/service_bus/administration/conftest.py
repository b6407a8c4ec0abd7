"""A namespace and a client of it, at the port of a listener in this process."""

import uuid
from collections.abc import Callable

import pytest

from broker_core import namespaces
from broker_core.common.types import Family
from broker_core.service_bus.entities import shared_access
from tests.fixtures import broker_database  # noqa: F401 - a fixture

from .client import Client


@pytest.fixture
def namespace(transactional_db) -> str:
    name = f"shop-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    return name


@pytest.fixture
def make_client(listener, namespace):
    """make_client(policy) -> a client with the key of a policy; without one, of that which has all rights."""
    made = []

    def make(policy: shared_access.AccessPolicy | None = None) -> Client:
        policy = policy or shared_access.get_policy(namespace, shared_access.ROOT_POLICY)
        made.append(Client(listener.port("SERVICE_BUS_PORT"), policy.name, policy.primary_key))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[[], Client]) -> Client:
    return make_client()
