"""Reads the settings that entities had, from the archive and the database, as the reports' jobs do with Spark."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.history import archive, configuration, schema, storage
from broker_core.models import ArchiveFile


@dataclass(frozen=True, slots=True)
class Revision:
    """Settings of an entity and when they were in force, by the database's clock. until: None: they still are."""

    entity_id: int
    path: str
    since: datetime
    until: datetime | None
    settings: dict[str, Any]


def read(entity_ids, start: datetime, end: datetime) -> list[Revision]:
    """The revisions of these entities that were in force at some time in a range, in order, archived or not yet."""
    with archive.connected() as connection:
        present = configuration._present(connection).select(schema.SETTING.names)
    archived = [configuration._read(storage.current_archive(), file) for file in ArchiveFile.objects.filter(content="settings")]
    rows = [row for row in configuration._together([*archived, present]).to_pylist() if row["entity_id"] in entity_ids]
    results = []
    for row, following in zip(rows, [*rows[1:], None][: len(rows)], strict=True):
        until = following["since"] if following and following["entity_id"] == row["entity_id"] else None
        if row["since"] < end and (until is None or until > start):
            results.append(Revision(row["entity_id"], row["path"], row["since"], until, json.loads(row["settings"])))
    return results
