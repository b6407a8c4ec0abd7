"""python -m tests.soak.kills_of_jobs [--kills 100] [--minutes 600] [--seed N] [--kinds lives roll_up compact reporting]

Kills Spark's driver (SIGKILL), mostly with its whole process group, at random moments of each kind of job. After each kill the
run has failed with a sentence, the manifest is as before the job or after it, nothing of the run is left in the scratch folders,
the next run gives what a run without kills gives, and the clean-up leaves the files that the manifest names.

The database is made for this, beside that of VITRINE_DATA, else .vitrine/soak. Prints numbers and what was wrong; then the exit
code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from .findings import Findings
from .own_database import own_database

KINDS = ("lives", "roll_up", "compact", "reporting")
REPORTS = ("waiting", "losses", "locks")
CALLS = 500  # whose history is analysed
COLD = 0.2  # of the kills, the share in runs that start a driver
ONLY_JVM = 0.25  # the share that leaves the driver's Python process alive, as when the system runs out of memory
SENTENCES = {  # by whether only the JVM is killed
    False: r"The Spark process ended without a result \(signal SIGKILL\)\. See the log for details\.",
    True: r"Spark's driver ended unexpectedly; the machine may have run out of memory\. See the log\.",
}
OLDER = "UPDATE vitrine_message_event SET recorded_at = recorded_at - interval '2 d' WHERE recorded_at > now() - interval '1 d'"

State = dict[str, Any]  # what the manifest says, by content: a checksum of the rows, and the number of files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kills_of_jobs", description="Drivers killed during their jobs.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=600, help="after which no further kill begins")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    print(f"{options.kills} kills, seed {options.seed}", flush=True)
    with own_database() as folder:
        findings = Kills(folder, options.seed, tuple(options.kinds)).run(options.kills, options.minutes)
    print(findings.tell())
    print(f"{len(findings.wrong)} findings")
    return bool(findings.wrong)


@dataclass
class Outcome:
    """What a kind of job makes of a state. before, after: of the manifest."""

    start: Snapshot
    before: State
    after: State
    results: Mapping[str, Any]
    seconds: dict[bool, float] = field(default_factory=dict)  # of a run, by whether it starts a driver


class Kills:
    """folder: where the archive and the runs are. The history is empty before."""

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, ...] = KINDS):
        self.folder, self.kinds, self.dice, self.findings = folder, kinds, random.Random(seed), Findings()

    def run(self, kills: int, minutes: float = 600) -> Findings:
        until = time.monotonic() + 60 * minutes
        make_history(self.dice)
        self.outcomes = {}
        for kind in KINDS:  # each begins where the one before ended; reports read what was derived and counted
            self.outcomes[kind] = self._without_kills(kind)
        done, tries = 0, 0
        while done < kills and tries < 3 * kills + 10 and time.monotonic() < until:
            kind = self.kinds[tries % len(self.kinds)]
            tries += 1
            done += self._one(kind)
        if done < kills and time.monotonic() < until:
            self.findings.wrong.append(f"only {done} of {tries} kills came while a job ran")
        return self.findings

    def _without_kills(self, kind: str) -> Outcome:
        """The run from here on: once with a new driver, and again with that one."""
        outcome = Outcome(Snapshot(self.folder), state(), {}, {})
        seconds = {}
        for cold in (True, False):
            outcome.start.restore()
            if cold:
                end_driver()
            began = time.monotonic()
            run = execute(kind)
            seconds[cold] = time.monotonic() - began
            if run.state != run.SUCCEEDED:
                self.findings.wrong.append(f"{kind}: failed without a kill: {run.message}")
        print(f"{kind}: {seconds[True]:.1f} s, {seconds[False]:.1f} s with a running driver", flush=True)
        return Outcome(outcome.start, outcome.before, state(), stored_results(), seconds)

    def _one(self, kind: str) -> bool:
        """A kill, and the run after it. Returns whether a run was killed."""
        expected, cold = self.outcomes[kind], self.dice.random() < COLD
        expected.start.restore()
        if cold:
            end_driver()
        delay, only_jvm = self.dice.uniform(0, expected.seconds[cold]), self.dice.random() < ONLY_JVM
        began = time.monotonic()
        with killed_after(delay, only_jvm=only_jvm) as killed:
            run = execute(kind)
        took = time.monotonic() - began
        victim = f"{'JVM of a' if only_jvm else ''} {'new' if cold else 'running'} driver".strip()
        where = f"{kind}, {victim}, killed after {delay:.2f} of {expected.seconds[cold]:.2f} s"
        met = run.state != run.SUCCEEDED
        if not killed.is_set():
            self.findings.did["runs that ended before the kill"] += 1
            expected.seconds[cold] = took  # it is faster by now
        elif not met:
            self.findings.did["kills of a driver between jobs"] += 1
        else:
            self.findings.did[f"kills of {kind}"] += 1
        if run.state == run.FAILED and not re.fullmatch(SENTENCES[only_jvm], run.message):
            self.findings.wrong.append(f"{where}: it says {run.message!r}")
        self._check_killed(where, run, expected, kind)
        print(f"{where}: {run.state} {run.message}", flush=True)
        again = execute(kind)
        self._check_next(where, again, expected)
        self._check_cleaned(where)
        return met

    def _check_killed(self, where: str, run: Any, expected: Outcome, kind: str) -> None:
        if run.state not in (run.FAILED, run.SUCCEEDED):
            self.findings.wrong.append(f"{where}: the run is {run.state}: {run.message}")
        now = state()
        parts = [{name} for name in now] if kind == "compact" else [now.keys()]
        for names in parts:
            mine = {name: now[name] for name in names}
            if mine not in ({name: snapshot.get(name) for name in names} for snapshot in (expected.before, expected.after)):
                self.findings.wrong.append(f"{where}: the manifest has {mine}, not {expected.before} or {expected.after}")
        self.findings.did[
            "manifests as before" if now == expected.before else "manifests as after, or after some of the jobs"
        ] += 1
        for slug, tables in stored_results().items():
            if tables != expected.results.get(slug):
                self.findings.wrong.append(f"{where}: the report {slug} is stored with other numbers")
        if left := left_files():
            self.findings.wrong.append(f"{where}: {left} are left")

    def _check_next(self, where: str, run: Any, expected: Outcome) -> None:
        if run.state != run.SUCCEEDED:
            self.findings.wrong.append(f"{where}: the next run {run.state}: {run.message}")
        if (now := state()) != expected.after:
            self.findings.wrong.append(f"{where}: after the next run the manifest has {now}, not {expected.after}")
        if stored_results() != expected.results:
            self.findings.wrong.append(f"{where}: the next run gave other numbers")
        if run.notes:
            self.findings.wrong.append(f"{where}: the next run notes {run.notes}")

    def _check_cleaned(self, where: str) -> None:
        from broker_core.history import cleanup
        from broker_core.models import ArchiveFile

        with cleanup.exclusive_access() as connection:
            self.findings.did["folders and files cleaned up"] += cleanup.delete_unused(connection, timedelta(0))
        root = self.folder / "archive"
        named = set(ArchiveFile.objects.values_list("path", flat=True))
        there = {file.relative_to(root).as_posix() for file in root.rglob("*.parquet")}
        if there != named:
            self.findings.wrong.append(f"{where}: after the clean-up there are {sorted(there ^ named)[:5]} too many or too few")
        used = {path.split("/")[1] for path in named if path.startswith("derived/")}
        if left := {file.name for file in (root / "derived").iterdir()} - used:
            self.findings.wrong.append(f"{where}: after the clean-up the folders {sorted(left)[:5]} are left")


def make_history(dice: random.Random) -> None:
    """The history of a namespace with random calls, as of two days ago, in two slices of the archive; lives are derived from the
    first."""
    from broker_core.history import archive
    from broker_core.store import connections

    from .calls import ServiceBusCalls

    caller = ServiceBusCalls(f"kills{random.SystemRandom().randrange(16**6):06x}", dice)
    for part in range(2):
        for _ in range(CALLS // 2):
            caller.one()
        connections.current().execute(OLDER)
        archive.archive_events()
        if part == 0:
            execute("lives")


def execute(kind: str) -> Any:
    """A run that consists of one kind of job. Returns it as it has ended."""
    from explorer.analysis.running import execution, kinds

    from .calls import OPERATOR

    run = _requested(kind, OPERATOR)
    with patch.dict(kinds.KINDS, {name: _only(name) for name in ("lives", "roll_up", "compact")}):
        execution.execute(run.pk, kinds.KINDS)
    run.refresh_from_db()
    return run


def _requested(kind: str, actor: Any) -> Any:
    from broker_core.models import Entity
    from explorer.analysis.pages.asking import asked_of
    from explorer.analysis.reports.registry import BY_SLUG
    from explorer.analysis.running import submission
    from explorer.models import AnalysisRun

    if kind != "reporting":
        return AnalysisRun.objects.create(kind=kind, requested_by=str(actor), requested_at=datetime.now(UTC))
    analyses = [BY_SLUG[slug] for slug in REPORTS]
    form, scope = asked_of(analyses, {"queue": Entity.objects.filter(path="work").latest("pk").pk})
    with patch.object(submission, "submit_run"):
        run = submission.refresh(analyses, scope, form, actor=actor, force=True)
    assert run is not None
    return run


def _only(kind: str) -> Any:
    """What a run of this kind executes."""
    from explorer.analysis.running import pipeline, runs

    def executed(jobs: Any, run: Any) -> None:
        today = datetime.now(UTC).date()
        match kind:
            case "lives":
                pipeline.derive(jobs)
            case "roll_up":
                pipeline.roll_up(jobs, before=today)
            case "compact":
                pipeline.compact(jobs, before=today)
        runs.succeed(jobs.claim)

    return executed


@contextmanager
def killed_after(seconds: float, *, only_jvm: bool) -> Iterator[threading.Event]:
    """Kill the driver of the block's run so many seconds after it got its first job. Yields whether something was killed."""
    from explorer.analysis.running import driver

    killed, ask, timers, latest = threading.Event(), driver.Driver.ask, list[threading.Timer](), list[driver.Driver]()

    def kill() -> None:
        if _kill(latest[-1].pid, only_jvm=only_jvm):
            killed.set()

    def asked(self: Any, job: str, specification: Path) -> None:
        latest.append(self)
        if not timers:
            timers.append(threading.Timer(seconds, kill))
            timers[0].start()
        ask(self, job, specification)

    with patch.object(driver.Driver, "ask", asked):
        try:
            yield killed
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()


def _kill(pid: int, *, only_jvm: bool) -> bool:
    """Returns whether there was a process to kill."""
    try:
        if not only_jvm:
            os.killpg(pid, signal.SIGKILL)
            return True
        processes = [child for child in psutil.Process(pid).children() if child.name() == "java"]
        for process in processes:
            process.kill()
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    return bool(processes)


def end_driver() -> None:
    from explorer.analysis.running import driver

    driver.end_kept()


def left_files() -> list[str]:
    """What is left of runs and drivers that have ended."""
    from django.conf import settings

    from explorer.analysis.running import driver

    kept = {kept_driver.folder for kept_driver in driver._kept}
    folders = [*settings.RUNS_FOLDER.glob("*driver-*"), *settings.RUNS_FOLDER.glob("run-*/scratch")]
    return [str(folder.relative_to(settings.RUNS_FOLDER)) for folder in folders if folder not in kept]


def state() -> State:
    """What the manifest has. Each file that it names is as it says."""
    from broker_core.history import storage, verification
    from broker_core.models import ArchiveFile, ArchiveSlice

    named = list(ArchiveFile.objects.order_by("pk"))
    damages = [str(damage) for damage in verification.damages(named)]
    state_found: State = {"damaged": damages, "derived": ArchiveSlice.objects.filter(derived=True, events__gt=0).count()}
    state_found["counted"] = sum(file.rows for file in named if file.rolled_up)
    for content in sorted({file.content for file in named}):
        own = [file for file in named if file.content == content]
        rows = sorted(row for file in own for row in _rows(storage.current_archive(), file.path))
        state_found[content] = (len(own), len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12])
    return state_found


def _rows(here: Any, path: str) -> list[str]:
    import pyarrow.parquet as pq

    with here.open(path) as opened:
        return [repr(sorted(row.items())) for row in pq.read_table(opened).to_pylist()]


def stored_results() -> dict[str, Any]:
    """The rows of each stored report, by its slug and table."""
    import msgpack
    from pyarrow import ipc

    from explorer.models import AnalysisResult
    from tests.analysis.every_job import rows_in

    results = {}
    for result in AnalysisResult.objects.all():
        streams = msgpack.unpackb(bytes(result.tables))
        results[result.report] = {name: rows_in(ipc.open_stream(stream).read_all()) for name, stream in streams.items()}
    return results


class Snapshot:
    """The archive and its manifest, to be restored."""

    _number = 0

    def __init__(self, folder: Path):
        Snapshot._number += 1
        self._archive, self._copy = folder / "archive", folder / f"copy-{Snapshot._number}"
        shutil.copytree(self._archive, self._copy)
        self._rows = {model: list(model.objects.values()) for model in _manifest()}

    def restore(self) -> None:
        from explorer.models import AnalysisResult

        AnalysisResult.objects.all().delete()
        for model in reversed(_manifest()):
            model.objects.all().delete()
        for model, rows in self._rows.items():
            model.objects.bulk_create([model(**row) for row in rows])
        shutil.rmtree(self._archive)
        shutil.copytree(self._copy, self._archive)


def _manifest() -> list[Any]:
    from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRebuild, ArchiveSlice, ArchiveUnusedFile

    return [ArchiveEpoch, ArchiveSlice, ArchiveFile, ArchiveRebuild, ArchiveUnusedFile]


if __name__ == "__main__":
    sys.exit(main())
