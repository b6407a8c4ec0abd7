"""Clients against a listener on the test database. `make test-clients` asks for these tests; `make test` has shorter ones."""

import logging
import os
import uuid
from dataclasses import dataclass

import pytest

from broker_core import queue_storage
from broker_core.queue_storage import accounts

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
