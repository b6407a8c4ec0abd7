"""What readers of the archive ask its manifest: which files to open, and how far it reaches."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Max, Sum

from broker_core.models import ArchiveFile, ArchiveSlice

from . import storage


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """events, bytes: in finished slices. done_at: when the newest of them was finished, None before the first."""

    events: int
    bytes: int
    slices: int
    done_at: datetime | None


def life_files(start: datetime, end: datetime, namespace_ids: list[int]) -> list[str]:
    """Addresses of the files that hold lives enqueued at or after `start` and before `end` in these namespaces."""
    files = ArchiveFile.objects.filter(
        content=ArchiveFile.LIVES,
        slice__state=ArchiveSlice.DONE,
        namespace_id__in=namespace_ids,
        first_at__lt=end,
        last_at__gte=start,
    )
    archive = storage.open_archive(settings.ARCHIVE_URL)
    return [archive.address(path) for path in files.order_by("path").values_list("path", flat=True)]


def state() -> ArchiveState:
    """How much is archived."""
    slices = ArchiveSlice.objects.filter(state=ArchiveSlice.DONE)
    found = slices.aggregate(events=Sum("events"), done_at=Max("done_at"))
    size = ArchiveFile.objects.filter(slice__state=ArchiveSlice.DONE).aggregate(bytes=Sum("bytes"))
    return ArchiveState(found["events"] or 0, size["bytes"] or 0, slices.count(), found["done_at"])
