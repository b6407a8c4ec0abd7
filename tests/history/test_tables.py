"""The archived tables beside events, lives and attempts: clients, and settings with their validity."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces
from broker_core.common.types import EntityAddress, EventKind
from broker_core.history import archive, clients, compaction, configuration, retention, verification
from broker_core.models import ArchiveFile, Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.entity_settings import QueueSettings

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def received(happened, number: int, actor: str, end: EventKind, at: datetime, seconds: int) -> None:
    happened(EventKind.RECEIVED, number, actor=actor, at=at, recorded_at=at, locked_until=at + HOUR)
    ended = at + seconds * SECOND
    happened(end, number, actor=actor, at=ended, recorded_at=ended, enqueued_at=NOON, last_received_at=at)


def test_clients_are_counted_by_hour_over_slices_and_files(archive_folder, happened, queue):
    received(happened, 1, "alice", EventKind.COMPLETED, NOON, 2)
    received(happened, 2, "bob", EventKind.ABANDONED, NOON, 5)
    archive.archive_events()
    received(happened, 3, "alice", EventKind.COMPLETED, NOON + 10 * SECOND, 3)
    received(happened, 4, "alice", EventKind.COMPLETED, NOON + HOUR, 1)
    archive.archive_events()
    columns = ("hour", "client", "outcome", "deliveries", "held_us")
    expected = [
        (NOON, "alice", EventKind.COMPLETED, 2, 5_000_000),
        (NOON, "bob", EventKind.ABANDONED, 1, 5_000_000),
        (NOON + HOUR, "alice", EventKind.COMPLETED, 1, 1_000_000),
    ]

    def read(start, end) -> list[tuple]:
        return [tuple(row[name] for name in columns) for row in clients.read([queue.pk], start, end).to_pylist()]

    assert read(NOON, NOON + 2 * HOUR) == expected
    whole = clients.read([queue.pk], NOON, NOON + 2 * HOUR)
    assert (whole["first_at"][0].as_py(), whole["last_at"][0].as_py()) == (NOON, NOON + 13 * SECOND)
    assert read(NOON + HOUR, NOON + 2 * HOUR) == expected[2:] and read(NOON, NOON + HOUR) == expected[:2]
    assert compaction.compact_archive().into == 4 and read(NOON, NOON + 2 * HOUR) == expected
    assert clients.read([queue.pk + 1], NOON, NOON + HOUR).num_rows == 0


@pytest.fixture
def configured(archive_folder, postgres) -> EntityAddress:
    address = EntityAddress("settings-tests", "orders")
    namespaces.create_namespace(address.namespace)
    entities.create_queue(address, QueueSettings(max_delivery_count=5))
    return address


def test_settings_are_read_with_their_validity_archived_or_not(configured, postgres):
    entities.update_queue(configured, max_delivery_count=7)
    entity = Entity.objects.get(path="orders")

    def read(start: datetime, end: datetime) -> list[tuple]:
        return [(one.settings["max_delivery_count"], one.until is None) for one in configuration.read([entity.pk], start, end)]

    ever = (NOON, NOON + timedelta(days=100_000))
    assert read(*ever) == [(5, False), (7, True)]
    before = configuration.read([entity.pk], *ever)
    assert compaction.compact_archive().revisions == 2 and compaction.compact_archive().revisions == 0
    assert configuration.read([entity.pk], *ever) == before, "each once, though it is in the archive and in the database"
    entities.update_queue(configured, max_delivery_count=9)
    assert read(*ever) == [(5, False), (7, False), (9, True)]
    assert compaction.compact_archive().revisions == 1 and ArchiveFile.objects.get(content="settings").rows == 3

    first, second, third = configuration.read([entity.pk], *ever)
    assert (first.until, second.until, third.until) == (second.since, third.since, None)
    assert read(second.since, third.since) == [(7, False)] and read(NOON, first.since) == []
    assert (first.entity_id, first.path) == (entity.pk, "orders")
    postgres.execute("DELETE FROM vitrine_entity_revision")
    assert configuration.read([entity.pk], *ever) == [first, second, third], "what the database forgot is in the archive"
    assert configuration.read([], *ever) == []


def test_settings_are_kept_verified_and_written_again(configured, archive_folder):
    compaction.compact_archive()
    namespaces.update_namespace(configured.namespace, archive_days=1)
    assert retention.forget_archived_days(datetime.now(UTC).date() + timedelta(days=30)) == []
    file = ArchiveFile.objects.get()
    assert list(verification.damages([file], deep=True)) == []
    (archive_folder / file.path).write_bytes(b"")
    with pytest.raises(CommandError, match="1 damaged files"):
        call_command("verify_archive", stdout=StringIO())
    call_command("verify_archive", "--repair", stdout=StringIO())
    assert compaction.compact_archive().revisions == 1
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
