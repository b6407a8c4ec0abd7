"""The pipeline: which jobs a run executes, on which files of the archive, and what becomes of their output.

derive: lives and attempts of the events that no job has read yet, in each run. roll up, compact: at night. reports: the tables of
pages. A job's output is in a folder of its own, which the manifest names when the job has ended: all of it or nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.db.models.functions import Now

from broker_core.common.errors import ServerBusy
from broker_core.history import manifest, properties, storage, verification
from broker_core.history.manifest import Change
from broker_core.models import ArchiveFile, ArchiveRebuild, Entity
from explorer.charts import changes
from explorer.models import AnalysisResult, AnalysisRun

from ..jobs.measures import AGED, COARSE, STEP
from ..reports.registry import BY_SLUG
from ..reports.report import Analysis
from ..reports.scope import Range, Scope
from . import execution, requests, runs

LOOK_BACK = timedelta(days=7)  # messages without an event for so long are not carried; a life is complete within it
ROWS_OF_PARTITION = 400_000
MOST_TRIES = 3  # to derive what another run may derive at the same time
KEPT = timedelta(days=30)  # a stored result that was not opened for so long is deleted, and the files of an older run
DAMAGED = "{file} It is left out. Run `manage.py verify_archive --repair`, then refresh."


def derive(jobs: execution.Jobs) -> int:
    """Derive lives and attempts from the events that no job has read yet, and of days whose lives were damaged. Returns the
    number of events. If another run derived the same meanwhile, its result is kept, and what is left is derived."""
    for _ in range(MOST_TRIES - 1):
        with suppress(ServerBusy):
            return _derive(jobs)
    return _derive(jobs)


def roll_up(jobs: execution.Jobs, *, before: date) -> int:
    """Count the lives of days before a date that are not counted yet, and old ones by the hour. Returns how many days."""
    late = manifest.days_to_roll_up(before)
    aged = before - AGED - timedelta(days=1)  # all of the day is that old
    fine = ArchiveFile.objects.filter(content=ArchiveFile.COUNTS, day__lt=aged, step_seconds=STEP.total_seconds())
    known = {(group[0].day, group[0].namespace_id) for group in late}
    for day, namespace_id in fine.values_list("day", "namespace_id").distinct():
        group = list(ArchiveFile.objects.filter(content=ArchiveFile.LIVES, day=day, namespace_id=namespace_id))
        if group and (day, namespace_id) not in known:
            late.append(group)
    for step, groups in (
        (STEP, [days for days in late if days[0].day >= aged]),
        (COARSE, [days for days in late if days[0].day < aged]),
    ):
        whole = [group for group in groups if len(intact(jobs, group)) == len(group)]
        if whole:
            _count(jobs, whole, step)
    return len(late)


def compact(jobs: execution.Jobs, *, before: date) -> int:
    """Merge the small files of days before a date. Returns how many files were merged."""
    merged = 0
    for group in manifest.groups_to_merge(before):
        if len(intact(jobs, group)) == len(group):
            _merge(jobs, group)
            merged += len(group)
    return merged


def maintain(jobs: execution.Jobs, run: AnalysisRun) -> None:
    """The nightly run."""
    _archive_newest(jobs)
    today = datetime.now(UTC).date()
    jobs.expect(_underived_events())
    events = derive(jobs)
    days, files = roll_up(jobs, before=today), compact(jobs, before=today)
    AnalysisResult.objects.filter(opened_at__lt=datetime.now(UTC) - KEPT).delete()
    execution.remove_old_folders(KEPT)
    message = f"{events:,} events were derived, {days:,} days counted, and {files:,} files merged."
    runs.succeed(jobs.claim, message=message, events=events)


def report(jobs: execution.Jobs, run: AnalysisRun) -> None:
    """Make the tables of reports, from all events that there are. Each is stored as soon as it is made."""
    _archive_newest(jobs)
    asked = [(BY_SLUG[slug], key) for slug, key in zip(run.request["reports"], run.request["keys"], strict=True)]
    scopes = {asked_report.slug: requests.asked_scope(asked_report, run.request["query"]) for asked_report, _ in asked}
    jobs.expect(_underived_events() + max(_rows(asked_report, scopes[asked_report.slug][0]) for asked_report, _ in asked))
    events = derive(jobs)
    to_make = []
    for analysis, key in asked:
        scope, values = scopes[analysis.slug]
        request = request_of(analysis, scope, values)
        files = files_of(jobs, analysis, scope)
        to_make.append(request | files | {"title": analysis.title, "result": str(jobs.folder.result(key)), "key": key})

    def store(number: int) -> None:
        (analysis, key), request = asked[number], to_make[number]
        span_asked = {name: request[name] for name in ("span", "compared", "now", "step_seconds")}
        AnalysisResult.objects.update_or_create(
            pk=key,
            defaults={
                "report": analysis.slug, "namespace_id": scopes[analysis.slug][0].namespace.pk, "asked": span_asked,
                "run_id": run.pk, "tables": jobs.folder.result(key).read_bytes(), "card": None, "notes": jobs.notes,
                "made_at": Now(), "opened_at": Now(),
            },
        )  # fmt: skip

    jobs.run("reporting", {"reports": to_make}, store)
    runs.succeed(jobs.claim, events=events)


def request_of(analysis: Analysis, scope: Scope, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a report is asked (jobs.history.Request.of), without its files."""
    ids, own = scope.ids, {name: _plain(value) for name, value in values.items() if name not in requests.SHARED}
    own |= {"family": scope.namespace.family, "real_clock": scope.namespace.clock_base_at is None}
    if analysis.whole_namespace:
        own["entity_ids"] = ids
        ids = list(Entity.objects.filter(namespace=scope.namespace).values_list("pk", flat=True))
    if "settings" in analysis.needs:
        since = min(span.start for span in scope.ranges) - max(analysis.needs.values())
        own["deploys"] = [
            {"at": deploy.at.isoformat(), "name": deploy.name, "actor": deploy.actor}
            for deploy in changes.deploys(scope.namespace.name, since, scope.range.end)
        ]
    return {
        "report": analysis.slug.replace("-", "_"), "entity_ids": ids, "now": scope.now.isoformat(),
        "span": _span(scope.range), "compared": _span(scope.compared) if scope.compared else None,
        "step_seconds": scope.range.bucket.total_seconds(), "values": own,
    }  # fmt: skip


def files_of(jobs: execution.Jobs, analysis: Analysis, scope: Scope) -> dict[str, Any]:
    """The files that a report reads: `files`, and those of lives that its counts have in them already, `rolled`."""
    files: dict[str, dict[str, None]] = {}
    rolled: dict[str, None] = {}
    for content, candidates in _needed_files(analysis, scope).items():
        for file in intact(jobs, candidates):
            if content == ArchiveFile.LIVES and file.rolled_up:
                rolled[file.path] = None
            else:
                files.setdefault(content, {})[file.path] = None
    address = storage.current_archive().address
    return {
        "files": {content: [address(path) for path in paths] for content, paths in files.items()},
        "rolled": {ArchiveFile.LIVES: [address(path) for path in rolled]},
    }


def intact(jobs: execution.Jobs, files: Iterable[ArchiveFile]) -> list[ArchiveFile]:
    """Those of these files that are as the manifest says; the others are noted."""
    candidates = list(files)
    damaged = {damage.file.pk: damage for damage in verification.damages(candidates)}
    for damage in damaged.values():
        jobs.note(DAMAGED.format(file=damage))
    return [file for file in candidates if file.pk not in damaged]


def addresses(files: Iterable[ArchiveFile]) -> list[str]:
    """Where jobs open files."""
    archive = storage.current_archive()
    return [archive.address(file.path) for file in files]


def _archive_newest(jobs: execution.Jobs) -> None:
    jobs.say("Archiving the newest events")
    for note in execution.archive_newest():
        jobs.note(note)


def _needed_files(analysis: Analysis, scope: Scope) -> dict[str, list[ArchiveFile]]:
    """The files of each content that a report needs. Counts need the lives that they do not have yet, and open messages."""
    first, end = min(span.start for span in scope.ranges), max(scope.range.end, scope.now)
    by_content: dict[str, dict[int, ArchiveFile]] = {}

    def add(content: str, files: Iterable[ArchiveFile]) -> None:
        by_content.setdefault(content, {}).update((file.pk, file) for file in files)

    for content, back in analysis.needs.items():
        add(content, manifest.files(content, [scope.namespace.pk], first - back, end))
        if content in ArchiveFile.ROLLED:
            lives = manifest.files(ArchiveFile.LIVES, [scope.namespace.pk], first - back, end)
            add(ArchiveFile.LIVES, (file for file in lives if not file.rolled_up))
            add(ArchiveFile.OPEN, manifest.files(ArchiveFile.OPEN, [scope.namespace.pk], first - back, end))
    return {content: list(files.values()) for content, files in by_content.items()}


def _rows(analysis: Analysis, scope: Scope) -> int:
    return sum(file.rows for files in _needed_files(analysis, scope).values() for file in files)


def _derive(jobs: execution.Jobs) -> int:
    slices = {data_slice.pk: data_slice for data_slice in manifest.underived().order_by("pk")}
    new = intact(jobs, ArchiveFile.objects.filter(content=ArchiveFile.EVENTS, slice_id__in=slices).order_by("slice_id", "path"))
    damaged = set(ArchiveFile.objects.filter(slice_id__in=slices).values_list("slice_id", flat=True)) - {
        file.slice_id for file in new
    }
    ready = [pk for pk in slices if pk not in damaged]
    events = sum(data_slice.events or 0 for pk, data_slice in slices.items() if pk in ready)
    carried = list(ArchiveFile.objects.filter(content=ArchiveFile.OPEN))
    lost = any(verification.damages(carried))
    if ready or lost:
        since, ready_files = datetime.now(UTC) - LOOK_BACK, [file for file in new if file.slice_id in ready]
        # Instead of a damaged file of carried messages, the events for which they are carried.
        past = intact(jobs, derived_events().filter(day__gte=since.date())) if lost else carried
        known = {"earlier" if lost else "open": addresses(past), "keep_after": since.isoformat()}
        change = Change(slices=ready, replaces=[file.pk for file in carried])
        _lives(jobs, ready_files, known, change, partitions_of(events + sum(file.rows for file in past)))
    for rebuild in ArchiveRebuild.objects.order_by("day"):
        _derive_again(jobs, rebuild.day, rebuild.namespace_id)
    return events


def _lives(
    jobs: execution.Jobs, events: Sequence[ArchiveFile], specification: Mapping[str, Any], change: Change, partitions: int
) -> None:
    folder = new_folder(jobs)
    keys = {str(entity_id): keys for entity_id, keys in properties.all_chosen().items()}
    day = datetime.now(UTC).date().isoformat()
    jobs.run(
        "lives",
        {"events": addresses(events), "output": storage.current_archive().address(folder), "partitions": partitions, "keys": keys,
         "today": day, **specification},
    )  # fmt: skip
    manifest.enter(folder, change)


def _derive_again(jobs: execution.Jobs, day: date, namespace_id: int) -> None:
    """Derive the lives of a day again from its events, with those of the days before it; not while some of these are damaged."""
    candidates = list(derived_events().filter(namespace_id=namespace_id, day__lte=day, day__gte=day - LOOK_BACK))
    files = intact(jobs, candidates)
    if len(files) < len(candidates):
        return
    replaced = ArchiveFile.objects.filter(
        namespace_id=namespace_id, day=day, content__in=(ArchiveFile.LIVES, *ArchiveFile.ROLLED)
    )
    change = Change(replaces=list(replaced.values_list("pk", flat=True)), rebuilt=[(day, namespace_id)])
    specification = {
        "earlier": addresses(file for file in files if file.day < day),
        "days": [{"day": day.isoformat(), "namespace_id": namespace_id}],
    }
    files_of_day = [file for file in files if file.day == day]
    if files_of_day:
        _lives(jobs, files_of_day, specification, change, partitions_of(sum(file.rows for file in files)))
    else:  # its events have been deleted: no lives can be derived
        ArchiveRebuild.objects.filter(day=day, namespace_id=namespace_id).delete()


def derived_events() -> QuerySet[ArchiveFile]:
    """The files of events from which lives were derived; others are damaged, and derived when they are not."""
    late = list(manifest.underived().values_list("pk", flat=True))
    return ArchiveFile.objects.filter(content=ArchiveFile.EVENTS).exclude(slice_id__in=late).exclude(slices__overlap=late)


def _count(jobs: execution.Jobs, groups: Sequence[list[ArchiveFile]], step: timedelta) -> None:
    folder, files = new_folder(jobs), [file for group in groups for file in group]
    change = Change(
        replaces=[file.pk for file in manifest.rolled_files(groups)], rolled_up=[file.pk for file in files],
        step_seconds=int(step.total_seconds()),
    )  # fmt: skip
    jobs.run(
        "roll_up",
        {"lives": addresses(files), "output": storage.current_archive().address(folder), "step_seconds": change.step_seconds},
    )
    manifest.enter(folder, change)


def _merge(jobs: execution.Jobs, group: Sequence[ArchiveFile]) -> None:
    folder, first = new_folder(jobs), group[0]
    slices = sorted({slice_id for file in group for slice_id in file.slice_ids})
    values = {"imported": first.imported, "slices": slices, "rolled_up": first.rolled_up}
    specification = {
        "content": first.content, "files": addresses(group), "output": storage.current_archive().address(folder),
        "partitions": manifest.merged_files(group),
    }  # fmt: skip
    jobs.run("compact", specification)
    rows = sum(file.rows for file in group)
    manifest.enter(folder, Change(replaces=[file.pk for file in group], values=values, rows=rows))


def new_folder(jobs: execution.Jobs) -> str:
    """A new folder of the archive for the output of a job."""
    folder = f"{manifest.DERIVED}/run-{jobs.claim.run_id}-{uuid.uuid4().hex[:12]}"
    manifest.note_folder(folder)
    return folder


def _underived_events() -> int:
    return manifest.underived().aggregate(events=Sum("events"))["events"] or 0


def partitions_of(rows: int) -> int:
    return max(1, -(-rows // ROWS_OF_PARTITION), min(2, rows // 20_000))


def _span(span: Range) -> dict[str, str]:
    return {"start": span.start.isoformat(), "end": span.end.isoformat()}


def _plain(value: Any) -> Any:
    """A form's value in JSON: durations in seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: _plain(element) for name, element in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        return [_plain(element) for element in value]
    return value.isoformat() if isinstance(value, datetime) else value
