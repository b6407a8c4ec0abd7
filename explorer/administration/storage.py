"""What is stored and for how long: the database, messages by namespace and entity, and the archive of the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Sum
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.history import retention
from broker_core.models import ArchiveFile, ArchiveSlice
from broker_core.runtime import keeping, room
from explorer import sandbox_names
from explorer.frames.shell import page, show


@dataclass(frozen=True, slots=True)
class Archive:
    """events, done_at: of all finished slices; done_at: of the newest one, None: there is none. files, bytes: of all files."""

    events: int
    done_at: datetime | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A namespace: its messages, their limit in bytes (None: there is none), and its part of the archive."""

    size: reads.NamespaceSize
    limit: int | None
    archived: int


@page
@require_GET
def storage(request: HttpRequest) -> HttpResponse:
    actor = request.actor
    hidden = {name.lower() for name in sandbox_names.hidden_sandboxes(request.user, actor, own=True)}
    sizes = [size for size in reads.namespace_sizes(actor=actor) if size.name.lower() not in hidden]
    archived = _archived_by_namespace()
    lines = [Line(size, _limit(size), archived.get(size.id, 0)) for size in sizes]
    largest = [row for row in reads.largest_entities(actor=actor) if row.address.namespace.lower() not in hidden]
    health = reads.health(actor=actor)
    context = {
        "section": "administration", "tab": "storage", "health": health, "history_kept": retention.RETENTION,
        "disk": room.disk(), "kept_limit": keeping.limit(), "archive": _archive(),
        "lines": sorted(lines, key=lambda line: (-line.size.bytes, line.size.name.lower())), "largest": largest,
        "other_bytes": max(0, health.database_bytes - health.message_bytes - health.event_bytes - health.kept_bytes),
    }  # fmt: skip
    return show(request, "administration/storage", context)


def _limit(size: reads.NamespaceSize) -> int | None:
    return None if size.max_size_in_megabytes is None else size.max_size_in_megabytes * 2**20


def _archive() -> Archive:
    slices = ArchiveSlice.objects.filter(state=ArchiveSlice.DONE).aggregate(events=Sum("events"), at=Max("done_at"))
    files = ArchiveFile.objects.aggregate(count=Count("pk"), bytes=Sum("bytes"))
    return Archive(slices["events"] or 0, slices["at"], files["count"], files["bytes"] or 0)


def _archived_by_namespace() -> Mapping[int, int]:
    return dict(ArchiveFile.objects.values_list("namespace_id").annotate(bytes=Sum("bytes")))
