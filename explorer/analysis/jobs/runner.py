"""The driver: a process that has a Spark session and executes runs one after another.

`python -m explorer.analysis.jobs.runner SESSION.json`. It reads requests from standard input, one JSON object per line: `job`, a
module of this package, and `specification`, a file. Standard output carries one JSON object per line (`session`, `step`,
`progress`, `made`, `finished`, `failed`) and nothing else; libraries write to standard error, which is the run's log.

It ends when standard input is closed, after a run that failed, when no request came for `keep_seconds` of the session, when it
has more than `keep_megabytes` after a run, and with its launcher.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from pyspark import SparkContext
from pyspark.sql import SparkSession

from . import class_data, failures
from .masters import is_local

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.5
SECONDS_WITHOUT_EXECUTORS = 60.0  # of a cluster, after which the run fails
# For little data: the JIT compiler would take half of the processor time. Memory for new objects is never returned: it is small.
# Without it there is too little room for compiled code: a warm driver would drop and compile it over and over.
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC -Xmn64m"
LARGE_JVM = "-XX:+UseParallelGC"  # G1's write barriers double the cost of copying rows
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # few files of a good size
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",  # a Spark job to list fewer files costs more
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # partitionBy need not sort again
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # bytes; the JVM never compiles a longer method, it interprets it
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # the call site of each column: half of the time to plan
}
ONLY_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class Reporter:
    """Writes progress for the launcher, one event per line. Thread-safe."""

    def __init__(self, stream: TextIO, steps: int):
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

    def made(self, number: int) -> None:
        """Report that a part of the result can be used: its number, from 0."""
        self.write_event(event="made", number=number)

    def write_event(self, **event) -> None:
        with self._lock:
            write_event(self._stream, **event)


def write_event(stream: TextIO, **event) -> None:
    print(json.dumps(event), file=stream, flush=True)


def main(executor: Executor) -> None:
    """Exit code: 0, or 1 after a `failed` event."""
    parent, output, path = os.getppid(), _own_standard_output(), Path(sys.argv[1])
    _die_with(parent)
    serve(json.loads(path.read_text()), output, executor)
    executor.close()
    shutil.rmtree(path.parent, ignore_errors=True)


def serve(of: dict, output: TextIO, executor: Executor) -> None:
    """Execute requests until the driver has to end. of: the session."""
    warm = False
    for request in requests(of["keep_seconds"], lambda: executor.when_idle(of)):
        spec: dict = {}
        write_event(output, event="session", warm=warm)
        try:
            spec = of | json.loads(Path(request["specification"]).read_text())
            result = executor.execute(request["job"], spec, output)
        except Exception as problem:  # reported to the launcher in one line
            traceback.print_exc()
            write_event(output, event="failed", message=failures.in_words(problem, spec or of))
            sys.exit(1)
        stays = of["keep_seconds"] > 0 and _megabytes() <= of["keep_megabytes"]
        write_event(output, event="finished", stays=stays, **result)
        if not stays:
            return
        warm = True


def requests(keep_seconds: float, when_idle: Callable[[], None]) -> Iterator[dict]:
    """The requests on standard input, until it is closed or none comes for so long. when_idle: called if none came for a while
    after the last one."""
    seconds, soon = None, class_data.IDLE_SECONDS
    while True:
        if seconds is not None and seconds > soon and not _readable(soon):
            when_idle()
            ready = _readable(seconds - soon)
        else:
            ready = _readable(seconds)
        line = sys.stdin.readline() if ready else ""  # one request at a time: nothing else is in the buffer
        if not line:
            return
        yield json.loads(line)
        seconds = keep_seconds


def _readable(seconds: float | None) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


class Executor:
    """Executes jobs with one session, which the first of them starts."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None

    def execute(self, name: str, spec: dict, output: TextIO) -> dict:
        """Returns what the job, a module of this package, returns."""
        job = importlib.import_module(f"{__package__}.{name}")
        reporter = Reporter(output, job.STEPS if hasattr(job, "STEPS") else 1 + job.steps(spec))
        reporter.step("Using the running Spark driver" if self.spark else "Starting Spark")
        self.spark = spark = self.spark or session(spec)
        done = threading.Event()
        most = spec.get("seconds_without_executors", SECONDS_WITHOUT_EXECUTORS)
        watchdog = None if is_local(spec["master"]) else Watchdog(spark, most)
        follower = threading.Thread(target=_follow, args=(spark, reporter, done, watchdog), daemon=True)
        follower.start()
        try:
            result = job.run(spark, spec, reporter)
        except Exception:
            if watchdog is not None and watchdog.problem:
                raise failures.JobProblem(watchdog.problem) from None
            raise
        finally:
            done.set()
            follower.join()
        spark.catalog.clearCache()
        jvm: Any = spark._jvm
        jvm.System.gc()  # it returns memory until the next run
        return result

    def when_idle(self, of: dict) -> None:
        """Make the archive of class data if there is none. of: the session."""
        archive, class_list = (Path(of.get(name) or os.devnull) for name in ("class_archive", "class_list"))
        if self.spark is None or not of.get("class_archive") or not class_data.is_wanted(archive, class_list):
            return
        jvm: Any = self.spark._jvm
        java, class_path = (jvm.System.getProperty(name) for name in ("java.home", "java.class.path"))
        class_data.make_in_background(archive, class_list, Path(java) / "bin" / "java", class_path)

    def close(self) -> None:
        if self.spark is not None:
            self.spark.stop()


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
    """A quiet Spark session that keeps its files in the driver's scratch folder: the one that there is, or a new one.

    small (default): one for little data. `spark` in the specification overrides any setting; Java options are added.
    With a local master it listens on the loopback address only. With a cluster, Spark chooses the address at which executors
    reach the driver; `spark` can set another (spark.driver.host). Python workers of a local master run this interpreter, those of
    a cluster PYSPARK_PYTHON, which needs PyArrow and pandas.
    """
    if is_local(spec["master"]):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    small, own = spec.get("small", True), spec.get("spark", {})
    options = [SMALL_JVM if small else LARGE_JVM, _class_data_options(spec), own.get("spark.driver.extraJavaOptions", "")]
    settings = {
        **(ONLY_LOCAL if is_local(spec["master"]) else {}),
        **SETTINGS,
        "spark.sql.shuffle.partitions": "2" if small else "8",
        "spark.driver.memory": "1g" if small else "1200m",
        "spark.local.dir": spec["scratch"],
        "spark.sql.warehouse.dir": str(Path(spec["scratch"]) / "warehouse"),
        **own,
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
    }
    builder = SparkSession.builder.master(spec["master"]).appName("Vitrine")
    return builder.config(map=settings).getOrCreate()


def _class_data_options(spec: dict) -> str:
    archive = spec.get("class_archive")
    return class_data.options(Path(archive), Path(spec["class_list"])) if archive else ""


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


def _megabytes() -> float:
    """The memory of this process and of its JVM (Linux; elsewhere 0)."""
    gateway = SparkContext._gateway
    pids = [os.getpid(), *([gateway.proc.pid] if gateway is not None else [])]
    pages = [Path(f"/proc/{pid}/statm") for pid in pids]
    return (
        sum(int(page_file.read_text().split()[1]) for page_file in pages if page_file.exists())
        * os.sysconf("SC_PAGE_SIZE")
        / 2**20
    )


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


if __name__ == "__main__":
    main(Executor())
