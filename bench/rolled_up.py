"""Generated history: writing, compacting and rolling it up, and questions over rolled-up days, against DuckDB on the same files.

Figures are processor seconds of the whole process tree. Spark's start is included.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import duckdb
import psutil

from broker_core import namespaces
from broker_core.common.types import Actor, EntityAddress
from broker_core.history import compaction, generation
from broker_core.history.storage import archive_here
from broker_core.models import ArchiveFile, ArchiveRollup, Entity
from broker_core.service_bus import entities
from explorer.analysis import rollups
from explorer.analysis.jobs import measures
from explorer.analysis.running import driver, execution, java, submission
from explorer.models import AnalysisRun

from . import measuring

QUEUES, DAYS, PARTS = 50, 7, 3
EVENTS_A_MESSAGE = 3.07
PR_SET_CHILD_SUBREAPER = 36
BIN = """
CREATE OR REPLACE MACRO bin(v) AS
    CASE WHEN v < 32 THEN v ELSE (floor(log2(v))::INT - 5) * 32 + (v >> (floor(log2(v))::INT - 5)) END
"""
TIMES = """
SELECT *, epoch_us(date_trunc('hour', enqueued_at)) AS hour, epoch_us(date_trunc('hour', ended_at)) AS end_hour,
       greatest(epoch_us(first_received_at) - epoch_us(enqueued_at), 0) AS waiting,
       CASE WHEN outcome IN (6, 10) THEN greatest(epoch_us(ended_at) - epoch_us(last_received_at), 0) END AS processing,
       CASE WHEN first_received_at IS NULL THEN epoch_us(ended_at) - epoch_us(enqueued_at) END AS never
  FROM read_parquet({lives}, union_by_name = true)
"""
GROUPED = """
WITH life AS ({times}),
attempt AS (SELECT *, epoch_us(ended_at) - epoch_us(received_at) AS held FROM read_parquet({attempts}, union_by_name = true)),
measured AS (
    SELECT entity_id, subqueue, hour, end_hour, outcome, error, bin(time_to_live_in_force_us) AS ttl, m.measure, m.bin
      FROM life, LATERAL (VALUES (0, 0), (1, bin(waiting)), (2, bin(never)), (3, bin(processing))) AS m(measure, bin)
     WHERE m.bin IS NOT NULL
     UNION ALL
    SELECT entity_id, subqueue, epoch_us(date_trunc('hour', received_at)), epoch_us(date_trunc('hour', ended_at)), outcome, error,
           NULL, m.measure, m.bin
      FROM attempt, LATERAL (VALUES (4, bin(held)), (5, bin(held * 1000 // (epoch_us(locked_until) - epoch_us(received_at)))))
                            AS m(measure, bin))
SELECT *, count(*) AS messages FROM measured GROUP BY ALL
"""
QUESTION = """
SELECT entity_id, hour, outcome, count(*), quantile_disc(waiting, [0.5, 0.95, 0.99]), quantile_disc(processing, [0.5, 0.95, 0.99])
  FROM ({times}) GROUP BY ALL
"""


def run(report) -> None:
    small, large = measuring.scale.history
    if problem := java.problem():
        report.line("roll-ups", "not run", problem)
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # the JVM's time counts although its parent ends first
    execution.end_dead_runs()
    _roll_up()  # what earlier parts left
    _, of_small, _, _ = _rolled_up(report, small)
    namespace, of_large, of_duckdb, memory = _rolled_up(report, large, first=True)
    name = f"roll-up of {large:,} events"
    report.row(f"{name}, against DuckDB grouping the same", of_large / of_duckdb, "times", 6, at_most=True)
    report.row(f"{name}, against that of {small:,}", of_large / of_small, "times", 11, at_most=True)
    report.row(f"{name}, most memory of Spark's processes", memory / 2**30, "GB", 2, at_most=True)
    _questions(report, namespace)
    _, skewed, _, _ = _rolled_up(report, large, skew=0.8)
    report.row(f"{name}, 80 % in one queue, against evenly spread", skewed / of_large, "times", 1.5, at_most=True)


def _rolled_up(report, events: int, *, skew: float | None = None, first: bool = False) -> tuple[str, float, float, int]:
    """Generate, compact and roll up so many events. Returns the namespace, the seconds of the roll-up and of DuckDB's, and the
    most memory of Spark's processes in bytes."""
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.ensure_namespace(namespace)
    for number in range(QUEUES):
        entities.create_queue(EntityAddress(namespace, f"q-{number:02}"))
    queues = list(Entity.objects.filter(namespace__name=namespace).order_by("path"))
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    began, count = time.perf_counter(), int(events / EVENTS_A_MESSAGE / PARTS)
    parts = [
        generation.generate(queues, messages=count, days=DAYS, until=midnight, skew=skew, seed=seed) for seed in range(PARTS)
    ]
    took, made = time.perf_counter() - began, sum(part.events for part in parts)
    if first:
        report.row(f"generate {made:,} events", made / took, "events/s", 1_000_000)
    spent, compacted = _spent(compaction.compact_archive)
    if first:
        rows = f"{compacted.files:,} files became {compacted.into:,}"
        report.line(f"compact {compacted.rows:,} rows", f"{spent * 1e6 / max(compacted.rows, 1):.2f} us a row", rows)
    files = {content: _addresses(namespace, content) for content in ("lives", "attempts")}
    by_duckdb, grouped = _spent(lambda: _duckdb(GROUPED, files))
    with _memory_of_children() as memory:
        rolling, _ = _spent(_roll_up)
    rolled = rollups.read([queue.pk for queue in queues], [queues[0].namespace_id], midnight - timedelta(days=DAYS + 1), midnight)
    ours = sum(row["messages"] for row in rolled.select(["measure", "messages"]).to_pylist() if row["measure"] == measures.LIFE)
    theirs = sum(row[-1] for row in grouped if row[7] == measures.LIFE)
    messages = sum(part.messages for part in parts)
    if not ours == theirs == messages:
        raise AssertionError(f"The roll-up counts {ours:,} messages, DuckDB {theirs:,}, and {messages:,} were generated.")
    report.line(f"roll up {made:,} events", f"{rolling:.1f} s", f"DuckDB {by_duckdb:.1f} s")
    return namespace, rolling, by_duckdb, max(memory)


def _questions(report, namespace: str) -> None:
    """Outcomes and percentiles by queue and hour, from roll-ups and by DuckDB from lives."""
    queues = list(Entity.objects.filter(namespace__name=namespace).order_by("path"))
    end = datetime.now(UTC)
    files = {"lives": _addresses(namespace, "lives"), "attempts": []}

    def read(chosen: list[Entity]) -> Any:
        return rollups.read([queue.pk for queue in chosen], [queues[0].namespace_id], end - timedelta(days=DAYS + 1), end)

    pairs = [(_spent(lambda: read(queues))[0], _spent(lambda: _duckdb(QUESTION, files))[0]) for _ in range(measuring.scale.turns)]
    ratio = sorted(ours / theirs for ours, theirs in pairs)[len(pairs) // 2]
    report.row(f"question over {DAYS} days of {QUEUES} queues, against DuckDB over lives", ratio, "times", 1.5, at_most=True)
    took, _ = measuring.timed(lambda: read(queues[:1]))
    report.row("question over one queue, wall time", took, "s", 1, at_most=True)
    size = sum(one.bytes for one in ArchiveRollup.objects.filter(namespace_id=queues[0].namespace_id))
    report.line("roll-ups of the namespace", f"{size / 2**20:.1f} MB")


def _addresses(namespace: str, content: str) -> list[str]:
    here, namespace_id = archive_here(), Entity.objects.filter(namespace__name=namespace).first().namespace_id
    return [here.address(file.path) for file in ArchiveFile.objects.filter(content=content, namespace_id=namespace_id)]


def _duckdb(question: str, files: dict[str, list[str]]) -> list[tuple]:
    with duckdb.connect() as connection:
        connection.execute(BIN)
        return connection.execute(question.format(times=TIMES.format(**files), **files)).fetchall()


def _roll_up() -> None:
    wanted = submission.roll_up(actor=Actor.local(), submit=False)
    if wanted is not None:
        execution.execute(wanted.pk)
        driver.end_kept()  # its processor time counts when it has ended
        wanted.refresh_from_db()
        if wanted.state != AnalysisRun.SUCCEEDED:
            raise RuntimeError(wanted.message)
    if rollups.uncovered(before=datetime.now(UTC).date()):
        raise RuntimeError("Days are not rolled up: another roll-up is requested. Wait for its end, and try again.")


@contextmanager
def _memory_of_children() -> Iterator[list[int]]:
    """Memory of the processes that are started in the block, summed, in bytes, five times a second. The kernel's own maximum for
    ended children includes what this process had when it started them."""
    found, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            total = 0
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    total += child.memory_info().rss if child.name() != "postgres" else 0
            found.append(total)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this process and of the processes that it starts, and the result."""
    before = _used()
    result = work()
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return _used() - before, result


def _used() -> float:
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
