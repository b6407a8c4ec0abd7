"""Reads lives, attempts and events from the archive's files, for what roll-ups do not say; a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from broker_core.common.types import EventKind
from broker_core.history import manifest, schema, storage
from broker_core.models import ArchiveFile

from ..messages import MOST_LIVES, TooManyLives
from .scope import Range, Scope

MOST_ATTEMPTS = MOST_LIVES
MOST_EVENTS = 3 * MOST_LIVES

Keep = Callable[[pa.Table], pa.Table]


def _all(table: pa.Table) -> pa.Table:
    return table


def attempts(scope: Scope, span: Range, columns: Sequence[str]) -> pa.Table:
    """The deliveries from the main lists that ended in a range. Raises TooManyLives."""
    files = ArchiveFile.objects.filter(
        content=ArchiveFile.ATTEMPTS, namespace_id=scope.namespace.pk, first_at__lt=span.end, last_at__gte=span.start
    ).order_by("path")  # fmt: skip
    rows = sum(file.rows for file in files)
    if rows > MOST_ATTEMPTS:
        raise TooManyLives(f"This range has {rows:,} deliveries in the archive; at most {MOST_ATTEMPTS:,} are read. Shorten it.")
    return _read(files, scope, schema.ATTEMPT, columns, _between("ended_at", span))


def lives(scope: Scope, since: datetime, span: Range, columns: Sequence[str]) -> pa.Table:
    """The messages that entered a list (of any sub-queue) from an instant on, and left it in a range. Raises TooManyLives."""
    files = manifest.life_files(since, span.end, [scope.namespace.pk])
    if files.rows > MOST_LIVES:
        raise TooManyLives(f"This range has {files.rows:,} messages in the archive; at most {MOST_LIVES:,} are read. Shorten it.")
    return _read(files.files, scope, schema.LIFE, columns, _between("ended_at", span))


def events(
    scope: Scope, span: Range, columns: Sequence[str], kinds: Sequence[EventKind], *, most: int, keep: Keep = _all
) -> pa.Table:
    """The events of these kinds in a range, of the scope's entities, that `keep` leaves of each file. Raises TooManyLives as soon
    as it has read more than `most`."""
    files = ArchiveFile.objects.filter(
        content=ArchiveFile.EVENTS, namespace_id=scope.namespace.pk, first_at__lt=span.end, last_at__gte=span.start
    ).order_by("path")  # fmt: skip
    rows = sum(file.rows for file in files)
    if rows > MOST_EVENTS:
        raise TooManyLives(f"This range has {rows:,} events in the archive; at most {MOST_EVENTS:,} are read. Shorten it.")
    of_kinds = ("kind", "in", [int(kind) for kind in kinds])
    return _read(files, scope, schema.EVENT, columns, [*_between("at", span), of_kinds], keep, most)


def _read(
    files: Sequence[ArchiveFile],
    scope: Scope,
    whole: pa.Schema,
    columns: Sequence[str],
    where: list[Any],
    keep: Keep = _all,
    most: int = MOST_EVENTS,
) -> pa.Table:
    archive, wanted = storage.archive_here(), pa.schema([whole.field(name) for name in columns])
    found, rows = [wanted.empty_table()], 0
    for file in files:
        with archive.open(file.path) as opened:
            there = set(pq.read_schema(opened).names)
            opened.seek(0)
            kept = [name for name in columns if name in there]
            table = pq.read_table(opened, columns=kept, filters=[("entity_id", "in", scope.ids), *where])
        found.append(keep(schema.conform(table, wanted)))
        rows += found[-1].num_rows
        if rows > most:
            raise TooManyLives(f"This range has more than {most:,} events to examine one by one. Shorten it.")
    return pa.concat_tables(found)


def _between(column: str, span: Range) -> list[Any]:
    return [(column, ">=", span.start), (column, "<", span.end)]
