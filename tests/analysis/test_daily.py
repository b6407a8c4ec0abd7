"""Runs of the last 24 hours: started from a queue or a namespace, and once a day by a schedule."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from django_celery_beat.models import PeriodicTask

from broker_core import namespaces
from broker_core.common.types import EntityAddress
from broker_core.models import SweepRun
from broker_core.service_bus import entities
from explorer.analysis import daily, tasks
from explorer.analysis.running import java
from explorer.models import AnalysisRun, AuditRecord
from explorer.site import configuration
from tests.fixtures import broker_database  # noqa: F401 - a fixture
from tests.html import body_of

from .test_pages import handed, operator, viewer  # noqa: F401 - fixtures

START = "/analyses/last-day/"
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def space(broker_database, monkeypatch):  # noqa: F811
    """A namespace with two queues and a topic with a subscription, on a machine with Spark."""
    monkeypatch.setattr(tasks, "_cannot_run", lambda: "")
    namespaces.create_namespace("space")
    for name in ("orders", "mails"):
        entities.create_queue(EntityAddress("space", name))
    topic = EntityAddress("space", "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))


def paths(run):
    return [queue["path"] for queue in run.queues]


def test_a_namespace_is_analysed_as_a_whole_and_a_queue_alone(operator, handed):  # noqa: F811
    assert "Analyse the last 24 hours" in body_of(operator.get("/analyses/?namespace=space"))
    answer = operator.post(START, {"namespace": "space"})
    run = AnalysisRun.objects.get()
    assert answer.url == reverse("explorer:analysis_run", args=[run.pk])
    assert paths(run) == ["mails", "news/Subscriptions/all", "orders"]
    assert run.end_at - run.start_at == DAY and abs(run.end_at - datetime.now(UTC)) < timedelta(minutes=1)
    queue = next(one["id"] for one in run.queues if one["path"] == "orders")
    operator.post(START, {"queue": queue})
    assert paths(AnalysisRun.objects.first()) == ["orders"]
    assert AuditRecord.objects.filter(action="start analysis", outcome="done").count() == 2


def test_the_range_ends_by_the_namespaces_clock(operator, handed):  # noqa: F811
    namespaces.pause_clock("space")
    namespaces.step_clock("space", 3 * DAY)
    operator.post(START, {"namespace": "space"})
    run = AnalysisRun.objects.get()
    assert run.end_at == namespaces.get_clock("space").now and run.clock_ahead > 2 * DAY


@pytest.mark.parametrize(
    "given", [{}, {"namespace": "none"}, {"queue": "999999"}, {"queue": "x"}, {"namespace": "space", "do": "weekly"}]
)
def test_what_is_not_there_is_not_found(operator, given):  # noqa: F811
    assert operator.post(START, given).status_code == 404
    assert not AnalysisRun.objects.exists()


def test_a_viewer_starts_and_schedules_nothing(viewer, handed):  # noqa: F811
    assert "Analyse the last 24 hours" not in body_of(viewer.get("/analyses/?namespace=space"))
    for given in ({}, {"do": "daily"}):
        viewer.post(START, {"namespace": "space", **given})
    assert not AnalysisRun.objects.exists() and not daily.of("space").exists()
    assert AuditRecord.objects.filter(outcome="refused").count() == 2


def test_daily_runs_are_switched_on_and_off(operator):  # noqa: F811
    operator.post(START, {"namespace": "SPACE", "do": "daily"})
    scheduled = PeriodicTask.objects.get(task=daily.TASK)
    assert scheduled.name == "analysis of space, daily" and str(scheduled.crontab).startswith("47 3 ")
    assert "Stop daily runs" in body_of(operator.get("/analyses/?namespace=space"))
    operator.post(START, {"namespace": "space", "do": "daily"})
    assert PeriodicTask.objects.filter(task=daily.TASK).count() == 1
    operator.post(START, {"namespace": "space", "do": "not-daily"})
    assert not daily.of("space").exists()
    assert "Analyse daily" in body_of(operator.get("/analyses/?namespace=space"))
    assert AuditRecord.objects.filter(outcome="done", target="space").count() == 3


def test_a_schedule_names_a_task_that_requests_one_run_at_a_time(handed, django_capture_on_commit_callbacks):  # noqa: F811
    assert tasks.analyse_namespace.name == daily.TASK
    with django_capture_on_commit_callbacks(execute=True):
        requested = tasks.analyse_namespace("space")
    run = AnalysisRun.objects.get()
    assert requested == {"namespace": "space", "run": run.pk} and handed == [run.pk]
    assert run.requested_by == "process:schedule" and len(run.queues) == 3
    assert "not ended" in tasks.analyse_namespace("space")["skipped"]
    AnalysisRun.objects.update(state=AnalysisRun.SUCCEEDED)
    assert "run" in tasks.analyse_namespace("space")
    assert SweepRun.objects.filter(name="analyse_namespace").count() == 3


def test_it_says_why_it_requests_nothing(monkeypatch):
    assert tasks.analyse_namespace("none")["skipped"] == "There is no namespace none."
    namespaces.create_namespace("empty")
    assert tasks.analyse_namespace("empty")["skipped"] == "It has no queues."
    monkeypatch.undo()
    monkeypatch.setattr(java, "problem", lambda: "No Java.")
    assert tasks.analyse_namespace("space")["skipped"] == "No Java."


@pytest.mark.parametrize(("cores", "used"), [(1, 1), (2, 1), (4, 3), (8, 6), (64, 48)])
def test_an_analysis_leaves_cores_to_the_broker(monkeypatch, cores, used):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert configuration.cores_for_spark() == used
