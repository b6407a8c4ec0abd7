"""The jobs of the pipeline over generated history, against DuckDB on the same files: lives, increments, roll-ups and reports.

Figures are processor seconds of the driver and all processes that it starts. The jobs get their files directly, without the
manifest. Numbers of rows are compared, so that both sides do the same work.
"""

from __future__ import annotations

import json
import shutil
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.conf import settings

from broker_core import namespaces
from broker_core.common.types import Actor, EntityAddress, Family
from broker_core.history.storage import current_archive
from broker_core.models import ArchiveFile, Entity
from broker_core.service_bus import entities
from explorer.analysis.running import additions, execution, java, pipeline
from explorer.analysis.running import driver as drivers
from explorer.analysis.running.kinds import KINDS

from . import duck, measuring

QUEUES, DAYS = 50, 7
EVENTS_A_MESSAGE = 3.07
INCREMENT, INCREMENTS = 20_000, 3  # events; the first increment warms the driver up
MB = 2**20
COUNTED = "count(*), count(outcome), count(attempt_outcome)"


@dataclass(frozen=True)
class Generated:
    """events: how many. files: of them. entity_ids: of the queues."""

    events: int
    files: list[str]
    entity_ids: list[int]


class Jobs:
    """Jobs of one driver. most: the most memory of its processes in megabytes, so far."""

    def __init__(self, folder: Path, *, small: bool):
        self._folder, self.most = folder, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        session = drivers.session_of(settings.SPARK_CONF, small=small) | {"keep_seconds": 600, "keep_megabytes": 100_000}
        self._driver = drivers.Driver(session, java.find())
        self._ended = threading.Event()
        self._observer = threading.Thread(target=self._observe)
        self._observer.start()

    def run(self, job: str, **specification: Any) -> float:
        """The processor seconds of a job; of the first one, with the driver's start."""
        path = self._folder / f"{uuid4().hex[:8]}.json"
        path.write_text(json.dumps(specification))
        before = self.used()
        self._driver.ask(job, path)
        for event in self._driver.events(self._folder / "log.txt"):
            if event is not None and event["event"] == "finished":
                return self.used() - before
            if event is not None and event["event"] == "failed":
                raise RuntimeError(event["message"])
        raise RuntimeError(f"The driver ended; see {self._folder}/log.txt.")

    def used(self) -> float:
        """Processor seconds of the driver and its processes, those that have ended included."""
        total = 0.0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total

    def megabytes(self) -> float:
        """The memory of the driver and its processes."""
        total = 0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / MB

    def java_command(self) -> list[str]:
        return next(process.cmdline() for process in self._processes() if process.name() == "java")

    def class_list(self) -> Path:
        return self._driver.folder / "classes.txt"

    def close(self) -> None:
        self._ended.set()
        self._observer.join()
        self._driver.end()

    def _processes(self) -> list[psutil.Process]:
        root = psutil.Process(self._driver.pid)
        return [root, *root.children(recursive=True)]

    def _observe(self) -> None:
        while not self._ended.wait(0.2):
            with suppress(psutil.Error):
                self.most = max(self.most, self.megabytes())


def run(report) -> None:
    events = measuring.scale.history
    if problem := java.problem():
        report.line("jobs of the pipeline", "not run", problem)
        return
    folder = settings.VITRINE_DATA / f"bench-jobs-{uuid4().hex[:8]}"
    try:
        of_small, _, _ = _lives(report, folder / "small", _generated(report, events // 10))
        even = _generated(report, events)
        of_large, derived, most = _lives(report, folder / "large", even, reported=True)
        name = f"lives of {even.events:,} events"
        report.row(f"{name}, against a tenth of them", of_large / of_small, "times", 11, at_most=True)
        report.row(f"{name}, most memory of the driver's processes", most / 1024, "GB", 2, at_most=True)
        skewed = _generated(report, events, skew=0.8)
        of_skewed, _, _ = _lives(report, folder / "skewed", skewed)
        report.row(f"{name}, 80 % in one queue, against evenly spread", of_skewed / of_large, "times", 1.2, at_most=True)
        _counts_and_reports(report, folder / "counts", even, derived)
        _increments(report, folder / "increments", even)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _generated(report, events: int, *, skew: float | None = None) -> Generated:
    """Generate the history of a namespace, of about so many events."""
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.ensure_namespace(namespace, Family.SERVICE_BUS)
    for number in range(QUEUES):
        entities.create_queue(EntityAddress(namespace, f"q-{number:02}"))
    queues = list(Entity.objects.filter(namespace__name=namespace).order_by("path"))
    run = additions.request_generation(
        queues, messages=int(events / EVENTS_A_MESSAGE), days=DAYS, until=_midnight(), skew=skew, seed=events, actor=Actor.local()
    )
    execution.execute(run.pk, KINDS)
    drivers.end_kept()  # else it would count as memory of the others
    run.refresh_from_db()
    if run.events is None or run.duration is None:
        raise AssertionError(run.message)
    seconds = run.duration.total_seconds()
    report.line(f"generate {run.events:,} events, with a new driver", f"{run.events / seconds:,.0f}/s")
    archive_files = current_archive()
    paths = ArchiveFile.objects.filter(content=ArchiveFile.EVENTS, namespace_id=queues[0].namespace_id).order_by("path")
    return Generated(run.events, [archive_files.address(file.path) for file in paths], [queue.pk for queue in queues])


def _lives(report, folder: Path, of: Generated, *, reported: bool = False) -> tuple[float, Path, float]:
    """Derive lives by a new driver, and by DuckDB. Returns the seconds of the job, its folder, and the most memory."""
    with _jobs(folder, of.events) as jobs:
        start = _first_job(jobs, folder, of.files[0])
        took = jobs.run("lives", **_of_lives(of.files, [], folder / "lives", of.events))
        most = jobs.most
    by_duckdb = duck.lives(of.files, folder / "duckdb")
    ours, of_duckdb = (duck.rows(COUNTED, _files(folder / name, "lives")) for name in ("lives", "duckdb"))
    if ours != of_duckdb:
        raise AssertionError(f"The job has {ours} rows, lives and attempts; DuckDB has {of_duckdb}.")
    if reported:
        report.line(
            f"lives of {of.events:,} events", f"{took:.1f} s", f"after a start of {start:.1f} s; DuckDB {by_duckdb:.1f} s"
        )
        report.row(f"lives of {of.events:,} events, against DuckDB deriving the same", took / by_duckdb, "times", 4, at_most=True)
    return took, folder / "lives", most


def _counts_and_reports(report, folder: Path, of: Generated, derived: Path) -> None:
    """Roll up what was derived, against DuckDB; then ask reports, each for the third time."""
    lives = _files(derived, "lives")
    [rows, ended, tried] = duck.rows(COUNTED, lives)
    with _jobs(folder, rows) as jobs:
        _first_job(jobs, folder, of.files[0])
        took = jobs.run("roll_up", lives=lives, output=str(folder / "rolled"), step_seconds=300)
        by_duckdb = duck.roll_up(lives, folder / "duckdb")
        report.line(f"roll-up of {rows:,} rows", f"{took:.1f} s", f"DuckDB {by_duckdb:.1f} s")
        name = f"roll-up of {ended:,} lives and {tried:,} attempts"
        report.row(f"{name}, against DuckDB's grouping", took / by_duckdb, "times", 8, at_most=True)
        rolled = {content: _files(folder / "rolled", content) for content in ("counts", "histograms")}
        [counted] = duck.rows("sum(messages) FILTER (measure = 0)", rolled["counts"])
        [entered] = duck.rows("sum(messages) FILTER (measure = 0)", [str(folder / "duckdb" / "counts.parquet")])
        if counted != entered:
            raise AssertionError(f"The roll-up counts {counted:,} messages, DuckDB {entered:,}.")
        of_rolled = sum(duck.rows("count(*)", files)[0] for files in rolled.values())
        report.row("rows of a roll-up, to lives and attempts", of_rolled / (ended + tried), "times", 0.2, at_most=True)
        for which, ids, most in (("one queue", of.entity_ids[:1], 1.5), ("a namespace", of.entity_ids, 3)):
            for slug, values in (
                ("waiting", {"files": rolled, "rolled": {"lives": lives}}),
                ("locks", {"files": {"lives": lives, "events": of.files}}),
            ):
                asked = {"reports": [_request(folder, slug, ids, values)]}
                spent = [jobs.run("reporting", **asked) for _ in range(3)][-1]
                read = "of roll-ups" if slug == "waiting" else "over lives"
                report.row(f"report {slug} {read}, warm: {which}", spent, "s", most, at_most=True)


def _increments(report, folder: Path, of: Generated) -> None:
    """The last INCREMENTS times INCREMENT events of a history, each derived with the messages that were open before."""
    columns = [pq.read_table(file, columns=["recorded_at"])["recorded_at"] for file in of.files]
    instants = pa.chunked_array([chunk for column in columns for chunk in column.chunks]).combine_chunks()
    size = min(INCREMENT, of.events // (2 * INCREMENTS))
    order = pc.sort_indices(instants)
    bounds = [instants[order[of.events - size * left].as_py()] for left in range(INCREMENTS, 0, -1)]
    parts = [_between(of.files, folder / str(place), *span) for place, span in enumerate(_pairs([None, *bounds, None]))]
    with _jobs(folder, of.events) as jobs:
        jobs.run("lives", **_of_lives(parts[0], [], folder / "before", of.events))
    with _jobs(folder, 0) as jobs:
        carried, spent = _files(folder / "before", "open"), []
        for number, part in enumerate(parts[1:]):
            output = folder / f"increment-{number}"
            spent.append(jobs.run("lives", **_of_lives(part, carried, output, size)))
            carried = _files(output, "open")
        idle = jobs.megabytes()
    [carried_rows] = duck.rows("count(*)", carried) if carried else (0,)
    name = f"lives of an increment of {size:,} events, with {carried_rows:,} carried rows, warm"
    report.row(name, statistics.median(spent[1:]), "s", 2, at_most=True)
    report.row("memory of an idle driver", idle, "MB", 600, at_most=True)


def _first_job(jobs: Jobs, folder: Path, file: str) -> float:
    """A job over few rows, which starts the session. Returns its processor seconds."""
    few = folder / "few" / "day=2026-03-01" / "namespace=1" / "events.parquet"
    few.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pq.ParquetFile(file).read_row_group(0).slice(0, 100), few)
    return jobs.run("compact", content="events", files=[str(few)], output=str(folder / f"few-{uuid4().hex[:6]}"), partitions=1)


def _of_lives(files: Sequence[str], carried: Sequence[str], output: Path, events: int) -> dict[str, Any]:
    """The specification of the job "lives"."""
    return {
        "events": list(files), "open": list(carried), "output": str(output), "partitions": pipeline.partitions_of(events),
        "today": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip


def _request(folder: Path, slug: str, entity_ids: Sequence[int], values: dict[str, Any]) -> dict[str, Any]:
    """The request of a report over all days, by the hour."""
    end = _midnight()
    span = {"start": (end - timedelta(days=DAYS)).isoformat(), "end": end.isoformat()}
    return {
        "report": slug, "title": slug, "result": str(folder / f"{slug}.tables"), "entity_ids": list(entity_ids), "span": span,
        "now": end.isoformat(), "step_seconds": 3600, "values": {}, **values,
    }  # fmt: skip


def _between(files: Sequence[str], folder: Path, start: Any, end: Any) -> list[str]:
    """New files with the events of files that were recorded from `start` up to, but not including, `end` (None: no bound)."""
    paths = []
    for number, file in enumerate(files):
        rows = pq.ParquetFile(file).read()
        if start is not None:
            rows = rows.filter(pc.greater_equal(rows["recorded_at"], start))
        if end is not None:
            rows = rows.filter(pc.less(rows["recorded_at"], end))
        if rows.num_rows:
            path = folder / Path(file).parent.parent.name / Path(file).parent.name / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, path)
            paths.append(str(path))
    return paths


@contextmanager
def _jobs(folder: Path, events: int) -> Iterator[Jobs]:
    jobs = Jobs(folder, small=events < execution.SMALL_ROWS)
    try:
        yield jobs
    finally:
        jobs.close()


def _files(folder: Path, content: str) -> list[str]:
    return [str(path) for path in sorted(folder.glob(f"content={content}/**/*.parquet"))]


def _pairs(bounds: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
