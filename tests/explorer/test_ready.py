"""Ready for clients: the well-known namespaces in a line of Entities until they are used; a warning if their keys are open."""

import html
from datetime import UTC, datetime

import pytest
from django.core.management import call_command

from broker_core import namespaces
from broker_core.common.types import EntityAddress
from broker_core.listener import status
from broker_core.listener.status import Listening, OpenPort, RunningListener
from broker_core.queue_storage import accounts
from broker_core.service_bus import entities
from broker_core.store import connections
from tests.fixtures import CONFIGURATION

from .test_administration import text_of

LINE = "Ready for clients:"


@pytest.fixture
def listening(monkeypatch):
    """The ports that a listener says that it serves."""
    numbers = [5300, 10001]

    def served(*, actor=None):
        return [RunningListener("listener", datetime.now(UTC), Listening([OpenPort("", number) for number in numbers]))]

    monkeypatch.setattr(status, "listeners", served)
    return numbers


@pytest.fixture
def seeded(broker_database, settings, listening):
    settings.VITRINE_DEMO, settings.QUEUE_STORAGE_PORT, settings.SERVICE_BUS_PORT = False, 10001, 5300
    for table in CONFIGURATION:
        connections.current().execute(f"DELETE FROM {table}")
    call_command("seed")


def shown(client, at="/entities/") -> str:
    return " ".join(html.unescape(text_of(client.get(at))).split())


@pytest.mark.parametrize("role", ["viewer", "administrator"])
def test_a_new_site_says_where_clients_find_it_and_what_is_not_served(seeded, as_, role):
    text = shown(as_(role))
    for words in (
        'href="/connect/sbemulatorns/"',
        'Service Bus sbemulatorns</a> <span class="quiet">REST API at 127.0.0.1:5300',
        'Queue Storage devstoreaccount1</a> <span class="quiet">at 127.0.0.1:10001',
        'RabbitMQ /</a> <span class="quiet">not served yet',
    ):
        assert LINE in text and words in text, words


def test_a_namespace_that_is_used_leaves_the_line_and_the_last_one_ends_it(seeded, as_):
    client = as_()
    entities.create_queue(EntityAddress("sbemulatorns", "orders"))
    text = shown(client)
    assert LINE in text and "Service Bus sbemulatorns" not in text and "Queue Storage devstoreaccount1" in text
    for name in ("devstoreaccount1", "/"):
        connections.current().execute("DELETE FROM vitrine_exchange")
        connections.current().execute("DELETE FROM vitrine_storage_account")
        namespaces.delete_namespace(name)
    assert LINE not in shown(client)


def test_only_entities_has_the_line(seeded, as_):
    client = as_()
    for at in ("/", "/namespaces/demo/", "/map/", "/administration/"):
        assert LINE not in shown(client, at)


def test_a_port_that_no_listener_serves_is_said_here_and_where_a_client_is_connected(seeded, listening, as_):
    client = as_()
    assert "is not open" not in shown(client, "/connect/sbemulatorns/")
    listening.remove(5300)
    assert 'Service Bus sbemulatorns</a> <span class="quiet">port 5300 is not open' in shown(client)
    assert "Port 5300 is not open." in shown(client, "/connect/sbemulatorns/")


def test_a_port_that_is_off_is_said(seeded, settings, as_):
    settings.QUEUE_STORAGE_PORT = 0
    assert 'Queue Storage devstoreaccount1</a> <span class="quiet">QUEUE_STORAGE_PORT is 0' in shown(as_())


def test_published_keys_that_are_open_to_others_are_warned_of_until_they_are_replaced(seeded, settings, as_):
    client, words = as_("administrator"), "Other machines may use published keys"
    for at in ("/entities/", "/administration/"):
        assert words not in shown(client, at)
    settings.WELL_KNOWN_KEYS = "everywhere"
    for at in ("/entities/", "/administration/"):
        text = shown(client, at)
        assert words in text and "all rights in devstoreaccount1 and sbemulatorns" in text
    accounts.regenerate_key("devstoreaccount1")
    assert "all rights in sbemulatorns." in shown(client)
