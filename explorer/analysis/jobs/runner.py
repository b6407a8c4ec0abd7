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

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.5


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
        follower = threading.Thread(target=_follow, args=(spark, reporter, done), daemon=True)
        follower.start()
        try:
            result = job(spark, spec, reporter)
        finally:
            done.set()
            follower.join()
        reporter.write_event(event="finished", **result)
    except Exception as problem:  # reported to the launcher in one line
        traceback.print_exc()
        reporter.write_event(event="failed", message=_first_line(problem))
        sys.exit(1)


def session(spec: dict) -> SparkSession:
    """A quiet Spark session that listens on the loopback address only and keeps its files in the run's scratch folder."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
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


def _follow(spark: SparkSession, reporter: Reporter, done: threading.Event) -> None:
    """Report the tasks of the running stages until the job is done."""
    tracker, last = spark.sparkContext.statusTracker(), None
    while not done.wait(POLL_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage]
        now = (sum(finished for finished, _ in counts), sum(total for _, total in counts))
        if counts and now != last:
            reporter.tasks(*now)
            last = now


def _first_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else 'no message'}"[:500]
