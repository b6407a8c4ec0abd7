"""The kinds of files in the archive: the columns of those that are not written by jobs, and which instants say when rows were."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from broker_core.models import ArchiveFile

from . import schema


@dataclass(frozen=True, slots=True)
class Content:
    """begins, ends: the instants whose first and last values the manifest has as first_at and last_at. columns: of files that are
    not written by jobs, and keys: by what these are ordered."""

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    columns: pa.Schema | None = None
    keys: tuple[str, ...] = ()


CONTENTS = {
    ArchiveFile.EVENTS: Content(("at",), ("at",), schema.EVENT, ("entity_id", "sequence_number", "event_id")),
    ArchiveFile.SETTINGS: Content(("since",), ("since",), schema.SETTING, ("entity_id", "revision_id")),
    ArchiveFile.LIVES: Content(("enqueued_at", "attempt_received_at"), ("ended_at",)),
    ArchiveFile.OPEN: Content(("enqueued_at",), ()),
    ArchiveFile.COUNTS: Content(("step",), ("end_step",)),
    ArchiveFile.HISTOGRAMS: Content(("step",), ("step",)),
    ArchiveFile.CLIENTS: Content(("first_at",), ("last_at",)),
}
