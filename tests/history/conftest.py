"""A queue with events to archive, and an archive folder of the test's own."""

import pytest

from broker_core.models import (
    ArchiveEpoch,
    ArchiveFile,
    ArchiveRebuild,
    ArchiveSlice,
    ArchiveUnusedFile,
    Entity,
    EntityCounter,
    Namespace,
)
from broker_core.store import connections


@pytest.fixture
def archive_folder(settings, tmp_path):
    settings.ARCHIVE_URL = str(tmp_path / "archive")
    return tmp_path / "archive"


@pytest.fixture
def postgres(transactional_db):
    """A connection beside Django's: what it commits, others see. The event table and the manifest are empty before and after."""
    import psycopg

    with psycopg.connect(**connections.Database().parameters()) as connection:
        _clear(connection)
        yield connection
        _clear(connection)


def _clear(connection):
    tables = [model._meta.db_table for model in (ArchiveFile, ArchiveUnusedFile, ArchiveRebuild, ArchiveSlice, ArchiveEpoch)]
    connection.execute(f"TRUNCATE vitrine_message_event, {', '.join(tables)}")


@pytest.fixture
def queue(postgres):
    namespace = Namespace.objects.create(name="history-tests")
    entity = Entity.objects.create(namespace=namespace, path="orders")
    EntityCounter.objects.create(entity=entity)
    return entity


@pytest.fixture
def happened(postgres, queue):
    """Write events (kind, sequence number, other columns) of the queue in a transaction of their own."""

    def write(kind, number=1, **columns):
        row = {
            "at": "2026-03-01T12:00Z",
            "entity_id": queue.pk,
            "subqueue": 0,
            "sequence_number": number,
            "kind": kind,
        } | columns
        names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
        postgres.execute(f"INSERT INTO vitrine_message_event ({names}) VALUES ({values})", row)

    return write
