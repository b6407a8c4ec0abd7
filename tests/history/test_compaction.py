"""Compaction of the archive: the same rows in fewer files, whatever interrupts it; and the retention of archived days."""

import random
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces
from broker_core.common.errors import InvalidArgument, NotAllowed, ServerBusy
from broker_core.common.types import EventKind
from broker_core.history import archive, compaction, contents, lives, retention, storage, verification
from broker_core.models import ArchiveFile, ArchiveSlice, ArchiveUnusedFile, Entity, Namespace
from broker_core.sweeps import registry

DAY = timedelta(days=1)
MARCH_1 = date(2026, 3, 1)
CONTENTS = ("events", "lives", "attempts", "clients")


@pytest.fixture
def small_files(archive_folder, happened):
    """Three slices of a day: messages that are sent, received and completed, some over two slices."""
    for number in range(3):
        at = f"2026-03-01T12:0{number}Z"
        happened(EventKind.SENT, 10 - number, at=at, recorded_at=at, time_to_live=timedelta(hours=1))
        if number:
            happened(EventKind.RECEIVED, 11 - number, at=at, recorded_at=at, locked_until="2026-03-01T13:00Z", actor="c")
            happened(EventKind.COMPLETED, 11 - number, at=at, recorded_at=at, enqueued_at="2026-03-01T12:00Z", actor="c")
        archive.archive_events()
    return archive_folder


@pytest.mark.parametrize("lock", [compaction.only_one, lambda: archive._only_archiver(0)])
def test_a_lock_is_released_at_once_after_an_error(postgres, monkeypatch, lock):
    """Not only when the server notices that the connection is closed; so this one stays open."""
    monkeypatch.setattr(archive, "connected", lambda: nullcontext(postgres))
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    with pytest.raises(NotAllowed), lock() as connection:
        assert connection.execute(held).fetchone() == (1,)
        raise NotAllowed("no")
    assert postgres.execute(held).fetchone() == (0,)


def test_the_error_is_told_if_the_connection_is_lost(postgres):
    with pytest.raises(NotAllowed), compaction.only_one() as connection:
        connection.close()
        raise NotAllowed("no")


def rows_of(folder: Path, content: str, columns: list[str] | None = None) -> list[dict]:
    """The rows of a content in the files of the manifest, in a fixed order."""
    found = []
    for file in ArchiveFile.objects.filter(content=content):
        table = pq.read_table(folder / file.path)
        found += table.select(columns or [name for name in table.column_names if name != "slice_id"]).to_pylist()
    return sorted(found, key=str)


def everything(folder: Path) -> dict[str, list[dict]]:
    return {content: rows_of(folder, content) for content in CONTENTS}


def test_a_day_becomes_one_file_of_each_content_in_order_and_takes_late_slices(small_files, happened, postgres):
    before, old = everything(small_files), [small_files / file.path for file in ArchiveFile.objects.all()]
    slices = {row.pk for row in ArchiveSlice.objects.all()}
    assert len(old) == 3 + 2 + 2 + 2
    done = compaction.compact_archive()
    assert (done.files, done.into, done.rows, done.changed, done.damaged) == (9, 4, 7 + 2 + 2 + 2, 0, ())
    assert everything(small_files) == before
    for file in ArchiveFile.objects.all():
        table = pq.read_table(small_files / file.path)
        keys = list(zip(*(table[name].to_pylist() for name in contents.CONTENTS[file.content].keys[:2]), strict=True))
        assert keys == sorted(keys) and file.slice is None
        assert set(table["slice_id"].to_pylist()) == set(file.slices) <= slices
        assert (file.day, file.namespace_id) == (MARCH_1, Namespace.objects.get().pk)
    ended = ArchiveFile.objects.get(content="lives")
    assert (ended.first_at, ended.last_at) == (datetime(2026, 3, 1, 12, tzinfo=UTC),) * 2
    assert list(verification.damages(verification.finished_files(), deep=True)) == []

    assert compaction.compact_archive().deleted == 0
    assert all(path.exists() for path in old), "readers may have opened the manifest before"
    ArchiveUnusedFile.objects.update(since=datetime.now(UTC) - compaction.READERS)
    assert compaction.compact_archive().deleted == len(old)
    assert not any(path.exists() for path in old) and not ArchiveUnusedFile.objects.exists()

    happened(EventKind.SENT, 99, recorded_at="2026-03-01T23:59Z")
    archive.archive_events()
    before = everything(small_files)
    assert compaction.compact_archive().into == 1
    assert everything(small_files) == before and len(ArchiveFile.objects.get(content="events").slices) == 4
    retention.create_partitions(MARCH_1, days_ahead=0)
    assert MARCH_1 in retention.drop_old_partitions(MARCH_1 + 30 * DAY).dropped, "all its events are archived"


def test_today_and_days_with_one_file_are_left(archive_folder, happened):
    for number in range(2):
        happened(EventKind.SENT, number)
        archive.archive_events()
    happened(EventKind.SENT, 3, recorded_at="2026-03-01T12:00Z")
    archive.archive_events()
    assert compaction.compact_archive().files == 0
    assert compaction.compact_archive(before=datetime.now(UTC).date() + DAY).files == 2


def test_large_files_stay_and_files_reach_their_size_only(small_files, monkeypatch):
    before = everything(small_files)
    monkeypatch.setattr(compaction._Open, "size", compaction.SIZE)  # reached by each piece
    monkeypatch.setattr(compaction, "ROWS", 4)
    monkeypatch.setattr(compaction, "SAMPLE", 1)
    compaction.compact_archive()
    assert ArchiveFile.objects.filter(content="events").count() > 1
    assert everything(small_files) == before
    assert compaction.compact_archive().changed == 0


def test_rows_are_ordered_in_pieces_as_they_are_at_once():
    draw = random.Random(5)
    table = pa.table({"a": draw.choices(range(5), k=5000), "b": draw.choices(range(900), k=5000), "c": range(5000)})
    keys = ("a", "b", "c")
    parts = [table.slice(at, 700) for at in range(0, 5000, 700)]
    bounds = sorted({(draw.randrange(6), draw.randrange(900)) for _ in range(9)})
    pieces = list(compaction.merged(iter(parts), keys, bounds))
    assert len(pieces) > 3
    assert pa.concat_tables(pieces).equals(table.sort_by([(key, "ascending") for key in keys]))


def test_bounds_divide_rows_evenly(monkeypatch):
    monkeypatch.setattr(compaction, "ROWS", 1000)
    draw = random.Random(6)
    table = pa.table({"a": sorted(draw.choices(range(3), k=20_000)), "b": draw.choices(range(10**9), k=20_000)})
    bounds = compaction.bounds_of([table], ("a", "b"), 20_000)
    sizes = [piece.num_rows for piece in compaction.merged([table], ("a", "b"), bounds)]
    assert sum(sizes) == 20_000 and max(sizes) < 2000
    assert compaction.bounds_of([], ("a", "b"), 1000) == []


class Killed(BaseException):
    """Not caught by anything on the way, like the end of the process."""


def test_killed_at_any_step_it_loses_and_doubles_nothing(small_files, monkeypatch):
    before, steps = everything(small_files), iter(())

    def step():
        if next(steps, None) == "kill":
            raise Killed

    def stepping(real):
        def call(*args, **kwargs):
            step()
            done = real(*args, **kwargs)
            step()
            return done

        return call

    monkeypatch.setattr(archive, "row", stepping(archive.row))
    monkeypatch.setattr(archive, "run", stepping(archive.run))
    monkeypatch.setattr(storage.Folder, "store", stepping(storage.Folder.store))
    for kills in range(1, 40):
        steps = iter([*["go on"] * kills, "kill"])
        try:
            compaction.compact_archive()
        except Killed:
            assert everything(small_files) == before
            assert list(verification.damages(verification.finished_files(), deep=True)) == []
            continue
        break
    steps = iter(())
    assert kills > 7 and ArchiveFile.objects.count() == 4 and everything(small_files) == before
    with archive.connected() as connection:
        compaction.delete_unused(connection, age=timedelta(0))
    assert {str(path.relative_to(small_files)) for path in small_files.rglob("*.parquet")} == {
        file.path for file in ArchiveFile.objects.all()
    }
    assert not ArchiveUnusedFile.objects.exists()


def test_files_written_again_meanwhile_are_left_to_the_next_run(small_files, monkeypatch):
    real = compaction._written

    def meanwhile(*args):
        archive.write_again(ArchiveSlice.objects.earliest("pk").pk)
        monkeypatch.undo()
        yield from real(*args)

    before = everything(small_files)
    monkeypatch.setattr(compaction, "_written", meanwhile)
    assert compaction.compact_archive().changed == 1
    assert everything(small_files) == before
    assert compaction.compact_archive().changed == 0 and everything(small_files) == before


def test_damaged_files_and_version_1_are_left_and_only_one_runs(small_files):
    ArchiveFile.objects.filter(content__in=("attempts", "clients")).update(
        schema_version=1
    )  # as lives whose time-to-live is unknown
    file = ArchiveFile.objects.filter(content="lives").first()
    (small_files / file.path).write_bytes(b"")
    with compaction.only_one():
        with pytest.raises(ServerBusy):
            compaction.compact_archive()
        assert "Another process" in registry.compact_archive()["busy"]
    with pytest.raises(CommandError, match="has 0 bytes"):
        call_command("compact_archive", stdout=StringIO())
    assert [file.content for file in ArchiveFile.objects.filter(slice=None)] == ["events"]


def test_what_began_in_a_compacted_file_is_known_later(small_files, happened, queue):
    happened(EventKind.RECEIVED, 8, recorded_at="2026-03-02T01:00Z", at="2026-03-02T01:00Z", locked_until="2026-03-02T02:00Z")
    compaction.compact_archive()
    happened(EventKind.COMPLETED, 8, recorded_at="2026-03-02T01:01Z", enqueued_at="2026-03-01T12:02Z",
             last_received_at="2026-03-02T01:00Z")  # fmt: skip
    archive.archive_events()
    [life] = [row for row in rows_of(small_files, "lives") if row["sequence_number"] == 8]
    assert (life["time_to_live_us"], life["deliveries"]) == (3_600_000_000, 1)

    second = ArchiveSlice.objects.order_by("pk")[1].pk  # derived again, it must not see the third, which is in the same file
    wanted = pa.table({"entity_id": [queue.pk] * 3, "sequence_number": [8, 9, 10], "since": [None] * 3})
    read = lives.earlier_files(storage.archive_here(), queue.namespace_id, second, MARCH_1)
    assert {row["sequence_number"] for row in read(wanted.cast(lives.WANTED)).to_pylist()} == {10}


def test_a_damaged_compacted_file_is_written_again_from_the_events(small_files, postgres):
    compaction.compact_archive()
    before = everything(small_files)
    for content in CONTENTS:
        file = ArchiveFile.objects.get(content=content)
        (small_files / file.path).write_bytes(b"x" * file.bytes)
    printed = StringIO()
    call_command("verify_archive", "--repair", stdout=printed)
    assert printed.getvalue().count("was written again with") == 4 and everything(small_files) == before
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
    with pytest.raises(NotAllowed, match="were compacted"):
        archive.write_again(ArchiveSlice.objects.earliest("pk").pk)
    postgres.execute("DELETE FROM vitrine_message_event WHERE sequence_number = 10")
    with pytest.raises(NotAllowed, match="days were dropped"):
        compaction.write_again(ArchiveFile.objects.get(content="lives"))


def test_archived_days_are_deleted_after_the_days_of_their_namespace(small_files, queue, happened):
    other = Entity.objects.create(namespace=Namespace.objects.create(name="keeps"), path="q")
    happened(EventKind.SENT, entity_id=other.pk, recorded_at="2026-03-01T12:00Z")
    happened(EventKind.SENT, recorded_at="2026-03-06T12:00Z")
    archive.archive_events()
    namespaces.update_namespace(queue.namespace.name, archive_days=5)
    today = date(2026, 3, 11)
    assert retention.forget_archived_days(today) == [], "the event table still has them"
    retention.create_partitions(date(2026, 3, 6), days_before=5, days_ahead=5)
    retention.drop_old_partitions(today, retention=DAY)
    assert retention.forget_archived_days(today - 5 * DAY) == []
    assert retention.forget_archived_days(today) == ["history-tests: 9 files of 2026-03-01 to 2026-03-01"]
    assert {(file.day, file.namespace_id) for file in ArchiveFile.objects.all()} == {
        (MARCH_1, other.namespace_id), (date(2026, 3, 6), queue.namespace_id),
    }  # fmt: skip
    assert ArchiveUnusedFile.objects.count() == 9
    assert retention.forget_archived_days(today) == []
    assert list(verification.damages(verification.finished_files(), deep=True)) == []


def test_the_days_of_a_namespace_can_be_set_and_removed(queue):
    name = queue.namespace.name
    assert namespaces.update_namespace(name, archive_days=30).archive_days == 30
    assert namespaces.update_namespace(name, description="x").archive_days == 30
    assert namespaces.update_namespace(name, archive_days=0).archive_days is None
    with pytest.raises(InvalidArgument, match="archive_days"):
        namespaces.update_namespace(name, archive_days=-1)
