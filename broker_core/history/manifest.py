"""Reads the archive's manifest: which files to open, and how much is archived."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Sum

from broker_core.models import ArchiveFile, ArchiveSlice

from . import storage


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """events, bytes: in finished slices. done_at: when the newest of them was finished; None: there is none."""

    events: int
    bytes: int
    slices: int
    done_at: datetime | None


@dataclass(frozen=True, slots=True)
class LifeFiles:
    """files: of the manifest. rows: the number of lives in them, including those outside the requested range."""

    files: list[ArchiveFile]
    rows: int

    def addresses(self, *, schema_version: int | None = None) -> list[str]:
        """Where to open the files; only those of a schema version, if one is given."""
        archive = storage.archive_here()
        return [archive.address(file.path) for file in self.files if schema_version in (None, file.schema_version)]


def life_files(start: datetime, end: datetime, namespace_ids: list[int]) -> LifeFiles:
    """The files that hold lives enqueued at or after `start` and before `end` in these namespaces."""
    files = ArchiveFile.objects.filter(
        content=ArchiveFile.LIVES,
        namespace_id__in=namespace_ids,
        first_at__lt=end,
        last_at__gte=start,
    )
    found = list(files.order_by("path"))
    return LifeFiles(found, sum(file.rows for file in found))


def files(content: str, namespace_ids: Collection[int], start: datetime, end: datetime) -> list[ArchiveFile]:
    """The files of a content (ArchiveFile.CONTENTS) with rows of these namespaces that touch a range."""
    found = ArchiveFile.objects.filter(content=content, namespace_id__in=namespace_ids, first_at__lt=end, last_at__gte=start)
    return list(found.order_by("path"))


def state() -> ArchiveState:
    """How much is archived."""
    slices = ArchiveSlice.objects.filter(state=ArchiveSlice.DONE)
    found = slices.aggregate(events=Sum("events"), done_at=Max("done_at"))
    size = ArchiveFile.objects.aggregate(bytes=Sum("bytes"))
    return ArchiveState(found["events"] or 0, size["bytes"] or 0, slices.count(), found["done_at"])
