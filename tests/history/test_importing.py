"""Import of a foreign history: what is accepted, how it is refused, and that all of it is added or nothing."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from broker_core.common.types import EventKind
from broker_core.history import archive, importing, manifest, verification
from broker_core.models import ArchiveFile, ArchiveUnusedFile, Entity, EntityCounter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HEAD = "enqueued_at,first_received_at,ended_at,outcome,message_id,deliveries,time_to_live_seconds,reason"
ROWS = [
    "2026-03-01T12:00:00Z,2026-03-01T12:00:01Z,2026-03-01T12:00:02.5Z,completed,a,1,60,",
    "2026-03-01T13:00:00+01:00,,2026-03-02T12:00:00Z,expired,b,,,",
    "2026-03-01T12:00:00Z,2026-03-01T12:00:05Z,2026-03-01T12:00:06Z,dead_lettered,c,10,,Order 7 is bad",
]


def imported(folder) -> list[tuple[dict, dict]]:
    """(the event of the sending, that of the end) of each imported message, by number."""
    files = ArchiveFile.objects.filter(content=ArchiveFile.EVENTS)
    rows = [row for file in files for row in pq.read_table(folder / file.path).to_pylist()]
    rows.sort(key=lambda row: (row["sequence_number"], row["event_id"]))
    assert len({row["event_id"] for row in rows}) == len(rows)
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(sent["kind"] == EventKind.SENT != end["kind"] for sent, end in pairs)
    assert all(sent["sequence_number"] == end["sequence_number"] for sent, end in pairs)
    return pairs


def test_a_message_of_a_csv_file_becomes_two_events(archive_folder, queue, tmp_path):
    (tmp_path / "old.csv").write_text("\n".join([HEAD, *ROWS]))
    done = importing.import_history(tmp_path / "old.csv", queue)
    (sent, completed), (second, expired), (_, dead) = pairs = imported(archive_folder)
    assert done.messages == 3 and [end["sequence_number"] for _, end in pairs] == [1, 2, 3]
    assert (sent["at"], sent["time_to_live_us"], sent["message_id"], sent["entity_id"]) == (NOON, 60_000_000, "a", queue.pk)
    assert (completed["kind"], completed["at"], completed["delivery_count"]) == (EventKind.COMPLETED, NOON + 2.5 * SECOND, 1)
    assert completed["last_received_at"] == completed["first_received_at"] == NOON + SECOND
    assert completed["enqueued_at"] == NOON and completed["time_to_live_us"] is None
    assert (second["at"], expired["kind"]) == (NOON, EventKind.EXPIRED), "12:00 in UTC"
    assert (expired["first_received_at"], expired["delivery_count"]) == (None, None)
    assert (dead["reason"], dead["kind"], dead["message_id"]) == ("Order 7 is bad", EventKind.DEAD_LETTERED, "c")
    assert not any(row["actor"] for pair in pairs for row in pair), "not generated"
    assert all(row["recorded_at"] == end["at"] for sent, end in pairs for row in (sent, end)), "both in the file of the end"
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
    assert EntityCounter.objects.get(entity=queue).next_number == 4 and not ArchiveUnusedFile.objects.exists()


def test_files_are_of_the_days_of_the_ends_and_wait_for_a_job(archive_folder, queue, tmp_path):
    (tmp_path / "old.csv").write_text("\n".join([HEAD, *ROWS]))
    added = importing.import_history(tmp_path / "old.csv", queue).added
    found = manifest.files(ArchiveFile.EVENTS, [queue.namespace_id], NOON, NOON + timedelta(hours=1))
    assert [(file.day.day, file.rows, file.imported) for file in found] == [(1, 4, True), (2, 2, True)]
    assert {file.slice_id for file in found} == {added.slice_id} and (added.events, added.files) == (6, 2)
    assert [one.pk for one in manifest.underived()] == [added.slice_id]


def test_numbers_that_are_given_go_on_from_the_queues(archive_folder, queue, tmp_path):
    table = pa.table({
        "enqueued_at": pa.array([NOON] * 2, pa.timestamp("ns", tz="UTC")), "ended_at": [NOON.isoformat()] * 2,
        "outcome": ["completed"] * 2, "sequence_number": pa.array([5, 9], pa.int32()), "size": [10, 20],
        "settled_by": ["alice", None], "session_id": [None, "s"], "deliveries": [0, 3],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "old.parquet")
    assert importing.import_history(tmp_path / "old.parquet", queue).messages == 2
    found = imported(archive_folder)
    assert [(sent["sequence_number"], sent["size"], sent["session_id"]) for sent, _ in found] == [(5, 10, None), (9, 20, "s")]
    assert [(end["size"], end["actor"], end["delivery_count"]) for _, end in found] == [(10, "alice", 0), (20, None, 3)]
    with pytest.raises(importing.ImportRefused, match="Row 1, column sequence_number: it must be greater than 9"):
        importing.import_history(tmp_path / "old.parquet", queue)


def row(**changes: str) -> str:
    good = {"enqueued_at": "2026-03-01T12:00:00Z", "ended_at": "2026-03-01T12:00:02Z", "outcome": "completed"} | changes
    return ",".join(good.values())


HEADER = "enqueued_at,ended_at,outcome"
REFUSALS = [
    (["enqueued_at,ended_at"], "Column outcome: it is missing"),
    ([HEADER + ",color"], "Column color: it is unknown. Remove or rename it; the columns are enqueued_at"),
    ([HEADER + ",locks_lost"], "Column locks_lost: it is unknown"),
    ([HEADER + ",outcome"], "Column outcome: it is there more than once"),
    ([HEADER], "old.csv has no rows"),
    ([], "Column enqueued_at: it is missing"),
    ([HEADER, row(), row(ended_at="yesterday")],
     "Row 2, column ended_at: 'yesterday' is not a time with its zone, such as 2026-03-01T12:00:00Z"),
    ([HEADER, row(enqueued_at="2026-03-01T12:00:00")], "Row 1, column enqueued_at: '2026-03-01T12:00:00' is not"),
    ([HEADER, row(), row(outcome="")], "Row 2, column outcome: it is empty"),
    ([HEADER, row(outcome="done")], "Row 1, column outcome: 'done' is none of "),
    ([HEADER, row(), row(ended_at="2026-03-01T11:00:00Z")],
     "Row 2, column ended_at: it is before enqueued_at. Check whether the two columns are exchanged"),
    ([HEADER + ",deliveries", row(n="1.5")], "Row 1, column deliveries: '1.5' is not a whole number"),
    ([HEADER + ",size", row(n="-1")], "Row 1, column size: it is negative"),
    ([HEADER + ",time_to_live_seconds", row(n="1e15")], "Row 1, column time_to_live_seconds: it is too long"),
    ([HEADER + ",time_to_live_seconds", row(n="nan")], "Row 1, column time_to_live_seconds: it is not a number"),
    ([HEADER + ",sequence_number", row(n="2"), row(n="2")],
     "Row 2, column sequence_number: it must be greater than 2, the number before it. Sort the rows"),
    ([HEADER, row(), "a,b"], "Row 2: it has 2 values instead of 3 (a,b). Put texts with commas in quotation marks"),
    (["\udce4"], "old.csv cannot be read: 'utf-8' codec can't decode"),
]  # fmt: skip


def test_a_refusal_says_row_column_and_what_to_do(archive_folder, queue, tmp_path):
    for lines, refusal in REFUSALS:
        (tmp_path / "old.csv").write_text("\n".join(lines), errors="surrogateescape")
        with pytest.raises(importing.ImportRefused) as refused:
            importing.import_history(tmp_path / "old.csv", queue)
        assert str(refused.value).startswith(refusal) and str(refused.value).endswith(".")
    assert not ArchiveFile.objects.exists()


def test_days_that_the_archive_does_not_keep_are_refused(archive_folder, queue, tmp_path):
    """Their counts are kept without their lives, and would be replaced by those of the import."""
    queue.namespace.archive_days = 30
    (tmp_path / "old.csv").write_text("\n".join([HEADER, row()]))
    with pytest.raises(importing.ImportRefused, match="Row 1, column ended_at: it is older than the 30 days that the archive"):
        importing.import_history(tmp_path / "old.csv", queue)
    today = datetime.now(UTC).isoformat()
    (tmp_path / "old.csv").write_text("\n".join([HEADER, row(enqueued_at=today, ended_at=today)]))
    assert importing.import_history(tmp_path / "old.csv", queue).messages == 1


def test_all_is_added_or_nothing(archive_folder, queue, tmp_path, monkeypatch):
    """Files of blocks that were written before the refusal are left unused, and deleted later."""
    monkeypatch.setattr(importing, "BLOCK_BYTES", 300)
    monkeypatch.setattr(importing.foreign, "ROWS", 3)
    lines = ["enqueued_at,ended_at,outcome", *[row()] * 40, row(outcome="done")]
    (tmp_path / "old.csv").write_text("\n".join(lines))
    with pytest.raises(importing.ImportRefused, match="Row 41, column outcome"):
        importing.import_history(tmp_path / "old.csv", queue)
    assert not ArchiveFile.objects.exists() and ArchiveUnusedFile.objects.count() > 1
    (tmp_path / "old.csv").write_text("\n".join(lines[:-1]))
    assert importing.import_history(tmp_path / "old.csv", queue).messages == 40
    assert len({sent["sequence_number"] for sent, _ in imported(archive_folder)}) == 40


def test_the_command_creates_the_queue_only_when_asked(archive_folder, postgres, tmp_path):
    (tmp_path / "old.csv").write_text("\n".join([HEAD, *ROWS]))
    with pytest.raises(CommandError, match="There is no old/orders. Check its name, or add --create"):
        call_command("import_history", str(tmp_path / "old.csv"), "old/orders")
    printed = StringIO()
    call_command("import_history", str(tmp_path / "old.csv"), "old/orders", "--create", stdout=printed)
    assert "3 messages were added to the history of old/orders" in printed.getvalue()
    assert Entity.objects.get(path="orders", namespace__name="old")
    with pytest.raises(CommandError, match="Nothing was imported. .*No such file"):
        call_command("import_history", str(tmp_path / "none.csv"), "old/orders")
    with archive.connected() as connection:
        assert archive.row(connection, "history_epoch") is None, "no cluster's epoch began"
