"""Archived settings: with their validity, kept, and written again."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.history import cleanup, retention, verification
from broker_core.models import ArchiveFile, Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.entity_settings import QueueSettings

from . import archived_settings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def configured(archive_folder, postgres) -> EntityAddress:
    address = EntityAddress("settings-tests", "orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address, QueueSettings(max_delivery_count=5))
    return address


def test_settings_are_read_with_their_validity_archived_or_not(configured, postgres):
    entities.update_queue(configured, max_delivery_count=7)
    entity = Entity.objects.filter(path="orders").latest("pk")

    def read(start: datetime, end: datetime) -> list[tuple]:
        return [
            (revision.settings["max_delivery_count"], revision.until is None)
            for revision in archived_settings.read([entity.pk], start, end)
        ]

    ever = (NOON, NOON + timedelta(days=100_000))
    assert read(*ever) == [(5, False), (7, True)]
    before = archived_settings.read([entity.pk], *ever)
    assert cleanup.clean_up_archive().revisions == 2 and cleanup.clean_up_archive().revisions == 0
    assert archived_settings.read([entity.pk], *ever) == before, "each once, though it is in the archive and in the database"
    entities.update_queue(configured, max_delivery_count=9)
    assert read(*ever) == [(5, False), (7, False), (9, True)]
    assert cleanup.clean_up_archive().revisions == 1 and ArchiveFile.objects.get(content="settings").rows == 3

    first, second, third = archived_settings.read([entity.pk], *ever)
    assert (first.until, second.until, third.until) == (second.since, third.since, None)
    assert read(second.since, third.since) == [(7, False)] and read(NOON, first.since) == []
    assert (first.entity_id, first.path) == (entity.pk, "orders")
    postgres.execute("DELETE FROM vitrine_entity_revision")
    assert archived_settings.read([entity.pk], *ever) == [first, second, third], "what the database forgot is in the archive"
    assert archived_settings.read([], *ever) == []


def test_settings_are_kept_verified_and_written_again(configured, archive_folder):
    cleanup.clean_up_archive()
    namespaces.update_namespace(configured.namespace, archive_days=1)
    assert retention.forget_archived_days(datetime.now(UTC).date() + timedelta(days=30)) == []
    file = ArchiveFile.objects.get()
    assert list(verification.damages([file], deep=True)) == []
    (archive_folder / file.path).write_bytes(b"")
    with pytest.raises(CommandError, match="1 damaged files"):
        call_command("verify_archive", stdout=StringIO())
    printed = StringIO()
    call_command("verify_archive", "--repair", stdout=printed)
    assert "will be written again, with the settings still in the database" in printed.getvalue()
    assert not ArchiveFile.objects.exists()
    assert cleanup.clean_up_archive().revisions == 1
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
