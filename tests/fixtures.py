"""A namespace of its own for each test that asks: nothing has to be cleaned up, and no test sees another's."""

import itertools
import uuid
from collections import namedtuple

import pytest

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.runtime import room
from broker_core.store import connections
from tests.service_bus.made_by import entities

_numbers = itertools.count()
_Usage = namedtuple("_Usage", "total used free")
CONFIGURATION = (
    *("vitrine_client_link", "vitrine_client"),
    *("vitrine_consumer", "vitrine_connection", "vitrine_binding", "vitrine_exchange", "vitrine_policy"),
    *("vitrine_shared_access_policy", "vitrine_storage_account", "vitrine_rule", "vitrine_entity", "vitrine_namespace"),
)
EVENTS_KEPT = 20_000
MORE_EVENTS = "SELECT 1 FROM vitrine_message_event OFFSET %s LIMIT 1"


@pytest.fixture
def broker_database(db):
    """The real database. The broker commits on connections of its own, so its configuration is removed here; messages and
    events of entities that are gone stay, seen by nobody. What Django itself writes is rolled back.

    Many events are removed: a page of events searches 200,000 of them, and reports that it has not seen all if there are more.
    """
    yield
    for table in CONFIGURATION:
        connections.current().execute(f"DELETE FROM {table}")
    if connections.current().execute(MORE_EVENTS, [EVENTS_KEPT]).fetchone():
        connections.current().execute("DELETE FROM vitrine_message_event")


@pytest.fixture
def namespace(broker_database):
    """A new namespace whose clock stands still until it is stepped."""
    name = f"t{next(_numbers)}-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    namespaces.pause_clock(name)
    return name


@pytest.fixture
def account(broker_database):
    """A new storage account whose clock stands still until it is stepped (namespaces.step_clock)."""
    return _paused(f"acct{next(_numbers)}{uuid.uuid4().hex[:8]}", Family.QUEUE_STORAGE)


@pytest.fixture
def vhost(broker_database):
    """A new virtual host, with nothing but its seven exchanges, whose clock stands still until it is stepped."""
    from broker_core import rabbitmq

    name = f"vhost {next(_numbers)}/{uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(name)
    namespaces.pause_clock(name)
    return name


def _paused(name: str, family: Family) -> str:
    namespaces.create_namespace(name, family)
    namespaces.pause_clock(name)
    return name


@pytest.fixture
def make_queue(namespace):
    """make_queue(**settings) -> the address of a new queue."""
    numbers = itertools.count(1)

    def make(**settings):
        address = EntityAddress(namespace, f"queue-{next(numbers)}")
        entities.create_queue(address, **settings)
        return address

    return make


@pytest.fixture
def queue(make_queue):
    return make_queue()


@pytest.fixture
def step(namespace):
    """step(timedelta): let the namespace's clock go on."""
    return lambda by: namespaces.step_clock(namespace, by)


@pytest.fixture
def fresh_room_check():
    """Sends look at once whether there is room, before the test and after it."""
    room.forget_rooms()
    yield
    room.forget_rooms()


@pytest.fixture
def full_disk(monkeypatch, settings, tmp_path, fresh_room_check):
    """full_disk(free): a disk with so many free bytes, of which 100 MB are reserved."""
    settings.VITRINE_DISK_FOLDER, settings.VITRINE_DISK_RESERVE_MB = tmp_path, 100

    def make(free):
        monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: _Usage(10**12, 10**12 - free, free))
        room.forget_rooms()

    return make
