"""The entry of files that jobs have written: all of them together with what they replace, or none."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.db import DatabaseError
from django.db.models import F

from broker_core.common.errors import ServerBusy
from broker_core.common.types import EventKind
from broker_core.history import archive, cleanup, manifest, storage
from broker_core.models import ArchiveFile, ArchiveRebuild, ArchiveSlice, ArchiveUnusedFile

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY, FOLDER = date(2026, 3, 1), "derived/job-1"
EVER = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))


def life(enqueued: int, ended: int, received: int | None = None) -> dict:
    """Instants in seconds after noon."""
    at = None if received is None else NOON + received * SECOND
    return {"enqueued_at": NOON + enqueued * SECOND, "attempt_received_at": at, "ended_at": NOON + ended * SECOND}


def written(archive_folder: Path, *lives: dict, content="lives", folder=FOLDER, namespace=7, name="part-0.parquet") -> Path:
    """A file of lives as a job writes it, in groups of one row."""
    path = archive_folder / folder / f"content={content}" / f"day={DAY}" / f"namespace={namespace}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    instant = pa.timestamp("us", tz="UTC")
    columns = pa.schema([(name, instant) for name in ("enqueued_at", "attempt_received_at", "ended_at")])
    pq.write_table(pa.Table.from_pylist(list(lives), columns), path, row_group_size=1)
    return path


def entered_file(archive_folder, name: str, folder=FOLDER) -> ArchiveFile:
    written(archive_folder, life(0, 1), folder=folder, name=name)
    return manifest.enter(folder, manifest.Change())[0]


@pytest.fixture
def slices(archive_folder, happened) -> list[int]:
    """The ids of two finished slices."""
    for number in (1, 2):
        happened(EventKind.SENT, number)
        archive.archive_events()
    return list(ArchiveSlice.objects.order_by("pk").values_list("pk", flat=True))


def before_and_after() -> list:
    """All that an entry changes."""
    files = ArchiveFile.objects.order_by("pk").values_list("pk", "path", "rolled_up")
    derived = ArchiveSlice.objects.order_by("pk").values_list("pk", "derived")
    unused = ArchiveUnusedFile.objects.order_by("path").values_list("path", flat=True)
    return [list(files), list(derived), list(unused), list(ArchiveRebuild.objects.values_list("day", "namespace_id"))]


def test_files_of_a_folder_are_registered_with_the_values_of_their_footers(archive_folder, postgres):
    path = written(archive_folder, life(5, 9, received=2), life(3, 20), life(4, 6, received=4))
    path.with_name("_SUCCESS").write_text("")
    path.with_name(".part-0.parquet.crc").write_text("")
    [file] = manifest.enter(FOLDER, manifest.Change(step_seconds=300, values={"imported": True}))
    file.refresh_from_db()
    content = path.read_bytes()
    assert (file.content, file.day, file.namespace_id, file.rows) == ("lives", DAY, 7, 3)
    assert (archive_folder / file.path, file.bytes, file.checksum) == (path, len(content), storage.checksum(content))
    assert (file.first_at, file.last_at) == (NOON + 2 * SECOND, NOON + 20 * SECOND), "the first begin, and the last end"
    assert (file.step_seconds, file.imported, file.slice_id, file.rolled_up) == (300, True, None, False)
    assert manifest.files("lives", [7], *EVER) == [file] and not ArchiveUnusedFile.objects.exists()


def test_a_file_without_instants_matches_every_range(archive_folder, postgres):
    written(archive_folder, {"enqueued_at": None, "attempt_received_at": None, "ended_at": None})
    [file] = manifest.enter(FOLDER, manifest.Change())
    assert (file.first_at, file.last_at) == (None, None) and manifest.files("lives", [7], NOON, NOON + SECOND) == [file]


def test_a_registration_replaces_files_and_clears_marks(archive_folder, slices):
    old, rolled = (entered_file(archive_folder, "old.parquet", folder=f"derived/{name}") for name in ("old", "rolled"))
    for day in (DAY, date(2026, 3, 2)):
        manifest.rebuild(day, 7)
    manifest.note_folder(FOLDER)
    manifest.note_folder("derived/another")
    written(archive_folder, life(0, 1), name="new.parquet")
    change = manifest.Change(slices=slices[:1], replaces=[old.pk], rolled_up=[rolled.pk], rebuilt=[(DAY, 7)])
    [new] = manifest.enter(FOLDER, change)
    assert before_and_after()[1:] == [
        [(slices[0], True), (slices[1], False)], sorted(["derived/another/", old.path]), [(date(2026, 3, 2), 7)]
    ]  # fmt: skip
    files = ArchiveFile.objects.filter(content="lives").order_by("pk")
    assert [(file.pk, file.rolled_up) for file in files] == [(rolled.pk, True), (new.pk, False)]
    assert [rebuild_day.pk for rebuild_day in manifest.underived()] == slices[1:]


def _derived_already(change: manifest.Change) -> None:
    ArchiveSlice.objects.filter(pk__in=list(change.slices)[:1]).update(derived=True)


def _replaced_already(change: manifest.Change) -> None:
    ArchiveFile.objects.filter(pk__in=list(change.replaces)[:1]).delete()


@pytest.mark.parametrize("meanwhile", [_derived_already, _replaced_already])
def test_a_registration_is_refused_when_another_job_was_first(archive_folder, slices, meanwhile):
    old = [entered_file(archive_folder, f"{name}.parquet", folder=f"derived/{name}") for name in ("a", "b")]
    manifest.rebuild(DAY, 7)
    manifest.note_folder(FOLDER)
    written(archive_folder, life(0, 1))
    change = manifest.Change(
        slices=slices, replaces=[file.pk for file in old], rolled_up=[old[0].pk, old[1].pk], rebuilt=[(DAY, 7)]
    )
    meanwhile(change)
    before = before_and_after()
    with pytest.raises(ServerBusy, match="its result is kept"):
        manifest.enter(FOLDER, change)
    assert before_and_after() == before and before[2] == [f"{FOLDER}/"]


def test_a_failed_registration_changes_nothing(archive_folder, slices, monkeypatch):
    old = entered_file(archive_folder, "old.parquet", folder="derived/old")
    manifest.rebuild(DAY, 7)
    manifest.note_folder(FOLDER)
    written(archive_folder, life(0, 1))
    written(archive_folder, life(0, 1), name="part-1.parquet")

    def fail(*args, **options):
        raise DatabaseError("no room")

    before = before_and_after()
    monkeypatch.setattr(type(ArchiveFile.objects), "bulk_create", fail)
    change = manifest.Change(slices=slices, replaces=[old.pk], rolled_up=[old.pk], rebuilt=[(DAY, 7)])
    with pytest.raises(DatabaseError, match="no room"):
        manifest.enter(FOLDER, change)
    assert before_and_after() == before


def test_a_folder_that_no_job_registered_is_deleted(archive_folder, postgres):
    """Once no reader can be at it; that of a job that entered it stays."""
    manifest.note_folder("derived/killed")
    killed = written(archive_folder, life(0, 1), folder="derived/killed")
    manifest.note_folder(FOLDER)
    kept = written(archive_folder, life(0, 1))
    manifest.enter(FOLDER, manifest.Change())
    assert cleanup.clean_up_archive().deleted == 0 and killed.exists()
    ArchiveUnusedFile.objects.update(since=F("since") - cleanup.READERS)
    assert cleanup.clean_up_archive().deleted == 1
    assert not (archive_folder / "derived/killed").exists() and kept.exists()
    assert not ArchiveUnusedFile.objects.exists() and cleanup.clean_up_archive().deleted == 0


def test_a_replaced_file_is_deleted_a_day_later(archive_folder, postgres):
    old = entered_file(archive_folder, "old.parquet", folder="derived/old")
    written(archive_folder, life(0, 1))
    manifest.enter(FOLDER, manifest.Change(replaces=[old.pk]))
    assert cleanup.clean_up_archive().deleted == 0 and (archive_folder / old.path).exists()
    ArchiveUnusedFile.objects.update(since=F("since") - cleanup.READERS)
    assert cleanup.clean_up_archive().deleted == 1 and not (archive_folder / old.path).exists()


def test_only_one_process_at_a_time_replaces_and_deletes_files(archive_folder, postgres):
    with cleanup.exclusive_access(), pytest.raises(ServerBusy):
        cleanup.clean_up_archive()
    cleanup.clean_up_archive()


def test_a_jobs_folder_is_deleted_with_the_last_of_its_files(archive_folder, postgres):
    """Spark writes others beside them."""
    first = entered_file(archive_folder, "a.parquet")
    (archive_folder / FOLDER / "_SUCCESS").write_text("")
    other = written(archive_folder, life(0, 1), folder=FOLDER, content="open")
    kept = ArchiveFile.objects.create(
        content="open", day=DAY, namespace_id=7, path=str(other.relative_to(archive_folder)), rows=1, bytes=1
    )
    for file, is_left in ((first, True), (kept, False)):
        ArchiveUnusedFile.objects.create(path=file.path, since=NOON)
        file.delete()
        cleanup.clean_up_archive()
        assert (archive_folder / FOLDER).exists() == is_left
    manifest.note_folder(FOLDER)
    written(archive_folder, life(0, 1), folder=FOLDER)
    ArchiveUnusedFile.objects.create(path=f"{FOLDER}/old.parquet", since=NOON)
    cleanup.clean_up_archive()
    assert (archive_folder / FOLDER).exists(), "a job writes to it"


def test_days_to_count_are_found_and_counted(archive_folder, postgres):
    first = entered_file(archive_folder, "a.parquet", folder="derived/a")
    second = entered_file(archive_folder, "b.parquet", folder="derived/b")
    written(archive_folder, life(0, 1), content="counts", folder="derived/c")
    [counts] = manifest.enter("derived/c", manifest.Change(rolled_up=[first.pk], step_seconds=300))
    [group] = manifest.days_to_roll_up(None)
    assert [file.pk for file in group] == [first.pk, second.pk], "all of a day of which some are not counted"
    assert manifest.days_to_roll_up(DAY) == [] and manifest.rolled_files([group]) == [counts]
    ArchiveFile.objects.update(rolled_up=True)
    assert manifest.days_to_roll_up(None) == []
    manifest.count_again(DAY, 8)
    assert manifest.days_to_roll_up(None) == []
    manifest.count_again(DAY, 7)
    assert len(manifest.days_to_roll_up(None)) == 1


def test_only_small_finished_files_of_past_days_are_merged(archive_folder, slices, happened, queue, monkeypatch):
    happened(EventKind.SENT, 3)
    archive.archive_events()
    today = ArchiveFile.objects.filter(content="events").latest("day").day
    tomorrow = today + timedelta(days=1)
    assert manifest.groups_to_merge(tomorrow) == [], "no lives have been derived from them"
    ArchiveSlice.objects.filter(pk__in=slices).update(derived=True)
    [group] = manifest.groups_to_merge(tomorrow)
    assert [file.slice_id for file in group] == slices
    assert manifest.groups_to_merge(today) == []
    for name in ("a", "b", "c"):
        entered_file(archive_folder, f"{name}.parquet", folder=f"derived/{name}")
    lives = ArchiveFile.objects.filter(content="lives").order_by("pk")
    assert manifest.groups_to_merge(tomorrow) == [group], "they are not counted"
    ArchiveFile.objects.filter(pk__in=[file.pk for file in lives[:2]]).update(rolled_up=True)
    assert manifest.groups_to_merge(tomorrow) == [group, list(lives[:2])]
    monkeypatch.setattr(manifest, "SMALL_BYTES", 10)
    assert manifest.groups_to_merge(tomorrow) == []
