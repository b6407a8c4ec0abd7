"""Executes a run: has a driver (driver.py) execute its Spark jobs one after another, follows them, and stores their results.

What the jobs of a run are is in pipeline.py. A run's files are in one folder: specifications, log, and `scratch`, which has the
results until they are stored, and is removed when the run has ended or is found dead.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection

from broker_core.common.durations import human
from broker_core.common.errors import BrokerError
from broker_core.history import archive
from explorer.models import AnalysisRun

from ..jobs import failures
from . import driver as drivers
from . import java, runs

TICK_SECONDS = 0.5
HORIZON_SECONDS = 20.0
ARCHIVER_SECONDS = 120.0
SMALL_ROWS = 2_000_000  # up to which a session for little data is used


class Cancelled(Exception):
    """A user cancelled the run."""


class Stopped(Exception):
    """The worker that executes the run was asked to stop."""


class CannotRun(Exception):
    """The run cannot be executed: something is missing on this machine, or its input is wrong. The text says what, and
    what to do."""


class JobFailed(Exception):
    """The driver ended without a result. The text is its error message."""


class RunFolder:
    """The paths of a run's files."""

    def __init__(self, run_id: int):
        self.root = Path(settings.RUNS_FOLDER) / f"run-{run_id}"
        self.log = self.root / "log.txt"
        self.scratch = self.root / "scratch"

    def make(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def specification(self, number: int, job: str) -> Path:
        return self.root / f"{number}-{job}.json"

    def result(self, key: str) -> Path:
        """Where a report's tables are written until they are stored."""
        return self.scratch / f"{key}.tables"

    def remove_scratch(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def log_tail(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - runs.LOG_TAIL_CHARACTERS))
            return file.read().decode(errors="replace").replace("\0", "")


class Jobs:
    """The jobs of a run, executed by one driver. notes: what may be missing in the results, a sentence each."""

    def __init__(self, claim: runs.Claim, folder: RunFolder, java_home: Path, should_stop: Callable[[], bool]):
        self.claim, self.folder = claim, folder
        self._java_home, self._should_stop = java_home, should_stop
        self._number, self._small = 0, True
        self.notes: list[str] = []

    def expect(self, rows: int) -> None:
        """Say how many rows the run's jobs read, before the first of them."""
        self._small = rows < SMALL_ROWS

    def say(self, text: str) -> None:
        self.claim.write(step_text=text[:200])

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.claim.write(notes=self.notes)

    def run(self, job: str, specification: Mapping[str, Any], on_result: Callable[[int], None] = lambda number: None) -> dict:
        """Returns the job's `finished` event. on_result: called when the part of the result with this number can be used.

        Raises Cancelled, Stopped, JobFailed, ClaimLost.
        """
        self._number += 1
        path = self.folder.specification(self._number, job)
        path.write_text(json.dumps(specification, indent=1))
        session = drivers.session_of(settings.SPARK_CONF, small=self._small)
        return _run_job(self.claim, self.folder, job, path, session, self._java_home, self._should_stop, on_result)


Work = Callable[[Jobs, AnalysisRun], None]


def execute(run_id: int, kinds: Mapping[str, Work], *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Claim and execute a queued run. A run that is not queued is left alone (its task was delivered twice).

    kinds: what a run does, by its kind (kinds.KINDS).
    should_stop: called at every tick of the job; True ends the run, so that a worker can be stopped within seconds.
    """
    claim = runs.claim(run_id)
    if claim is None:
        return
    folder = RunFolder(run_id)
    try:
        with _renewed_lease(claim):
            _execute(claim, AnalysisRun.objects.get(pk=run_id), kinds, folder, should_stop)
    except runs.ClaimLost:
        pass
    except Cancelled:
        _end(claim, AnalysisRun.CANCELLED, "Cancelled. What was finished is kept, the rest was discarded.")
    except Stopped:
        _end(claim, AnalysisRun.FAILED, "The worker was stopped before the analysis finished. Start the analysis again.")
    except (CannotRun, JobFailed, java.JavaNotFound, BrokerError) as problem:
        _end(claim, AnalysisRun.FAILED, str(problem))
    except Exception as problem:
        places = {"scratch": str(settings.RUNS_FOLDER), "archive": settings.ARCHIVE_URL, "master": settings.SPARK_MASTER}
        known_cause = failures.known(problem, places) if isinstance(problem, OSError | DatabaseError) else ""
        _end(claim, AnalysisRun.FAILED, known_cause or f"{type(problem).__name__}: {problem}")
        if not known_cause:
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


def remove_old_folders(age: timedelta) -> None:
    """Remove the specifications and logs of runs on this machine that ended so long ago."""
    for folder in Path(settings.RUNS_FOLDER).glob("run-*"):
        with suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > age.total_seconds():
                shutil.rmtree(folder, ignore_errors=True)


def _execute(
    claim: runs.Claim, run: AnalysisRun, kinds: Mapping[str, Work], folder: RunFolder, should_stop: Callable[[], bool]
) -> None:
    java_home = java.find()
    if importlib.util.find_spec("pyspark") is None:
        raise CannotRun("PySpark is not installed: run `pip install -r requirements-spark.txt` (520 MB), then start again.")
    folder.make()
    jobs = Jobs(claim, folder, java_home, should_stop)
    kinds[run.kind](jobs, run)


def archive_newest() -> list[str]:
    """Archive the events of all transactions that have begun. Returns a note if one that stays open prevents this."""
    with archive.connected() as postgres:
        now = archive.row(postgres, "history_snapshot")
    return _archive_beyond(now.xmax)


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
    claim: runs.Claim,
    folder: RunFolder,
    job: str,
    specification: Path,
    session: Mapping[str, Any],
    java_home: Path,
    should_stop: Callable[[], bool] = lambda: False,
    on_result: Callable[[int], None] = lambda number: None,
) -> dict:
    """Have a driver execute the job, and write its progress and log to the run. Returns its `finished` event.

    Raises Cancelled, Stopped, JobFailed, ClaimLost; the driver and its JVM have ended then.
    """
    while True:
        driver = drivers.take(session, java_home)
        try:
            finished = _follow(claim, folder, driver, job, specification, should_stop, on_result)
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
    claim: runs.Claim,
    folder: RunFolder,
    driver: drivers.Driver,
    job: str,
    specification: Path,
    should_stop: Callable[[], bool],
    on_result: Callable[[int], None],
) -> dict | None:
    """Read the driver's events until the job has ended, and check at every tick whether to cancel or stop.

    None: a warm driver had ended before the job began.
    """
    last, logged = {}, ""
    with suppress(BrokenPipeError):
        driver.ask(job, specification)
    with closing(driver.events(folder.log)) as events:
        for event in events:
            if event is None:
                tail = folder.log_tail()
                if tail != logged:
                    claim.write(log_tail=tail)
                    logged = tail
                if runs.cancel_requested(claim):
                    raise Cancelled
                if should_stop():
                    raise Stopped
                continue
            runs.report(claim, event)
            last = event
            if event["event"] == "made":
                on_result(event["number"])
            if event["event"] in ("finished", "failed"):
                break
    claim.write(log_tail=folder.log_tail())
    if last.get("event") == "finished":
        return last
    if last.get("event") == "failed":
        raise JobFailed(last["message"])
    if driver.is_warm and not last:
        return None
    raise JobFailed(f"The Spark process ended without a result ({driver.exit_text()}). See the log for details.")


@contextmanager
def _renewed_lease(claim: runs.Claim) -> Iterator[None]:
    """Renew the lease in a thread while the block runs: preparing and loading may take longer than a lease."""
    done = threading.Event()

    def keep() -> None:
        while not done.wait(runs.RENEW_SECONDS):
            close_old_connections()
            try:
                runs.renew(claim)
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


def _end(claim: runs.Claim, state: str, message: str) -> None:
    close_old_connections()  # a broken connection may be the cause
    with suppress(runs.ClaimLost):
        runs.end(claim, state, message)
