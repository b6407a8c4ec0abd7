"""Which files of the archive the pipeline gives to its jobs."""

from datetime import date, timedelta
from typing import cast

import pytest

from broker_core.common.errors import ServerBusy
from broker_core.models import ArchiveFile
from explorer.analysis.running import execution, pipeline

DAY = date(2026, 3, 1)
MOST = 4 * pipeline.ROWS_OF_PARTITION  # rows of a merged file


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
