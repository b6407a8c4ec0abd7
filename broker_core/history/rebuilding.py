"""Rebuilds lives of schema version 1, in which the time-to-live of most messages is unknown."""

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_core.common.types import EventKind
from broker_core.models import ArchiveFile

from . import schema, storage

KEY = ["entity_id", "sequence_number"]
_STATED = pa.schema([(name, pa.int64()) for name in (*KEY, "stated_us")])


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """files: rebuilt ones. lives: in them. known: those whose time-to-live a SENT event states."""

    files: int = 0
    lives: int = 0
    known: int = 0


def rebuild_lives() -> Rebuilt:
    """Write the lives of schema version 1 again as the current version: unknown times-to-live become NULL, or what the event of
    the message's sending says. An interrupted call can be repeated. Raises OSError for a file that cannot be read."""
    archive = storage.archive_here()
    by_namespace: dict[int, list[ArchiveFile]] = defaultdict(list)
    for file in _files(ArchiveFile.LIVES).filter(schema_version=1):
        by_namespace[file.namespace_id].append(file)
    files = lives = known = 0
    for namespace_id, old in by_namespace.items():
        stated = _stated_times_to_live(archive, namespace_id)
        for file in old:
            table = _rebuilt(_read(archive, file), stated)
            _replace(archive, file, table)
            files, lives, known = files + 1, lives + table.num_rows, known + table.num_rows - table["time_to_live_us"].null_count
    return Rebuilt(files, lives, known)


def _files(content: str):
    return ArchiveFile.objects.filter(content=content).order_by("path")


def _read(archive, file: ArchiveFile, columns: list[str] | None = None) -> pa.Table:
    with archive.open(file.path) as opened:
        return pq.read_table(opened, columns=columns)


def _stated_times_to_live(archive, namespace_id: int) -> pa.Table:
    """The finite times-to-live that SENT events state, one row a message."""
    parts = [_STATED.empty_table()]
    for file in _files(ArchiveFile.EVENTS).filter(namespace_id=namespace_id):
        events = _read(archive, file, [*KEY, "subqueue", "kind", "time_to_live_us"])
        known = pc.less(events["time_to_live_us"], schema.UNKNOWN_TIME_TO_LIVE)
        sent = events.filter(pc.and_(known, pc.equal(events["kind"], int(EventKind.SENT))))
        parts.append(sent.select([*KEY, "time_to_live_us"]).rename_columns(_STATED.names).cast(_STATED))
    return pa.concat_tables(parts).group_by(KEY).aggregate([("stated_us", "max")]).rename_columns(_STATED.names)


def _rebuilt(lives: pa.Table, stated: pa.Table) -> pa.Table:
    facts = {
        name.decode().removeprefix("vitrine."): value.decode()
        for name, value in (lives.schema.metadata or {}).items()
        if name.startswith(b"vitrine.") and name != b"vitrine.version"
    }
    known = pc.if_else(
        pc.equal(lives["time_to_live_us"], schema.UNKNOWN_TIME_TO_LIVE), pa.scalar(None, pa.int64()), lives["time_to_live_us"]
    )
    lives = lives.set_column(lives.schema.get_field_index("time_to_live_us"), "time_to_live_us", known)
    joined = lives.join(stated, KEY, join_type="left outer").sort_by([(name, "ascending") for name in (*KEY, "subqueue")])
    merged = pc.coalesce(joined["time_to_live_us"], joined["stated_us"])
    joined = joined.set_column(joined.schema.get_field_index("time_to_live_us"), "time_to_live_us", merged)
    return schema.conform(joined, schema.with_metadata(schema.LIFE, **facts))


def _replace(archive, file: ArchiveFile, table: pa.Table) -> None:
    """Write the table beside the old file, point the manifest to it, then delete the old file."""
    old = file.path
    file.path = f"{old.removesuffix('.parquet')}-version-{schema.VERSION}.parquet"
    stored = archive.write(table, file.path)
    file.bytes, file.checksum, file.schema_version = stored.bytes, stored.checksum, schema.VERSION
    file.save(update_fields=["path", "bytes", "checksum", "schema_version"])
    archive.delete(old)
