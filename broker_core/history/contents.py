"""The kinds of files in the archive: their columns and order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from broker_core.models import ArchiveFile

from . import schema


@dataclass(frozen=True, slots=True)
class Content:
    """keys: by what rows are ordered; the first two are never NULL. instant: whose span the manifest has."""

    columns: pa.Schema
    keys: tuple[str, ...]
    instant: str

    @property
    def compacted(self) -> pa.Schema:
        """The columns of a compacted file."""
        return self.columns.append(schema.SLICE)


CONTENTS = {
    ArchiveFile.EVENTS: Content(schema.EVENT, ("entity_id", "sequence_number", "event_id"), "at"),
    ArchiveFile.LIVES: Content(schema.LIFE, ("entity_id", "sequence_number", "subqueue"), "enqueued_at"),
    ArchiveFile.ATTEMPTS: Content(schema.ATTEMPT, ("entity_id", "sequence_number", "subqueue", "received_at"), "ended_at"),
}
