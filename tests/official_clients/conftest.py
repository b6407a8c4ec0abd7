"""Clients against a listener on the test database. `make test-clients` asks for these tests; `make test` has shorter ones."""

import logging
import os
import uuid
from dataclasses import dataclass

import pytest

from broker_core import namespaces, queue_storage
from broker_core.common.types import EntityAddress, Family, Tier
from broker_core.queue_storage import accounts
from broker_core.service_bus.entities import shared_access

collect_ignore_glob = [] if os.environ.get("VITRINE_CLIENTS") else ["test_*.py"]
logging.getLogger("azure").setLevel(logging.ERROR)  # a line for each request

PUBLISHED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Account:
    """A storage account at a port. url: without a slash at its end."""

    name: str
    key: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.name}"

    @property
    def connection_string(self) -> str:
        return f"DefaultEndpointsProtocol=http;AccountName={self.name};AccountKey={self.key};QueueEndpoint={self.url};"


@pytest.fixture
def make_account(transactional_db, listener):
    """make_account(name, key=...) -> a new account, gone after the test."""

    def make(name: str, key: str | None = None) -> Account:
        queue_storage.create_account(name)
        return Account(name, accounts.set_keys(name, primary=key or accounts.new_key()).primary_key, listener.port())

    return make


@pytest.fixture
def storage(make_account):
    return make_account(f"shop{uuid.uuid4().hex[:8]}")


@pytest.fixture
def development_storage(make_account):
    """The account that emulators have, with the key that everybody knows."""
    return make_account("devstoreaccount1", PUBLISHED_KEY)


@dataclass(frozen=True)
class Bus:
    """A namespace of Service Bus at a port, and a key of a policy."""

    name: str
    key: str
    port: int
    policy: str = shared_access.ROOT_POLICY

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connection_string(self) -> str:
        return f"Endpoint=sb://{self.host};SharedAccessKeyName={self.policy};SharedAccessKey={self.key}"

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.name, path)


@pytest.fixture
def bus(transactional_db, listener):
    """A new namespace, in which every property of entities is available."""
    name = f"bus-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS, tier=Tier.PREMIUM)
    key = shared_access.get_policy(name, shared_access.ROOT_POLICY).primary_key
    return Bus(name, key, listener.port("SERVICE_BUS_PORT"))
