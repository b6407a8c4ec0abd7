"""The pages of analyses, whole and as fragments, and the admin's action."""

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse

from broker_core import namespaces
from broker_core.models import Entity, Namespace
from broker_core.store import connections
from explorer.analysis import pages, tasks
from explorer.analysis.running import java
from explorer.models import AnalysisReason, AnalysisResult, AnalysisRun, AuditRecord
from explorer.roles import OPERATOR, VIEWER
from tests.html import body_of

from .factories import NOON, a_result, a_run

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
SECOND = timedelta(seconds=1)


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
    return Entity.objects.create(namespace=Namespace.objects.create(name="demo"), path="billing/orders")


@pytest.fixture(autouse=True)
def handed(monkeypatch):
    ids = []
    monkeypatch.setattr(tasks.run_analysis, "delay", ids.append)
    return ids


@pytest.fixture
def finished():
    """A run with results: 8 completed and 2 dead-lettered in the second of its three hours, half of them generated."""
    run = a_run(state="succeeded", messages=10, steps=5, step=5, started_at=NOON, finished_at=NOON + 12 * SECOND)
    run.save()
    times = {f"{kind}_{p}": n * SECOND for kind in ("waiting", "processing") for p, n in (("p50", 1), ("p95", 61), ("p99", 7200))}
    numbers = {"completed": 8, "dead_lettered": 2, "waited": 10, "processed": 10, "generated": 5, **times}
    for bucket_at in (None, NOON + timedelta(hours=1)):
        a_result(run=run, bucket_at=bucket_at, **numbers).save()
    AnalysisReason.objects.create(run=run, entity_id=1, bucket_at=NOON, reason="Bad <payload>", messages=2)
    return run


def page(client, name, *args, **kwargs):
    return client.get(reverse(f"explorer:{name}", args=args), **kwargs)


def test_the_list_names_runs_and_says_when_there_is_none(viewer, finished):
    assert b"demo/orders" in page(viewer, "analysis_runs").content
    AnalysisRun.objects.all().delete()
    assert b"No runs yet" in page(viewer, "analysis_runs").content
    fragment = page(viewer, "analysis_runs", headers=HTMX).content
    assert b"No runs yet" in fragment and b"<html" not in fragment


def test_the_list_says_who_holds_the_archive_back(viewer, monkeypatch):
    monkeypatch.setattr(pages, "HELD_BACK", timedelta(0))
    with psycopg.connect(
        **connections.Database().parameters() | {"autocommit": False, "application_name": "a slow report"}
    ) as slow:
        slow.execute("SELECT pg_current_xact_id()")
        assert f"Database process {slow.info.backend_pid} (a slow report)" in body_of(page(viewer, "analysis_runs"))
    assert "Archiving is delayed" not in body_of(page(viewer, "analysis_runs"))


def test_a_running_run_asks_for_itself_again_and_a_finished_one_does_not(viewer, finished):
    running = a_run(
        state="running", steps=5, step=2, step_text="Reading lives", tasks_done=3, tasks_total=8, lease_until="2100-01-01T00:00Z"
    )
    running.save()
    content = body_of(page(viewer, "analysis_run", running.pk, headers=HTMX))
    assert "Step 2 of 5: Reading lives, 3 of 8 tasks" in content
    assert 'hx-trigger="every 1s"' in content and "<html" not in content
    assert 'value="27"' in content
    assert "hx-trigger" not in body_of(page(viewer, "analysis_run", finished.pk, headers=HTMX))


def test_a_run_whose_worker_died_is_shown_as_failed(viewer):
    run = a_run(state="running", claimed_by="gone", lease_until=NOON)
    run.save()
    assert b"The worker stopped before the analysis finished" in page(viewer, "analysis_run", run.pk).content


def test_a_result_shows_charts_the_same_numbers_beside_them_and_what_is_generated(viewer, finished):
    response = page(viewer, "analysis_run", finished.pk)
    content = body_of(response)
    assert "Of 10 messages, 80 % were completed and 20 % were dead-lettered." in content
    assert content.count('<svg class="chart') == 8
    assert all('role="img" aria-label="' in svg for svg in re.findall(r'<svg class="chart[^>]*>', content))
    assert "Includes generated history." in content and "5 messages in this result" in content
    assert "Bad &lt;payload&gt;" in response.content.decode()
    [row] = re.findall(r'<tr><th scope="row">2026-03-01 13:00</th>(.*?)</tr>', content, re.S)
    cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]
    assert cells == ["10", "8", "2", "1.0 s", "1.0 min", "2.0 h", "1.0 s", "1.0 min", "2.0 h"]


def test_the_whole_range_has_a_column_for_each_outcome_that_occurs(viewer, finished):
    a_result(run=finished, bucket_at=None, entity_id=77, messages=5, moved=5).save()
    finished.queues.append({"id": 77, "namespace": "post-office", "path": "letters"})
    finished.save()
    table = body_of(page(viewer, "analysis_run", finished.pk)).partition('id="whole-title"')[2].partition("</table>")[0]
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", table.partition("</tr>")[0])
    assert heads == ["Queue", "Messages", "Completed", "Dead-lettered", "Moved to other queues", "Wait time", "Processing time"]
    letters = table.partition("post-office/letters")[2].partition("</tr>")[0]
    assert re.findall(r"\d+(?=<)", letters)[:4] == ["5", "0", "0", "5"]


def test_nothing_on_a_result_page_needs_an_exception_from_the_content_security_policy(viewer, finished):
    response = page(viewer, "analysis_run", finished.pk)
    assert "'unsafe-inline'" not in response.headers["Content-Security-Policy"]
    assert not re.search(r'\sstyle="|<style|\son\w+="|<script(?![^>]*\ssrc=)', body_of(response))


def test_a_run_without_messages_says_so(viewer, finished):
    AnalysisResult.objects.all().delete()
    assert b"No messages in this range" in page(viewer, "analysis_run", finished.pk).content


def test_the_numbers_as_a_file(viewer, finished):
    response = page(viewer, "analysis_csv", finished.pk)
    assert response.headers["Content-Type"].startswith("text/csv")
    lines = response.content.decode().splitlines()
    assert lines[0].startswith("queue,bucket,messages,completed")
    assert len(lines) == 3
    assert any(line.startswith("demo/orders,2026-03-01T13:00:00+00:00,10,8,") for line in lines)


def test_a_name_in_the_file_is_no_formula(viewer, finished):
    """Regression: a virtual host may be called anything."""
    finished.queues = [queue | {"namespace": "=1+1|x"} for queue in finished.queues]
    finished.save()
    lines = page(viewer, "analysis_csv", finished.pk).content.decode().splitlines()
    assert lines[1].startswith("'=1+1|x/orders,")


def test_an_operator_starts_an_analysis_and_the_audit_knows(operator, queue, handed):
    chosen = {"queues": [queue.pk], "stretch": "6h", "bucket": "hour"}
    response = operator.post(reverse("explorer:analysis_new"), chosen)
    run = AnalysisRun.objects.get()
    assert response.url == reverse("explorer:analysis_run", args=[run.pk])
    assert handed == [run.pk]
    assert run.end_at - run.start_at == timedelta(hours=6)
    record = AuditRecord.objects.get()
    assert (record.action, record.target, record.outcome) == ("start analysis", "demo/billing/orders", "done")


def test_a_relative_range_ends_now_by_the_namespaces_clock(operator, queue):
    namespaces.step_clock("demo", timedelta(minutes=36))
    operator.post(reverse("explorer:analysis_new"), {"queues": [queue.pk], "stretch": "6h", "bucket": "hour"})
    run = AnalysisRun.objects.get()
    assert abs(run.clock_ahead - timedelta(minutes=36)) < timedelta(seconds=20)
    assert run.end_at - run.start_at == timedelta(hours=6)
    assert abs(run.end_at - namespaces.get_clock("demo").now) < timedelta(seconds=20)
    assert "by the namespace's clock, 36 min" in body_of(page(operator, "analysis_run", run.pk))


def test_a_range_relative_to_different_clocks_is_refused(operator, queue, handed):
    other = Entity.objects.create(namespace=Namespace.objects.create(name="shop"), path="orders")
    namespaces.step_clock("demo", timedelta(hours=1))
    chosen = {"queues": [queue.pk, other.pk], "stretch": "6h", "bucket": "hour"}
    response = operator.post(reverse("explorer:analysis_new"), chosen)
    assert response.status_code == 400 and handed == []
    assert "which differ (demo 1 h ahead of real time)" in body_of(response)
    chosen |= {"start": "2026-03-01T12:00", "end": "2026-03-01T13:00"}
    assert operator.post(reverse("explorer:analysis_new"), chosen).status_code == 302


def test_a_deleted_queue_can_be_analysed(operator, queue, handed):
    Entity.objects.filter(pk=queue.pk).update(deleted_at=NOON)
    assert "billing/orders" in body_of(page(operator, "analysis_new", data={"queue": queue.pk}))
    operator.post(reverse("explorer:analysis_new"), {"queues": [queue.pk], "stretch": "6h", "bucket": "hour"})
    assert handed == [AnalysisRun.objects.get().pk]


def test_running_again_keeps_queues_range_and_interval(operator, queue, finished):
    finished.queues = [{"id": queue.pk, "namespace": "demo", "path": "billing/orders"}]
    finished.bucket = "minute"
    finished.save()
    shown = body_of(page(operator, "analysis_new", data={"again": finished.pk}))
    assert re.search(rf'value="{queue.pk}"[^>]*checked', shown)
    assert 'value="2026-03-01T12:00"' in shown and 'value="2026-03-01T15:00"' in shown
    assert re.search(r'value="minute"[^>]*(selected|checked)', shown)


def test_people_are_named_as_everywhere(viewer, finished):
    for shown in (page(viewer, "analysis_run", finished.pk), page(viewer, "analysis_runs")):
        assert "alice" in body_of(shown) and "user:alice" not in body_of(shown)


def test_a_waiting_run_says_what_it_waits_for(viewer, finished):
    queued = [a_run(state="queued", requested_at=datetime.now(UTC)) for _ in range(3)]
    for run in queued:
        run.save()

    def says(run):
        text = body_of(page(viewer, "analysis_run", run.pk)).partition("<p>")[2].partition("</p>")[0]
        return " ".join(re.sub("<[^>]*>", "", text).split())

    first, second, third = queued
    assert says(first) == "Waiting for a Celery worker."
    assert says(second) == f"Waiting for analysis {first.pk}."
    AnalysisRun.objects.filter(pk=second.pk).update(state="running", started_at=NOON)
    assert says(third) == f"Waiting for analysis {second.pk}, which is running, and 1 other that was requested earlier."
    AnalysisRun.objects.filter(pk=first.pk).update(requested_at=NOON)
    assert says(first).startswith("No worker has taken this run yet.")


def test_reasons_as_a_file(viewer, finished):
    response = page(viewer, "analysis_csv", finished.pk, data={"part": "reasons"})
    assert response.content.decode().splitlines() == [
        "queue,bucket,reason,messages", "demo/orders,2026-03-01T12:00:00+00:00,Bad <payload>,2"
    ]  # fmt: skip


def test_a_run_over_many_queues_lists_the_first(viewer, finished, monkeypatch):
    monkeypatch.setattr(pages, "MOST_QUEUES", 2)
    finished.queues = [{"id": n, "namespace": "demo", "path": f"q{n}"} for n in range(1, 9)]
    finished.save()
    for n in (2, 3, 4):
        a_result(run=finished, entity_id=n, completed=n).save()
    shown = body_of(page(viewer, "analysis_run", finished.pk))
    assert "demo/q1, demo/q2, demo/q3, demo/q4, demo/q5 and 3 more" in shown
    assert "The 2 queues with most messages are listed; the CSV file has 2 more." in shown
    assert "No messages in this range: demo/q5, demo/q6, demo/q7, demo/q8." in shown


def test_partial_buckets_are_marked(viewer, finished):
    finished.start_at = NOON + timedelta(minutes=90)
    finished.save()
    shown = body_of(page(viewer, "analysis_run", finished.pk))
    assert re.search(r"2026-03-01 13:00\s*<span[^>]*>partial", shown)
    assert 'class="partial"' in shown and "13:00 (partial): 8 completed" in shown


def test_instants_that_are_given_decide_the_range(operator, queue):
    given = {"queues": [queue.pk], "stretch": "24h", "bucket": "minute", "start": "2026-03-01T12:00", "end": "2026-03-01T13:00"}
    operator.post(reverse("explorer:analysis_new"), given)
    run = AnalysisRun.objects.get()
    assert (run.start_at, run.end_at) == (NOON, NOON + timedelta(hours=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"queues": []}, "Choose at least one queue"),
        ({"queues": [99999]}, "no longer available for analysis"),
        ({"stretch": "7d", "bucket": "minute"}, "at most 400"),
        ({"stretch": "between"}, "needs a start and an end"),
        ({"start": "2026-03-02T00:00", "end": "2026-03-01T00:00"}, "must end after it starts"),
        ({"start": "yesterday"}, "Enter a valid date/time"),
        ({"bucket": "week"}, "not one of the available choices"),
    ],
)
def test_a_bad_choice_is_refused_in_words_and_starts_nothing(operator, queue, handed, changes, said):
    response = operator.post(
        reverse("explorer:analysis_new"), {"queues": [queue.pk], "stretch": "6h", "bucket": "hour"} | changes
    )
    assert response.status_code == 400
    assert said in body_of(response)
    assert handed == [] and not AnalysisRun.objects.exists()


def test_a_viewer_sees_why_the_button_does_not_work_and_is_refused(viewer, queue, handed):
    assert b"Starting analyses requires the operator role" in page(viewer, "analysis_new").content
    response = viewer.post(reverse("explorer:analysis_new"), {"queues": [queue.pk], "stretch": "6h", "bucket": "hour"})
    assert response.status_code == 403
    assert handed == []
    assert AuditRecord.objects.get().outcome == "refused"


def test_cancelling_is_for_operators(operator, finished):
    waiting = a_run()
    waiting.save()
    address = reverse("explorer:analysis_cancel", args=[waiting.pk])
    assert operator.get(address).status_code == 405
    assert operator.post(address).status_code == 302
    waiting.refresh_from_db()
    assert waiting.state == "cancelled"


def test_a_viewer_cancels_nothing(viewer):
    waiting = a_run()
    waiting.save()
    viewer.post(reverse("explorer:analysis_cancel", args=[waiting.pk]))
    waiting.refresh_from_db()
    assert waiting.state == "queued"


def test_without_java_the_pages_say_what_to_do(viewer, monkeypatch):
    def missing():
        raise java.JavaNotFound("An analysis needs Java 17 or 21; found none.")

    monkeypatch.setattr(java, "find", missing)
    assert b"needs Java 17 or 21" in page(viewer, "analysis_runs").content


@pytest.mark.parametrize("name", ["analysis_runs", "analysis_new"])
def test_strangers_are_sent_to_sign_in(client, name):
    assert page(client, name).status_code == 302


def admin_post(client, queue, **more):
    chosen = {"action": "analyse_history", "_selected_action": [queue.pk], **more}
    return client.post(reverse("admin:broker_core_entity_changelist"), chosen)


def test_the_admin_asks_for_the_range_and_starts_the_analysis(operator, queue, handed):
    asked = admin_post(operator, queue, index=0)
    assert asked.status_code == 200
    assert "demo/billing/orders" in body_of(asked)
    assert handed == []
    started = admin_post(operator, queue, start_analysis="1", stretch="24h", bucket="hour")
    run = AnalysisRun.objects.get()
    assert started.url == reverse("explorer:analysis_run", args=[run.pk])
    assert handed == [run.pk]
    assert [named["id"] for named in run.queues] == [queue.pk]
    assert AuditRecord.objects.filter(action="start analysis").exists()


def test_the_admin_names_what_it_leaves_out(operator, queue, handed):
    topic = Entity.objects.create(namespace=queue.namespace, path="events", kind="topic")
    asked = admin_post(operator, queue, _selected_action=[queue.pk, topic.pk], index=0)
    assert "Not included: demo/events" in body_of(asked)
    admin_post(operator, queue, _selected_action=[queue.pk, topic.pk], start_analysis="1", stretch="24h", bucket="hour")
    assert [named["id"] for named in AnalysisRun.objects.get().queues] == [queue.pk]


def test_the_admins_form_explains_a_bad_range(operator, queue, handed):
    refused = admin_post(operator, queue, start_analysis="1", stretch="7d", bucket="minute")
    assert refused.status_code == 400
    assert "at most 400" in body_of(refused)
    assert handed == []


def test_a_viewer_cannot_start_from_the_admin(viewer, queue, handed):
    refused = admin_post(viewer, queue, start_analysis="1", stretch="24h", bucket="hour")
    assert refused.status_code == 302
    assert not AnalysisRun.objects.exists()


def test_runs_are_listed_in_the_admin(operator, finished):
    content = body_of(operator.get(reverse("admin:explorer_analysisrun_changelist")))
    assert f"Analysis {finished.pk}" in content
    assert "demo/orders" in content
