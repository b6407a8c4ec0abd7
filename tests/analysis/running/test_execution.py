"""Child processes: followed, cancelled, orphaned. They are small Python programs; Spark itself is in test_end_to_end.py."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from django.conf import settings as settings_of_django
from django.db import connection

from broker_core.store import connections
from explorer.analysis.running import driver, execution, java, runs
from explorer.analysis.running.kinds import KINDS
from explorer.models import AnalysisRun
from tests.analysis.factories import a_run
from tests.eventually import eventually

SLEEPY = [sys.executable, "-W", "ignore", "-m", "tests.analysis.running.sleepy_job"]
SMALL = [sys.executable, "-W", "ignore", "-m", "tests.analysis.running.small_driver"]
JAVA = Path("/nonexistent")


@pytest.fixture(autouse=True)
def nothing_kept():
    driver.end_kept()
    yield
    driver.end_kept()


@pytest.fixture
def run_job(held, folder, monkeypatch):
    """run_job(command, ...) has a program in the place of the driver execute a job."""

    def run(command: list[str], should_stop=lambda: False, specification="{}", made=lambda number: None, **session) -> dict:
        monkeypatch.setattr(driver, "COMMAND", command)
        path = folder.specification(1, "a_job")
        path.write_text(specification)
        return execution._run_job(held, folder, "a_job", path, driver.session_of({}) | session, JAVA, should_stop, made)

    return run


@pytest.fixture
def held(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path / "runs"
    run = a_run()
    run.save()
    return runs.claim(run.pk)


@pytest.fixture
def folder(held):
    made = execution.RunFolder(held.run_id)
    made.make()
    return made


def a_program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def row() -> AnalysisRun:
    return AnalysisRun.objects.get()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_the_progress_and_log_of_a_child_are_those_of_its_run(run_job):
    finished = run_job(
        a_program(
            "import json, sys; say = lambda **e: print(json.dumps(e), flush=True)\n"
            "say(event='step', step=2, steps=5, text='reading'); say(event='progress', done=3, total=8)\n"
            "print('hello from the log', file=sys.stderr); say(event='finished', messages=7)"
        )
    )
    assert finished["messages"] == 7
    assert (row().step, row().steps, row().step_text, row().tasks_done, row().tasks_total) == (2, 5, "reading", 3, 8)
    assert "hello from the log" in row().log_tail


def test_parts_of_a_result_are_reported_as_they_complete(run_job):
    told = []
    with pytest.raises(execution.JobFailed, match="^the disk is full$"):
        run_job(
            a_program(
                "import json; say = lambda **e: print(json.dumps(e), flush=True)\n"
                "say(event='made', number=0); say(event='made', number=1); say(event='failed', message='the disk is full')"
            ),
            made=told.append,
        )
    assert told == [0, 1], "before the job has failed"


def test_a_child_has_a_low_priority(run_job, settings):
    settings.SPARK_NICE = 7
    program = "import json, os; print(json.dumps({'event': 'finished', 'nice': os.nice(0)}))"
    assert run_job(a_program(program))["nice"] == os.nice(0) + 7


def test_the_failure_message_of_a_child_is_reported(run_job):
    with pytest.raises(execution.JobFailed, match="^no such file$"):
        run_job(a_program('print(\'{"event": "failed", "message": "no such file"}\')'))


@pytest.mark.parametrize(
    ("program", "how"), [("import os; os._exit(3)", "exit code 3"), ("import os; os.kill(os.getpid(), 9)", "SIGKILL")]
)
def test_a_child_that_exits_without_a_message_has_failed(run_job, program, how):
    with pytest.raises(execution.JobFailed, match=how):
        run_job(a_program(program))


def test_a_child_receives_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:pw@host/name")
    seen = driver.environment(tmp_path, JAVA)
    assert not {"SECRET_KEY", "DATABASE_URL"} & set(seen)
    assert seen["JAVA_HOME"] == str(JAVA)


@pytest.mark.parametrize("manner", ["willing", "stubborn"])
def test_cancelling_ends_the_whole_process_group(run_job, monkeypatch, manner):
    monkeypatch.setattr(driver, "GRACE_SECONDS", 1.0)

    def ask_for_the_end():
        eventually(lambda: row().step, 10)
        AnalysisRun.objects.update(cancel_requested_at=row().requested_at)
        connection.close()

    asking = threading.Thread(target=ask_for_the_end)
    asking.start()
    with pytest.raises(execution.Cancelled):
        run_job([*SLEEPY, manner])
    asking.join()
    pids = [int(pid) for pid in row().step_text.split()]
    eventually(lambda: not any(is_alive(pid) for pid in pids), 2)


@pytest.mark.slow
def test_a_stopping_worker_ends_its_child(run_job):
    with pytest.raises(execution.Stopped):
        run_job(SLEEPY, lambda: bool(row().step))
    pids = [int(pid) for pid in row().step_text.split()]
    eventually(lambda: not any(is_alive(pid) for pid in pids), 2)


def test_a_cancelled_run_is_marked_and_leaves_no_scratch_folder(held, folder, monkeypatch):
    def prepared(held, run, kinds, folder, should_stop):
        (folder.scratch / "blockmgr").mkdir()
        raise execution.Cancelled

    monkeypatch.setattr(execution.runs, "claim", lambda run_id: held)
    monkeypatch.setattr(execution, "_execute", prepared)
    execution.execute(held.run_id, KINDS)
    assert row().state == "cancelled"
    assert not folder.scratch.exists()


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (java.JavaNotFound("An analysis needs Java 17"), "needs Java 17"),
        (execution.JobFailed("no such column"), "no such column"),
        (execution.Stopped(), "worker was stopped"),
        (OSError(errno.ENOSPC, "No space left on device"), "A disk is full. Free some space where Spark's scratch files are"),
    ],
)
def test_a_failed_run_has_a_reason(held, monkeypatch, problem, said):
    def fail(*_):
        raise problem

    monkeypatch.setattr(execution.runs, "claim", lambda run_id: held)
    monkeypatch.setattr(execution, "_execute", fail)
    execution.execute(held.run_id, KINDS)
    assert row().state == "failed"
    assert said in row().message


def test_a_task_delivered_twice_starts_nothing(held, monkeypatch):
    monkeypatch.setattr(execution, "_execute", lambda *_: pytest.fail("began again"))
    execution.execute(held.run_id, KINDS)
    assert (row().state, row().claimed_by) == ("running", held.token)


WORKER = """
import django
django.setup()
from datetime import timedelta
from pathlib import Path
from django.conf import settings
settings.DATABASES["default"]["NAME"] = {database!r}
settings.RUNS_FOLDER = Path({runs!r})
from explorer.analysis.running import driver, execution, runs
driver.COMMAND = {command!r}
runs.LEASE, runs.RENEW_SECONDS = timedelta(seconds=2), 0.5
def sleep(held, run, kinds, folder, should_stop):
    folder.make()
    execution._run_job(held, folder, "a_job", folder.root / "a_job.json", driver.session_of({{}}), Path("/nonexistent"))
execution._execute = sleep
execution.execute({run_id}, {{}})
"""


@pytest.mark.slow
def test_a_killed_worker_leaves_no_running_run_and_no_process(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path / "runs"
    run = a_run()
    run.save()
    database = connection.settings_dict["NAME"]
    script = WORKER.format(database=database, runs=str(settings.RUNS_FOLDER), command=SLEEPY, run_id=run.pk)
    worker = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], env=dict(os.environ))
    pids: list[int] = []
    try:
        pids = [int(pid) for pid in eventually(lambda: row().step_text.split() if row().step else None, 60)]
        first = row().lease_until
        eventually(lambda: row().lease_until > first + timedelta(seconds=2), 10)  # the first lease is over
        assert execution.end_dead_runs() == 0, "a living worker keeps its lease"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        eventually(lambda: not is_alive(pids[0]), 2)
        eventually(execution.end_dead_runs, 5)
    finally:
        worker.kill()
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert (row().state, row().message) == ("failed", runs.WORKER_ENDED)
    assert not execution.RunFolder(run.pk).scratch.exists()
    assert execution.RunFolder(run.pk).log.exists()
    eventually(lambda: execution.end_dead_runs() == 0 and not drivers_there(), 5)


def test_a_driver_is_reused_by_the_next_run(run_job):
    first, second = run_job(SMALL), run_job(SMALL)
    assert (first["jobs"], second["jobs"]) == (1, 2) and first["pid"] == second["pid"]
    assert row().warm and row().log_tail.count("a line of log") == 2
    assert drivers_there() and not (drivers_there()[0] / "log.txt").exists()


def test_a_warm_driver_ends_after_its_idle_time(run_job):
    first = run_job(SMALL, keep_seconds=0.2)
    eventually(lambda: not is_alive(first["pid"]) and not drivers_there(), 10)
    assert run_job(SMALL, keep_seconds=0.2)["pid"] != first["pid"] and row().warm is False


@pytest.mark.parametrize("session", [{"keep_seconds": 0}, {"keep_megabytes": 1}])
def test_a_driver_that_is_not_kept_ends_with_its_run(run_job, session):
    first = run_job(SMALL, **session)
    assert not is_alive(first["pid"]) and not drivers_there()


def test_a_killed_driver_is_replaced(run_job):
    first = run_job(SMALL)
    os.kill(first["pid"], signal.SIGKILL)
    second = run_job(SMALL)
    assert second["pid"] != first["pid"] and second["jobs"] == 1 and row().warm is False


def test_a_warm_driver_that_dies_as_it_is_reused_is_replaced(run_job, monkeypatch):
    first = run_job(SMALL)
    os.kill(first["pid"], signal.SIGKILL)
    eventually(lambda: not is_alive(first["pid"]), 5)
    with monkeypatch.context() as patched:  # as if it had ended a moment later
        alive = iter([True])
        patched.setattr(driver.Driver, "is_alive", property(lambda self: next(alive, False)))
        assert run_job(SMALL)["pid"] != first["pid"]


def test_different_spark_settings_need_another_driver(run_job):
    first = run_job(SMALL)
    assert run_job(SMALL, spark={"spark.driver.memory": "3g"})["pid"] != first["pid"]
    assert not is_alive(first["pid"])


def test_a_run_that_fails_ends_its_driver(run_job):
    first = run_job(SMALL)
    with pytest.raises(execution.JobFailed, match="RuntimeError: as asked"):
        run_job(SMALL, specification='{"fail": true}')
    assert not is_alive(first["pid"])
    assert run_job(SMALL)["jobs"] == 1


@pytest.mark.slow
def test_a_warm_driver_ends_with_its_launcher(transactional_db, settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path / "runs"
    script = IDLE.format(runs=str(settings.RUNS_FOLDER), command=SMALL)
    launcher = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(launcher.stdout.readline())
    assert is_alive(pid)
    launcher.kill()
    launcher.wait()
    eventually(lambda: not is_alive(pid), 5)
    # The lock may outlive the process by a moment: the kernel closes a process's files when its last thread has ended.
    eventually(lambda: driver.remove_left() or not drivers_there(), 5)


def test_the_remaining_folder_of_a_killed_driver_is_removed(settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path
    (tmp_path / "driver-1" / "scratch").mkdir(parents=True)
    driver.remove_left()
    assert not drivers_there()


def test_files_of_old_runs_are_removed(settings, tmp_path):
    settings.RUNS_FOLDER = tmp_path
    for number, days in ((1, 31), (2, 29)):
        execution.RunFolder(number).make()
        at = time.time() - days * 86_400
        os.utime(tmp_path / f"run-{number}", (at, at))
    execution.remove_old_folders(timedelta(days=30))
    assert [file.name for file in tmp_path.iterdir()] == ["run-2"]


def drivers_there() -> list[Path]:
    return list(Path(settings_of_django.RUNS_FOLDER).glob("driver-*"))


IDLE = """
import django
django.setup()
import time
from pathlib import Path
from django.conf import settings
settings.RUNS_FOLDER = Path({runs!r})
from explorer.analysis.running import driver
driver.COMMAND = {command!r}
warm = driver.take(driver.session_of({{}}), Path("/nonexistent"))
(settings.RUNS_FOLDER / "specification.json").write_text("{{}}")
warm.ask("a_job", settings.RUNS_FOLDER / "specification.json")
for event in warm.events(settings.RUNS_FOLDER / "log.txt"):
    if event and event["event"] == "finished":
        break
driver.keep(warm)
print(warm.pid, flush=True)
time.sleep(60)
"""


def test_the_tail_of_a_long_log_is_kept(held, folder):
    folder.log.write_text("x" * 50_000 + "\0the end")
    assert folder.log_tail().endswith("the end")
    assert len(folder.log_tail()) <= runs.LOG_TAIL_CHARACTERS


def test_a_transaction_that_stays_open_is_named_and_does_not_stop_the_analysis(transactional_db, settings, tmp_path, monkeypatch):
    settings.ARCHIVE_URL = str(tmp_path)
    monkeypatch.setattr(execution, "HORIZON_SECONDS", 0.2)
    monkeypatch.setattr(execution, "TICK_SECONDS", 0.05)
    parameters = connections.Database().parameters() | {"autocommit": False, "application_name": "a slow report"}
    with psycopg.connect(**parameters) as slow:
        xid = slow.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()[0]
        assert execution._archive_beyond(xid) == []
        [note] = execution._archive_beyond(xid + 1)
        assert f"held open by a slow report {slow.info.backend_pid} for" in note
    assert execution._archive_beyond(xid + 1) == []
