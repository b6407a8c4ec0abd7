"""Imported and generated history by the commands: all of it is entered in the manifest or nothing, and lives are right."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces, service_bus
from broker_core.common.types import Actor, EntityAddress, Family
from broker_core.history import manifest, retention, storage, verification
from broker_core.models import ArchiveFile, ArchiveRebuild, ArchiveUnusedFile, Entity, EntityCounter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.analysis.running import additions, execution
from explorer.analysis.running.kinds import KINDS
from explorer.models import AnalysisRun

HEAD = "enqueued_at,first_received_at,ended_at,outcome,message_id,deliveries,time_to_live_seconds,reason"
ROWS = [
    "2026-03-01T12:00:00Z,2026-03-01T12:00:01Z,2026-03-01T12:00:02.5Z,completed,a,1,60,",
    "2026-03-01T13:00:00+01:00,,2026-03-02T12:00:00Z,expired,b,,,",
    "2026-03-01T12:00:00Z,2026-03-01T12:00:05Z,2026-03-01T12:00:06Z,dead_lettered,c,10,,Order 7 is bad",
]
HEADER = "enqueued_at,ended_at,outcome"
ROW = "2026-03-01T12:00:00Z,2026-03-01T12:00:02Z,completed"


@pytest.fixture(autouse=True)
def place(postgres, archive, settings, tmp_path):
    """An archive of no events of other tests, and a folder for runs whose driver stays for the next one."""
    settings.ARCHIVE_URL = str(archive / "archive")
    settings.RUNS_FOLDER, settings.SPARK_MASTER, settings.SPARK_KEEP_SECONDS = tmp_path / "runs", "local[2]", 60
    yield
    ArchiveUnusedFile.objects.all().delete()


@pytest.fixture
def orders():
    namespaces.ensure_namespace("old", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("old", "orders"))
    return Entity.objects.get(namespace__name="old", path="orders")


def called(*arguments: str) -> str:
    printed = StringIO()
    call_command(*arguments, stdout=printed)
    return printed.getvalue()


def refusal(file, lines) -> str:
    file.write_text("\n".join(lines), errors="surrogateescape")
    with pytest.raises(CommandError) as refused:
        call_command("import_history", str(file), "old/orders")
    return str(refused.value)


@pytest.mark.slow
def test_an_import_is_derived_verified_and_repaired(orders, tmp_path):
    file = tmp_path / "_old [1].csv"  # Spark would skip it, and take the brackets as a pattern
    file.write_text("\n".join([HEAD, *ROWS]))
    said = called("import_history", str(file), "old/orders", "--create")
    assert said == "3 messages were added to the history of old/orders, in 2 files.\n"
    files = ArchiveFile.objects.filter(content="events").order_by("day")
    assert [(archived.day.day, archived.rows, archived.imported) for archived in files] == [(1, 4, True), (2, 2, True)]
    assert {one.slice_id for one in files} == {one.pk for one in manifest.underived()}
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
    assert EntityCounter.objects.get(entity=orders).next_number == 4 and not ArchiveUnusedFile.objects.exists()
    run = AnalysisRun.objects.get()
    assert (run.kind, run.subject, run.namespace) == ("import", "Import of _old [1].csv into old/orders", "old")

    refused = refusal(file, [HEADER, ROW, ROW.replace("completed", "done")])
    assert refused.startswith("Nothing was imported. Row 2, column outcome: 'done' is none of ")
    assert ArchiveFile.objects.filter(content="events").count() == 2 and EntityCounter.objects.get(entity=orders).next_number == 4
    assert "3 messages were added" in called("import_history", str(_rewritten(file)), "old/orders"), "numbers go on"

    called("maintain_history")
    said = called("verify_archive", "--lives")
    assert said == "The archive is intact.\n6 messages were compared with their events.\n"
    _leave_out_a_life()
    with pytest.raises(CommandError, match="Lives differ from their events. --repair has those of these days derived again."):
        call_command("verify_archive", "--lives", stdout=StringIO())
    assert "2026-03-02: 1 message has another number of ends than lives, such as number" in called(
        "verify_archive", "--lives", "--repair"
    )
    assert [rebuild.day.day for rebuild in ArchiveRebuild.objects.all()] == [2]
    called("maintain_history")
    assert called("verify_archive", "--lives").endswith("6 messages were compared with their events.\n")


def _rewritten(file):
    file.write_text("\n".join([HEAD, *ROWS]))
    return file


def _leave_out_a_life():
    """Take a row out of a file of lives, and enter the file as it is then: neither its size nor its checksum tells."""
    here = storage.current_archive()
    file = ArchiveFile.objects.filter(content="lives", day="2026-03-02").order_by("path").first()
    table = pq.read_table(here.address(file.path), partitioning=None)
    written = Path(here.address(file.path))
    pq.write_table(table.slice(1), written)
    written.with_name(f".{written.name}.crc").unlink()  # of Spark's file system
    with here.open(file.path) as opened:
        content = opened.read_buffer()
    file.rows, file.bytes, file.checksum = table.num_rows - 1, content.size, storage.checksum(content)
    file.save()


REFUSALS = [
    (["enqueued_at,ended_at"], "Column outcome: it is missing"),
    ([HEADER + ",color"], "Column color: it is unknown. Remove or rename it; the columns are enqueued_at"),
    ([HEADER + ",outcome"], "Column outcome: it is there more than once"),
    ([], "Column enqueued_at: it is missing"),
    (["\udce4"], "old.csv cannot be read: 'utf-8' codec can't decode"),
]


def test_a_file_without_the_right_columns_is_refused(orders, tmp_path):
    for lines, said in REFUSALS:
        refused = refusal(tmp_path / "old.csv", lines)
        assert refused.startswith(f"Nothing was imported. {said}") and refused.endswith(".")
    (tmp_path / "old.parquet").write_text("no Parquet")
    with pytest.raises(CommandError, match=r"old.parquet cannot be read: .* Write it as CSV in UTF-8, or as Parquet"):
        call_command("import_history", str(tmp_path / "old.parquet"), "old/orders")
    with pytest.raises(CommandError, match="Nothing was imported. There is no file "):
        call_command("import_history", str(tmp_path / "none.csv"), "old/orders")
    assert not ArchiveFile.objects.exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rows_that_cannot_be_added_are_refused(orders, tmp_path, monkeypatch):
    """None, those of days that are not kept, and those whose numbers a sender takes meanwhile."""
    file = tmp_path / "old.csv"
    assert refusal(file, [HEADER]).startswith("Nothing was imported. old.csv has no rows")
    orders.namespace.archive_days = 30
    orders.namespace.save()
    refused = "Row 1, column ended_at: it is older than the 30 days that the archive of old is kept. Remove the row."
    assert refused in refusal(file, [HEADER, ROW])
    orders.namespace.archive_days = None
    orders.namespace.save()
    monkeypatch.setattr(additions, "_next_number", lambda entity: 1)
    service_bus.send(EntityAddress("old", "orders"), [Message(b"x")])
    assert "old/orders has got messages meanwhile" in refusal(tmp_path / "old.csv", [HEADER, ROW])
    assert not ArchiveFile.objects.exists()


def test_a_file_on_a_cluster_is_copied_to_the_archive(settings, monkeypatch, tmp_path):
    settings.SPARK_MASTER = "spark://127.0.0.1:7077"
    (tmp_path / "old.csv").write_text(HEADER)
    monkeypatch.setattr(additions.pipeline, "new_folder", lambda jobs: "derived/run-1-x")
    address = additions._address(None, tmp_path / "old.csv", "csv")
    assert address == storage.current_archive().address("derived/run-1-x/import.csv")
    with storage.current_archive().open("derived/run-1-x/import.csv") as copied:
        assert copied.read().decode() == HEADER


def test_a_missing_queue_is_created_only_on_request_and_if_the_file_exists(tmp_path):
    file = _rewritten(tmp_path / "old.csv")
    with pytest.raises(CommandError, match="There is no old/orders. Check its name, or add --create"):
        call_command("import_history", str(file), "old/orders")
    with pytest.raises(CommandError, match="Nothing was imported. There is no file"):
        call_command("import_history", str(tmp_path / "none.csv"), "old/orders", "--create")
    assert not Entity.objects.filter(path="orders").exists()


@pytest.mark.slow
def test_generated_history_is_written_by_a_job(settings):
    said = called("generate_history", "made", "--queues=2", "--messages=300", "--days=0.5", "--until=2026-03-08T00:00:00+00:00")
    assert "messages with" in said and "parameters/run-" in said
    queues = Entity.objects.filter(namespace__name="made", path__startswith="generated-")
    numbers = EntityCounter.objects.filter(entity__in=queues).values_list("next_number", flat=True)
    assert sorted(numbers) == [151, 151]
    [run] = AnalysisRun.objects.filter(kind="generation")
    files = ArchiveFile.objects.filter(content="events")
    assert sum(file.rows for file in files) == run.events > 600 and all(path.imported for path in files)
    with storage.current_archive().open(f"parameters/run-{run.pk:010d}.json") as opened:
        assert b'"longer_than"' in opened.read()
    assert list(verification.damages(verification.finished_files(), deep=True)) == []
    until = datetime(2026, 3, 8, tzinfo=UTC).date()
    retention.create_partitions(until, days_ahead=0)
    assert retention.drop_old_partitions(until.replace(month=4)).unarchived == (), "they are not of the event table"
    with pytest.raises(CommandError, match="at least one queue"):
        call_command("generate_history", "made", "--queues=0")


def test_a_run_that_is_cancelled_adds_nothing(orders, tmp_path):
    _rewritten(tmp_path / "old.csv")
    run = additions.request_import(tmp_path / "old.csv", orders, actor=Actor.local())
    AnalysisRun.objects.filter(pk=run.pk).update(cancel_requested_at=datetime.now(UTC))
    execution.execute(run.pk, KINDS)
    run.refresh_from_db()
    assert run.state == AnalysisRun.CANCELLED and not ArchiveFile.objects.exists()
