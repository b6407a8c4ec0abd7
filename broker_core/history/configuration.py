"""The settings that entities had, in the archive: their revisions, which Postgres forgets with an entity.

One file for each namespace has all of them; it is written again when there are new ones. A revision has the effective settings,
with those of policies (`effective`), so it also records when a policy changed them.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.db import transaction
from django.db.models.functions import Now

from broker_core.models import ArchiveFile, ArchiveUnusedFile

from . import archive, contents, schema, storage


def archive_revisions(connection: psycopg.Connection) -> int:
    """Archive the revisions that are not archived yet. Returns how many. The caller holds the lock on replacing files."""
    archive_files, present, added = storage.current_archive(), _present(connection), 0
    for namespace_id in pc.unique(present["namespace_id"]).to_pylist():
        new = present.filter(pc.equal(present["namespace_id"], namespace_id)).select(schema.SETTING.names)
        old = ArchiveFile.objects.filter(content=ArchiveFile.SETTINGS, namespace_id=namespace_id).first()
        whole = _together([new] if old is None else [_read(archive_files, old), new])
        if old is None or whole.num_rows > old.rows:
            added += whole.num_rows - (old.rows if old else 0)
            _replace(archive_files, namespace_id, old, whole)
    return added


def _replace(archive_files: Any, namespace_id: int, old: ArchiveFile | None, rows: pa.Table) -> None:
    last = pc.max(rows["revision_id"]).as_py()
    path = f"settings/namespace={namespace_id}/revisions-{last:010d}-{rows.num_rows}.parquet"
    ArchiveUnusedFile.objects.update_or_create(path=path, defaults={"since": Now()})
    last_day = pc.max(rows["since"]).as_py().date()
    written = contents.write(archive_files, ArchiveFile.SETTINGS, rows, path, {}, day=last_day, namespace_id=namespace_id)
    with transaction.atomic():
        if old is not None:
            ArchiveUnusedFile.objects.create(path=old.path, since=Now())
            old.delete()
        ArchiveUnusedFile.objects.filter(path=path).delete()
        written.save()


def _present(connection: psycopg.Connection) -> pa.Table:
    """The revisions in Postgres, with `namespace_id`."""
    columns = schema.SETTING.append(pa.field("namespace_id", pa.int64()))
    return archive.read_arrow(connection, "history_revisions").cast(columns)


def _read(archive_files: Any, file: ArchiveFile) -> pa.Table:
    with archive_files.open(file.path) as opened:
        return schema.conform(pq.read_table(opened), schema.SETTING)


def _together(tables: list[pa.Table]) -> pa.Table:
    """The revisions of tables, each once, by entity and in order."""
    rows = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
    placed = rows.append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    first = placed.group_by("revision_id").aggregate([("place", "min")])
    once = rows.take(first["place_min"].combine_chunks())
    return once.sort_by(contents.CONTENTS[ArchiveFile.SETTINGS].order)
