"""Child processes: followed, cancelled, orphaned. The children are small Python programs; Spark itself is in test_whole.py."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from django.db import connection

from broker_core.history import verification
from broker_core.models import ArchiveFile
from broker_core.store import connections
from explorer.analysis import java, launch, runs
from explorer.models import AnalysisRun
from tests.eventually import eventually

from .factories import a_run

SLEEPY = [sys.executable, "-W", "ignore", "-m", "tests.analysis.sleepy_job"]
JAVA = Path("/nonexistent")


@pytest.fixture
def held(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path / "runs"
    run = a_run()
    run.save()
    return runs.claim(run.pk)


@pytest.fixture
def folder(held):
    made = launch.RunFolder(held.run_id)
    made.make()
    return made


def a_program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def row() -> AnalysisRun:
    return AnalysisRun.objects.get()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_progress_and_log_of_a_child_become_the_runs(held, folder):
    finished = launch._run_job(
        held,
        folder,
        a_program(
            "import json, sys; say = lambda **e: print(json.dumps(e), flush=True)\n"
            "say(event='step', step=2, steps=5, text='reading'); say(event='progress', done=3, total=8)\n"
            "print('hello from the log', file=sys.stderr); say(event='finished', messages=7)"
        ),
        JAVA,
    )
    assert finished["messages"] == 7
    assert (row().step, row().steps, row().step_text, row().tasks_done, row().tasks_total) == (2, 5, "reading", 3, 8)
    assert "hello from the log" in row().log_tail


def test_a_child_has_a_low_priority(held, folder, settings):
    settings.SPARK_NICE = 7
    program = "import json, os; print(json.dumps({'event': 'finished', 'nice': os.nice(0)}))"
    assert launch._run_job(held, folder, a_program(program), JAVA)["nice"] == os.nice(0) + 7


def test_a_childs_failure_is_told_in_its_own_words(held, folder):
    with pytest.raises(launch.JobFailed, match="^no such file$"):
        launch._run_job(held, folder, a_program('print(\'{"event": "failed", "message": "no such file"}\')'), JAVA)


@pytest.mark.parametrize(
    ("program", "how"), [("import os; os._exit(3)", "exit code 3"), ("import os; os.kill(os.getpid(), 9)", "SIGKILL")]
)
def test_a_child_that_ends_without_a_word_failed(held, folder, program, how):
    with pytest.raises(launch.JobFailed, match=how):
        launch._run_job(held, folder, a_program(program), JAVA)


def test_a_child_gets_no_secret(held, folder, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:pw@host/name")
    seen = launch._environment(folder, JAVA)
    assert not {"SECRET_KEY", "DATABASE_URL"} & set(seen)
    assert seen["JAVA_HOME"] == str(JAVA)


@pytest.mark.parametrize("manner", ["willing", "stubborn"])
def test_cancelling_ends_the_whole_group(held, folder, monkeypatch, manner):
    monkeypatch.setattr(launch, "GRACE_SECONDS", 1.0)

    def ask_for_the_end():
        eventually(lambda: row().step, 10)
        AnalysisRun.objects.update(cancel_requested_at=row().requested_at)
        connection.close()

    asking = threading.Thread(target=ask_for_the_end)
    asking.start()
    with pytest.raises(launch.Cancelled):
        launch._run_job(held, folder, [*SLEEPY, manner], JAVA)
    asking.join()
    pids = [int(pid) for pid in row().step_text.split()]
    eventually(lambda: not any(lives(pid) for pid in pids), 2)


def test_a_worker_that_is_to_stop_ends_its_child(held, folder):
    with pytest.raises(launch.Stopped):
        launch._run_job(held, folder, SLEEPY, JAVA, lambda: bool(row().step))
    pids = [int(pid) for pid in row().step_text.split()]
    eventually(lambda: not any(lives(pid) for pid in pids), 2)


def test_a_cancelled_run_says_so_and_leaves_no_scratch(held, folder, monkeypatch):
    def prepared(held, run, folder, should_stop):
        (folder.scratch / "blockmgr").mkdir()
        raise launch.Cancelled

    monkeypatch.setattr(launch.runs, "claim", lambda run_id: held)
    monkeypatch.setattr(launch, "_execute", prepared)
    launch.execute(held.run_id)
    assert row().state == "cancelled"
    assert not folder.scratch.exists()


DAMAGE = verification.Damage(ArchiveFile(path="a.parquet", slice_id=7), "is missing")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (java.JavaNotFound("An analysis needs Java 17"), "needs Java 17"),
        (launch.JobFailed("no such column"), "no such column"),
        (launch.Stopped(), "worker was stopped"),
        (
            verification.ArchiveDamaged([verification.Damage(ArchiveFile(path="a.parquet", slice_id=7), "is missing")]),
            "is missing",
        ),
    ],
)
def test_a_run_that_fails_says_why(held, monkeypatch, problem, said):
    def fail(*_):
        raise problem

    monkeypatch.setattr(launch.runs, "claim", lambda run_id: held)
    monkeypatch.setattr(launch, "_execute", fail)
    launch.execute(held.run_id)
    assert row().state == "failed"
    assert said in row().message


def test_a_task_delivered_twice_starts_nothing(held, monkeypatch):
    monkeypatch.setattr(launch, "_execute", lambda *_: pytest.fail("began again"))
    launch.execute(held.run_id)
    assert (row().state, row().claimed_by) == ("running", held.token)


WORKER = """
import django
django.setup()
from datetime import timedelta
from pathlib import Path
from django.conf import settings
settings.DATABASES["default"]["NAME"] = {database!r}
settings.RUNS_FOLDER = Path({runs!r})
from explorer.analysis import launch, runs
runs.LEASE, runs.RENEW_SECONDS = timedelta(seconds=2), 0.5
def sleep(held, run, folder, should_stop):
    folder.make()
    launch._run_job(held, folder, {command!r}, Path("/nonexistent"))
launch._execute = sleep
launch.execute({run_id})
"""


def test_a_worker_killed_leaves_no_run_running_and_no_process(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path / "runs"
    run = a_run()
    run.save()
    database = connection.settings_dict["NAME"]
    script = WORKER.format(database=database, runs=str(settings.RUNS_FOLDER), command=SLEEPY, run_id=run.pk)
    worker = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], env=dict(os.environ))
    try:
        pids = [int(pid) for pid in eventually(lambda: row().step_text.split() if row().step else None, 20)]
        first = row().lease_until
        eventually(lambda: row().lease_until > first + timedelta(seconds=2), 10)  # the first lease is over
        assert launch.end_dead_runs() == 0, "a living worker keeps its lease"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        eventually(lambda: not lives(pids[0]), 2)
        eventually(launch.end_dead_runs, 5)
    finally:
        worker.kill()
        for pid in pids:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
    assert (row().state, row().message) == ("failed", runs.WORKER_ENDED)
    assert not launch.RunFolder(run.pk).scratch.exists()
    assert launch.RunFolder(run.pk).log.exists()


def test_the_tail_of_a_long_log_is_kept(held, folder):
    folder.log.write_text("x" * 50_000 + "\0the end")
    assert folder.log_tail().endswith("the end")
    assert len(folder.log_tail()) <= runs.LOG_TAIL_CHARACTERS


def test_a_transaction_that_stays_open_is_named_and_does_not_stop_the_analysis(transactional_db, settings, tmp_path, monkeypatch):
    settings.ARCHIVE_URL = str(tmp_path)
    monkeypatch.setattr(launch, "HORIZON_SECONDS", 0.2)
    monkeypatch.setattr(launch, "TICK_SECONDS", 0.05)
    parameters = connections.Database().parameters() | {"autocommit": False, "application_name": "a slow report"}
    with psycopg.connect(**parameters) as slow:
        xid = slow.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()[0]
        assert launch._archive_beyond(xid) == []
        [note] = launch._archive_beyond(xid + 1)
        assert f"held open by a slow report {slow.info.backend_pid} for" in note
    assert launch._archive_beyond(xid + 1) == []
