"""What a new site has, and what `manage.py seed` leaves as it is. The command runs at each start."""

import pytest
from django.core.management import call_command

from broker_core import namespaces, queue_storage, rabbitmq
from broker_core.common.family import installed
from broker_core.common.types import EntityAddress, Family
from broker_core.queue_storage import accounts
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.store import connections
from explorer.frames.well_known import used_first, without_unused
from explorer.models import SeededNamespace
from tests.fixtures import CONFIGURATION, broker_database  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("broker_database")


@pytest.fixture(autouse=True)
def seed(settings):
    """Seeds a site without namespaces; returns the names of all."""
    settings.VITRINE_DEMO = False
    for table in CONFIGURATION:
        connections.current().execute(f"DELETE FROM {table}")

    def run():
        call_command("seed")
        return {namespace.name for namespace in namespaces.list_namespaces()}

    return run


def test_a_new_site_has_the_names_and_keys_that_clients_expect(seed):
    assert seed() == {"system", "demo", "sbemulatorns", "devstoreaccount1", "/"}
    policy = shared_access.get_policy("sbemulatorns", "RootManageSharedAccessKey")
    assert policy.primary_key == "SAS_KEY_VALUE" != policy.secondary_key
    account = accounts.get_keys("devstoreaccount1")
    assert (
        account.primary_key.startswith("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/") != account.secondary_key
    )
    assert len({exchange.name for exchange in rabbitmq.list_exchanges("/")}) == 7
    assert [definition.well_known.name for definition in installed()] == ["sbemulatorns", "devstoreaccount1", "/"]


def test_seeding_again_changes_nothing(seed):
    seed()
    shared_access.regenerate_key("sbemulatorns", "RootManageSharedAccessKey")
    accounts.regenerate_key("devstoreaccount1")
    keys = shared_access.get_policy("sbemulatorns", "RootManageSharedAccessKey").keys, accounts.get_keys("devstoreaccount1").keys
    seed()
    assert keys[0] == shared_access.get_policy("sbemulatorns", "RootManageSharedAccessKey").keys
    assert keys[1] == accounts.get_keys("devstoreaccount1").keys


def test_what_was_deleted_does_not_come_back(seed):
    seed()
    namespaces.delete_namespace("sbemulatorns")
    queue_storage.delete_account("devstoreaccount1")
    rabbitmq.delete_vhost("/")
    assert seed() == {"system", "demo"}


def test_a_namespace_of_this_name_that_a_user_made_is_left_alone(seed):
    namespaces.create_namespace("DevStoreAccount1", Family.SERVICE_BUS, "mine")
    assert "devstoreaccount1" not in seed()
    assert namespaces.get_namespace("devstoreaccount1").description == "mine"
    assert SeededNamespace.objects.filter(name="devstoreaccount1").exists()


def test_an_account_of_this_name_has_its_published_key_whoever_creates_it():
    queue_storage.create_account("devstoreaccount1")
    queue_storage.create_account("another")
    published = accounts.get_keys("devstoreaccount1").primary_key
    assert published not in accounts.get_keys("another").keys


def test_lists_leave_out_those_that_nobody_uses(seed):
    from broker_core import reads

    seed()
    assert [row.name for row in without_unused(reads.namespaces())] == ["demo", "system"]
    assert [row.name for row in without_unused(reads.namespaces(), keep="/")] == ["/", "demo", "system"]
    assert [row.name for row in used_first(reads.namespaces())] == ["demo", "system", "/", "devstoreaccount1", "sbemulatorns"]
    entities.create_queue(EntityAddress("sbemulatorns", "orders"))
    assert [row.name for row in without_unused(reads.namespaces())] == ["demo", "sbemulatorns", "system"]


def test_the_switch_between_namespaces_leaves_them_out(seed, client, person):
    seed()
    client.force_login(person())
    assert b"sbemulatorns" not in client.get("/").content
    assert b"sbemulatorns" in client.get("/namespaces/sbemulatorns/").content
