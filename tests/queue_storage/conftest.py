"""A storage account whose clock stands still, and queues in it."""

import itertools

import pytest

from broker_core import namespaces, queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import getting
from tests.fixtures import *  # noqa: F403


@pytest.fixture(autouse=True)
def always_refreshed(monkeypatch):
    """However slow the machine is: a get that finds too little looks from the beginning."""
    monkeypatch.setattr(getting, "CHEAP_REFRESH", float("inf"))


@pytest.fixture
def make_queue(account):
    """make_queue(**options) -> the address of a new queue."""
    numbers = itertools.count(1)

    def make(**options):
        address = EntityAddress(account, f"queue-{next(numbers)}")
        queue_storage.create_queue(address, **options)
        return address

    return make


@pytest.fixture
def step(account):
    """step(timedelta): let the account's clock go on."""
    return lambda by: namespaces.step_clock(account, by)
