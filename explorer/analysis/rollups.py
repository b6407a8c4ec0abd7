"""Roll-ups of the archive: which days have to be rolled up, the files of those that are, and reading them.

A roll-up covers the lives and attempts of some slices on one day in one namespace. What a later slice adds to the day gets a
roll-up of its own, since counts add up; a file is thus never read again. The rows of files that no roll-up covers yet, such as
today's, are computed when they are asked for, by the same definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from broker_core.history import schema, storage
from broker_core.models import ArchiveFile, ArchiveRolledSlice, ArchiveRollup

from . import messages
from .jobs import measures, outcomes

ROWS = schema.ROLLUP
_HOUR = ROWS.field("hour").type


@dataclass(slots=True)
class Day:
    """What a roll-up of a day and namespace has to read, and has read.

    slice_ids: the slices that it counts. covered: slices whose rows in compacted files are counted already.
    """

    day: date
    namespace_id: int
    slice_ids: set[int] = field(default_factory=set)
    covered: set[int] = field(default_factory=set)
    lives: list[ArchiveFile] = field(default_factory=list)
    attempts: list[ArchiveFile] = field(default_factory=list)


def uncovered(*, before: date | None = None, namespace_ids: Sequence[int] | None = None) -> list[Day]:
    """The days with files that no roll-up covers, oldest first."""
    rolled = ArchiveRolledSlice.objects.filter(namespace_id=OuterRef("namespace_id"), day=OuterRef("day"))
    files = ArchiveFile.objects.annotate(rolled=ArraySubquery(rolled.values("slice_id"))).filter(
        Q(slice=None) & ~Q(slices__contained_by=F("rolled"))
        | Q(slice__isnull=False) & ~Exists(rolled.filter(slice_id=OuterRef("slice_id"))),
        content__in=(ArchiveFile.LIVES, ArchiveFile.ATTEMPTS),
    )
    if namespace_ids is not None:
        files = files.filter(namespace_id__in=namespace_ids)
    if before is not None:
        files = files.filter(day__lt=before)
    days: dict[tuple[date, int], Day] = {}
    for file in files.order_by("day", "namespace_id", "path"):
        day = days.setdefault((file.day, file.namespace_id), Day(file.day, file.namespace_id))
        covered = set(file.rolled) & set(file.slice_ids)
        day.covered |= covered
        day.slice_ids |= set(file.slice_ids) - covered
        (day.lives if file.content == ArchiveFile.LIVES else day.attempts).append(file)
    return list(days.values())


def store(days: Iterable[Day], rows: pa.Table) -> None:
    """Write the roll-ups of days and enter them in the manifest, all or none. rows: of all days, with `day` (ISO) and
    `namespace`. Equal rows give equal files. Raises IntegrityError if another roll-up covers one of the slices by now."""
    archive, written = storage.archive_here(), []
    for day in days:
        mine = pc.and_(pc.equal(rows["day"], day.day.isoformat()), pc.equal(rows["namespace"], day.namespace_id))
        table = in_order(schema.conform(rows.filter(mine), ROWS)).cast(schema.with_metadata(ROWS))
        slices = f"{min(day.slice_ids):010d}-{max(day.slice_ids):010d}"
        path = f"rollup/day={day.day}/namespace={day.namespace_id}/slices-{slices}.parquet"
        written.append((day, path, table, archive.write(table, path)))
    with transaction.atomic():
        for day, path, table, stored in written:
            one = ArchiveRollup.objects.create(
                day=day.day, namespace_id=day.namespace_id, path=path, rows=table.num_rows, bytes=stored.bytes,
                schema_version=schema.VERSION, checksum=stored.checksum, first_at=pc.min(table["hour"]).as_py(),
                last_at=pc.max(table["end_hour"]).as_py(), rolled_up_at=Now(),
            )  # fmt: skip
            ArchiveRolledSlice.objects.bulk_create(
                ArchiveRolledSlice(rollup=one, slice_id=slice_id, day=day.day, namespace_id=day.namespace_id)
                for slice_id in sorted(day.slice_ids)
            )


def read(entity_ids: Sequence[int], namespace_ids: Sequence[int], start: datetime, end: datetime) -> pa.Table:
    """The rows of these entities whose messages were in a list at some time in a range, from roll-ups and from files that none
    covers yet; several rows can have equal keys."""
    archive, found = storage.archive_here(), [ROWS.empty_table()]
    rolled = ArchiveRollup.objects.filter(namespace_id__in=namespace_ids, first_at__lt=end, last_at__gte=_hour_of(start))
    for one in rolled.order_by("path"):
        with archive.open(one.path) as opened:
            table = pq.read_table(opened, filters=[("entity_id", "in", list(entity_ids))])
        found.append(schema.conform(table, ROWS))
    tail = uncovered(namespace_ids=namespace_ids)
    lives = [file for day in tail for file in day.lives if file.first_at is None or file.first_at < end]
    attempts = [file for day in tail for file in day.attempts if file.first_at is None or file.last_at >= start]
    found.append(of_lives(_tail(archive, lives, schema.LIFE, entity_ids)))
    found.append(of_attempts(_tail(archive, attempts, schema.ATTEMPT, entity_ids)))
    rows = pa.concat_tables(found)
    first, over = pa.array([_hour_of(start), end], _HOUR)
    inside = pc.and_(pc.less(rows["hour"], over), pc.greater_equal(rows["end_hour"], first))
    return rows.filter(inside)


def require_short_tail(namespace_id: int) -> None:
    """Raise messages.TooManyLives if reading what is not rolled up yet would take longer than a page should."""
    tail = sum(file.rows for day in uncovered(namespace_ids=[namespace_id]) for file in day.lives)
    if tail > messages.MOST_LIVES:
        raise messages.TooManyLives(f"{tail:,} messages in the archive are not rolled up yet. Run `manage.py roll_up_history`.")


def of_lives(lives: pa.Table) -> pa.Table:
    """The rows of these lives; equals the job's (jobs.roll_up.of_lives)."""
    entered = pc.and_(pc.is_valid(lives["enqueued_at"]), pc.not_equal(lives["outcome"], outcomes.CANCELLED))
    timed = messages.with_outcome(messages.with_times(lives.filter(entered)))
    age = pc.min_element_wise(messages.elapsed(timed["enqueued_at"], timed["ended_at"]), timed["time_to_live_in_force_us"])
    never = pc.if_else(pc.is_null(timed["waiting_us"]), age, None)
    cause = pc.if_else(pc.equal(timed["outcome"], outcomes.EXPIRED), None, timed["error"])
    keys = {
        "entity_id": timed["entity_id"], "subqueue": timed["subqueue"], "hour": _floor_hour(timed["enqueued_at"]),
        "end_hour": _floor_hour(timed["ended_at"]), "outcome": timed["outcome"], "cause": cause,
        "time_to_live_bin": bins_of(timed["time_to_live_in_force_us"]), "generated": pc.cast(timed["generated"], pa.int64()),
    }  # fmt: skip
    zero = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), timed.num_rows)])
    values = {measures.LIFE: zero, measures.WAITING: timed["waiting_us"], measures.NEVER_RECEIVED: never,
              measures.PROCESSING: timed["processing_us"]}  # fmt: skip
    return _measured(keys, values)


def of_attempts(attempts: pa.Table) -> pa.Table:
    """The rows of these attempts; equals the job's (jobs.roll_up.of_attempts)."""
    held = messages.elapsed(attempts["received_at"], attempts["ended_at"])
    lock = pc.subtract(pc.cast(attempts["locked_until"], pa.int64()), pc.cast(attempts["received_at"], pa.int64()))
    lock = pc.if_else(pc.greater(lock, 0), lock, None)
    keys = {
        "entity_id": attempts["entity_id"], "subqueue": attempts["subqueue"], "hour": _floor_hour(attempts["received_at"]),
        "end_hour": _floor_hour(attempts["ended_at"]), "outcome": attempts["outcome"], "cause": attempts["error"],
        "time_to_live_bin": pa.nulls(attempts.num_rows, pa.int32()), "generated": pc.cast(attempts["generated"], pa.int64()),
    }  # fmt: skip
    return _measured(keys, {measures.HELD: held, measures.LOCK_USE: pc.divide(pc.multiply(held, 1000), lock)})


def bins_of(values: Any) -> Any:
    """As measures.bin_of, of a column."""
    values = pc.cast(values, pa.int64())
    guess = pc.cast(pc.floor(pc.log2(pc.cast(pc.max_element_wise(values, 1), pa.float64(), safe=False))), pa.int64())
    guess = pc.min_element_wise(guess, 62)  # a shift by 63 leaves a number as it is
    at_guess = pc.shift_right(values, guess)
    exponent = pc.subtract(guess, pc.cast(pc.equal(at_guess, 0), pa.int64()))
    exponent = pc.add(exponent, pc.cast(pc.greater(at_guess, 1), pa.int64()))
    octave = pc.max_element_wise(pc.subtract(exponent, measures.BITS), 0)
    number = pc.add(pc.multiply(octave, 1 << measures.BITS), pc.shift_right(values, octave))
    return pc.cast(pc.if_else(pc.less(values, 1 << measures.BITS), values, number), pa.int32())


def summed(rows: pa.Table) -> pa.Table:
    """The rows with equal keys added up, in the order of their keys."""
    total = rows.group_by(list(measures.KEYS)).aggregate([("messages", "sum"), ("generated", "sum")])
    names = [name.removesuffix("_sum") for name in total.column_names]
    return in_order(total.rename_columns(names).select(ROWS.names).cast(ROWS))


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in measures.KEYS])


def _measured(keys: dict[str, Any], values: dict[int, Any]) -> pa.Table:
    parts = [ROWS.empty_table()]
    for measure, value in values.items():
        number = bins_of(value)
        count = len(number)
        columns = keys | {
            "measure": pa.repeat(pa.scalar(measure, pa.int16()), count), "bin": number,
            "messages": pa.repeat(pa.scalar(1, pa.int64()), count),
        }  # fmt: skip
        parts.append(pa.table([columns[name] for name in ROWS.names], names=ROWS.names).filter(pc.is_valid(number)).cast(ROWS))
    return summed(pa.concat_tables(parts))


def _tail(archive: Any, files: list[ArchiveFile], columns: pa.Schema, entity_ids: Sequence[int]) -> pa.Table:
    found = [columns.empty_table()]
    for file in files:
        wanted = pc.field("entity_id").isin(list(entity_ids))
        if file.slice_id is None:
            wanted &= ~pc.field(schema.SLICE.name).isin(file.rolled)
        with archive.open(file.path) as opened:
            found.append(schema.conform(pq.read_table(opened, filters=wanted), columns))
    return pa.concat_tables(found)


def _floor_hour(column: Any) -> Any:
    return pc.cast(pc.floor_temporal(column, unit="hour"), _HOUR)


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
