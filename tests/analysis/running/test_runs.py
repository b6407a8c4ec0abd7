"""A run's row: who may do what to it, and when."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from broker_core import namespaces
from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis import tasks
from explorer.analysis.pages.asking import asked_of
from explorer.analysis.reports.registry import BY_SLUG
from explorer.analysis.running import runs, submission
from explorer.models import AnalysisRun
from tests.analysis.factories import a_run

pytestmark = pytest.mark.django_db
ALICE = Actor("user", "alice", Right.BROWSE | Right.OPERATE)
VIEWER = Actor("user", "bob", Right.BROWSE)


@pytest.fixture
def queue():
    path = f"q-{uuid4().hex[:8]}"
    namespaces.ensure_namespace("runs", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("runs", path))
    return Entity.objects.filter(path=path).latest("pk")


def request_of(queue):
    """Waiting, of a queue, as a page asks it."""
    analyses = [BY_SLUG["waiting"]]
    form, scope = asked_of(analyses, {"queue": queue.pk})
    return analyses, scope, form


@pytest.fixture
def submitted(monkeypatch):
    """The ids of runs that were given to Celery."""
    ids = []
    monkeypatch.setattr(tasks.run_analysis, "delay", ids.append)
    return ids


@pytest.fixture
def run():
    made = a_run()
    made.save()
    return made


def test_a_run_is_submitted_to_a_worker_after_its_commit(queue, submitted, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        run = submission.refresh(*request_of(queue), actor=ALICE)
        assert submitted == []
    assert submitted == [run.pk]
    run.refresh_from_db()
    assert (run.state, run.requested_by) == ("queued", "user:alice")
    assert (run.namespace, run.subject, run.request["reports"]) == ("runs", f"runs/{queue.path}", ["waiting"])
    assert submission.refresh(*request_of(queue), actor=ALICE) is None, "it is being made"


def test_a_run_that_cannot_be_submitted_fails_with_a_reason(queue, monkeypatch, django_capture_on_commit_callbacks):
    def refuse(run_id):
        raise OperationalError("connection refused")

    monkeypatch.setattr(tasks.run_analysis, "delay", refuse)
    with django_capture_on_commit_callbacks(execute=True):
        run = submission.refresh(*request_of(queue), actor=ALICE)
    run.refresh_from_db()
    assert run.state == "failed"
    assert "connection refused" in run.message


def test_a_viewer_can_refresh_but_not_cancel(queue, run, submitted):
    assert submission.refresh(*request_of(queue), actor=VIEWER) is not None
    with pytest.raises(NotAuthorized):
        runs.request_cancel(run.pk, actor=VIEWER)
    run.refresh_from_db()
    assert run.state == "queued"


def test_a_run_is_claimed_once(run):
    first = runs.claim(run.pk)
    assert first is not None
    assert runs.claim(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.claimed_by) == ("running", first.token)


def test_a_finished_run_is_never_started_again(run):
    held = runs.claim(run.pk)
    runs.end(held, AnalysisRun.FAILED, "no")
    assert runs.claim(run.pk) is None


def test_a_run_whose_lease_ended_fails_and_its_worker_writes_nothing_more(run):
    held = runs.claim(run.pk)
    assert runs.end_dead_runs() == []
    AnalysisRun.objects.update(lease_until=Now() - timedelta(seconds=1))
    assert runs.end_dead_runs() == [run.pk]
    for late in (
        lambda: runs.renew(held),
        lambda: runs.report(held, {"event": "step", "step": 1, "steps": 5, "text": "late"}),
        lambda: runs.cancel_requested(held),
        lambda: runs.succeed(held),
    ):
        with pytest.raises(runs.ClaimLost):
            late()
    run.refresh_from_db()
    assert (run.state, run.message) == ("failed", runs.WORKER_ENDED)


def test_a_renewed_lease_keeps_a_run_alive(run):
    held = runs.claim(run.pk)
    AnalysisRun.objects.update(lease_until=Now() - timedelta(seconds=1))
    runs.renew(held)
    assert runs.end_dead_runs() == []


def test_a_queued_run_is_cancelled_immediately_and_a_running_run_by_its_worker(run):
    runs.request_cancel(run.pk, actor=ALICE)
    run.refresh_from_db()
    assert (run.state, run.cancelled_by) == ("cancelled", "user:alice")

    other = a_run()
    other.save()
    held = runs.claim(other.pk)
    assert not runs.cancel_requested(held)
    runs.request_cancel(other.pk, actor=ALICE)
    assert runs.cancel_requested(held)
    other.refresh_from_db()
    assert other.state == "running"


def test_a_finished_run_cannot_be_cancelled(run):
    held = runs.claim(run.pk)
    runs.succeed(held)
    runs.request_cancel(run.pk, actor=ALICE)
    run.refresh_from_db()
    assert (run.state, run.cancel_requested_at) == ("succeeded", None)
