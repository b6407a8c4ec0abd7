"""Spark's driver: a child process (jobs.runner) that executes runs one after another.

A driver is kept after a run: the next one saves the start of a JVM, and most of its compiling. It ends when it was idle for
SPARK_KEEP_SECONDS, when it needs more than SPARK_KEEP_MEGABYTES, with its launcher, and with a run that is cancelled or fails.

It has its own session, so that a signal reaches it and its JVM as one group. Its files are in a folder of its own: Spark's
scratch files, and `lock`, on which it has a lock while it lives; whoever gets the lock can remove the folder.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from django.conf import settings

from ..jobs.masters import is_local
from . import java

COMMAND = (sys.executable, "-m", "explorer.analysis.jobs.runner")
TICK_SECONDS = 0.5
GRACE_SECONDS = 5.0
SECRETS = ("DATABASE_URL", "SECRET_KEY", "CELERY_BROKER_URL")  # not passed to the driver
LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%throwable{20}
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class Driver:
    """A running driver. session: its Spark session (session_of). is_warm: it has executed a run."""

    def __init__(self, session: Mapping[str, Any], java_home: Path):
        self.session, self.is_warm = dict(session), False
        self.folder, lock = _folder()
        written = self.folder / "session.json"
        own = {"scratch": str(self.folder / "scratch"), "class_list": str(self.folder / "classes.txt")}
        written.write_text(json.dumps({**session, **own, "class_archive": class_archive(java_home, session)}, indent=1))
        (self.folder / "log4j2.properties").write_text(LOG4J)
        try:
            self._child = subprocess.Popen(
                ["nice", "-n", str(settings.SPARK_NICE), *COMMAND, str(written)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=settings.BASE_DIR,
                env=environment(self.folder, java_home), start_new_session=True, pass_fds=[lock],
            )  # fmt: skip
        finally:
            os.close(lock)
        for pipe in (self._child.stdout, self._child.stderr):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def ask(self, job: str, specification: Path) -> None:
        """Have it execute a run. Raises BrokenPipeError if it has ended."""
        request = {"job": job, "specification": str(specification)}
        self._child.stdin.write(f"{json.dumps(request)}\n".encode())  # type: ignore[union-attr]

    def events(self, log: Path) -> Generator[dict[str, Any] | None]:
        """Its events as they arrive, and None at every tick, until it ends. log: to which its standard error is added."""
        output = self._child.stdout
        assert output is not None and self._child.stderr is not None
        pending, next_tick = b"", 0.0
        with selectors.DefaultSelector() as selector, log.open("ab") as written:
            for pipe in (output, self._child.stderr):
                selector.register(pipe, selectors.EVENT_READ)
            while True:
                if time.monotonic() >= next_tick:
                    yield None
                    next_tick = time.monotonic() + TICK_SECONDS
                if output not in self._ready(selector, TICK_SECONDS, written):
                    continue
                chunk = os.read(output.fileno(), 65536)
                if not chunk:
                    return
                self._ready(selector, 0, written)  # what was logged before these events is in the log when they are read
                *lines, pending = (pending + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)

    def exit_text(self) -> str:
        """How it ended. Waits for the end."""
        code = self._child.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self) -> None:
        """Send SIGTERM to the driver, which ends its JVM and an archive in the making; kill what is left of the group after the
        grace period."""
        deadline = time.monotonic() + GRACE_SECONDS
        if self.is_alive:
            self._child.terminate()
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._group_lives():
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ready(self, selector: selectors.BaseSelector, seconds: float, log: Any) -> list[Any]:
        """The pipes with something to read, after so many seconds at most. What is there of standard error goes to the log."""
        ready = [key.fileobj for key, _ in selector.select(seconds)]
        errors = self._child.stderr
        if errors is not None and errors in ready:
            chunk = os.read(errors.fileno(), 65536)
            if not chunk:
                selector.unregister(errors)
            log.write(chunk)
            log.flush()
        return ready

    def _group_lives(self) -> bool:
        self._child.poll()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


_kept: list[Driver] = []  # at most one


def session_of(spark: Mapping[str, str], *, small: bool = True) -> dict[str, Any]:
    """The session of a driver with these settings of Spark. small: for runs that read little: less memory, and a JVM that
    compiles less. A cluster's cores are released after each run."""
    local = is_local(settings.SPARK_MASTER)
    return {
        "master": settings.SPARK_MASTER, "archive": settings.ARCHIVE_URL, "spark": dict(spark), "small": small,
        "keep_seconds": settings.SPARK_KEEP_SECONDS if local else 0, "keep_megabytes": settings.SPARK_KEEP_MEGABYTES,
    }  # fmt: skip


def take(session: Mapping[str, Any], java_home: Path) -> Driver:
    """The driver that was kept, if it has this session and lives; else a new one. The caller keeps it or ends it."""
    while _kept:
        driver = _kept.pop()
        if driver.is_alive and driver.session == session:
            return driver
        driver.end()
    return Driver(session, java_home)


def keep(driver: Driver) -> None:
    """Keep a driver whose run has succeeded, for the next one."""
    driver.is_warm = True
    _kept.append(driver)


@atexit.register
def end_kept() -> None:
    """End the driver that was kept, if there is one."""
    while _kept:
        _kept.pop().end()


def remove_left() -> None:
    """Remove the folders of drivers on this machine that ended together with their launchers, some while removing it."""
    for folder in Path(settings.RUNS_FOLDER).glob("driver-*"):
        with suppress(OSError), (folder / "lock").open("a") as lock:  # OSError: it is locked, or gone by now
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def class_archive(java_home: Path, session: Mapping[str, Any]) -> str:
    """The file for this session's class data (jobs.class_data), named by the Java, PySpark's version and the class path; empty:
    PySpark is not installed. Without importing PySpark."""
    try:
        pyspark = distribution("pyspark")
    except PackageNotFoundError:
        return ""
    jars = Path(str(pyspark.locate_file("pyspark/jars"))).resolve()
    files = sorted((file.name, (of := file.stat()).st_size, of.st_mtime_ns) for file in jars.glob("*.jar"))
    added = session["spark"].get("spark.driver.extraClassPath", "")
    identity = hashlib.sha256(repr((str(java_home), str(jars), files, added)).encode()).hexdigest()[:12]
    return str(settings.VITRINE_DATA / "spark" / f"classes-{java.version(java_home)}-{pyspark.version}-{identity}.jsa")


def environment(folder: Path, java_home: Path) -> dict[str, str]:
    """The launcher's environment without its secrets, with the variables for Java and Spark."""
    inherited = {name: value for name, value in os.environ.items() if name not in SECRETS}
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(settings.SPARK_MASTER) else {}
    return (
        inherited
        | local
        | {
            "JAVA_HOME": str(java_home),
            "MALLOC_ARENA_MAX": "2",  # else the JVM's threads hold memory of their own that is never returned
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # of the JVM that prints the driver's command line
            "JDK_JAVA_OPTIONS": f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(settings.BASE_DIR),
            "PYTHONUNBUFFERED": "1",
        }
    )


def _folder() -> tuple[Path, int]:
    """A new driver's folder, and the open file of its lock. It gets its name when it is locked, so that nobody removes it."""
    root = Path(settings.RUNS_FOLDER)
    root.mkdir(parents=True, exist_ok=True)
    unlocked = Path(tempfile.mkdtemp(prefix="new-driver-", dir=root))
    lock = os.open(unlocked / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = unlocked.rename(root / unlocked.name.removeprefix("new-"))
    (folder / "scratch").mkdir()
    return folder, lock
