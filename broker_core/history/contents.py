"""The kinds of files in the archive: the columns of those that are not written by jobs, which instants say when rows were, and
how such a file is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.models import ArchiveFile

from . import schema, storage


@dataclass(frozen=True, slots=True)
class Content:
    """begins, ends: the instants whose first and last values the manifest has as first_at and last_at. columns: of files that are
    not written by jobs, and keys: by what these are ordered."""

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    columns: pa.Schema | None = None
    keys: tuple[str, ...] = ()

    @property
    def order(self) -> list[tuple[str, str]]:
        """The keys, as pyarrow sorts by them."""
        return [(name, "ascending") for name in self.keys]


CONTENTS = {
    ArchiveFile.EVENTS: Content(("at",), ("at",), schema.EVENT, ("entity_id", "sequence_number", "event_id")),
    ArchiveFile.SETTINGS: Content(("since",), ("since",), schema.SETTING, ("entity_id", "revision_id")),
    ArchiveFile.LIVES: Content(("enqueued_at", "attempt_received_at"), ("ended_at",)),
    ArchiveFile.OPEN: Content(("enqueued_at",), ()),
    ArchiveFile.COUNTS: Content(("step",), ("end_step",)),
    ArchiveFile.HISTOGRAMS: Content(("step",), ("step",)),
}


def write(
    archive_files: storage.Folder | storage.Remote, content: str, rows: pa.Table, path: str, facts: dict[str, Any], **values: Any
) -> ArchiveFile:
    """Write rows of a content as a file. Returns its entry in the manifest, which is not saved.

    facts: for the file's metadata. values: the day, the namespace and further fields of the entry.
    """
    of = CONTENTS[content]
    stored = archive_files.write(rows.cast(schema.with_metadata(of.columns, **facts)), path)
    span = pc.min_max(rows[of.begins[0]]).as_py()
    return ArchiveFile(
        content=content, path=path, rows=rows.num_rows, bytes=stored.bytes, checksum=stored.checksum,
        schema_version=schema.VERSION, first_at=span["min"], last_at=span["max"], **values,
    )  # fmt: skip
