"""Executes a run: archives the newest events, has a driver (driver.py) execute the Spark job, follows it and stores its results.

A run's files are in one folder: its specification, log, input and output, and `scratch`, which is removed when the run has ended
or is found dead.
"""

import importlib.util
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection

from broker_core.common.durations import human
from broker_core.common.errors import BrokerError
from broker_core.history import archive, manifest, schema, storage, verification
from broker_core.models import Entity
from explorer.models import AnalysisReason, AnalysisResult, AnalysisRun

from .. import rollups
from ..jobs import failures
from . import driver as drivers
from . import java, runs

ACCURACY = 10_000  # percentile_approx: an answer's rank is off by at most 1 in this many
MOST_REASONS = 12
TICK_SECONDS = 0.5
HORIZON_SECONDS = 20.0
ARCHIVER_SECONDS = 120.0
SMALL_LIVES = 2_000_000


class Cancelled(Exception):
    """A user cancelled the run."""


class Stopped(Exception):
    """The worker that executes the run was asked to stop."""


class CannotRun(Exception):
    """The run cannot be executed on this machine. The text says what is missing and what to do."""


class JobFailed(Exception):
    """The driver ended without a result. The text is its error message."""


class RunFolder:
    """The paths of a run's files."""

    def __init__(self, run_id: int):
        self.root = Path(settings.RUNS_FOLDER) / f"run-{run_id}"
        self.log = self.root / "log.txt"
        self.scratch = self.root / "scratch"
        self.result = self.root / "result"
        self.still_there = self.scratch / "still_there.parquet"
        self.specification = self.root / "specification.json"

    def make(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def remove_scratch(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def log_tail(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - runs.LOG_TAIL_CHARACTERS))
            return file.read().decode(errors="replace").replace("\0", "")


def execute(run_id: int, *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Claim and execute a queued run. A run that is not queued is left alone (its task was delivered twice).

    should_stop: called at every tick of the job; True ends the run, so that a worker can be stopped within seconds.
    """
    held = runs.claim(run_id)
    if held is None:
        return
    folder = RunFolder(run_id)
    try:
        with _renewed_lease(held):
            _execute(held, AnalysisRun.objects.get(pk=run_id), folder, should_stop)
    except runs.ClaimLost:
        pass
    except Cancelled:
        _end(held, AnalysisRun.CANCELLED, "Cancelled. Partial results were discarded.")
    except Stopped:
        _end(held, AnalysisRun.FAILED, "The worker was stopped before the analysis finished. Start the analysis again.")
    except (CannotRun, JobFailed, java.JavaNotFound, verification.ArchiveDamaged, BrokerError) as problem:
        _end(held, AnalysisRun.FAILED, str(problem))
    except Exception as problem:
        places = {"scratch": str(settings.RUNS_FOLDER), "archive": settings.ARCHIVE_URL, "master": settings.SPARK_MASTER}
        said = failures.known(problem, places) if isinstance(problem, OSError | DatabaseError) else ""
        _end(held, AnalysisRun.FAILED, said or f"{type(problem).__name__}: {problem}")
        if not said:
            raise
    finally:
        folder.remove_scratch()


def end_dead_runs() -> int:
    """Mark dead runs as failed and remove their scratch files on this machine. Returns how many."""
    dead = runs.end_dead_runs()
    for run_id in dead:
        RunFolder(run_id).remove_scratch()
    drivers.remove_left()
    return len(dead)


def _execute(held: runs.Claim, run: AnalysisRun, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    java_home = java.find()
    if importlib.util.find_spec("pyspark") is None:
        raise CannotRun("PySpark is not installed: run `pip install -r requirements-spark.txt` (520 MB), then start again.")
    folder.make()
    held.write(step_text="Archiving the newest events")
    prepare, store = KINDS[run.kind]
    specification, lives, notes = prepare(run, folder)
    held.write(notes=notes)
    folder.specification.write_text(json.dumps(specification, indent=1))
    session = drivers.session_of(settings.SPARK_CONF, small=lives < SMALL_LIVES)
    finished = _run_job(held, folder, run.kind, session, java_home, should_stop)
    store(held, run, folder, finished)


def _prepare(run: AnalysisRun, folder: RunFolder) -> tuple[dict, int, list[str]]:
    """Write the job's input. Returns its specification, the number of lives to read, and notes on what may be missing.

    Messages still in the queue come from one snapshot; all events up to and beyond it are archived afterwards. A message is in
    one of the two, or in both if it left in between, which the job resolves for transactions from the snapshot's xmin on.
    """
    entity_ids = [queue["id"] for queue in run.queues]
    with archive.connected() as postgres:
        before = archive.row(postgres, "history_snapshot")
        still_there = archive.read_arrow(
            postgres, "history_still_there", entity_ids=entity_ids, start=run.start_at, end=run.end_at
        )
        after = archive.row(postgres, "history_snapshot")
    pq.write_table(schema.conform(still_there, schema.LIFE), folder.still_there)
    notes = _archive_beyond(after.xmax)
    namespace_ids = list(Entity.objects.filter(pk__in=entity_ids).values_list("namespace_id", flat=True).distinct())
    lives = manifest.life_files(run.start_at, run.end_at, namespace_ids)
    verification.require_intact(lives.files)
    return (
        {
            "lives": lives.addresses(),
            "still_there": str(folder.still_there),
            "exported_xmin": before.xmin,
            "entity_ids": entity_ids,
            "start": run.start_at.isoformat(),
            "end": run.end_at.isoformat(),
            "bucket": run.bucket,
            "accuracy": ACCURACY,
            "most_reasons": MOST_REASONS,
            "result": str(folder.result),
        },
        lives.rows,
        notes,
    )


def _store_results(held: runs.Claim, run: AnalysisRun, folder: RunFolder, finished: dict) -> None:
    runs.succeed(held, finished["messages"], *_results(run, folder))


def _prepare_days(run: AnalysisRun, folder: RunFolder) -> tuple[dict, int, list[str]]:
    """As _prepare, for a roll-up of all days before the run's end. What a transaction still open now adds to them is rolled up
    another night."""
    with archive.connected() as postgres:
        now = archive.row(postgres, "history_snapshot")
    notes = _archive_beyond(now.xmax)
    days = rollups.uncovered(before=run.end_at.date())
    if not days:
        raise CannotRun("No day has to be rolled up.")
    files = [file for day in days for file in (*day.lives, *day.attempts)]
    verification.require_intact(files)
    lives, address = sum(file.rows for day in days for file in day.lives), storage.archive_here().address
    return (
        {
            "days": [
                {
                    "day": day.day.isoformat(),
                    "namespace_id": day.namespace_id,
                    "slice_ids": sorted(day.slice_ids),
                    "covered": sorted(day.covered),
                }
                for day in days
            ],
            "archive": address(""),
            "lives": [address(file.path) for day in days for file in day.lives],
            "attempts": [address(file.path) for day in days for file in day.attempts],
            "messages": lives,
            "result": str(folder.result),
        },
        lives,
        notes,
    )


def _store_days(held: runs.Claim, run: AnalysisRun, folder: RunFolder, finished: dict) -> None:
    days = [
        rollups.Day(date.fromisoformat(day["day"]), day["namespace_id"], set(day["slice_ids"]))
        for day in json.loads(folder.specification.read_text())["days"]
    ]
    rollups.store(days, pq.read_table(folder.result / "rows"))
    runs.succeed(held, finished["messages"], [], [], message=f"{len({day.day for day in days}):,} days were rolled up.")


# By kind of run: what writes the job's input (see _prepare), and what stores its output.
KINDS = {"time_in_queue": (_prepare, _store_results), "roll_up": (_prepare_days, _store_days)}


def _archive_beyond(xid: int) -> list[str]:
    """Archive every transaction below `xid`. Returns a note if a transaction that stays open prevents this."""
    deadline = time.monotonic() + HORIZON_SECONDS
    while archive.archive_events(wait_seconds=ARCHIVER_SECONDS).horizon < xid:
        if time.monotonic() > deadline:
            holder = archive.horizon_holder()
            held_by = f" by {holder.application_name or 'process'} {holder.pid} for {human(holder.age)}" if holder else ""
            return [
                f"The newest messages may be missing: a transaction is held open{held_by}; later events are not archived yet."
            ]
        time.sleep(TICK_SECONDS)
    return []


def _run_job(
    held: runs.Claim,
    folder: RunFolder,
    job: str,
    session: Mapping[str, Any],
    java_home: Path,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict:
    """Have a driver execute the job, and write its progress and log to the run. Returns its `finished` event.

    Raises Cancelled, Stopped, JobFailed, ClaimLost; the driver and its JVM have ended then.
    """
    while True:
        driver = drivers.take(session, java_home)
        try:
            finished = _follow(held, folder, driver, job, should_stop)
        except BaseException:
            driver.end()
            raise
        if finished is not None:
            break
        driver.end()  # it was idle for long enough just then: another one
    if finished.get("stays"):
        drivers.keep(driver)
    else:
        driver.end()
    return finished


def _follow(
    held: runs.Claim, folder: RunFolder, driver: drivers.Driver, job: str, should_stop: Callable[[], bool]
) -> dict | None:
    """Read the driver's events until the job has ended, and check at every tick whether to cancel or stop.

    None: a warm driver had ended before the job began.
    """
    last, logged = {}, ""
    with suppress(BrokenPipeError):
        driver.ask(job, folder.specification)
    with closing(driver.events(folder.log)) as events:
        for event in events:
            if event is None:
                tail = folder.log_tail()
                if tail != logged:
                    held.write(log_tail=tail)
                    logged = tail
                if runs.cancel_requested(held):
                    raise Cancelled
                if should_stop():
                    raise Stopped
                continue
            runs.report(held, event)
            last = event
            if event["event"] in ("finished", "failed"):
                break
    held.write(log_tail=folder.log_tail())
    if last.get("event") == "finished":
        return last
    if last.get("event") == "failed":
        raise JobFailed(last["message"])
    if driver.is_warm and not last:
        return None
    raise JobFailed(f"The Spark process ended without a result ({driver.exit_text()}). See the log for details.")


def _results(run: AnalysisRun, folder: RunFolder) -> tuple[list[AnalysisResult], list[AnalysisReason]]:
    """The job's output as rows of the run."""
    measured = [*_rows(folder.result / "whole"), *_rows(folder.result / "buckets")]
    results = [AnalysisResult(run=run, **_columns(row)) for row in measured]
    return results, [AnalysisReason(run=run, **row) for row in _rows(folder.result / "reasons")]


def _rows(folder: Path) -> list[dict]:
    """The job's rows. Spark writes instants without a time zone; they are UTC."""
    rows = pq.read_table(folder).to_pylist()
    return [{name: v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for name, v in row.items()} for row in rows]


def _columns(row: dict) -> dict:
    """A row of the job as columns of AnalysisResult: arrays of microseconds become three durations each."""
    waiting, processing = row.pop("waiting_us"), row.pop("processing_us")
    return row | _percentiles("waiting", waiting) | _percentiles("processing", processing)


def _percentiles(name: str, microseconds: list[int] | None) -> dict[str, timedelta]:
    percents = ("p50", "p95", "p99")
    return {f"{name}_{p}": timedelta(microseconds=value) for p, value in zip(percents, microseconds or (), strict=False)}


@contextmanager
def _renewed_lease(held: runs.Claim) -> Iterator[None]:
    """Renew the lease in a thread while the block runs: preparing and loading may take longer than a lease."""
    done = threading.Event()

    def keep() -> None:
        while not done.wait(runs.RENEW_SECONDS):
            close_old_connections()
            try:
                runs.renew(held)
            except runs.ClaimLost:
                return
            except Exception:  # the database is unavailable: retried in the next round; the lease outlasts a few failures
                continue
        connection.close()

    keeper = threading.Thread(target=keep, name="analysis lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _end(held: runs.Claim, state: str, message: str) -> None:
    close_old_connections()  # a broken connection may be the cause
    with suppress(runs.ClaimLost):
        runs.end(held, state, message)
