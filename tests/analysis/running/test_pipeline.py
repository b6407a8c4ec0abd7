"""What the pipeline gives to its jobs, and what it stores of theirs."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from broker_core import namespaces
from broker_core.common.errors import ServerBusy
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.history import manifest
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRebuild, ArchiveSlice, Entity
from broker_core.service_bus import entities
from explorer.analysis.pages.asking import asked_of
from explorer.analysis.reports.registry import BY_SLUG
from explorer.analysis.running import execution, pipeline, runs, submission
from explorer.models import AnalysisResult, AnalysisRun

DAY = date(2026, 3, 1)
MOST = manifest.MERGED_ROWS


@pytest.mark.parametrize(
    ("rows", "merges"), [((5, 7), True), ((MOST, MOST), False), ((MOST, MOST, 3), False), ((MOST, 3, 4), True)]
)
def test_files_are_merged_if_that_reduces_their_number(transactional_db, monkeypatch, rows, merges):
    """Merging others again would cost the same each night."""
    for number, count in enumerate(rows):
        ArchiveFile.objects.create(
            content="lives", day=DAY, namespace_id=7, path=f"{number}.parquet", rows=count, bytes=10, rolled_up=True
        )
    merged = []
    monkeypatch.setattr(pipeline, "intact", lambda _, files: list(files))
    monkeypatch.setattr(pipeline, "_merge", lambda _, group: merged.append([file.rows for file in group]))
    assert submission.pipeline_is_due() == merges, "also if there is nothing else to do"
    assert pipeline.compact(None, before=DAY + timedelta(days=1)) == len(rows) * merges
    assert merged == [list(rows)] * merges
    ArchiveFile.objects.all().delete()


@pytest.mark.parametrize(("failures", "ends"), [(0, True), (pipeline.MOST_TRIES - 1, True), (pipeline.MOST_TRIES, False)])
def test_a_conflict_with_another_run_is_retried_a_few_times(monkeypatch, failures, ends):
    tried: list[execution.Jobs] = []
    jobs = cast("execution.Jobs", object())

    def derive(jobs):
        tried.append(jobs)
        if len(tried) <= failures:
            raise ServerBusy("Another job has derived the same history meanwhile; its result is kept.")
        return 5

    monkeypatch.setattr(pipeline, "_derive", derive)
    if ends:
        assert pipeline.derive(jobs) == 5 and len(tried) == failures + 1
    else:
        with pytest.raises(ServerBusy):
            pipeline.derive(jobs)


def test_a_day_is_derived_again_once_all_its_events_are_archived(transactional_db, monkeypatch):
    """While a file is damaged, less could be derived than there was. What was never derived is left to `derive`."""
    now = datetime.now(UTC)
    epoch = ArchiveEpoch.objects.create(system_identifier=1, from_xid=1, began_at=now)
    late = ArchiveSlice.objects.create(epoch=epoch, from_xid=1, to_xid=2, state=ArchiveSlice.DONE, opened_at=now)
    for name, slice_id in (("a", None), ("b", None), ("late", late.pk)):
        ArchiveFile.objects.create(
            content="events", day=DAY, namespace_id=7, path=f"{name}.parquet", rows=5, bytes=10, slice_id=slice_id
        )
    ArchiveRebuild.objects.create(day=DAY, namespace_id=7)
    derived, damaged = [], {"b.parquet"}
    monkeypatch.setattr(pipeline, "intact", lambda _, files: [file for file in files if file.path not in damaged])
    monkeypatch.setattr(pipeline, "_lives", lambda _, events, *rest: derived.append(sorted(event.path for event in events)))
    pipeline._derive_again(None, DAY, 7)
    assert derived == [] and ArchiveRebuild.objects.exists()
    damaged.clear()
    pipeline._derive_again(None, DAY, 7)
    assert derived == [["a.parquet", "b.parquet"]]
    for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch, ArchiveRebuild):
        model.objects.all().delete()


class StandIn(execution.Jobs):
    """Jobs without Spark: each report's tables are the request that it got."""

    def run(self, job, specification, made=lambda number: None):
        for number, request in enumerate(specification["reports"]):
            Path(request["result"]).write_text(f"{job} {request['report']} {request['key']}")
            made(number)
        return {}


def test_each_report_that_a_run_asks_for_is_stored_under_its_key(archive, settings, tmp_path, monkeypatch):
    settings.RUNS_FOLDER = tmp_path / "runs"
    namespaces.ensure_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("demo", "orders"))
    asked = [BY_SLUG["waiting"], BY_SLUG["flow"]]
    form, scope = asked_of(asked, {"queue": Entity.objects.filter(path="orders").latest("pk").pk})
    run = submission.refresh(asked, scope, form, actor=Actor("user", "alice", Right.BROWSE | Right.OPERATE))
    assert run is not None
    folder = execution.RunFolder(run.pk)
    folder.make()
    monkeypatch.setattr(pipeline, "_archive_newest", lambda jobs: None)
    monkeypatch.setattr(pipeline, "derive", lambda jobs: 7)
    held = runs.claim(run.pk)
    assert held is not None
    pipeline.report(StandIn(held, folder, Path("/nonexistent"), lambda: False), run)
    stored = {result.report: (result.pk, bytes(result.tables).decode()) for result in AnalysisResult.objects.all()}
    keys = dict(zip(("waiting", "flow"), run.request["keys"], strict=True))
    assert stored == {report: (key, f"reporting {report} {key}") for report, key in keys.items()}
    run.refresh_from_db()
    assert (run.state, run.events) == (AnalysisRun.SUCCEEDED, 7)
