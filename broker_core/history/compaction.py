"""Replaces the small files of days that are over by one file for each day, namespace and content, of about 128 MB at most.

Arrow merges them in pieces of bounded size: no JVM has to start, an installation without Spark has few files too, and the memory
used does not grow with the day. A file is noted as unused before it is written and until the manifest names it; the manifest
changes in one statement. A process killed at any point therefore leaves the manifest as it was or as it should be, and files
that are deleted later. Replaced files are kept for READERS, for those that opened the manifest before.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from broker_core.common.errors import NotAllowed, ServerBusy
from broker_core.models import ArchiveFile

from . import archive, configuration, schema, storage, verification
from .contents import CONTENTS, Content

SIZE = 128 * 2**20  # of a file, about
ROWS = 500_000  # sorted in memory at a time
MOST_PIECES = 500  # each is an open file while a day is sorted
SAMPLE = 100  # one of so many rows is looked at to divide a day into pieces
READERS = timedelta(days=1)  # how long a replaced file is kept


@dataclass(frozen=True, slots=True)
class Compacted:
    """files: small files that were replaced by `into` files with `rows` rows. changed: days that changed meanwhile, and are left
    to the next run. damaged: files that are not as the manifest says; their days are left. deleted: unused files. revisions: of
    settings that were archived."""

    files: int
    into: int
    rows: int
    changed: int
    damaged: tuple[str, ...]
    deleted: int
    revisions: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A file that was written."""

    slices: str
    path: str
    rows: int
    bytes: int
    checksum: str
    first_at: datetime | None
    last_at: datetime | None


def compact_archive(*, before: date | None = None) -> Compacted:
    """Compact the days before a date (today), archive new revisions of settings, and delete files unused for READERS.

    Raises ServerBusy if another process does.
    """
    files = into = rows = changed = 0
    damaged: list[str] = []
    with only_one() as connection:
        deleted = delete_unused(connection)
        revisions = configuration.archive_revisions(connection)
        here = storage.archive_here()
        for group in small_files(before or datetime.now(UTC).date()):
            problems = list(verification.damages(group))
            if problems:
                damaged += map(str, problems)
                continue
            parts = _replace(connection, here, group, _tables(here, group))
            if parts:
                files, into, rows = files + len(group), into + len(parts), rows + sum(part.rows for part in parts)
            else:
                changed += 1
    return Compacted(files, into, rows, changed, tuple(damaged), deleted, revisions)


def write_again(damaged: ArchiveFile) -> int:
    """Write a compacted file again from the event table, with the others of its content, day and namespace. Returns the number of
    rows.

    Raises NotAllowed if the table no longer has all its events, and ServerBusy as compact_archive.
    """
    with only_one() as connection:
        same = {name: getattr(damaged, name) for name in ("content", "day", "namespace_id", "imported")}
        group = list(ArchiveFile.objects.filter(**same, slice=None))
        slices = sorted({slice_id for file in group for slice_id in file.slices})
        content, rows = CONTENTS[damaged.content], sum(file.rows for file in group)

        def tables() -> Iterator[pa.Table]:
            for slice_id in slices:
                part = archive.part_of(slice_id, damaged.content, damaged.day, damaged.namespace_id)
                yield _with_slice(part, ArchiveFile(slice_id=slice_id), content)

        bounds = bounds_of(tables() if rows > ROWS else (), content.keys[:2], rows)
        if not _replace(connection, storage.archive_here(), group, merged(tables(), content.keys, bounds)):
            raise NotAllowed(f"{damaged.path} was not replaced: the event table gives another number of rows than it had.")
        return rows


def small_files(before: date) -> Iterator[list[ArchiveFile]]:
    """The files to merge, by content, day and namespace. Lives of schema version 1 have to be rebuilt first."""
    key = ("content", "day", "namespace_id", "imported")
    files = ArchiveFile.objects.filter(day__lt=before, bytes__lt=SIZE // 2, schema_version__gt=1).order_by(*key, "id")
    for _, group in groupby(files.iterator(), lambda file: [getattr(file, name) for name in key]):
        found = list(group)
        if len(found) > 1:
            yield found


def delete_unused(connection: psycopg.Connection, age: timedelta = READERS) -> int:
    """Delete the files that no reader can be at any more. Returns how many."""
    here = storage.archive_here()
    paths = [path for (path,) in connection.execute(archive.SQL["history_unused"], {"age": age}).fetchall()]
    for path in paths:
        here.delete(path)
        archive.run(connection, "history_forget_unused", path=path)
    return len(paths)


@contextmanager
def only_one() -> Iterator[psycopg.Connection]:
    """The connection that holds the lock on replacing and deleting files."""
    with archive.connected() as connection:
        if not archive.row(connection, "history_try_lock_files").locked:
            raise ServerBusy("Another process is compacting the archive. Try again later.")
        with archive.unlocking(connection, "history_unlock_files"):
            yield connection


def merged(tables: Iterable[pa.Table], keys: tuple[str, ...], bounds: list[tuple]) -> Iterator[pa.Table]:
    """The rows of tables ordered by `keys`, in tables that follow each other; these are divided at `bounds`, values of the first
    two keys. Only one of them, and one of `tables`, is in memory."""
    order = [(name, "ascending") for name in keys]
    if not bounds:
        yield pa.concat_tables(tables).sort_by(order)
        return
    with tempfile.TemporaryDirectory(prefix="vitrine-compaction-") as folder:
        pieces = [Path(folder) / f"{number}.arrow" for number in range(len(bounds) + 1)]
        _divide(tables, order, bounds, pieces)
        for piece in pieces:
            if piece.exists():
                with pa.memory_map(str(piece)) as source:
                    yield ipc.open_file(source).read_all().sort_by(order)
                piece.unlink()


def _replace(connection: psycopg.Connection, here: Any, group: list[ArchiveFile], tables: Iterator[pa.Table]) -> list[_Part]:
    """Write ordered tables in the place of files. No parts: the files changed meanwhile, and were left."""
    first = group[0]
    stem = f"{first.content}/day={first.day}/namespace={first.namespace_id}/compacted-{max(file.pk for file in group):010d}"
    parts = list(_written(connection, here, tables, CONTENTS[first.content], stem))
    columns = {name: [getattr(part, name) for part in parts] for name in _Part.__slots__}
    done = archive.row(
        connection,
        "history_replace_files",
        replaced=[file.pk for file in group],
        imported=first.imported,
        content=first.content,
        day=first.day,
        namespace_id=first.namespace_id,
        schema_version=schema.VERSION,
        slices=columns["slices"],
        paths=columns["path"],
        rows=columns["rows"],
        bytes=columns["bytes"],
        checksums=columns["checksum"],
        first_ats=columns["first_at"],
        last_ats=columns["last_at"],
    )
    return parts if done else []


def _tables(here: Any, group: list[ArchiveFile]) -> Iterator[pa.Table]:
    """The rows of files in order."""
    content, rows = CONTENTS[group[0].content], sum(file.rows for file in group)
    keys = content.keys[:2]
    bounds = bounds_of((table for file in group for table in _read(here, file, keys)), keys, rows)
    return merged((_with_slice(table, file, content) for file in group for table in _read(here, file)), content.keys, bounds)


def _read(here: Any, file: ArchiveFile, columns: tuple[str, ...] | None = None) -> Iterator[pa.Table]:
    """The rows of a file in tables of at most ROWS."""
    with here.open(file.path) as opened:
        for batch in pq.ParquetFile(opened).iter_batches(batch_size=ROWS, columns=columns and list(columns)):
            yield pa.Table.from_batches([batch]).replace_schema_metadata(None)


def _with_slice(table: pa.Table, file: ArchiveFile, content: Content) -> pa.Table:
    if file.slice_id is not None:
        table = table.append_column(schema.SLICE, pa.repeat(pa.scalar(file.slice_id, pa.int64()), table.num_rows))
    return schema.conform(table, content.compacted)


def bounds_of(tables: Iterable[pa.Table], keys: tuple[str, ...], rows: int) -> list[tuple]:
    """Values of two keys that divide so many rows into pieces of about ROWS."""
    if rows <= ROWS:
        return []
    samples = [table.select(keys).take(pa.array(range(0, table.num_rows, SAMPLE), pa.int64())) for table in tables]
    sample = pa.concat_tables(samples).sort_by([(name, "ascending") for name in keys])
    step = max(1, sample.num_rows * max(ROWS, -(-rows // MOST_PIECES)) // rows)
    places = sample.take(pa.array(range(step, sample.num_rows, step), pa.int64()))
    return sorted({tuple(row.values()) for row in places.to_pylist()})


def _divide(tables: Iterable[pa.Table], order: list, bounds: list[tuple], pieces: list[Path]) -> None:
    """Write the rows of each piece to a file of its own."""
    writers: dict[int, tuple[Any, Any]] = {}
    try:
        for table in tables:
            ordered = table.sort_by(order).combine_chunks()
            first, second = (ordered[name] for name, _ in order[:2])

            def at(row: int, first: Any = first, second: Any = second) -> tuple:
                return first[row].as_py(), second[row].as_py()

            places = (bisect_left(range(ordered.num_rows), bound, key=at) for bound in bounds)
            cuts = [0, *places, ordered.num_rows]
            for number, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
                if begin < end:
                    if number not in writers:
                        sink = pa.OSFile(str(pieces[number]), "wb")
                        options = ipc.IpcWriteOptions(compression="lz4")
                        writers[number] = sink, ipc.new_file(sink, ordered.schema, options=options)
                    writers[number][1].write_table(ordered.slice(begin, end - begin))
    finally:
        for sink, writer in writers.values():
            writer.close()
            sink.close()


def _written(
    connection: psycopg.Connection, here: Any, tables: Iterable[pa.Table], content: Content, stem: str
) -> Iterator[_Part]:
    """Write tables to files, and begin another one when one has reached SIZE."""
    columns, number, one = schema.with_metadata(content.compacted), 0, None
    for table in tables:
        one = one or _Open(columns, content.instant)
        one.add(table)
        if one.size >= SIZE:
            yield one.close(connection, here, f"{stem}-{number}.parquet")
            number, one = number + 1, None
    if one is not None:
        yield one.close(connection, here, f"{stem}-{number}.parquet")


class _Open:
    """A file that is being made, in memory."""

    def __init__(self, columns: pa.Schema, instant: str):
        self._stream, self._instant, self._columns = pa.BufferOutputStream(), instant, columns
        self._writer = pq.ParquetWriter(self._stream, columns, **storage.PARQUET)
        self._slices: set[int] = set()
        self._spans: list[dict[str, datetime | None]] = []
        self._rows = 0

    @property
    def size(self) -> int:
        return self._stream.tell()

    def add(self, table: pa.Table) -> None:
        self._writer.write_table(table.cast(self._columns), row_group_size=storage.GROUP_ROWS)
        self._slices |= set(pc.unique(table[schema.SLICE.name]).to_pylist())
        self._spans.append(pc.min_max(table[self._instant]).as_py())
        self._rows += table.num_rows

    def close(self, connection: psycopg.Connection, here: Any, path: str) -> _Part:
        self._writer.close()
        archive.run(connection, "history_note_unused", path=path)
        stored = here.store(self._stream.getvalue(), path)
        first = min((span["min"] for span in self._spans if span["min"]), default=None)
        last = max((span["max"] for span in self._spans if span["max"]), default=None)
        slices = "{" + ",".join(map(str, sorted(self._slices))) + "}"
        return _Part(slices, path, self._rows, stored.bytes, stored.checksum, first, last)
