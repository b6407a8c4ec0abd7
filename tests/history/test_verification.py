"""Damaged files are found, named, and written again from the event table; lives of schema version 1 are repaired."""

from datetime import timedelta
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from broker_core.common.types import EventKind
from broker_core.history import archive, rebuilding, schema, storage, verification
from broker_core.models import ArchiveFile, ArchiveSlice


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
    ArchiveFile.objects.filter(path__endswith=path.name, content=path.parts[-4]).update(bytes=path.stat().st_size)


def test_an_intact_archive_has_no_damage(files):
    assert problems() == problems(deep=True) == []


def test_an_empty_file_is_found(files):
    files["lives"].write_bytes(b"")
    [problem] = problems()
    assert problem.startswith("has 0 bytes instead of ")


def test_a_missing_file_is_found(files):
    files["lives"].unlink()
    assert problems() == ["is missing"]


def test_a_file_that_is_no_parquet_is_found(files):
    files["lives"].write_bytes(b"x" * files["lives"].stat().st_size)
    [problem] = problems()
    assert problem.startswith("cannot be read: ")


def test_a_file_with_fewer_rows_is_found(files):
    rewritten(files["lives"], pq.read_table(files["lives"]).slice(1))
    assert problems() == ["has 2 rows instead of 3"]


def test_a_missing_column_is_found(files):
    rewritten(files["lives"], pq.read_table(files["lives"]).drop_columns(["outcome", "reason"]))
    assert problems() == ["lacks the columns outcome, reason"]


def test_a_file_of_an_earlier_version_lacks_what_later_ones_added(files):
    table = pq.read_table(files["lives"]).drop_columns([name for name in schema.LIFE.names if name in schema.ADDED])
    rewritten(files["lives"], table.replace_schema_metadata({"vitrine.version": "2"}))
    assert problems() == []


def test_a_column_of_another_type_is_found(files):
    table = pq.read_table(files["lives"])
    rewritten(files["lives"], table.set_column(2, "sequence_number", table["sequence_number"].cast(pa.string())))
    assert problems() == ["has the column sequence_number as string, not as int64"]


@pytest.mark.parametrize(("version", "problem"), [("5", "has schema version 5; this version of Vitrine reads 1 to 4"),
                                                  ("", "has no schema version, so Vitrine did not write it")])  # fmt: skip
def test_a_file_of_a_later_version_or_of_others_is_found(files, version, problem):
    rewritten(files["lives"], pq.read_table(files["lives"]).replace_schema_metadata({"vitrine.version": version}))
    assert problems() == [problem]


def test_changed_bytes_are_found_by_the_checksum_alone(files):
    content = bytearray(files["events"].read_bytes())
    content[10] ^= 1  # in a column chunk: the footer is intact
    files["events"].write_bytes(content)
    assert problems() == []
    assert problems(deep=True) == ["has another checksum than when it was written"]


def test_the_command_names_what_is_damaged_and_repairs_it(files):
    before = files["lives"].read_bytes()
    files["lives"].write_bytes(b"")
    printed = StringIO()
    with pytest.raises(CommandError, match="1 damaged files"):
        call_command("verify_archive", stdout=printed)
    assert "lives/day=" in printed.getvalue() and "has 0 bytes" in printed.getvalue()
    call_command("verify_archive", "--repair", stdout=printed)
    assert "was written again with 6 events" in printed.getvalue()
    assert files["lives"].read_bytes() == before
    assert problems(deep=True) == []


def test_a_repair_is_refused_when_events_are_gone(files, postgres):
    postgres.execute("DELETE FROM vitrine_message_event WHERE sequence_number = 1")
    files["lives"].unlink()
    with pytest.raises(CommandError, match="has 4 of its 6 events"):
        call_command("verify_archive", "--repair", stdout=StringIO())
    assert ArchiveSlice.objects.get().state == ArchiveSlice.DONE


def test_a_slice_written_again_does_not_archive_later_slices_twice(files, happened):
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


def test_lives_of_version_1_get_the_time_to_live_that_was_sent(archive_folder, happened):
    happened(EventKind.SENT, 1, time_to_live=timedelta(seconds=5))
    happened(EventKind.SENT, 2)
    happened(EventKind.COMPLETED, 1)
    happened(EventKind.EXPIRED, 2)
    archive.archive_events()
    file = ArchiveFile.objects.get(content=ArchiveFile.LIVES)
    table = pq.read_table(archive_folder / file.path)
    unknown = pa.array([schema.UNKNOWN_TIME_TO_LIVE] * 2, pa.int64())
    table = table.set_column(table.schema.get_field_index("time_to_live_us"), "time_to_live_us", unknown)
    pq.write_table(table.replace_schema_metadata({"vitrine.version": "1", "vitrine.slice": "9"}), archive_folder / file.path)
    size = (archive_folder / file.path).stat().st_size
    ArchiveFile.objects.filter(pk=file.pk).update(schema_version=1, bytes=size, checksum="")
    assert rebuilding.rebuild_lives() == rebuilding.Rebuilt(files=1, lives=2, known=1)
    new = ArchiveFile.objects.get(content=ArchiveFile.LIVES)
    found = pq.read_table(archive_folder / new.path)
    assert found["time_to_live_us"].to_pylist() == [5_000_000, None]
    assert (schema.version_of(found.schema), found.schema.metadata[b"vitrine.slice"]) == (schema.VERSION, b"9")
    assert not (archive_folder / file.path).exists()
    assert problems(deep=True) == []
    assert rebuilding.rebuild_lives() == rebuilding.Rebuilt()
