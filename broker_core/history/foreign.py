"""Adds history to the archive that was never in the event table: generated, or imported from another system.

Its files are in the form of the archive's own. They are written first, each noted as unused until the manifest names all of them
in one transaction, so that either all of it is added or nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from django.db import transaction
from django.db.models.functions import Now

from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice, ArchiveUnusedFile

from . import archive, contents, ordering, schema, storage

ROWS = 1_000_000  # held in memory until they are written, over all days


@dataclass(frozen=True, slots=True)
class Added:
    """slice_id: of the slice that stands for all of it."""

    slice_id: int
    events: int
    files: int


class Addition:
    """History that is being added to a namespace. Jobs derive lives from its events later."""

    def __init__(self, namespace_id: int):
        self._namespace_id = namespace_id
        self._here = storage.archive_here()
        self._waiting: dict[date, list[pa.Table]] = defaultdict(list)
        self._waiting_rows = 0
        self._files: list[ArchiveFile] = []
        with archive.connected() as connection:
            self.slice_id: int = archive.row(connection, "history_next_slice_id").id

    def add(self, events: pa.Table) -> None:
        """Add events; columns of schema.EVENT that are not there are NULL."""
        days = pc.cast(events["recorded_at"], pa.date32())
        found = pc.unique(days)
        for day in found:
            rows = events if len(found) == 1 else events.filter(pc.equal(days, day))
            self._waiting[day.as_py()].append(rows)
        self._waiting_rows += events.num_rows
        if self._waiting_rows > ROWS:
            self._write()

    def note(self, name: str, facts: Mapping) -> str:
        """Write facts about the addition beside its files. Returns the path."""
        path = f"{name}/slice-{self.slice_id:010d}.json"
        self._here.store(pa.py_buffer(json.dumps(facts, indent=1, default=str).encode()), path)
        return path

    def finish(self) -> Added:
        """Enter what was added in the manifest; it can be read from now on."""
        self._write()
        events = sum(file.rows for file in self._files)
        with transaction.atomic():
            epoch, _ = ArchiveEpoch.objects.get_or_create(
                system_identifier=ArchiveEpoch.IMPORTED, defaults={"from_xid": 0, "began_at": Now()}
            )
            ArchiveSlice.objects.create(
                pk=self.slice_id, epoch=epoch, from_xid=self.slice_id, to_xid=self.slice_id + 1, state=ArchiveSlice.DONE,
                opened_at=Now(), done_at=Now(), events=events,
            )  # fmt: skip
            ArchiveFile.objects.bulk_create(self._files)
            ArchiveUnusedFile.objects.filter(path__in=[file.path for file in self._files]).delete()
        return Added(self.slice_id, events, len(self._files))

    def _write(self) -> None:
        for day, tables in self._waiting.items():
            self._write_file(day, pa.concat_tables(tables))
        self._waiting.clear()
        self._waiting_rows = 0

    def _write_file(self, day: date, rows: pa.Table) -> None:
        content, namespace_id = ArchiveFile.EVENTS, self._namespace_id
        by_message = rows.sort_by(contents.CONTENTS[content].order)
        table = ordering.in_order(schema.conform(by_message, schema.EVENT))
        path = f"{content}/day={day}/namespace={namespace_id}/slice-{self.slice_id:010d}-{len(self._files)}.parquet"
        ArchiveUnusedFile.objects.create(path=path, since=Now())
        of = {"slice_id": self.slice_id, "imported": True, "day": day, "namespace_id": namespace_id}
        self._files.append(contents.write(self._here, content, table, path, {"slice": self.slice_id}, **of))
