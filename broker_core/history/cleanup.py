"""Deletes the archive's files that are no longer read, archives revisions of settings, and writes damaged files again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pyarrow as pa
from django.db import transaction
from django.db.models.functions import Now

from broker_core.common.errors import NotAllowed
from broker_core.models import ArchiveFile, ArchiveUnusedFile

from . import archive, configuration, contents, manifest, storage

READERS = timedelta(days=1)  # how long a replaced file is kept, for those that opened the manifest before


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """deleted: unused files. revisions: of settings that were archived."""

    deleted: int
    revisions: int


def clean_up_archive() -> CleanedUp:
    """Delete files unused for READERS, and archive new revisions of settings. Raises ServerBusy if another process does."""
    with exclusive_access() as connection:
        return CleanedUp(delete_unused(connection), configuration.archive_revisions(connection))


def delete_unused(connection: psycopg.Connection, age: timedelta = READERS) -> int:
    """Delete the files and folders that no reader can have open any more, and a job's folder with the last of its files. Returns
    how many."""
    archive_files = storage.current_archive()
    paths = [path for (path,) in connection.execute(archive.SQL["history_unused"], {"age": age}).fetchall()]
    for path in paths:
        archive_files.delete(path)
        archive.run(connection, "history_forget_unused", path=path)
    for folder in {"/".join(path.split("/")[:2]) for path in paths if path.startswith(f"{manifest.DERIVED}/")}:
        if not manifest.has_files(folder):
            archive_files.delete(f"{folder}/")
    return len(paths)


def write_again(damaged: ArchiveFile) -> int:
    """Write a file of the events of several slices again from the event table. Returns its number of rows.

    Raises NotAllowed if the table no longer has all its events, and ServerBusy as clean_up_archive.
    """
    with exclusive_access():
        attributes = {name: getattr(damaged, name) for name in ("content", "day", "namespace_id", "imported")}
        group = list(ArchiveFile.objects.filter(**attributes, slice=None))
        slices = sorted({slice_id for file in group for slice_id in file.slices})
        parts = [archive.part_of(slice_id, damaged.day, damaged.namespace_id) for slice_id in slices]
        table = pa.concat_tables(parts).sort_by(contents.CONTENTS[ArchiveFile.EVENTS].order)
        if table.num_rows != sum(file.rows for file in group):
            raise NotAllowed(f"{damaged.path} was not replaced: the event table gives another number of rows than it had.")
        path = f"events/day={damaged.day}/namespace={damaged.namespace_id}/restored-{damaged.pk:010d}.parquet"
        written = contents.write(storage.current_archive(), rows=table, path=path, facts={}, slices=slices, **attributes)
        with transaction.atomic():
            ArchiveUnusedFile.objects.bulk_create(ArchiveUnusedFile(path=file.path, since=Now()) for file in group)
            ArchiveFile.objects.filter(pk__in=[file.pk for file in group]).delete()
            written.save()
        return table.num_rows


def exclusive_access() -> AbstractContextManager[psycopg.Connection]:
    """The connection that holds the lock on replacing and deleting files."""
    busy = "Another process is replacing files of the archive. Try again later."
    return archive.locked("history_try_lock_files", "history_unlock_files", busy)
