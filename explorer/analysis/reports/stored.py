"""Reads lives and attempts from the archive's files, for what roll-ups do not say; a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_core.history import manifest, schema, storage
from broker_core.models import ArchiveFile

from ..messages import MOST_LIVES, TooManyLives
from .scope import INSTANT, Range, Scope

MOST_ATTEMPTS = MOST_LIVES


def attempts(scope: Scope, span: Range, columns: Sequence[str]) -> pa.Table:
    """The deliveries from the main lists that ended in a range. Raises TooManyLives."""
    files = ArchiveFile.objects.filter(
        content=ArchiveFile.ATTEMPTS, namespace_id=scope.namespace.pk, first_at__lt=span.end, last_at__gte=span.start
    ).order_by("path")  # fmt: skip
    rows = sum(file.rows for file in files)
    if rows > MOST_ATTEMPTS:
        raise TooManyLives(f"This range has {rows:,} deliveries in the archive; at most {MOST_ATTEMPTS:,} are read. Shorten it.")
    return _between(_read(files, scope, schema.ATTEMPT, columns), "ended_at", span)


def lives(scope: Scope, since: datetime, span: Range, columns: Sequence[str]) -> pa.Table:
    """The messages that entered a list (of any sub-queue) from an instant on, and left it in a range. Raises TooManyLives."""
    files = manifest.life_files(since, span.end, [scope.namespace.pk])
    if files.rows > MOST_LIVES:
        raise TooManyLives(f"This range has {files.rows:,} messages in the archive; at most {MOST_LIVES:,} are read. Shorten it.")
    return _between(_read(files.files, scope, schema.LIFE, columns), "ended_at", span)


def _read(files: Sequence[ArchiveFile], scope: Scope, whole: pa.Schema, columns: Sequence[str]) -> pa.Table:
    archive, wanted = storage.archive_here(), pa.schema([whole.field(name) for name in columns])
    found = [wanted.empty_table()]
    for file in files:
        with archive.open(file.path) as opened:
            there = set(pq.read_schema(opened).names)
            opened.seek(0)
            kept = [name for name in columns if name in there]
            table = pq.read_table(opened, columns=kept, filters=[("entity_id", "in", scope.ids)])
        found.append(schema.conform(table, wanted))
    return pa.concat_tables(found)


def _between(table: pa.Table, column: str, span: Range) -> pa.Table:
    first, over = pa.array([span.start, span.end], INSTANT)
    return table.filter(pc.and_(pc.greater_equal(table[column], first), pc.less(table[column], over)))
