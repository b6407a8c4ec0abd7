"""The sweeps as tasks: each runs, and leaves a record of when it ran and what it did."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest

from broker_core import namespaces, service_bus, tasks
from broker_core.common.errors import ServerBusy
from broker_core.common.types import EntityAddress, Family
from broker_core.models import SweepRun
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.sweeps import runs

pytestmark = pytest.mark.django_db(transaction=True)

TASKS = [task for task in vars(tasks).values() if hasattr(task, "apply_async")]


@pytest.mark.parametrize("task", [t for t in TASKS if t.name != "broker_core.archive_events"], ids=lambda t: t.name)
def test_each_sweep_runs_without_work_and_is_recorded(task):
    outcome = task()
    run = SweepRun.objects.latest("id")
    assert (f"broker_core.{run.name}", run.outcome, run.error) == (task.name, outcome, "")
    assert run.started_at <= run.finished_at


def test_archiving_is_recorded(settings, tmp_path):
    settings.ARCHIVE_URL = str(tmp_path)
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    queue = entities.create_queue(EntityAddress("space", "q")).address
    service_bus.send(queue, [Message(b"1"), Message(b"2")])
    assert tasks.archive_events()["events"] >= 2
    assert SweepRun.objects.latest("id").outcome["slices"] >= 1


def test_a_busy_archiver_is_not_an_error(monkeypatch):
    from broker_core.history import archive

    def busy(**options):
        raise ServerBusy("Another archiver is at work.")

    monkeypatch.setattr(archive, "archive_events", busy)
    assert tasks.archive_events() == {"busy": "Another archiver is at work."}


def test_a_busy_clean_up_is_not_an_error():
    from broker_core.history import cleanup

    with cleanup.exclusive_access():
        assert "busy" in tasks.clean_up_archive()
    assert tasks.clean_up_archive().keys() == {"deleted", "revisions"}


def test_a_sweep_does_its_work():
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    queue = entities.create_queue(EntityAddress("space", "q"), dead_lettering_on_message_expiration=True).address
    namespaces.pause_clock("space")
    service_bus.send(queue, [Message(b"1", time_to_live=timedelta(seconds=10)), Message(b"2")])
    namespaces.step_clock("space", timedelta(seconds=10))
    assert tasks.expire_messages() == {"expired": 1}
    assert [m.body for m in service_bus.peek(queue.dead_letter)] == [b"1"]


def test_an_exception_of_a_sweep_is_recorded_and_raised_again():
    with pytest.raises(ZeroDivisionError):
        runs.recorded("broken", lambda: 1 // 0)
    run = SweepRun.objects.latest("id")
    assert (run.name, run.outcome) == ("broken", {})
    assert run.error.startswith("ZeroDivisionError: ")
    assert run.finished_at is not None


@dataclass(frozen=True)
class Dropped:
    dropped: tuple
    unarchived: tuple


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, {}),
        ({}, {}),
        (3, {"result": 3}),
        ({"expired": 3}, {"expired": 3}),
        (Dropped((date(2026, 1, 2),), (("d", 5, 4),)), {"dropped": ["2026-01-02"], "unarchived": [["d", 5, 4]]}),
    ],
)
def test_an_outcome_is_plain_json(result, outcome):
    assert runs.as_outcome(result) == outcome


def test_old_records_are_removed_empty_records_sooner_and_the_newest_are_kept():
    now = datetime.now(UTC)
    SweepRun.objects.all().delete()

    def run(name, age, outcome, error="", finished=True):
        times = {"started_at": now - age, "finished_at": now if finished else None}
        return SweepRun.objects.create(name=name, outcome=outcome, error=error, **times).pk

    hour, week = timedelta(hours=1, minutes=1), timedelta(days=7, minutes=1)
    kept = {
        run("a", timedelta(), {"expired": 0}),
        run("a", timedelta(minutes=59), {"expired": 0}),
        run("a", hour, {"expired": 5}),
        run("a", hour, {"deleted": ["space/q"]}),
        run("a", hour, {}, error="ValueError: x"),
        run("a", hour, {}, finished=False),
        run("newest of its kind", week, {}),
    }
    for gone in ((hour, {"expired": 0, "deleted": [], "last": None}), (hour, {}), (week, {"expired": 5})):
        run("a", *gone)
    assert runs.forget_sweep_runs() == {"forgotten": 3}
    assert set(SweepRun.objects.values_list("pk", flat=True)) == kept
