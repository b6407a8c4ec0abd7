"""Writes the event table to Parquet files, each event exactly once (docs/design.md D11).

A slice contains the events of a range of transaction ids below the horizon, where every transaction has ended. Its bounds are
committed first, then its files are written under names derived from its id, then it is marked done. After a crash the open slice
is written again with the same bounds, rows and names. Readers find files through the manifest, never by listing a folder.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from broker_core.common.errors import NotAllowed, ServerBusy
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice
from broker_core.store.connections import current_database
from broker_core.store.statements import SQL

from . import contents, ordering, schema, storage

MAX_EVENTS = 250_000  # a slice is held in memory: about 300 bytes per event
APPLICATION_NAME = "vitrine archive"
LOCK_POLL_SECONDS = 0.1
_EVENTS = contents.CONTENTS[ArchiveFile.EVENTS]
_OF_FILE = ("content", "day", "namespace_id", "path", "rows", "bytes", "schema_version", "checksum", "first_at", "last_at")


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of `archive_events`. Every event of a transaction below `horizon` is in a finished slice."""

    events: int
    slices: int
    horizon: int


def archive_events(*, max_events: int = MAX_EVENTS, wait_seconds: float = 0) -> Archived:
    """Archive all events below the current horizon, in slices of about `max_events`.

    Raises ServerBusy if another archiver is still running after `wait_seconds`.
    """
    with _only_archiver(wait_seconds) as connection:
        system_identifier = row(connection, "history_cluster").system_identifier
        epoch = _epoch(connection, system_identifier)
        horizon = row(connection, "history_cluster").horizon
        done = [_write_slice(connection, opened, system_identifier) for opened in _slices(connection, epoch, horizon, max_events)]
    return Archived(events=sum(done), slices=len(done), horizon=horizon)


def write_again(slice_id: int, *, wait_seconds: float = 0) -> int:
    """Write the files of a finished slice again from the event table; returns its number of events.

    Raises ServerBusy as `archive_events`, and NotAllowed if the table no longer has all events of the slice: its days were
    dropped, or it is of another cluster.
    """
    with _only_archiver(wait_seconds) as connection:
        system_identifier = row(connection, "history_cluster").system_identifier
        _require_events(connection, slice_id, system_identifier)
        if row(connection, "history_slice_in_files", slice_id=slice_id).files:
            raise NotAllowed(f"Other files of slice {slice_id} were compacted already. Restore its damaged ones from a backup.")
        return _write_slice(connection, row(connection, "history_reopen_slice", slice_id=slice_id), system_identifier)


def part_of(slice_id: int, day: date, namespace_id: int) -> pa.Table:
    """The events that a finished slice has of a day and namespace, from the event table; raises NotAllowed as `write_again`."""
    with connected() as connection:
        slice_ = _require_events(connection, slice_id, row(connection, "history_cluster").system_identifier)
        events = _events(connection, slice_)
    is_in_part = pc.and_(pc.equal(events["namespace_id"], namespace_id), pc.equal(events["day"], pa.scalar(day)))
    return ordering.in_order(events.filter(is_in_part).sort_by(_EVENTS.order)).select(schema.EVENT.names)


def _require_events(connection: psycopg.Connection, slice_id: int, system_identifier: int) -> ArchiveSlice:
    """The slice. Raises NotAllowed if the event table does not have all its events."""
    archive_slice = ArchiveSlice.objects.select_related("epoch").get(pk=slice_id)
    if archive_slice.epoch.system_identifier == ArchiveEpoch.IMPORTED:
        raise NotAllowed(f"Slice {slice_id} was imported or generated; restore its files from a backup.")
    if archive_slice.epoch.system_identifier != system_identifier:
        raise NotAllowed(f"Slice {slice_id} was archived from another database cluster; restore its files from a backup.")
    present = row(connection, "history_events_in_slice", from_xid=archive_slice.from_xid, to_xid=archive_slice.to_xid).events
    if present != archive_slice.events:
        raise NotAllowed(
            f"Slice {slice_id} cannot be written again: the event table has {present:,} of its {archive_slice.events:,} events, "
            "because days were dropped. Restore its files from a backup."
        )
    return archive_slice


def horizon_holder():
    """The oldest transaction that has written and is still open (pid, application_name, state, xact_start, age), or None."""
    with connected() as connection:
        return row(connection, "history_horizon_holder")


@contextmanager
def connected() -> Iterator[psycopg.Connection]:
    """A new connection; locks held on it are released when it closes."""
    parameters = current_database().parameters() | {"options": "-c timezone=UTC", "application_name": APPLICATION_NAME}
    with psycopg.connect(**parameters) as connection:
        yield connection


def _only_archiver(wait_seconds: float) -> AbstractContextManager[psycopg.Connection]:
    """The connection that holds the archiver's lock. The manifest is written on it, so no archiver can write without the lock."""
    busy = "Another process is archiving events. No events are lost; try again later."
    return locked("history_try_lock", "history_unlock", busy, wait_seconds)


@contextmanager
def locked(lock: str, unlock: str, busy: str, wait_seconds: float = 0) -> Iterator[psycopg.Connection]:
    """A new connection that holds a lock, taken and released by these statements. Raises ServerBusy with the text `busy` if
    another process still holds it after `wait_seconds`."""
    with connected() as connection:
        deadline = time.monotonic() + wait_seconds
        while not row(connection, lock).locked:
            if time.monotonic() >= deadline:
                raise ServerBusy(busy)
            time.sleep(LOCK_POLL_SECONDS)
        try:
            yield connection
        finally:  # the server may notice a closed connection later
            with suppress(psycopg.Error):
                row(connection, unlock)


def _epoch(connection: psycopg.Connection, system_identifier: int):
    """The epoch of this cluster. Begins one for the first archive, and after a restore or copy to another cluster."""
    epoch = row(connection, "history_epoch")
    if epoch is None:
        run(connection, "history_begin_epoch", system_identifier=system_identifier, from_xid=0)
    elif epoch.system_identifier != system_identifier:
        _move_to_cluster(connection, epoch, system_identifier)
    else:
        return epoch
    return row(connection, "history_epoch")


def _move_to_cluster(connection: psycopg.Connection, old, system_identifier: int) -> None:
    """Begin an epoch in a new cluster, where the events' transaction ids are those of the old one.

    Locks out writers while events are renumbered, which is acceptable after a restore.
    """
    with connection.transaction():
        connection.execute(SQL["history_lock_events"])
        run(connection, "history_forget_open_slice")
        run(connection, "history_renumber_events", archived_to=old.archived_to, opened_at=old.opened_at)
        current = row(connection, "history_current_xid").xid
        run(connection, "history_begin_epoch", system_identifier=system_identifier, from_xid=current)


def _slices(connection: psycopg.Connection, epoch, horizon: int, max_events: int) -> Iterator:
    """The slice that a killed archiver left open, then new ones up to the horizon. The caller finishes each before the next."""
    archived_to = epoch.archived_to
    unfinished = row(connection, "history_open_slice")
    if unfinished is not None:
        yield unfinished
        archived_to = max(archived_to, unfinished.to_xid)  # a slice that is written again may be an old one
    while opened := row(
        connection, "history_next_slice", epoch_id=epoch.id, from_xid=archived_to, horizon=horizon, max_events=max_events
    ):
        yield opened
        archived_to = opened.to_xid


def _write_slice(connection: psycopg.Connection, opened, system_identifier: int) -> int:
    """Write a slice's files and mark it done. Returns its number of events."""
    events = _events(connection, opened)
    archive = storage.current_archive()
    facts = {"slice": opened.id, "system_identifier": system_identifier}
    files = [file for part in _by_namespace(events) for file in _write_namespace(archive, part, opened.id, facts)]
    columns = {name: [getattr(file, name) for file in files] for name in _OF_FILE}
    run(connection, "history_finish_slice", slice_id=opened.id, events=events.num_rows, **columns)
    return events.num_rows


def _events(connection: psycopg.Connection, slice_: Any) -> pa.Table:
    """The events of a slice, with the `day` of each."""
    events = read_arrow(connection, "history_slice_events", from_xid=slice_.from_xid, to_xid=slice_.to_xid)
    return events.append_column("day", pc.cast(events["recorded_at"], pa.date32()))


def read_arrow(connection: psycopg.Connection, name: str, **params) -> pa.Table:
    """The rows of a named statement as an Arrow table, read by ADBC on a separate connection (1.3 M events per second)."""
    from adbc_driver_postgresql import dbapi

    sql = psycopg.ClientCursor(connection).mogrify(SQL[name], params)
    address = make_conninfo(connection.info.dsn, password=connection.info.password, application_name=APPLICATION_NAME)
    with dbapi.connect(address) as arrow, arrow.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def _by_namespace(events: pa.Table) -> Iterator[pa.Table]:
    """The events of each namespace, ordered by message, then as they happened."""
    ordered = events.sort_by([("namespace_id", "ascending"), *_EVENTS.order])
    return _parts(ordering.in_order(ordered), "namespace_id")


def _parts(ordered: pa.Table, column: str) -> Iterator[pa.Table]:
    """The rows of each value of a column by which they are ordered."""
    counts = ordered.group_by(column, use_threads=False).aggregate([([], "count_all")])  # in the table's order
    begin = 0
    for rows in counts["count_all"].to_pylist():
        yield ordered.slice(begin, rows)
        begin += rows


def _write_namespace(archive, events: pa.Table, slice_id: int, facts: dict) -> Iterator[ArchiveFile]:
    """Write a namespace's events of a slice, by day."""
    namespace_id = events["namespace_id"][0].as_py()
    for part in _parts(events.sort_by([("day", "ascending"), *_EVENTS.order]), "day"):
        day, rows = part["day"][0].as_py(), part.select(schema.EVENT.names)
        path = f"{ArchiveFile.EVENTS}/day={day}/namespace={namespace_id}/slice-{slice_id:010d}.parquet"
        yield contents.write(archive, ArchiveFile.EVENTS, rows, path, facts, day=day, namespace_id=namespace_id)


def row(connection: psycopg.Connection, name: str, **params):
    """The first row of a named statement, or None."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(SQL[name], params or None).fetchone()


def run(connection: psycopg.Connection, name: str, **params) -> int:
    """Run a named statement; returns the number of rows it changed."""
    return connection.execute(SQL[name], params or None).rowcount
