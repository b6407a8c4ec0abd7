"""An empty archive, queues with history, and a viewer."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.history import archive as archiving
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRebuild, ArchiveSlice, Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.people.roles import VIEWER
from tests.history.conftest import postgres  # noqa: F401
from tests.html import body_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def archive(transactional_db, settings, tmp_path):
    """An empty archive."""
    settings.ARCHIVE_URL = str(tmp_path)
    yield tmp_path
    for model in (ArchiveFile, ArchiveRebuild, ArchiveSlice, ArchiveEpoch):
        model.objects.all().delete()


@pytest.fixture
def queue(archive):
    """A queue with 3 completed, 2 dead-lettered and 1 present message, and a clock stepped by two hours in between."""
    address = EntityAddress("reports", "q")
    namespaces.ensure_namespace("reports", Family.SERVICE_BUS)
    namespaces.pause_clock("reports")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x") for _ in range(6)])
    namespaces.step_clock("reports", timedelta(hours=2))
    service_bus.complete(address, [message.lock_token for message in service_bus.receive(address, 3)])
    service_bus.dead_letter(address, [message.lock_token for message in service_bus.receive(address, 2)], reason="Order 17")
    archiving.archive_events()
    return Entity.objects.get(path="q")


@pytest.fixture
def other_queue(queue):
    """Another queue of the namespace, with 2 present messages."""
    address = EntityAddress("reports", "other")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x") for _ in range(2)])
    return Entity.objects.get(path="other")


@pytest.fixture
def viewer(client, transactional_db):
    user = get_user_model().objects.create_user(VIEWER, is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=VIEWER)[0])
    client.force_login(user)
    return client


@pytest.fixture
def report_of(viewer):
    """report_of("flow", queue=7) -> the text of the page."""

    def get(slug: str, **query) -> str:
        return body_of(viewer.get(reverse("explorer:analysis_report", args=(slug,)), query))

    return get
