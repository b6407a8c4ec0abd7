"""Runs a job in the child process: its Spark session, its end with the launcher, and progress as JSON lines.

A job is `python -m explorer.analysis.jobs.<name> SPEC.json`. Standard output carries one JSON object per line (`step`,
`progress`, `finished`, `failed`) and nothing else; libraries write to standard error, which is the run's log.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from . import failures

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.5
SECONDS_WITHOUT_EXECUTORS = 60.0  # of a cluster, after which the run fails
ONLY_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class Reporter:
    """Writes progress for the launcher, one event per line. Thread-safe."""

    def __init__(self, stream, steps: int):
        self._stream, self._steps, self._step, self._lock = stream, steps, 0, threading.Lock()

    def step(self, text: str) -> None:
        """Report the start of the next step, also in the log."""
        self._step += 1
        print(
            f"{time.strftime('%H:%M:%S', time.gmtime())} Step {self._step} of {self._steps}: {text}", file=sys.stderr, flush=True
        )
        self.write_event(event="step", step=self._step, steps=self._steps, text=text)

    def tasks(self, done: int, total: int) -> None:
        self.write_event(event="progress", step=self._step, steps=self._steps, done=done, total=total)

    def write_event(self, **event) -> None:
        with self._lock:
            print(json.dumps(event), file=self._stream, flush=True)


def main(job: Callable[[SparkSession, dict, Reporter], dict], *, steps: int) -> None:
    """Run a job with the specification named on the command line. Exit code: 0, or 1 after a `failed` event."""
    parent = os.getppid()
    reporter = Reporter(_own_standard_output(), steps)
    _die_with(parent)
    spec = json.loads(Path(sys.argv[1]).read_text())
    try:
        reporter.step("Starting Spark")
        spark = session(spec)
        done = threading.Event()
        most = spec.get("seconds_without_executors", SECONDS_WITHOUT_EXECUTORS)
        watchdog = None if is_local(spec["master"]) else Watchdog(spark, most)
        follower = threading.Thread(target=_follow, args=(spark, reporter, done, watchdog), daemon=True)
        follower.start()
        try:
            result = job(spark, spec, reporter)
        except Exception:
            if watchdog is not None and watchdog.problem:
                raise failures.JobProblem(watchdog.problem) from None
            raise
        finally:
            done.set()
            follower.join()
        reporter.write_event(event="finished", **result)
    except Exception as problem:  # reported to the launcher in one line
        traceback.print_exc()
        reporter.write_event(event="failed", message=failures.in_words(problem, spec))
        sys.exit(1)


class Watchdog:
    """Cancels the jobs of a session that has been without executors for so long. problem: why it did, as a sentence."""

    def __init__(self, spark: SparkSession, seconds: float):
        self._context, self._seconds = spark.sparkContext, seconds
        self._since = time.monotonic()
        self.problem = ""

    def look(self) -> None:
        """Check now. Call this regularly."""
        executors = self._context._jsc.sc().getExecutorMemoryStatus().size() - 1  # one entry is the driver's
        if executors > 0:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > self._seconds:
            address = self._context.getConf().get("spark.driver.host")
            self.problem = (
                f"No executor of {self._context.master} has connected within {self._seconds:.0f} s. Executors must reach the "
                f"driver at {address}; if that is the wrong address, set SPARK_CONF_driver_host. See the workers' logs."
            )
            self._context.cancelAllJobs()  # at each look, since the next job may not have begun yet


def session(spec: dict) -> SparkSession:
    """A quiet Spark session that keeps its files in the run's scratch folder.

    With a local master it listens on the loopback address only. With a cluster, Spark chooses the address at which executors
    reach the driver; `spark` in the specification can set another (spark.driver.host).
    """
    settings = {
        **(ONLY_LOCAL if is_local(spec["master"]) else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.local.dir": spec["scratch"],
        "spark.sql.warehouse.dir": str(Path(spec["scratch"]) / "warehouse"),
        "spark.driver.memory": spec.get("driver_memory", "2g"),
        **spec.get("spark", {}),
    }
    builder = SparkSession.builder.master(spec["master"]).appName(spec["name"])
    return builder.config(map=settings).getOrCreate()


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _own_standard_output():
    """Reserve standard output for progress: libraries and the JVM get standard error in its place."""
    progress = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return progress


def _die_with(parent: int) -> None:
    """End with the launcher (Linux). The check covers a launcher that ended before this call."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the launcher ended before the job began")


def _follow(spark: SparkSession, reporter: Reporter, done: threading.Event, watchdog: Watchdog | None) -> None:
    """Report the tasks of the running stages until the job is done, and have the watchdog look."""
    tracker, last = spark.sparkContext.statusTracker(), None
    while not done.wait(POLL_SECONDS):
        if watchdog is not None:
            watchdog.look()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage]
        now = (sum(finished for finished, _ in counts), sum(total for _, total in counts))
        if counts and now != last:
            reporter.tasks(*now)
            last = now
