"""The whole way once: broker, generated history, archive, Spark in its child process, results. An SQL query is the judge."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.history import archive, generation
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRollup, ArchiveSlice, Entity
from broker_core.service_bus import entities
from explorer.analysis import drivers, launch, rollups, runs
from explorer.models import AnalysisResult, AnalysisRun

from .factories import a_run

ORDERS = EntityAddress("demo", "orders")
JUDGE = """
    SELECT count(*) FILTER (WHERE kind = 6), count(*) FILTER (WHERE kind = 10), count(*) FILTER (WHERE kind = 11),
           percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY first_received_at - enqueued_at)
             FILTER (WHERE first_received_at IS NOT NULL),
           percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY at - last_received_at)
             FILTER (WHERE kind = 6 OR kind = 10 AND reason <> 'MaxDeliveryCountExceeded')
      FROM vitrine_message_event
     WHERE entity_id = %s AND subqueue = 0 AND kind IN (6, 10, 11) AND enqueued_at >= %s AND enqueued_at < %s
"""


@pytest.fixture
def history(transactional_db, settings, tmp_path):
    """Generated lives, and after them messages of every kind of end; the archive is empty."""
    settings.RUNS_FOLDER, settings.ARCHIVE_URL = tmp_path / "runs", str(tmp_path / "archive")
    settings.SPARK_MASTER = "local[2]"
    _clear()
    namespaces.ensure_namespace("demo")
    entities.create_queue(ORDERS)
    queue, until = Entity.objects.get(path="orders"), datetime.now(UTC).replace(microsecond=0)
    generation.generate_recorded([queue], messages=2_000, days=1 / 8, until=until)
    service_bus.send(ORDERS, [Message(b"x", message_id=str(i)) for i in range(10)])
    service_bus.complete(ORDERS, [message.lock_token for message in service_bus.receive(ORDERS, 3)])
    service_bus.dead_letter(ORDERS, [message.lock_token for message in service_bus.receive(ORDERS, 2)], reason="Bad")
    service_bus.receive_and_delete(ORDERS, 1)
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    service_bus.send(
        ORDERS,
        [Message(b"later", scheduled_enqueue_at=soon), Message(b"much later", scheduled_enqueue_at=soon + timedelta(hours=1))],
    )
    yield Entity.objects.get(path="orders")
    _clear()


def _clear():
    tables = [model._meta.db_table for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch)]
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE vitrine_message_event, vitrine_message, vitrine_entity_counter, {', '.join(tables)}")


def test_an_analysis_counts_every_message_once_and_measures_as_sql_does(history):
    while b"later" not in {message.body for message in service_bus.receive(ORDERS, 10)}:
        pass
    now = datetime.now(UTC)
    queue = {"id": history.pk, "namespace": "demo", "path": "orders"}
    run = a_run(queues=[queue], start_at=now - timedelta(hours=4), end_at=now)
    run.save()
    launch.execute(run.pk)
    run.refresh_from_db()
    assert run.state == "succeeded", f"{run.message}\n{run.log_tail}"
    whole = run.results.get(bucket_at=None)
    with connection.cursor() as cursor:
        cursor.execute(JUDGE, (history.pk, run.start_at, run.end_at))
        completed, dead_lettered, expired, waiting, processing = cursor.fetchone()
    assert (whole.completed, whole.dead_lettered, whole.expired) == (completed, dead_lettered, expired)
    assert (whole.received_and_deleted, whole.still_there, whole.other) == (1, 4 + 1, 0)
    assert whole.messages == whole.generated + 10 + 1, "a scheduled message counts from its activation, once"
    assert [whole.processing_p50, whole.processing_p95, whole.processing_p99] == processing
    assert whole.waiting_p50 is not None and waiting[0] <= whole.waiting_p99
    by_hour = run.results.exclude(bucket_at=None)
    assert sum(row.messages for row in by_hour) == whole.messages == run.messages
    assert dict(run.reasons.filter(reason="Bad").values_list("reason", "messages")) == {"Bad": 2}
    assert sum(run.reasons.values_list("messages", flat=True)) == whole.dead_lettered
    assert not launch.RunFolder(run.pk).scratch.exists()
    again = a_run(queues=[queue], start_at=run.start_at, end_at=run.end_at)
    again.save()
    launch.execute(again.pk)
    again.refresh_from_db()
    assert again.warm and "Step 2 of" in again.log_tail
    columns = [field.attname for field in AnalysisResult._meta.fields if field.attname not in ("id", "run_id")]
    assert list(again.results.values_list(*columns)) == list(run.results.values_list(*columns))


def test_a_roll_up_by_spark_counts_what_pages_count_without_it(history):
    archive.archive_events()
    now = datetime.now(UTC)
    everything = [history.pk], [history.namespace_id], now - timedelta(days=1), now
    before = rollups.summed(rollups.read(*everything))
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    run = a_run(kind="roll_up", queues=[], start_at=tomorrow - timedelta(days=2), end_at=tomorrow, bucket="day")
    run.save()
    launch.execute(run.pk)
    run.refresh_from_db()
    assert run.state == "succeeded", f"{run.message}\n{run.log_tail}"
    assert rollups.uncovered() == [] and "rolled up" in run.message
    assert before.num_rows > 1000 and rollups.summed(rollups.read(*everything)).equals(before)
    ArchiveRollup.objects.all().delete()


def test_a_job_that_cannot_read_fails_in_one_line(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path
    run = a_run()
    run.save()
    held, folder = runs.claim(run.pk), launch.RunFolder(run.pk)
    folder.make()
    folder.specification.write_text("{}")
    with pytest.raises(launch.JobFailed, match="^KeyError: "):
        launch._run_job(held, folder, "time_in_queue", drivers.session_of(launch._spark_settings(0)), launch.java.find())
    assert "Traceback" in AnalysisRun.objects.get().log_tail
