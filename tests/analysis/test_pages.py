"""The pages of analyses, whole and as fragments: what they show, and which runs they start. And the admin's actions."""

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse

from broker_core import namespaces
from broker_core.common.errors import ServerBusy
from broker_core.common.types import EntityAddress, Family
from broker_core.models import Entity, Namespace
from broker_core.service_bus import entities
from broker_core.store import connections
from explorer.analysis.pages import asking, landing
from explorer.analysis.reports.registry import BY_SLUG, QUESTIONS
from explorer.frames.questions import TITLES
from explorer.models import AnalysisResult, AnalysisRun, AuditRecord
from explorer.people.roles import OPERATOR, VIEWER
from tests.html import body_of

from .stored import a_run_of, a_stored_result

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FOREVER = datetime(2100, 1, 1, tzinfo=UTC)


def signed_in(client, role: str):
    user = get_user_model().objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client.force_login(user)
    return client


@pytest.fixture
def operator(client):
    return signed_in(client, OPERATOR)


@pytest.fixture
def viewer(client):
    return signed_in(client, VIEWER)


@pytest.fixture
def queue():
    namespaces.ensure_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("demo", "billing/orders"))
    return Entity.objects.select_related("namespace").get(path="billing/orders")


@pytest.fixture
def topic(queue):
    entities.create_topic(EntityAddress("demo", "events"))
    return Entity.objects.get(path="events")


@pytest.fixture(autouse=True)
def submitted(monkeypatch):
    """The ids of the runs that were handed to a worker, of whom there is none."""
    ids = []
    monkeypatch.setattr("celery.app.task.Task.apply_async", lambda task, args=(), *_, **__: ids.extend(args))
    return ids


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    """What is wrong with this machine: what a test puts into it."""
    problems = []
    monkeypatch.setattr(asking.java, "problem", lambda: " ".join(problems))
    return problems


def at(name, *args, **query):
    return reverse(f"explorer:{name}", args=args, query=query)


def slow(queue, **query):
    return at("analysis_question", "slow", queue=queue.pk, **query)


def open_run(queue, **changes):
    return a_run_of(
        [analysis.slug for analysis in QUESTIONS[0].analyses(of_entity=True)],
        {"queue": queue.pk},
        **{"state": "running", "lease_until": FOREVER, **changes},
    )


# Freshness


def test_a_recent_result_is_shown_without_starting_a_run(viewer, queue, submitted):
    a_stored_result([queue])
    report = at("analysis_report", "waiting", queue=queue.pk)
    page = body_of(viewer.get(report))
    assert "half were received within" in page and "Updated" in page and "hx-trigger" not in page
    assert submitted == [] and not AnalysisRun.objects.exists()


def test_a_missing_result_starts_one_run_however_often_the_page_is_opened(viewer, queue, submitted):
    first = body_of(viewer.get(slow(queue)))
    assert "Being analysed." in first and 'hx-trigger="every 1s"' in first
    viewer.get(slow(queue))
    run = AnalysisRun.objects.get()
    assert submitted == [run.pk]
    assert (run.namespace, run.subject, run.requested_by) == ("demo", "demo/billing/orders", "user:viewer")


def test_an_old_result_is_shown_while_it_is_refreshed(viewer, queue, submitted):
    a_stored_result([queue], made_at=datetime.now(UTC) - 11 * MINUTE)
    page = body_of(viewer.get(at("analysis_report", "waiting", queue=queue.pk)))
    assert "half were received within" in page and "being refreshed" in page
    assert len(submitted) == 1


def test_the_progress_polls_until_the_new_figures_replace_the_old_figures(viewer, queue):
    report = at("analysis_report", "waiting", queue=queue.pk)
    a_stored_result([queue], made_at=datetime.now(UTC) - 11 * MINUTE)
    run = a_run_of(
        ["waiting"], {"queue": queue.pk}, state="running", lease_until=FOREVER, steps=4, step=2, step_text="Reading lives",
        tasks_done=3, tasks_total=8, started_at=datetime.now(UTC), expected_seconds=90,
    )  # fmt: skip
    polled = viewer.get(f"{report}&part=progress&made=0", headers=HTMX)
    text = body_of(polled)
    assert "part=progress&made=0" in text
    assert "Reading lives (2 of 4), 3 of 8 tasks, about 90 s left" in text.replace("1 min 30 s", "90 s")
    assert "half were received" not in text and "HX-Retarget" not in polled.headers
    AnalysisRun.objects.filter(pk=run.pk).update(state="succeeded", finished_at=datetime.now(UTC))
    a_stored_result([queue], waits=100.0)
    polled = viewer.get(f"{report}&part=progress", headers=HTMX)
    assert polled.headers["HX-Retarget"] == "#answers" and polled.headers["HX-Reswap"] == "outerMorph"
    text = body_of(polled)
    assert "min, 95" in text and 'hx-trigger="every' not in text and "part=progress" not in text


def test_an_answer_is_shown_while_the_run_computes_the_others(viewer, queue):
    run = a_run_of(["waiting", "flow"], {"queue": queue.pk}, state="running", lease_until=FOREVER)
    polled = viewer.get(slow(queue, part="progress", made=0), headers=HTMX)
    assert "HX-Retarget" not in polled.headers
    AnalysisResult.objects.filter(pk=a_stored_result([queue]).pk).update(run=run)
    polled = viewer.get(slow(queue, part="progress", made=0), headers=HTMX)
    text = body_of(polled)
    assert polled.headers["HX-Retarget"] == "#answers" and "half were received" in text
    assert "part=progress&made=1" in text, "and the page goes on asking"
    assert "HX-Retarget" not in viewer.get(slow(queue, part="progress", made=1), headers=HTMX).headers


def test_a_run_waits_for_a_worker_that_executes_another_run(viewer, queue):
    waiting = a_run_of(["waiting"], {"queue": queue.pk}, state="queued", requested_at=datetime.now(UTC) - MINUTE)
    assert asking.is_left(waiting)
    a_run_of(["locks"], {"queue": queue.pk}, state="running", lease_until=FOREVER)
    assert not asking.is_left(waiting)
    assert "Waiting for a worker" in body_of(viewer.get(slow(queue)))


def test_the_expected_duration_is_that_of_the_previous_run(viewer, queue, submitted):
    now = datetime.now(UTC)
    run = a_run_of(["waiting"], {"queue": queue.pk}, state="succeeded", started_at=now - 3 * MINUTE, finished_at=now - MINUTE)
    viewer.get(at("analysis_report", "waiting", queue=queue.pk))
    viewer.get(at("analysis_report", "losses", queue=queue.pk))
    expected = AnalysisRun.objects.exclude(pk=run.pk).values_list("request__reports", "expected_seconds")
    assert sorted(expected) == [(["losses"], None), (["waiting"], 120.0)]


def test_an_opened_result_is_kept(viewer, queue, submitted):
    """Once a day is enough."""
    now = datetime.now(UTC)
    result = a_stored_result([queue])
    for opened_at, changes in ((now - 25 * HOUR, True), (now - HOUR, False)):
        AnalysisResult.objects.filter(pk=result.pk).update(opened_at=opened_at)
        viewer.get(at("analysis_report", "waiting", queue=queue.pk))
        result.refresh_from_db()
        assert (result.opened_at != opened_at) is changes


def test_a_failed_run_shows_its_reason_and_is_not_repeated_by_a_reload(viewer, queue, submitted):
    a_stored_result([queue], made_at=datetime.now(UTC) - 11 * MINUTE)
    failed = a_run_of(
        ["waiting"], {"queue": queue.pk}, state="failed", finished_at=datetime.now(UTC), message="The disk is full. Free space."
    )
    report = at("analysis_report", "waiting", queue=queue.pk)
    page = body_of(viewer.get(report))
    assert "The disk is full. Free space." in page and "half were received within" in page and "Try again" in page
    assert submitted == []
    assert viewer.post(report).url == report
    assert AnalysisRun.objects.exclude(pk=failed.pk).get().pk in submitted
    AnalysisRun.objects.all().delete()
    a_run_of(["waiting"], {"queue": queue.pk}, state="failed", finished_at=datetime.now(UTC) - 11 * MINUTE)
    viewer.get(report)
    assert len(submitted) == 2


def test_polling_the_progress_starts_no_run(viewer, queue, submitted):
    viewer.get(slow(queue, part="progress"), headers=HTMX)
    assert submitted == []


def test_notes_of_a_result_are_shown_as_warnings(viewer, queue):
    a_stored_result([queue], notes=["The file a.parquet is damaged; 2026-03-01 is missing."])
    assert "The file a.parquet is damaged" in body_of(viewer.get(at("analysis_report", "waiting", queue=queue.pk)))


def test_without_spark_no_run_starts_and_the_page_shows_the_remedy(viewer, queue, submitted, no_spark):
    no_spark.append("An analysis needs Java 17 or 21; found none.")
    for url in (slow(queue), at("analyses", queue=queue.pk), at("analyses")):
        page = body_of(viewer.get(url))
        assert "needs Java 17 or 21" in page and "Nothing is lost" in page
    assert submitted == []


def test_operators_can_cancel_a_run_and_return_to_the_page(client, queue):
    run = open_run(queue)
    viewer = signed_in(client, VIEWER)
    assert "/cancel/" not in body_of(viewer.get(slow(queue)))
    viewer.post(at("analysis_cancel", run.pk))
    assert AnalysisRun.objects.get().cancel_requested_at is None
    operator = signed_in(client, OPERATOR)
    assert "/cancel/" in body_of(operator.get(slow(queue)))
    assert operator.post(at("analysis_cancel", run.pk), {"back": slow(queue)}).url == slow(queue)
    assert AnalysisRun.objects.get().cancel_requested_at
    assert "Stopping" in body_of(operator.get(slow(queue)))
    assert operator.post(at("analysis_cancel", run.pk), {"back": "//elsewhere.example"}).url == at("analysis_run", run.pk)


# The pages


def test_a_question_is_a_page_and_a_fragment(viewer, queue):
    page = body_of(viewer.get(slow(queue)))
    assert page.count("<h1") == 1 and "All queues of demo" in page
    fragment = viewer.get(slow(queue, range="7d"), headers=HTMX)
    assert fragment.status_code == 200 and b"<html" not in fragment.content and b'id="report"' in fragment.content
    assert viewer.get(at("analysis_question", "slow", namespace="demo")).status_code == 200
    assert viewer.get(slow(queue, range="1y")).status_code == 400
    for url in (at("analysis_question", "none", queue=queue.pk), at("analysis_question", "slow"), slow(queue) + "0"):
        assert viewer.get(url).status_code == 404


def test_a_page_of_several_reports_loads_details_when_opened(viewer, queue):
    a_stored_result([queue])
    page = body_of(viewer.get(slow(queue)))
    assert "data-lazy" in page and "<table" not in page
    details = body_of(viewer.get(slow(queue, part="details", report="waiting")))
    assert "Received within" in details and "<html" not in details and "data-lazy" not in details
    assert viewer.get(slow(queue, part="details", report="none")).status_code == 404
    alone = body_of(viewer.get(at("analysis_report", "waiting", queue=queue.pk)))
    assert "data-lazy" not in alone and "Received within" in alone
    ids = re.findall(r'\sid="([^"]+)"', alone)
    assert len(ids) == len(set(ids))


def test_the_landing_page_shows_each_question_with_its_stored_answer(viewer, queue):
    page = body_of(viewer.get(at("analyses")))
    assert "Not analysed yet." in page and "No runs yet" in page
    for slug in TITLES:
        assert at("analysis_question", slug, namespace="demo") in page
    page = body_of(viewer.get(at("analyses", queue=queue.pk)))
    assert "Not analysed yet." in page and slow(queue) in page
    a_stored_result([queue])
    page = body_of(viewer.get(at("analyses", queue=queue.pk)))
    assert "Of " in page and "half were received within" in page
    fragment = viewer.get(at("analyses", queue=queue.pk), headers=HTMX).content
    assert b"<html" not in fragment and b'id="answers"' in fragment


def test_the_landing_page_finds_a_queue_by_its_name(viewer, queue):
    named = viewer.get(at("analyses", namespace="demo", path="BILLING/orders "))
    assert named.url == at("analyses", queue=queue.pk)
    missing = viewer.get(at("analyses", namespace="demo", path="none"))
    assert missing.status_code == 404 and "There is no queue or topic named demo/none" in body_of(missing)


def test_a_button_refreshes_the_answers_to_all_questions(viewer, queue, submitted):
    assert viewer.post(at("analyses", queue=queue.pk)).url == at("analyses", queue=queue.pk)
    assert set(AnalysisRun.objects.get(pk__in=submitted).request["reports"]) >= {"waiting"}
    assert AuditRecord.objects.filter(action="start analysis").exists()


def test_a_refused_refresh_shows_the_reason(viewer, queue, monkeypatch):
    def refuse(*_, **__):
        raise ServerBusy("Try again.")

    monkeypatch.setattr(asking.Asked, "refreshed", refuse)
    page = body_of(viewer.post(at("analyses", queue=queue.pk), follow=True))
    assert "Try again." in page


def test_the_landing_page_lists_runs_and_the_transaction_delaying_the_archive(viewer, queue, monkeypatch):
    run = open_run(queue)
    AnalysisRun.objects.create(kind="maintenance", requested_by="schedule", requested_at=datetime.now(UTC))
    page = body_of(viewer.get(at("analyses")))
    assert f"Analysis {run.pk}" in page and "Nightly maintenance" in page
    assert "Nightly maintenance" not in body_of(viewer.get(at("analyses", namespace="demo")))
    monkeypatch.setattr(landing, "HELD_BACK", timedelta(0))
    parameters = connections.Database().parameters() | {"autocommit": False, "application_name": "a slow report"}
    with psycopg.connect(**parameters) as slow_one:
        slow_one.execute("SELECT pg_current_xact_id()")
        assert f"Database process {slow_one.info.backend_pid} (a slow report)" in body_of(viewer.get(at("analyses")))


def test_an_empty_namespace_says_so(viewer, submitted):
    namespaces.ensure_namespace("empty", Family.SERVICE_BUS)
    for url in (at("analyses", namespace="empty"), at("analysis_question", "slow", namespace="empty")):
        assert "The namespace empty has no queues" in body_of(viewer.get(url))
    assert submitted == []


def test_the_page_of_a_run_polls_until_its_end_and_links_to_its_reports(viewer, queue):
    run = open_run(queue, steps=5, step=2, step_text="Reading lives", tasks_done=3, tasks_total=8)
    page = body_of(viewer.get(at("analysis_run", run.pk)))
    assert "Step 2 of 5: Reading lives, 3 of 8 tasks" in page and 'value="28"' in page
    fragment = viewer.get(at("analysis_run", run.pk), headers=HTMX).content
    assert b"<html" not in fragment and b'hx-trigger="every 1s"' in fragment
    AnalysisRun.objects.update(state="succeeded", log_tail="done", finished_at=datetime.now(UTC))
    page = body_of(viewer.get(at("analysis_run", run.pk)))
    assert "hx-trigger" not in page and at("analysis_report", "waiting", queue=queue.pk) in page


def test_a_run_whose_worker_died_is_shown_as_failed(viewer):
    run = AnalysisRun.objects.create(
        state="running", claimed_by="gone", lease_until=datetime(2026, 1, 1, tzinfo=UTC), requested_at=datetime.now(UTC)
    )
    assert "The worker stopped before the analysis finished" in body_of(viewer.get(at("analysis_run", run.pk)))


def test_anonymous_visitors_are_redirected_to_the_sign_in(client, queue):
    for url in (at("analyses"), slow(queue), at("analysis_report", "waiting", queue=queue.pk), at("analysis_run", 1)):
        assert client.get(url).status_code == 302


# The admin


def act(client, model, *chosen):
    url = reverse(f"admin:broker_core_{model}_changelist")
    action = {"entity": "analyse_entities", "namespace": "analyse_namespaces"}[model]
    return client.post(url, {"action": action, "_selected_action": [row.pk for row in chosen], "index": 0})


def test_the_admin_action_starts_the_analysis_of_a_queue_and_opens_it(viewer, queue, topic, submitted):
    assert act(viewer, "entity", queue).url == at("analyses", queue=queue.pk)
    assert AnalysisRun.objects.get().pk in submitted
    assert AuditRecord.objects.filter(action="start analysis", target="demo/billing/orders").exists()
    left = act(viewer, "entity", topic)
    assert left.url == reverse("admin:broker_core_entity_changelist") and len(submitted) == 1
    assert "Nothing to analyse" in body_of(viewer.get(left.url))


def test_the_admin_action_on_several_queues_analyses_their_namespace(viewer, queue, submitted):
    entities.create_queue(EntityAddress("demo", "other"))
    assert act(viewer, "entity", *Entity.objects.filter(kind="queue")).url == at("analyses", namespace="demo")
    assert AnalysisRun.objects.get().subject == "all queues of demo"


def test_the_admin_action_analyses_namespaces(viewer, queue, submitted):
    namespaces.ensure_namespace("empty", Family.SERVICE_BUS)
    namespaces.ensure_namespace("shop", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("shop", "q"))
    assert act(viewer, "namespace", *Namespace.objects.filter(is_system=False)).url == at("analyses", namespace="demo")
    assert sorted(AnalysisRun.objects.values_list("namespace", flat=True)) == ["demo", "shop"]
    assert "Nothing to analyse" in body_of(viewer.get(act(viewer, "namespace", Namespace.objects.get(name="empty")).url))


def test_runs_are_listed_in_the_admin(operator, queue):
    run = open_run(queue)
    content = body_of(operator.get(reverse("admin:explorer_analysisrun_changelist")))
    assert f"Analysis {run.pk}" in content and "demo/billing/orders" in content


# Pure


def test_progress_is_the_larger_of_the_shares_of_steps_and_time():
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    run = AnalysisRun(state="running", steps=4, step=2, tasks_done=1, tasks_total=2, started_at=now - timedelta(seconds=30))
    assert asking.progress_of(run, now) == asking.Progress(38)
    run.expected_seconds = 60
    assert asking.progress_of(run, now) == asking.Progress(50, timedelta(seconds=30), MINUTE)
    run.expected_seconds = 10
    assert asking.progress_of(run, now) == asking.Progress(95, usual=timedelta(seconds=10)), "it takes longer than expected"
    assert asking.progress_of(AnalysisRun(state="running"), now) == asking.Progress()
    assert asking.progress_of(AnalysisRun(state="queued", expected_seconds=141), now).usual == timedelta(seconds=141)


def test_a_run_that_waits_says_how_long_an_earlier_one_took_also_of_another_queue(viewer, queue):
    entities.create_queue(EntityAddress("demo", "other"))
    finished = datetime.now(UTC) - HOUR
    other = Entity.objects.get(path="other").pk
    earlier = a_run_of(["waiting", "flow", "promise", "forecast"], {"queue": other}, state="succeeded")
    AnalysisRun.objects.filter(pk=earlier.pk).update(started_at=finished - timedelta(seconds=141), finished_at=finished)
    page = body_of(viewer.get(slow(queue)))
    assert "an earlier run took 2 min 21 s" in page


def test_columns_with_statistics_open_their_explanation(viewer, queue):
    a_stored_result([queue])
    page = body_of(viewer.get(at("analysis_report", "waiting", queue=queue.pk)))
    assert 'popovertarget="term-median"' in page and "What is median?" in page and page.count('id="term-median"') == 1


def test_the_form_of_a_question_has_the_fields_of_all_its_reports():
    for question in QUESTIONS:
        analyses = [BY_SLUG[slug] for slug in question.reports if slug in BY_SLUG]
        form = asking.form_for(analyses, {})
        assert form.fields.keys() >= {name for analysis in analyses for name in analysis.form.base_fields}
