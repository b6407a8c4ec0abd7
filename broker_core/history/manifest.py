"""The archive's manifest: which files to read, and the entry of those that jobs have written.

A job writes files to a folder of its own. `enter` lists that folder once and enters its files in one transaction, together with
what they replace; a job that was killed leaves a folder that the manifest does not name, and that is deleted later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet, Sum
from django.db.models.functions import Now

from broker_core.common.errors import ServerBusy
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRebuild, ArchiveSlice, ArchiveUnusedFile

from . import archive, schema, storage
from .contents import CONTENTS

DERIVED = "derived"  # the folder below which jobs write
SMALL_BYTES = 64 * 2**20  # a file below this is merged
MERGED_ROWS = 1_600_000  # of a merged file


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """events, bytes: in finished slices. done_at: when the newest of them was finished; None: there is none. underived: events
    from which no lives have been derived yet."""

    events: int
    bytes: int
    slices: int
    done_at: datetime | None
    underived: int


@dataclass(frozen=True, slots=True)
class Change:
    """What a job's files mean for the manifest.

    slices: whose events they were derived from. replaces: ids of files that they take the place of. rolled_up: ids of files that
    they count. rebuilt: (day, namespace) that were derived again. step_seconds: of counts. values: of the fields of ArchiveFile.
    rows: how many the files have together; None: it is not known. added: the files are of a slice of their own, with events that
    were never in the event table: imported, or generated.
    """

    slices: Collection[int] = ()
    replaces: Collection[int] = ()
    rolled_up: Collection[int] = ()
    rebuilt: Collection[tuple[date, int]] = ()
    step_seconds: int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None
    added: bool = False


def state() -> ArchiveState:
    """How much is archived."""
    slices = ArchiveSlice.objects.filter(state=ArchiveSlice.DONE)
    totals = slices.aggregate(
        archived=Sum("events"), underived=Sum("events", filter=Q(derived=False)), newest=Max("done_at"), slices=Count("pk")
    )
    size = ArchiveFile.objects.aggregate(bytes=Sum("bytes"))
    return ArchiveState(totals["archived"] or 0, size["bytes"] or 0, totals["slices"], totals["newest"], totals["underived"] or 0)


def files(content: str, namespace_ids: Sequence[int], start: datetime, end: datetime) -> list[ArchiveFile]:
    """The files of a content in these namespaces with rows that were there at some time in a range."""
    matching = ArchiveFile.objects.filter(content=content, namespace_id__in=namespace_ids)
    if content == ArchiveFile.SETTINGS:
        return list(matching.order_by("path"))
    inside = (Q(first_at__lt=end) | Q(first_at=None)) & (Q(last_at__gte=start) | Q(last_at=None))
    return list(matching.filter(inside).order_by("path"))


def underived() -> QuerySet[ArchiveSlice]:
    """The finished slices from whose events no lives have been derived yet."""
    return ArchiveSlice.objects.filter(state=ArchiveSlice.DONE, derived=False)


def note_folder(folder: str) -> None:
    """Note a folder before a job writes to it: unless `enter` is called, it is deleted later."""
    ArchiveUnusedFile.objects.update_or_create(path=f"{folder}/", defaults={"since": Now()})


def enter(folder: str, change: Change) -> list[ArchiveFile]:
    """Enter the files of a job's folder, and what they mean. Returns them.

    Raises ServerBusy if another job changed the same meanwhile, and RuntimeError if the files have another number of rows than
    they should; then the manifest is as it was.
    """
    archive_files = storage.current_archive()
    entered = [_entry(archive_files, path, change) for path in archive_files.below(folder) if path.endswith(".parquet")]
    if change.rows is not None and (written := sum(file.rows for file in entered)) != change.rows:
        raise RuntimeError(f"The job wrote {written:,} rows instead of {change.rows:,}; nothing was changed.")
    with transaction.atomic():
        replaced = list(ArchiveFile.objects.select_for_update().filter(pk__in=change.replaces))
        slices = ArchiveSlice.objects.select_for_update().filter(pk__in=change.slices, derived=False)
        if len(replaced) != len(change.replaces) or len(slices) != len(change.slices):
            raise ServerBusy("Another job has derived the same history meanwhile; its result is kept.")
        ArchiveUnusedFile.objects.bulk_create(ArchiveUnusedFile(path=file.path, since=Now()) for file in replaced)
        ArchiveFile.objects.filter(pk__in=change.replaces).delete()
        ArchiveSlice.objects.filter(pk__in=change.slices).update(derived=True)
        ArchiveFile.objects.filter(pk__in=change.rolled_up).update(rolled_up=True)
        for day, namespace_id in change.rebuilt:
            ArchiveRebuild.objects.filter(day=day, namespace_id=namespace_id).delete()
        if change.added:
            slice_id = _add_slice(sum(file.rows for file in entered))
            for file in entered:
                file.imported, file.slice_id = True, slice_id
        ArchiveFile.objects.bulk_create(entered)
        ArchiveUnusedFile.objects.filter(path=f"{folder}/").delete()
    return entered


def has_files(folder: str) -> bool:
    """Whether a job's folder has files that are in use, may still be read, or are being written."""
    below = Q(path__startswith=f"{folder}/")
    return ArchiveFile.objects.filter(below).exists() or ArchiveUnusedFile.objects.filter(below).exists()


def days_to_roll_up(before: date | None) -> list[list[ArchiveFile]]:
    """The files of lives of each day and namespace of which some are not counted yet."""
    late = ArchiveFile.objects.filter(content=ArchiveFile.LIVES, rolled_up=False)
    if before is not None:
        late = late.filter(day__lt=before)
    late_days = late.values_list("day", "namespace_id").distinct().order_by("day", "namespace_id")
    lives = ArchiveFile.objects.filter(content=ArchiveFile.LIVES).order_by("path")
    return [list(lives.filter(day=day, namespace_id=namespace_id)) for day, namespace_id in late_days]


def rolled_files(groups: Iterable[list[ArchiveFile]]) -> list[ArchiveFile]:
    """The files of counts and histograms of the days and namespaces of these files."""
    rolled: list[ArchiveFile] = []
    for group in groups:
        day_files = ArchiveFile.objects.filter(day=group[0].day, namespace_id=group[0].namespace_id)
        rolled += day_files.filter(content__in=ArchiveFile.ROLLED)
    return rolled


def groups_to_merge(before: date) -> list[list[ArchiveFile]]:
    """The files of events and of lives to merge: small ones of a day before a date and a namespace, if they become fewer."""
    groups = [group for content in (ArchiveFile.EVENTS, ArchiveFile.LIVES) for group in _small_files(content, before)]
    return [group for group in groups if len(group) > merged_files(group)]


def merged_files(group: Sequence[ArchiveFile]) -> int:
    """How many files a merge makes of these."""
    return -(-sum(file.rows for file in group) // MERGED_ROWS)


def _small_files(content: str, before: date) -> list[list[ArchiveFile]]:
    """By day and namespace. Of events, only those whose lives have been derived; of lives, those that are counted."""
    candidates = ArchiveFile.objects.filter(content=content, day__lt=before, bytes__lt=SMALL_BYTES)
    if content == ArchiveFile.EVENTS:
        late = list(underived().values_list("pk", flat=True))
        candidates = candidates.exclude(slice_id__in=late).exclude(slices__overlap=late)
    else:
        candidates = candidates.filter(rolled_up=True)
    groups: dict[tuple[date, int, bool], list[ArchiveFile]] = {}
    for file in candidates.order_by("day", "namespace_id", "id"):
        groups.setdefault((file.day, file.namespace_id, file.imported), []).append(file)
    return list(groups.values())


def rebuild(day: date, namespace_id: int) -> None:
    """Have the lives of a day derived again from its events, and counted again."""
    ArchiveRebuild.objects.get_or_create(day=day, namespace_id=namespace_id)


def count_again(day: date, namespace_id: int) -> bool:
    """Have the lives of a day counted again. Returns whether there are any."""
    lives = ArchiveFile.objects.filter(content=ArchiveFile.LIVES, day=day, namespace_id=namespace_id)
    return lives.update(rolled_up=False) > 0


def _add_slice(events: int) -> int:
    """Add a finished slice, with transaction ids of its own. Returns its id."""
    with archive.connected() as connection:
        slice_id: int = archive.row(connection, "history_next_slice_id").id
    epoch, _ = ArchiveEpoch.objects.get_or_create(
        system_identifier=ArchiveEpoch.IMPORTED, defaults={"from_xid": 0, "began_at": Now()}
    )
    ArchiveSlice.objects.create(
        pk=slice_id, epoch=epoch, from_xid=slice_id, to_xid=slice_id + 1, state=ArchiveSlice.DONE, opened_at=Now(), done_at=Now(),
        events=events,
    )  # fmt: skip
    return slice_id


def _entry(archive_files: Any, path: str, change: Change) -> ArchiveFile:
    """The entry of a file that a job wrote, `.../content=.../day=.../namespace=.../x.parquet`."""
    keys = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    with archive_files.open(path) as opened:
        content = opened.read_buffer()
    footer = pq.read_metadata(pa.BufferReader(content))
    of = CONTENTS[keys["content"]]
    return ArchiveFile(
        content=keys["content"],
        day=date.fromisoformat(keys["day"]),
        namespace_id=int(keys["namespace"]),
        path=path,
        rows=footer.num_rows,
        bytes=content.size,
        schema_version=schema.VERSION,
        checksum=storage.checksum(content),
        first_at=min(_bounds(footer, of.begins, "min"), default=None),
        last_at=max(_bounds(footer, of.ends, "max"), default=None),
        step_seconds=change.step_seconds,
        **change.values,
    )


def _bounds(footer: pq.FileMetaData, names: Sequence[str], which: str) -> list[datetime]:
    """The least or greatest values of columns, by the statistics of a file."""
    columns = [place for place, name in enumerate(footer.schema.names) if name in names]
    bounds = []
    for group in range(footer.num_row_groups):
        for place in columns:
            statistics = footer.row_group(group).column(place).statistics
            if statistics is not None and statistics.has_min_max:
                value = getattr(statistics, which)
                bounds.append(value if value.tzinfo else value.replace(tzinfo=UTC))
    return bounds
