"""The kinds of files in the archive: their columns and order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from broker_core.models import ArchiveFile

from . import schema


@dataclass(frozen=True, slots=True)
class Content:
    """keys: by what rows are ordered; the first two are never NULL. instant: whose span the manifest has. ended: by which instant
    rows belong to a day. by_slice: whether its files are those of slices."""

    columns: pa.Schema
    keys: tuple[str, ...]
    instant: str
    ended: str
    by_slice: bool = True

    @property
    def compacted(self) -> pa.Schema:
        """The columns of a file that is not of one slice."""
        return self.columns.append(schema.SLICE) if self.by_slice else self.columns


CONTENTS = {
    ArchiveFile.EVENTS: Content(schema.EVENT, ("entity_id", "sequence_number", "event_id"), "at", "at"),
    ArchiveFile.LIVES: Content(schema.LIFE, ("entity_id", "sequence_number", "subqueue"), "enqueued_at", "ended_at"),
    ArchiveFile.ATTEMPTS: Content(
        schema.ATTEMPT, ("entity_id", "sequence_number", "subqueue", "received_at"), "ended_at", "ended_at"
    ),
    ArchiveFile.CLIENTS: Content(schema.CLIENT, ("entity_id", "hour"), "last_at", "last_at"),
    ArchiveFile.SETTINGS: Content(schema.SETTING, ("entity_id", "revision_id"), "since", "since", by_slice=False),
}
