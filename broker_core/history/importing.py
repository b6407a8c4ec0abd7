"""Imports the history of another system: a row a message that ended, in CSV or Parquet (docs/history.md, "Imported history")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from csv import reader
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from broker_core.common.types import EventKind
from broker_core.models import Entity

from . import archive, foreign, schema

_INSTANT = schema.EVENT.field("at").type
LIFE_ENDS = {kind for kind in EventKind if kind.is_terminal or kind is EventKind.DEAD_LETTERED} - {EventKind.ACTIVATED}
OUTCOMES = {kind.name.lower(): int(kind) for kind in sorted(LIFE_ENDS)}
REQUIRED = ("enqueued_at", "ended_at", "outcome")
# Columns in the order of their times, which must not contradict each other.
TIMES = ("enqueued_at", "first_received_at", "last_received_at", "ended_at")
COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(TIMES, _INSTANT),
    "outcome": pa.string(),
    "sequence_number": pa.int64(),
    "deliveries": pa.int32(),
    "size": pa.int32(),
    "time_to_live_seconds": pa.float64(),
    **dict.fromkeys(("message_id", "reason", "session_id", "settled_by"), pa.string()),
}
_STATED = pa.schema(
    [
        schema.EVENT.field(name).with_nullable(True)
        for name in (
            *("sequence_number", "message_id", "enqueued_at", "at", "kind", "session_id", "size", "time_to_live_us", "reason"),
            *("actor", "delivery_count", "first_received_at", "last_received_at"),
        )
    ]
)
_FORMS = {
    _INSTANT: "a time with its zone, such as 2026-03-01T12:00:00Z",
    pa.int32(): "a whole number",
    pa.int64(): "a whole number",
    pa.float64(): "a number of seconds",
    pa.string(): "text",
}
BLOCK = 500_000  # rows of a Parquet file at a time
BLOCK_BYTES = 64 * 2**20  # of a CSV file
LONGEST_TIME_TO_LIVE = 9e12  # seconds


class ImportRefused(Exception):
    """The file cannot be imported. The text says the row, the column and what to do; nothing was added."""


@dataclass(frozen=True, slots=True)
class Imported:
    messages: int
    added: foreign.Added


def import_history(path: Path, entity: Entity) -> Imported:
    """Add the messages of a file to the archived history of an entity. Either all are added or none.

    Raises ImportRefused, and OSError for a file that cannot be read.
    """
    addition, rows = foreign.Addition(entity.namespace_id), 0
    with archive.connected() as connection:
        number = archive.row(connection, "history_next_number", entity_id=entity.pk).next_number
        for table in _blocks(path):
            found = _events(table, entity, number, rows)
            addition.add(found)
            next_number, rows = pc.max(found["sequence_number"]).as_py() + 1, rows + table.num_rows
            archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=next_number - number)
            number = next_number
    if not rows:
        raise ImportRefused(f"{path.name} has no rows. Write one row a message below the names of the columns.")
    return Imported(rows, addition.finish())


def _blocks(path: Path) -> Iterator[pa.Table]:
    """The rows in blocks, with the file's own column types; those of CSV are text."""
    try:
        yield from _of_parquet(path) if path.suffix.lower() == ".parquet" else _of_csv(path)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise ImportRefused(f"{path.name} cannot be read: {problem}. Write it as CSV in UTF-8, or as Parquet.") from None


def _of_parquet(path: Path) -> Iterator[pa.Table]:
    opened = pq.ParquetFile(path)
    _check_names(opened.schema_arrow.names)
    for batch in opened.iter_batches(batch_size=BLOCK):
        yield pa.Table.from_batches([batch])


def _of_csv(path: Path) -> Iterator[pa.Table]:
    invalid: list[csv.InvalidRow] = []

    def stop(row: csv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    with path.open(encoding="utf-8-sig", newline="") as file:
        _check_names(next(reader(file), []))
        if not file.readline().strip():
            return
    text = dict.fromkeys(COLUMNS, pa.string())
    options = csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
    reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)  # so that invalid rows have a number
    try:
        for batch in csv.open_csv(path, reading, csv.ParseOptions(invalid_row_handler=stop), options):
            yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid:
        if not invalid:
            raise
        row = invalid[0]
        values = f"it has {row.actual_columns} values instead of {row.expected_columns}"
        at = "A row" if row.number is None else f"Row {row.number - 1}"
        raise ImportRefused(f"{at}: {values} ({row.text}). Put texts with commas in quotation marks.") from None


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ImportRefused(f"Column {twice[0]}: it is there more than once. Keep one.")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ImportRefused(f"Column {unknown[0]}: it is unknown. Remove or rename it; the columns are {', '.join(COLUMNS)}.")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise ImportRefused(f"Column {missing[0]}: it is missing. Every file needs {', '.join(REQUIRED)}.")


def _events(table: pa.Table, entity: Entity, next_number: int, rows_before: int) -> pa.Table:
    """Two events for each row of a block of the file: of the sending and of the end. next_number: of the entity. rows_before: in
    earlier blocks."""

    def refuse_where(wrong: pa.ChunkedArray, column: str, problem: str | Callable[[int], str]) -> None:
        at = pc.index(pc.fill_null(wrong, False), True).as_py()
        if at >= 0:
            raise ImportRefused(
                f"Row {rows_before + at + 1}, column {column}: {problem if isinstance(problem, str) else problem(at)}"
            )

    def typed(name: str) -> pa.ChunkedArray:
        kind = COLUMNS[name]
        if name not in table.column_names:
            return pa.chunked_array([pa.nulls(table.num_rows, kind)])
        column = table[name]
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            at = _first_wrong(column, kind)
            text = f"{column[at].as_py()!r} is not {_FORMS[kind]}. Correct it, or leave it empty if the column is optional."
            raise ImportRefused(f"Row {rows_before + at + 1}, column {name}: {text}") from None

    given = {name: typed(name) for name in COLUMNS}
    for name in REQUIRED:
        refuse_where(pc.is_null(given[name]), name, "it is empty. Every row needs a value.")
    for earlier, later in ((a, b) for i, a in enumerate(TIMES) for b in TIMES[i + 1 :]):
        refuse_where(
            pc.less(given[later], given[earlier]),
            later,
            f"it is before {earlier}. Check whether the two columns are exchanged.",
        )
    if days := entity.namespace.archive_days:
        first = pa.scalar(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days), _INSTANT)
        kept = f"it is older than the {days:,} days that the archive of {entity.namespace.name} is kept. Remove the row."
        refuse_where(pc.less(given["ended_at"], first), "ended_at", kept)
    known = pc.is_in(given["outcome"], pa.array(list(OUTCOMES)))
    refuse_where(pc.invert(known), "outcome", lambda at: f"{given['outcome'][at].as_py()!r} is none of {', '.join(OUTCOMES)}.")
    for name in ("deliveries", "size", "time_to_live_seconds"):
        refuse_where(pc.less(given[name], 0), name, "it is negative. Leave it empty if it is unknown.")
    no_number = pc.is_nan(given["time_to_live_seconds"])
    refuse_where(no_number, "time_to_live_seconds", "it is not a number. Leave it empty if the message lives for ever.")
    too_long = pc.greater(given["time_to_live_seconds"], LONGEST_TIME_TO_LIVE)
    refuse_where(too_long, "time_to_live_seconds", "it is too long. Leave it empty if the message lives for ever.")
    numbers = given["sequence_number"]
    if "sequence_number" not in table.column_names:
        numbers = pa.chunked_array([pa.array(range(next_number, next_number + table.num_rows), pa.int64())])
    before = pa.chunked_array([pa.array([next_number - 1], pa.int64()), *numbers.slice(0, table.num_rows - 1).chunks])
    refuse_where(
        pc.fill_null(pc.less_equal(numbers, before), True),
        "sequence_number",
        lambda at: (
            f"it must be greater than {before[at].as_py()}, the number before it. Sort the rows by it, or remove the column."
        ),
    )
    ttl = pc.cast(pc.multiply(given["time_to_live_seconds"], 1e6), pa.int64(), safe=False)
    ended = pc.cast(pa.array([*OUTCOMES.values()]).take(pc.index_in(given["outcome"], pa.array([*OUTCOMES]))), pa.int16())
    common = {"sequence_number": numbers, "message_id": given["message_id"], "enqueued_at": given["enqueued_at"]}
    sent = common | {
        "at": given["enqueued_at"], "kind": _same(int(EventKind.SENT), numbers, pa.int16()), "session_id": given["session_id"],
        "size": given["size"], "time_to_live_us": ttl,
    }  # fmt: skip
    gone = common | {
        "at": given["ended_at"], "kind": ended, "reason": given["reason"], "actor": given["settled_by"],
        "delivery_count": given["deliveries"], "size": given["size"],
        "first_received_at": pc.coalesce(given["first_received_at"], given["last_received_at"]),
        "last_received_at": pc.coalesce(given["last_received_at"], given["first_received_at"]),
    }  # fmt: skip
    both = pa.concat_tables([schema.conform(pa.table(one), _STATED) for one in (sent, gone)])
    at = {
        "event_id": pa.array(range(1 + 2 * rows_before, 1 + 2 * rows_before + both.num_rows), pa.int64()),
        "recorded_at": pa.chunked_array([*given["ended_at"].chunks, *given["ended_at"].chunks], _INSTANT),
        "entity_id": _same(entity.pk, both, pa.int64()),
        "subqueue": _same(0, both, pa.int16()),
        "xid": _same(0, both, pa.int64()),
    }  # fmt: skip
    return schema.conform(pa.table({**{name: both[name] for name in both.column_names}, **at}), schema.EVENT)


def _same(value: int, rows: Any, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(rows))


def _first_wrong(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row whose value cannot be cast."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            column.slice(begin, middle - begin).cast(kind)
            begin = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            end = middle
    return begin
