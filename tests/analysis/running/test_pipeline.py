"""Which files of the archive the pipeline gives to its jobs."""

from datetime import UTC, date, datetime, timedelta
from typing import cast

import pytest

from broker_core.common.errors import ServerBusy
from broker_core.history import manifest
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRebuild, ArchiveSlice
from explorer.analysis.running import execution, pipeline, submission

DAY = date(2026, 3, 1)
MOST = manifest.MERGED_ROWS


@pytest.mark.parametrize(
    ("rows", "merges"), [((5, 7), True), ((MOST, MOST), False), ((MOST, MOST, 3), False), ((MOST, 3, 4), True)]
)
def test_files_are_merged_if_there_are_fewer_afterwards(transactional_db, monkeypatch, rows, merges):
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
def test_what_another_run_has_derived_meanwhile_is_left_to_it(monkeypatch, failures, ends):
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


def test_a_day_is_derived_again_from_all_of_its_events_or_later(transactional_db, monkeypatch):
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
    monkeypatch.setattr(pipeline, "intact", lambda _, files: [one for one in files if one.path not in damaged])
    monkeypatch.setattr(pipeline, "_lives", lambda _, events, *rest: derived.append(sorted(one.path for one in events)))
    pipeline._derive_again(None, DAY, 7)
    assert derived == [] and ArchiveRebuild.objects.exists()
    damaged.clear()
    pipeline._derive_again(None, DAY, 7)
    assert derived == [["a.parquet", "b.parquet"]]
    for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch, ArchiveRebuild):
        model.objects.all().delete()
