"""What all reports share: the page, its form, tables as files, and the list of analyses."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse

from broker_core.models import Namespace
from explorer.analysis.reports import files, pages, registry
from explorer.analysis.reports.forms import ReportForm
from explorer.analysis.reports.report import Column, Link, Table
from explorer.analysis.reports.scope import Range, floor
from explorer.roles import ADMINISTRATOR
from explorer.site import urls
from tests.html import body_of

from .conftest import NOON
from .test_pages import signed_in

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TABLE = Table(
    "numbers",
    "Numbers",
    [Column("at", "At", "instant"), Column("wait", "Wait", "duration"), Column("part", "Part", "share", has_bar=True),
     Column("who", "Who")],
    [(NOON, 90 * timedelta(seconds=1), Link(0.25, "/there"), "=a"), (NOON + HOUR, None, 0.5, None)],
)  # fmt: skip


def test_a_table_on_the_page():
    first, second = ([head, *cells] for head, cells in TABLE.lines)
    assert [cell.text for cell in first] == ["2026-03-01 12:00", "1.5 min", "25.0\xa0%", "=a"]
    assert (first[2].url, first[2].bar, second[2].bar) == ("/there", 50.0, 100.0)
    assert [cell.text for cell in second][1::2] == ["–", "–"]
    assert replace(TABLE, rows=[(NOON, None, 0.5, "")]).lines[0][1][-1].text == "–", "an empty text"


def test_a_table_as_files():
    heads, *rows = files.csv_rows(TABLE)
    assert heads == ["at", "wait_seconds", "part", "who"]
    assert rows == [[NOON.isoformat(), 90.0, 0.25, "=a"], [(NOON + HOUR).isoformat(), "", 0.5, ""]]
    read = pq.read_table(BytesIO(files.parquet(TABLE))).to_pylist()
    assert read[1] == {"at": NOON + HOUR, "wait_seconds": None, "part": 0.5, "who": None}


@pytest.mark.parametrize(
    ("length", "bucket", "count"),
    [(4 * HOUR, HOUR, 4), (7 * DAY + HOUR, HOUR, 169), (30 * DAY, 6 * HOUR, 120), (90 * DAY, DAY, 91), (400 * DAY, 7 * DAY, 59)],
)
def test_a_range_has_few_enough_intervals(length, bucket, count):
    span = Range(NOON, NOON + length)
    assert (span.bucket, len(span.buckets)) == (bucket, count)
    assert span.buckets[0] <= NOON and span.buckets[-1] < span.end <= span.buckets[-1] + bucket


def test_partial_intervals_and_weeks():
    assert Range(NOON, NOON + 90 * timedelta(minutes=1)).partial == [False, True]
    assert floor(datetime(2026, 3, 1, 5, tzinfo=UTC), 7 * DAY) == datetime(2026, 2, 23, tzinfo=UTC)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"range": "1y"}, "range"),
        ({"range": "custom", "end": "2026-03-01T00:00"}, "start"),
        ({"range": "custom", "start": "2026-03-01T00:00", "end": "2026-03-01T00:00"}, "end"),
        ({"range": "custom", "start": "1026-03-01T00:00", "end": "2026-03-01T00:00"}, "start"),
        ({"range": "custom", "start": "9999-12-31T00:00", "end": "9999-12-31T23:30"}, "end"),
        ({"range": "custom", "start": "2020-03-01T00:00", "end": "2026-03-01T00:00"}, "end"),
        ({"compare": "mars"}, "compare"),
    ],
)
def test_a_bad_range_is_refused_at_its_field(query, field):
    assert list(ReportForm(query).errors) == [field]


ODD = (
    *("0001-01-01T00:00", "9999-12-31T23:30", "a\x00b", "9" * 40, "2026-02-30T00:00", "9998-12-31T23:59", "-1", "0", "1e308"),
    *("nan", "x", "∞", " ", "999999999 days", "1000000000 days", "P99999Y", "-5 s", "1,2,x", ",", "1 us"),
)
RANGES = (
    ("0001-01-01T00:00", "0001-01-02T00:00", ""), ("9999-12-01T00:00", "9999-12-31T23:30", ""),
    ("9998-12-30T00:00", "9999-01-01T00:00", "before"), ("2000-01-01T00:00", "2000-01-01T00:01", "week"),
)  # fmt: skip


def test_odd_parameters_are_answered_or_refused(viewer, queue):
    for analysis in registry.ANALYSES:
        give_odd_values(viewer, queue, analysis)


def give_odd_values(viewer, queue, analysis):
    """Each value in each field, which is valid only if a report can be made of it; and in all fields at once, on the page."""
    names = analysis.form.base_fields.keys() - {"queue"}
    given = [{name: odd} for name in names - ReportForm.base_fields.keys() for odd in ODD]
    given += [dict(zip(("start", "end", "compare"), one, strict=True)) for one in RANGES]
    for query in given:
        form = analysis.form({"queue": queue.pk} | ({"range": "custom"} if "end" in query else {}) | query)
        if form.is_valid() and (scope := form.scope()):
            pages._make(analysis, form, scope)
    url = reverse("explorer:analysis_report", args=(analysis.slug,))
    for odd in ODD[:4]:
        response = viewer.get(url, {**dict.fromkeys([*names, "table", "format"], odd), "queue": queue.pk})
        assert response.status_code in (200, 400, 404), (analysis.slug, odd)


def test_comparing_with_the_period_before_shares_no_hour(queue):
    scope = bound(
        {"queue": queue.pk, "range": "custom", "start": "2026-03-01T12:30", "end": "2026-03-01T14:10", "compare": "before"}
    )
    assert (scope.range.start, scope.compared.end) == (NOON, NOON - timedelta(minutes=50))
    assert bound({"queue": queue.pk, "compare": "week"}).compared.length == bound({"queue": queue.pk}).range.length


def test_ids_and_paths_are_made_once(queue):
    """Rows of tables look them up one by one."""
    scope = bound({"namespace": "reports"})
    assert scope.ids is scope.ids and scope.paths is scope.paths and scope.paths == {queue.pk: "q"}


def bound(query):
    form = ReportForm(query)
    assert form.is_valid()
    return form.scope()


def test_every_report_as_page_fragment_and_files(viewer, queue):
    for slug in registry.BY_SLUG:
        open_report(viewer, queue, slug)


def open_report(viewer, queue, slug):
    url = reverse("explorer:analysis_report", args=(slug,))
    body = body_of(viewer.get(url, {"queue": queue.pk}))
    assert body.count("<h1") == 1 and ('class="finding"' in body or "To know what is usual" in body)
    fragment = viewer.get(url, {"queue": queue.pk, "range": "7d"}, headers={"HX-Request": "true"})
    assert fragment.status_code == 200 and b"<html" not in fragment.content
    form = registry.BY_SLUG[slug].form({"queue": queue.pk})
    assert form.is_valid()
    for table in pages._make(registry.BY_SLUG[slug], form, form.scope()).tables.values():
        assert files.parquet(table).startswith(b"PAR1") and len(list(files.csv_rows(table))) == 1 + len(table.rows)
    assert viewer.get(url, {"queue": queue.pk, "range": "1y"}).status_code == 400
    assert viewer.get(url, {"queue": queue.pk, "table": "none", "format": "csv"}).status_code == 404
    whole = viewer.get(url, {"namespace": "reports"}).status_code
    assert whole == (404 if registry.BY_SLUG[slug].needs_entity else 200)


def test_a_table_is_downloaded(viewer, queue):
    url = reverse("explorer:analysis_report", args=("flow",))
    for file_format, magic in (("csv", b""), ("parquet", b"PAR1")):
        file = viewer.get(url, {"queue": queue.pk, "table": "flow", "format": file_format})
        assert file.status_code == 200 and file.content.startswith(magic) and "attachment" in file["Content-Disposition"]


def test_no_report_of_what_is_not_there(viewer):
    for query in ({"queue": "x"}, {"queue": 10**9}, {"queue": "9" * 40}, {"namespace": "none"}, {"namespace": "a\x00b"}, {}):
        assert viewer.get(reverse("explorer:analysis_report", args=("flow",)), query).status_code == 404, query
    assert viewer.get(reverse("explorer:analysis_report", args=("none",))).status_code == 404


def test_a_namespace_without_queues_says_so(report_of, queue):
    from broker_core import namespaces

    namespaces.ensure_namespace("empty")
    assert "The namespace empty has no queues." in report_of("flow", namespace="empty")


def test_the_list_leads_to_the_reports_of_a_queue_or_a_namespace(viewer, queue):
    url, listed = reverse("explorer:analysis_report", args=("flow",)), reverse("explorer:analysis_runs")
    assert f"{url}?queue={queue.pk}" in body_of(viewer.get(listed, {"queue": queue.pk}))
    whole = body_of(viewer.get(listed, {"namespace": "reports"}))
    assert f"{url}?namespace=reports" in whole and "time-to-live" not in whole
    assert "What happened?" in body_of(viewer.get(listed)) and url not in body_of(viewer.get(listed))


def test_administrators_with_access_to_the_admin_change_how_long_the_archive_is_kept(client, queue, settings):
    admin = signed_in(client, ADMINISTRATOR)
    page, link = f"{reverse('explorer:analysis_runs')}?namespace=reports", f"/namespace/{queue.namespace_id}/change/"
    assert link in body_of(admin.get(page))
    get_user_model().objects.update(is_staff=False)
    assert link not in body_of(admin.get(page))
    settings.ROOT_URLCONF = ModuleType("without_admin")
    settings.ROOT_URLCONF.urlpatterns = [one for one in urls.urlpatterns if getattr(one, "app_name", "") != "admin"]
    get_user_model().objects.update(is_staff=True)
    assert link not in body_of(admin.get(page))


def test_the_list_says_how_long_the_archive_is_kept(viewer, queue):
    listed = reverse("explorer:analysis_runs")
    assert "That of reports is kept indefinitely." in body_of(viewer.get(listed, {"namespace": "reports"}))
    Namespace.objects.filter(name="reports").update(archive_days=30)
    assert "kept for 30 days; roll-ups are kept indefinitely." in body_of(viewer.get(listed, {"queue": queue.pk}))
    assert "is kept" not in body_of(viewer.get(listed))
