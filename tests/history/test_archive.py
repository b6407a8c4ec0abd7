"""Slices, their bounds, their files and their manifest; the promise that each event is archived once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from broker_core.common.errors import ServerBusy
from broker_core.common.types import EventKind
from broker_core.history import archive, manifest, schema, storage
from broker_core.models import ArchiveFile, ArchiveSlice, Entity, Namespace
from broker_core.store import connections

EVER = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))


def archived_events(folder: Path) -> list[dict]:
    """All events in files that the manifest names, in no order."""
    files = ArchiveFile.objects.filter(content=ArchiveFile.EVENTS, slice__state=ArchiveSlice.DONE)
    return [row for file in files for row in pq.read_table(folder / file.path).to_pylist()]


def test_an_event_is_archived_with_all_its_values(archive_folder, happened, queue):
    happened(
        EventKind.SENT,
        message_id="m-1",
        time_to_live=timedelta(seconds=1.5),
        properties='{"subject": "s"}',
        application_properties='{"n": ["int", "5"]}',
        actor="user:alice",
        size=12,
    )
    assert archive.archive_events().events == 1
    [event] = archived_events(archive_folder)
    assert (event["message_id"], event["time_to_live_us"], event["size"]) == ("m-1", 1_500_000, 12)
    assert (event["application_properties"], event["actor"]) == ('{"n": ["int", "5"]}', "user:alice")
    assert event["at"] == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_message_without_a_time_to_live_has_none_in_the_archive(archive_folder, happened):
    happened(EventKind.SENT, 1)
    happened(EventKind.SENT, 2, time_to_live=timedelta.max)
    happened(EventKind.COMPLETED, 1)
    archive.archive_events()
    times = {(e["sequence_number"], e["kind"]): e["time_to_live_us"] for e in archived_events(archive_folder)}
    assert times == {(1, EventKind.SENT): None, (2, EventKind.SENT): 2**63 - 1, (1, EventKind.COMPLETED): None}


def test_nothing_is_archived_twice(archive_folder, happened):
    happened(EventKind.SENT)
    assert [archive.archive_events().events for _ in range(3)] == [1, 0, 0]
    happened(EventKind.COMPLETED)
    assert archive.archive_events().events == 1
    assert sorted(event["kind"] for event in archived_events(archive_folder)) == [1, 6]


def test_an_open_transaction_delays_later_events_and_loses_none(archive_folder, happened, postgres, queue):
    """Its events have lower numbers and earlier times than those committed meanwhile: following either would skip them."""
    insert = "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind) VALUES (now(), %s, 0, %s, 1)"
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as slow:
        slow.execute(insert, (queue.pk, 1))
        happened(EventKind.SENT, 2)
        assert archive.archive_events().events == 0
        assert archive.horizon_holder().pid == slow.info.backend_pid
        slow.commit()
    assert archive.archive_events().events == 2
    assert archive.horizon_holder() is None


def test_a_rolled_back_event_is_not_archived(archive_folder, happened, postgres):
    with postgres.transaction(force_rollback=True):
        happened(EventKind.SENT)
    happened(EventKind.SENT, 2)
    archive.archive_events()
    assert [event["sequence_number"] for event in archived_events(archive_folder)] == [2]


def test_slices_are_bounded_and_a_large_transaction_is_one_slice(archive_folder, postgres, queue):
    for count in (3, 3, 10, 2):
        postgres.execute(
            "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind) SELECT now(), %s, 0, i, 1 FROM "
            "generate_series(1, %s) AS i",
            (queue.pk, count),
        )
    done = archive.archive_events(max_events=4)
    assert (done.events, done.slices) == (18, 4)
    assert list(ArchiveSlice.objects.order_by("from_xid").values_list("events", flat=True)) == [3, 3, 10, 2]


def test_files_are_by_day_and_namespace(archive_folder, happened):
    other = Entity.objects.create(namespace=Namespace.objects.create(name="another"), path="q")
    happened(EventKind.SENT, recorded_at="2026-03-01T23:59:59.999Z")
    happened(EventKind.SENT, recorded_at="2026-03-02T00:00Z")
    happened(EventKind.SENT, entity_id=other.pk, recorded_at="2026-03-02T00:00Z")
    happened(EventKind.SENT, entity_id=-1, recorded_at="2026-03-02T00:00Z")
    archive.archive_events()
    files = ArchiveFile.objects.values_list("day", "namespace_id", "rows")
    mine = Entity.objects.filter(path="orders").latest("pk").namespace_id
    assert sorted(files) == [
        (date(2026, 3, 1), mine, 1),
        (date(2026, 3, 2), 0, 1),
        (date(2026, 3, 2), mine, 1),
        (date(2026, 3, 2), other.namespace_id, 1),
    ]


def test_the_metadata_of_a_file_has_its_schema_slice_and_cluster(archive_folder, happened):
    happened(EventKind.SENT)
    archive.archive_events()
    file = ArchiveFile.objects.get()
    said = pq.read_schema(archive_folder / file.path)
    assert said.metadata[b"vitrine.version"] == str(schema.VERSION).encode()
    assert said.metadata[b"vitrine.slice"] == str(file.slice_id).encode()
    assert said.metadata[b"vitrine.system_identifier"] == str(file.slice.epoch.system_identifier).encode()
    assert said.equals(schema.EVENT)


def files_of(queue, start, end) -> list[ArchiveFile]:
    return manifest.files(ArchiveFile.EVENTS, [queue.namespace_id], start, end)


def test_files_are_found_by_the_span_of_their_rows(archive_folder, happened, queue):
    happened(EventKind.SENT)
    happened(EventKind.COMPLETED, at="2026-03-01T13:00Z")
    archive.archive_events()
    noon, minute = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(minutes=1)
    [file] = files_of(queue, noon, noon + minute)
    assert (file.rows, file.first_at, file.last_at) == (2, noon, noon + 60 * minute)
    assert files_of(queue, noon + 60 * minute, noon + 61 * minute) == [file], "the last instant is inside"
    assert files_of(queue, noon + 61 * minute, noon + 62 * minute) == files_of(queue, noon - minute, noon) == []
    assert manifest.files(ArchiveFile.EVENTS, [queue.namespace_id + 1], *EVER) == []
    assert manifest.files(ArchiveFile.LIVES, [queue.namespace_id], *EVER) == [], "jobs derive these"


def test_the_state_of_the_archive_counts_finished_slices(archive_folder, happened):
    assert manifest.state() == manifest.ArchiveState(0, 0, 0, None, 0)
    for number in (1, 2):
        happened(EventKind.SENT, number)
        archive.archive_events()
    ArchiveSlice.objects.filter(pk=ArchiveSlice.objects.earliest("pk").pk).update(derived=True)
    state, size = manifest.state(), sum(path.stat().st_size for path in archive_folder.rglob("*.parquet"))
    assert (state.events, state.slices, state.underived, state.bytes) == (2, 2, 1, size)
    assert state.done_at == ArchiveSlice.objects.latest("pk").done_at


def test_a_file_of_an_unfinished_slice_is_not_read(archive_folder, happened, queue, monkeypatch):
    happened(EventKind.COMPLETED, enqueued_at="2026-03-01T11:00Z")

    def killed_before_done(connection, name, **params):
        if name == "history_finish_slice":
            raise KeyboardInterrupt
        return real(connection, name, **params)

    real = archive.run
    monkeypatch.setattr(archive, "run", killed_before_done)
    with pytest.raises(KeyboardInterrupt):
        archive.archive_events()
    assert list(archive_folder.rglob("*.parquet"))
    assert files_of(queue, *EVER) == []

    monkeypatch.undo()
    happened(EventKind.SENT, 2)
    assert archive.archive_events().slices == 2
    assert len(archived_events(archive_folder)) == 2
    assert len(list(archive_folder.rglob("*.parquet"))) == ArchiveFile.objects.count()


def test_a_second_archiver_is_refused_as_busy(archive_folder, happened):
    with archive._only_archiver(0), pytest.raises(ServerBusy):
        archive.archive_events()
    archive.archive_events()


def test_another_cluster_begins_an_epoch_and_archives_only_new_events(archive_folder, happened, postgres):
    """After a restore elsewhere transaction ids start over: archived events may seem to lie ahead, new ones behind."""
    happened(EventKind.SENT, 1)
    archive.archive_events()
    happened(EventKind.SENT, 2)
    postgres.execute("UPDATE vitrine_archive_epoch SET system_identifier = 1")
    postgres.execute("UPDATE vitrine_archive_slice SET to_xid = to_xid + 1000000")
    happened(EventKind.SENT, 3)
    assert archive.archive_events().events == 2
    happened(EventKind.SENT, 4)
    assert archive.archive_events().events == 1
    assert sorted(event["sequence_number"] for event in archived_events(archive_folder)) == [1, 2, 3, 4]
    assert ArchiveSlice.objects.values("epoch").distinct().count() == 2


def test_a_folder_replaces_a_half_written_file(tmp_path):
    import pyarrow as pa

    folder = storage.Folder(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.parquet.dead.tmp").write_bytes(b"half")
    stored = folder.write(pa.table({"n": [1, 2]}), "a/b/x.parquet")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["x.parquet"]
    content = (tmp_path / "a" / "b" / "x.parquet").read_bytes()
    assert (len(content), storage.checksum(content)) == (stored.bytes, stored.checksum)


def test_a_remote_archive_is_written_and_addressed_by_its_url(tmp_path):
    import pyarrow as pa
    import pyarrow.fs as pafs

    remote = storage.Remote.__new__(storage.Remote)
    remote.url, remote._files, remote._root = (
        "s3a://bucket/base",
        pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()),
        "base",
    )
    stored = remote.write(pa.table({"n": [1]}), "events/x.parquet")
    assert (tmp_path / "base" / "events" / "x.parquet").stat().st_size == stored.bytes
    with remote.open("events/x.parquet") as opened:
        assert pq.read_table(opened).to_pylist() == [{"n": 1}]
    assert remote.address("events/x.parquet") == "s3a://bucket/base/events/x.parquet"


ARCHIVER = """
import django, time
django.setup()
from django.conf import settings
from broker_core.history import archive
from broker_core.common.errors import ServerBusy
settings.ARCHIVE_URL = {folder!r}
settings.DATABASES["default"]["NAME"] = {database!r}
print("up", flush=True)
while True:
    try:
        archive.archive_events(max_events=300)
    except ServerBusy:
        pass                                  # the killed one's connection is being noticed
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_an_archiver_killed_at_any_moment_neither_loses_nor_duplicates_events(archive_folder, postgres, queue):
    """Writers with transactions of up to half a second and rollbacks; SIGKILL at least eight times."""
    stop, written = threading.Event(), []
    writers = [threading.Thread(target=_write, args=(stop, written, queue.pk, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    kills, dice = 0, random.Random(5)
    while kills < 8 or ArchiveSlice.objects.count() < 4 or len(written) <= 200:
        child = _archiver(archive_folder, postgres.info.dbname)
        time.sleep(dice.uniform(0.02, 0.6))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        kills += 1
    stop.set()
    for writer in writers:
        writer.join()
    archive.archive_events(wait_seconds=10)
    found = [event["event_id"] for event in archived_events(archive_folder)]
    assert len(found) == len(set(found)), "archived twice"
    assert set(found) == set(written), "lost, or never committed"


def _archiver(folder: Path, database: str) -> subprocess.Popen:
    script = ARCHIVER.format(folder=str(folder), database=database)
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout.readline() == b"up\n"
    return child


def _write(stop: threading.Event, written: list[int], entity_id: int, seed: int) -> None:
    dice = random.Random(seed)
    sql = (
        "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind, enqueued_at) "
        "SELECT now(), %s, 0, i, 6, now() FROM generate_series(1, %s) AS i RETURNING event_id"
    )
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as connection:
        while not stop.is_set():
            ids = [event_id for (event_id,) in connection.execute(sql, (entity_id, dice.randint(1, 30))).fetchall()]
            time.sleep(dice.choice((0, 0, 0.005, 0.02, 0.5)))
            if dice.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                written.extend(ids)
