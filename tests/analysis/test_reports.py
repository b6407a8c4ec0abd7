"""What all reports share: the page, its form, tables as files, and the list of analyses."""

from datetime import UTC, datetime, timedelta
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from django.urls import reverse

from explorer.analysis.reports import files, registry
from explorer.analysis.reports.forms import ReportForm
from explorer.analysis.reports.report import Column, Link, Table
from explorer.analysis.reports.scope import Range, floor
from tests.html import body_of

from .conftest import NOON

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
        ({"range": "custom", "start": "1026-03-01T00:00", "end": "2026-03-01T00:00"}, "end"),
        ({"range": "custom", "start": "2020-03-01T00:00", "end": "2026-03-01T00:00"}, "end"),
        ({"compare": "mars"}, "compare"),
    ],
)
def test_a_bad_range_is_refused_at_its_field(query, field):
    assert list(ReportForm(query).errors) == [field]


def test_comparing_with_the_period_before_shares_no_hour(queue):
    scope = bound(
        {"queue": queue.pk, "range": "custom", "start": "2026-03-01T12:30", "end": "2026-03-01T14:10", "compare": "before"}
    )
    assert (scope.range.start, scope.compared.end) == (NOON, NOON - timedelta(minutes=50))
    assert bound({"queue": queue.pk, "compare": "week"}).compared.length == bound({"queue": queue.pk}).range.length


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
    for table in {part.split("&")[0] for part in body.replace("&amp;", "&").split("table=")[1:]}:
        for file_format, magic in (("csv", b""), ("parquet", b"PAR1")):
            file = viewer.get(url, {"queue": queue.pk, "table": table, "format": file_format})
            assert file.status_code == 200 and file.content.startswith(magic) and "attachment" in file["Content-Disposition"]
    assert viewer.get(url, {"queue": queue.pk, "range": "1y"}).status_code == 400
    assert viewer.get(url, {"queue": queue.pk, "table": "none", "format": "csv"}).status_code == 404
    whole = viewer.get(url, {"namespace": "reports"}).status_code
    assert whole == (404 if registry.BY_SLUG[slug].needs_entity else 200)


def test_no_report_of_what_is_not_there(viewer):
    for query in ({"queue": "x"}, {"queue": 10**9}, {"namespace": "none"}, {}):
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
