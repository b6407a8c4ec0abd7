"""The whole way: broker, archive, jobs in Spark's child process, stored results. SQL over the event table is the judge."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.db import connection

from broker_core import namespaces, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.history import archive, storage
from broker_core.models import ArchiveFile, ArchiveSlice, Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.analysis import generation
from explorer.analysis.pages.asking import asked_of
from explorer.analysis.reports.registry import ANALYSES, BY_SLUG
from explorer.analysis.reports.tables import Tables
from explorer.analysis.running import execution, submission
from explorer.analysis.running.kinds import KINDS
from explorer.models import AnalysisResult, AnalysisRun

ORDERS = EntityAddress("demo", "orders")
OPERATOR = Actor("user", "alice", Right.BROWSE | Right.OPERATE)
LIVES = """
    SELECT kind, count(*) FROM vitrine_message_event
     WHERE entity_id = %s AND kind IN (6, 10, 11, 14, 18) GROUP BY kind
"""
PRESENT = """
    SELECT sequence_number FROM vitrine_message_event WHERE entity_id = %s
    EXCEPT
    SELECT sequence_number FROM vitrine_message_event
     WHERE entity_id = %s AND kind IN (3, 6, 11, 13, 14, 15, 16, 17, 18, 20, 21, 22)
"""
ATTEMPTS = """
    SELECT count(*) FILTER (WHERE kind IN (4, 18)), count(*) FILTER (WHERE kind = 12) FROM vitrine_message_event
     WHERE entity_id = %s
"""


@pytest.fixture
def orders(archive, settings, tmp_path):
    """A queue with generated history, and after it messages of every kind of end; nothing is archived yet."""
    settings.RUNS_FOLDER, settings.SPARK_MASTER, settings.SPARK_KEEP_SECONDS = tmp_path / "runs", "local[2]", 60
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE vitrine_message_event, vitrine_message, vitrine_entity_counter")
    namespaces.ensure_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(ORDERS)
    queue, until = Entity.objects.filter(path="orders").latest("pk"), datetime.now(UTC).replace(microsecond=0)
    generation.record([queue], messages=2_000, days=1 / 8, until=until)
    service_bus.send(ORDERS, [Message(b"x", message_id=str(i)) for i in range(10)])
    service_bus.complete(ORDERS, [message.lock_token for message in service_bus.receive(ORDERS, 3)])
    service_bus.dead_letter(ORDERS, [message.lock_token for message in service_bus.receive(ORDERS, 2)], reason="Bad")
    service_bus.receive_and_delete(ORDERS, 1)
    return queue


def executed(run: AnalysisRun | None) -> AnalysisRun:
    """The run after its execution."""
    assert run is not None
    execution.execute(run.pk, KINDS)
    run.refresh_from_db()
    assert run.state == AnalysisRun.SUCCEEDED, run.message + run.log_tail[-3000:]
    return run


def rows_of(queue: Entity, content: str, *columns: str) -> list[dict]:
    """The rows of a queue. There are others: a run is requested by a message in a queue of Vitrine's own."""
    here = storage.current_archive()
    results = []
    for file in ArchiveFile.objects.filter(content=content):
        with here.open(file.path) as opened:
            results += pq.read_table(opened, columns=["entity_id", *columns]).to_pylist()
    return [row for row in results if row["entity_id"] == queue.pk]


def request_of(queue: Entity, *slugs: str):
    analyses = [BY_SLUG[slug] for slug in slugs]
    form, scope = asked_of(analyses, {"queue": queue.pk})
    return analyses, scope, form


def totals(result: AnalysisResult) -> list:
    """What the report Waiting counts, by measure."""
    tables = Tables.unpacked(bytes(result.tables))
    results: dict = {}
    for row in tables["times"]:
        for number, count in zip(row.bins, row.counts, strict=True):
            results[row.measure, number] = results.get((row.measure, number), 0) + count
    return sorted(results.items())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_reports_are_complete_before_and_after_the_nightly_maintenance(orders, monkeypatch):
    slugs = [analysis.slug for analysis in ANALYSES]
    analyses, scope, form = request_of(orders, *slugs)
    first = executed(submission.refresh(analyses, scope, form, actor=OPERATOR))
    assert first.notes == []
    assert set(AnalysisResult.objects.values_list("report", flat=True)) == set(slugs)
    rows = rows_of(orders, "lives", "outcome", "attempt_outcome", "attempt_lost")
    with connection.cursor() as cursor:
        ended = dict(cursor.execute(LIVES, [orders.pk]).fetchall())
        received, lost = cursor.execute(ATTEMPTS, [orders.pk]).fetchone()
        present = {number for (number,) in cursor.execute(PRESENT, [orders.pk] * 2).fetchall()}
    outcomes = [row["outcome"] for row in rows if row["outcome"] is not None]
    assert {kind: outcomes.count(kind) for kind in set(outcomes)} == ended
    assert sum(row["attempt_outcome"] is not None for row in rows) == received
    assert sum(row["attempt_outcome"] == 12 for row in rows) == lost
    assert {row["sequence_number"] for row in rows_of(orders, "open", "sequence_number")} == present, "these are carried"
    assert len(present) >= 6, "4 active messages and 2 dead letters at least"
    assert submission.refresh(analyses, scope, form, actor=OPERATOR) is None, "they are fresh"

    before = totals(AnalysisResult.objects.get(report="waiting"))
    service_bus.complete(ORDERS, [message.lock_token for message in service_bus.receive(ORDERS, 2)])
    ArchiveFile.objects.filter(content="lives").update(day=datetime.now(UTC).date() - timedelta(days=1))
    archive.archive_events()
    executed(submission.maintain(actor=OPERATOR))
    assert not ArchiveSlice.objects.filter(derived=False).exists()
    assert {"counts", "histograms"} <= set(ArchiveFile.objects.values_list("content", flat=True))
    assert ArchiveFile.objects.filter(content="lives", rolled_up=True).exists()
    only = request_of(orders, "waiting")
    executed(submission.refresh(*only, actor=OPERATOR, force=True))
    after = dict(totals(AnalysisResult.objects.get(report="waiting")))
    changed = {key: after.get(key, 0) - dict(before).get(key, 0) for key in after.keys() | dict(before).keys()}
    assert sum(count for (measure, _), count in changed.items() if measure == 1) == 2, "two more were received"
    counted = {key: count for key, count in changed.items() if count and key[0] == 3}
    assert sum(counted.values()) == 2, "and processed; rolled-up and other histograms add up"

    columns = ("sequence_number", "deliveries", "enqueued_at", "time_to_live_us")
    kept = sorted(rows_of(orders, "open", *columns), key=str)
    lost = ArchiveFile.objects.get(content="open", namespace_id=orders.namespace_id)
    Path(storage.current_archive().address(lost.path)).write_bytes(b"")
    run = executed(submission.maintain(actor=OPERATOR))
    assert run.notes == [] and not ArchiveFile.objects.filter(pk=lost.pk).exists()
    assert sorted(rows_of(orders, "open", *columns), key=str) == kept, "made again from events"
