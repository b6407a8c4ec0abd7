"""Damaged files are found and named; those of events are written again from the event table, the others are made again."""

from datetime import date, datetime
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command
from pyspark.sql.types import LongType, StructField, StructType

from broker_core.common.errors import NotAllowed
from broker_core.common.types import EventKind
from broker_core.history import archive, manifest, schema, storage, verification
from broker_core.models import ArchiveFile, ArchiveRebuild, ArchiveSlice, ArchiveUnusedFile


@pytest.fixture
def files(archive_folder, happened) -> dict[str, Path]:
    """The files of one archived slice, by content."""
    for number in (1, 2, 3):
        happened(EventKind.SENT, number)
        happened(EventKind.COMPLETED, number)
    archive.archive_events()
    return {file.content: archive_folder / file.path for file in ArchiveFile.objects.all()}


def problems(*, deep=False) -> list[str]:
    return [damage.problem for damage in verification.damages(verification.finished_files(), deep=deep)]


def rewritten(path: Path, table: pa.Table) -> None:
    """Replace a file so that its size in the manifest is right."""
    pq.write_table(table, path, **storage.PARQUET)
    ArchiveFile.objects.filter(path__endswith=path.name).update(bytes=path.stat().st_size)


def derived(archive_folder: Path, content: str) -> ArchiveFile:
    """An entered file of two rows, as a job writes it."""
    folder = f"derived/{content}"
    path = archive_folder / folder / f"content={content}" / "day=2026-03-01" / "namespace=7" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    described = StructType([StructField("n", LongType(), metadata={"vitrine.version": schema.VERSION})]).json()
    table = pa.table({"n": [1, 2]}).replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": described})
    pq.write_table(table, path)
    return manifest.enter(folder, manifest.Change())[0]


def repaired() -> str:
    printed = StringIO()
    call_command("verify_archive", "--repair", stdout=printed)
    return printed.getvalue()


def test_an_intact_archive_has_no_damage(files):
    assert problems() == problems(deep=True) == []


def test_an_empty_file_is_found(files):
    files["events"].write_bytes(b"")
    [problem] = problems()
    assert problem.startswith("has 0 bytes instead of ")


def test_a_missing_file_is_found(files):
    files["events"].unlink()
    assert problems() == ["is missing"]


def test_a_file_that_is_not_parquet_is_found(files):
    files["events"].write_bytes(b"x" * files["events"].stat().st_size)
    [problem] = problems()
    assert problem.startswith("cannot be read: ")


def test_a_file_with_fewer_rows_is_found(files):
    rewritten(files["events"], pq.read_table(files["events"]).slice(1))
    assert problems() == ["has 5 rows instead of 6"]


def test_a_missing_column_is_found(files):
    rewritten(files["events"], pq.read_table(files["events"]).drop_columns(["kind", "reason"]))
    assert problems() == ["lacks the columns kind, reason"]


def test_a_column_of_another_type_is_found(files):
    table = pq.read_table(files["events"])
    rewritten(files["events"], table.set_column(6, "sequence_number", table["sequence_number"].cast(pa.string())))
    assert problems() == ["has the column sequence_number as string, not as int64"]


@pytest.mark.parametrize(("version", "problem"), [("6", "has schema version 6; this version of Vitrine reads 1 to 5"),
                                                  ("", "has no schema version, so Vitrine did not write it")])  # fmt: skip
def test_a_file_of_a_later_or_foreign_version_is_found(files, version, problem):
    rewritten(files["events"], pq.read_table(files["events"]).replace_schema_metadata({"vitrine.version": version}))
    assert problems() == [problem]


def test_the_columns_of_a_file_that_a_job_wrote_are_not_compared(archive_folder, postgres):
    file = derived(archive_folder, "lives")
    assert problems(deep=True) == []
    rewritten(archive_folder / file.path, pa.table({"n": [1, 2]}))
    assert problems() == ["has no schema version, so Vitrine did not write it"]


def test_changed_bytes_are_found_by_the_checksum_alone(files):
    content = bytearray(files["events"].read_bytes())
    content[10] ^= 1  # in a column chunk: the footer is intact
    files["events"].write_bytes(content)
    assert problems() == []
    assert problems(deep=True) == ["has another checksum than when it was written"]


def test_the_command_names_damaged_files_and_repairs_them(files):
    before = files["events"].read_bytes()
    files["events"].write_bytes(b"")
    printed = StringIO()
    with pytest.raises(CommandError, match="1 damaged files"):
        call_command("verify_archive", stdout=printed)
    assert "events/day=" in printed.getvalue() and "has 0 bytes" in printed.getvalue()
    assert "was written again with 6 events" in repaired()
    assert files["events"].read_bytes() == before
    assert problems(deep=True) == []


def test_a_repair_is_refused_when_its_events_were_removed(files, postgres):
    postgres.execute("DELETE FROM vitrine_message_event WHERE sequence_number = 1")
    files["events"].unlink()
    with pytest.raises(CommandError, match="has 4 of its 6 events"):
        call_command("verify_archive", "--repair", stdout=StringIO())
    assert ArchiveSlice.objects.get().state == ArchiveSlice.DONE


def test_a_rewritten_slice_does_not_archive_later_slices_twice(files, happened):
    """A killed repair leaves an old slice open; the next run finishes it and goes on after the newest slice."""
    happened(EventKind.SENT, 4)
    archive.archive_events()
    first = ArchiveSlice.objects.earliest("from_xid")
    with archive.connected() as connection:
        archive.row(connection, "history_reopen_slice", slice_id=first.pk)
    happened(EventKind.SENT, 5)
    assert archive.archive_events().events == 6 + 1
    rows = sum(file.rows for file in ArchiveFile.objects.filter(content=ArchiveFile.EVENTS))
    assert rows == 8 and problems(deep=True) == []


def test_damaged_lives_are_derived_again(archive_folder, postgres):
    """Its day is noted for the next job, and the file is left for the clean-up."""
    file = derived(archive_folder, "lives")
    (archive_folder / file.path).write_bytes(b"")
    assert f"{file.path} will be derived again from the events of the day by the next analysis." in repaired()
    assert [(rebuild.day, rebuild.namespace_id) for rebuild in ArchiveRebuild.objects.all()] == [(date(2026, 3, 1), 7)]
    assert not ArchiveFile.objects.exists() and ArchiveUnusedFile.objects.get().path == file.path
    assert problems(deep=True) == []


@pytest.mark.parametrize("content", ["counts", "histograms"])
def test_damaged_counts_are_counted_again(archive_folder, postgres, content):
    lives, file = derived(archive_folder, "lives"), derived(archive_folder, content)
    ArchiveFile.objects.update(rolled_up=True)
    (archive_folder / file.path).unlink()
    assert f"{file.path} will be counted again by the next nightly task." in repaired()
    assert [[archived.pk for archived in group] for group in manifest.days_to_roll_up(None)] == [[lives.pk]]
    assert ArchiveFile.objects.get().pk == lives.pk and not ArchiveRebuild.objects.exists()
    assert problems() == []


def test_damaged_counts_of_deleted_lives_are_removed(archive_folder, postgres):
    file = derived(archive_folder, "counts")
    (archive_folder / file.path).unlink()
    assert f"{file.path} was removed: the lives of its day were deleted" in repaired()
    assert not ArchiveFile.objects.exists()


def test_a_damaged_file_of_open_messages_is_left_to_the_next_analysis(archive_folder, postgres):
    file = derived(archive_folder, "open")
    (archive_folder / file.path).write_bytes(b"")
    assert f"{file.path} will be made again from the events of seven days by the next analysis" in repaired()
    assert ArchiveFile.objects.get().pk == file.pk


@pytest.fixture
def merged(archive_folder, happened, queue) -> ArchiveFile:
    """The file of the events of two slices, as a job merges them."""
    for number in (1, 2):
        happened(EventKind.SENT, number, recorded_at="2026-03-01T12:00Z")
        archive.archive_events()
    parts = list(ArchiveFile.objects.order_by("slice_id"))
    tables = [pq.read_table(archive_folder / file.path) for file in parts]
    slices = [file.slice_id for file in parts]
    ArchiveSlice.objects.update(derived=True)
    path = archive_folder / "derived/merged/content=events/day=2026-03-01" / f"namespace={queue.namespace_id}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.concat_tables(tables).cast(schema.with_metadata(schema.EVENT)), path)
    change = manifest.Change(replaces=[file.pk for file in parts], values={"slices": slices})
    return manifest.enter("derived/merged", change)[0]


def test_a_damaged_file_of_merged_events_is_rewritten(archive_folder, merged):
    whole = pq.read_table(archive_folder / merged.path)
    (archive_folder / merged.path).write_bytes(b"")
    assert f"{merged.path} was written again with 2 rows" in repaired()
    again = ArchiveFile.objects.get()
    assert pq.read_table(archive_folder / again.path).equals(whole) and again.path != merged.path
    same = ("content", "day", "namespace_id", "slices", "rows", "first_at", "last_at", "slice_id", "imported")
    assert [getattr(again, name) for name in same] == [getattr(merged, name) for name in same]
    assert again.first_at == datetime.fromisoformat("2026-03-01T12:00Z") and problems(deep=True) == []
    assert ArchiveUnusedFile.objects.filter(path=merged.path).exists()


def test_merged_files_are_kept_when_their_events_were_removed(archive_folder, merged, postgres):
    postgres.execute("DELETE FROM vitrine_message_event WHERE sequence_number = 1")
    (archive_folder / merged.path).write_bytes(b"")
    with pytest.raises(CommandError, match="has 0 of its 1 events"):
        repaired()
    assert ArchiveFile.objects.get().pk == merged.pk


def test_events_that_are_in_merged_files_are_not_written_twice(archive_folder, merged):
    with pytest.raises(NotAllowed, match="Other files of slice"):
        archive.write_again(merged.slices[0])
