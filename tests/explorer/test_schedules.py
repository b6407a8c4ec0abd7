"""The sweeps' schedules, as first set up."""

from datetime import UTC, datetime

import pytest
from django.apps import apps
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from broker_core import tasks as sweeps
from broker_core.models import SweepRun
from explorer.analysis import tasks as analyses
from explorer.analysis.pages import asking
from explorer.lessons import tasks as lessons
from explorer.models import AnalysisRun
from explorer.operations import tasks as operations
from explorer.schedules import QUEUE, SCHEDULES, create_missing

pytestmark = pytest.mark.django_db

TASKS = {
    task.name
    for module in (sweeps, analyses, lessons, operations)
    for task in vars(module).values()
    if hasattr(task, "apply_async")
}


@pytest.fixture(autouse=True)
def created():
    create_missing(apps)


def test_every_sweep_has_a_schedule_and_every_schedule_a_task():
    scheduled = {schedule.task for schedule in SCHEDULES}
    assert scheduled <= TASKS
    assert scheduled >= {name for name in TASKS if name.startswith("broker_core.")}


def test_each_run_expires_before_the_next():
    for task in PeriodicTask.objects.filter(task__in=TASKS):
        assert task.queue == QUEUE
        assert 0 < task.expire_seconds <= 3600
        if task.interval:
            assert task.interval.period == "seconds"
            assert task.expire_seconds == max(task.interval.every, 5)
        else:
            assert task.crontab.timezone.key == "UTC"


def test_each_schedule_is_due_when_beat_first_starts():
    for task in PeriodicTask.objects.filter(task__in=TASKS):
        assert task.schedule.is_due(task.last_run_at).is_due, task.name


def test_changes_of_an_administrator_are_kept():
    task = PeriodicTask.objects.get(task="broker_core.expire_messages")
    task.interval = IntervalSchedule.objects.create(every=7, period="minutes")
    task.enabled = False
    task.save()
    create_missing(apps)
    task.refresh_from_db()
    assert (task.interval.every, task.enabled) == (7, False)
    assert PeriodicTask.objects.filter(task__in=TASKS).count() == len(SCHEDULES)


@pytest.mark.django_db(transaction=True)
def test_the_explorers_own_sweep_is_recorded():
    assert analyses.end_dead_analyses() == {"ended": 0}
    assert SweepRun.objects.get(name="end_dead_analyses").finished_at is not None


@pytest.mark.django_db(transaction=True)
def test_the_nightly_jobs_are_requested_only_where_analyses_are_used(monkeypatch):
    requested = []
    monkeypatch.setattr("explorer.analysis.running.submission.maintain", lambda **options: requested.append(1))
    monkeypatch.setattr(asking, "problem", lambda: "")
    assert analyses.maintain_history() == {"skipped": "No analysis was opened yet."} and not requested
    AnalysisRun.objects.create(kind=AnalysisRun.REPORTS, requested_by="user:alice", requested_at=datetime.now(UTC))
    assert analyses.maintain_history() == {"requested": False} and len(requested) == 1
    monkeypatch.setattr(asking, "problem", lambda: "PySpark is not installed.")
    assert analyses.maintain_history() == {"skipped": "PySpark is not installed."} and len(requested) == 1
    assert SweepRun.objects.latest("id").name == "maintain_history"
