"""What all reports share: the form and its range, tables on the page and as files, cards, and keys of results."""
# ruff: noqa: F811 - fixtures

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from django import forms as django_forms
from django.contrib.auth import get_user_model

from broker_core.models import Namespace
from explorer.analysis.forms import MomentInput
from explorer.analysis.pages import asking, cards
from explorer.analysis.reports import files, registry
from explorer.analysis.reports.forms import ReportForm
from explorer.analysis.reports.report import Column, Figure, Link, Report, Section, Table
from explorer.analysis.reports.scope import Range, floor
from explorer.analysis.running import requests
from explorer.models import AnalysisResult
from explorer.people.roles import ADMINISTRATOR
from explorer.site import urls
from tests.html import body_of

from .factories import NOON
from .stored import a_stored_result
from .test_pages import at, no_spark, queue, signed_in, submitted, viewer  # noqa: F401 - fixtures

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TABLE = Table(
    "numbers",
    "Numbers",
    [Column("at", "At", "instant"), Column("wait", "Wait", "duration"), Column("part", "Part", "share", has_bar=True),
     Column("who", "Who")],
    [(NOON, 90 * timedelta(seconds=1), Link(0.25, "/there"), "=a"), (NOON + HOUR, None, 0.5, None)],
)  # fmt: skip


def test_a_table_is_rendered_as_html():
    first, second = ([head, *cells] for head, cells in TABLE.lines)
    assert [cell.text for cell in first] == ["2026-03-01 12:00", "1.5 min", "25.0\xa0%", "=a"]
    assert (first[2].url, first[2].bar, second[2].bar) == ("/there", 50.0, 100.0)
    assert [cell.text for cell in second][1::2] == ["–", "–"]
    assert replace(TABLE, rows=[(NOON, None, 0.5, "")]).lines[0][1][-1].text == "–", "an empty text"


def test_a_table_is_exported_as_files():
    heads, *rows = files.csv_rows(TABLE)
    assert heads == ["at", "wait_seconds", "part", "who"]
    assert rows == [[NOON.isoformat(), 90.0, 0.25, "=a"], [(NOON + HOUR).isoformat(), "", 0.5, ""]]
    read = pq.read_table(BytesIO(files.parquet(TABLE))).to_pylist()
    assert read[1] == {"at": NOON + HOUR, "wait_seconds": None, "part": 0.5, "who": None}


@pytest.mark.parametrize(
    ("length", "bucket", "count"),
    [
        (HOUR, 5 * MINUTE, 12),
        (DAY, 5 * MINUTE, 288),
        (7 * DAY + HOUR, HOUR, 169),
        (30 * DAY, 6 * HOUR, 120),
        (400 * DAY, 7 * DAY, 59),
    ],
)
def test_a_range_has_a_bounded_number_of_intervals(length, bucket, count):
    span = Range(NOON, NOON + length)
    assert (span.bucket, len(span.buckets)) == (bucket, count)
    assert span.buckets[0] <= NOON and span.buckets[-1] < span.end <= span.buckets[-1] + bucket


def test_partial_intervals_and_weeks_are_marked():
    assert Range(NOON + MINUTE, NOON + 14 * MINUTE).partial == [True, False, True]
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


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_unexpected_parameters_are_answered_or_refused(viewer, queue):
    for analysis in registry.ANALYSES:
        url, names = at("analysis_report", analysis.slug), analysis.form.base_fields.keys() - {"queue"}
        for odd in ODD:
            response = viewer.get(url, {**dict.fromkeys([*names, "file", "part", "report"], odd), "queue": queue.pk})
            assert response.status_code in (200, 400, 404), (analysis.slug, odd)
        for start, end, compare in RANGES:
            response = viewer.get(url, {"queue": queue.pk, "start": start, "end": end, "compare": compare})
            assert response.status_code in (200, 400), (analysis.slug, start)


@pytest.mark.django_db(transaction=True)
def test_what_if_settings_have_the_names_of_the_family(viewer, queue):
    page = body_of(viewer.get(at("analysis_report", "what-if", queue=queue.pk)))
    assert ">Lock duration</label>" in page and ">Maximum delivery count</label>" in page


def bound(query):
    form = ReportForm(query)
    assert form.is_valid(), form.errors
    return form.scope()


@pytest.mark.django_db(transaction=True)
def test_a_custom_range_has_whole_steps_of_five_minutes(queue):
    now = datetime.now(UTC)
    day = f"{now - DAY:%Y-%m-%d}"
    scope = bound({"queue": queue.pk, "start": f"{day}T10:07", "end": f"{day}T10:18"})
    assert (f"{scope.range.start:%H:%M}", f"{scope.range.end:%H:%M}") == ("10:05", "10:20")
    assert len(scope.range.buckets) == 3
    old = f"{now - 20 * DAY:%Y-%m-%d}"
    aged = bound({"queue": queue.pk, "start": f"{old}T10:07", "end": f"{old}T12:00"}).range
    assert (f"{aged.start:%H:%M}", aged.bucket) == ("10:00", HOUR), "of long ago there are only hours"


@pytest.mark.django_db(transaction=True)
def test_a_comparison_covers_the_separate_steps_of_both_ranges(queue):
    day = f"{datetime.now(UTC) - DAY:%Y-%m-%d}"
    scope = bound({"queue": queue.pk, "start": f"{day}T12:30", "end": f"{day}T14:10", "compare": "before"})
    assert scope.compared.end == scope.range.start
    week = bound({"queue": queue.pk, "compare": "week"})
    assert week.compared.length == week.range.length and week.range.finest == HOUR
    assert bound({"queue": queue.pk}).range.bucket == 5 * MINUTE


def test_an_instant_between_two_steps_is_rounded_to_the_step():
    """A browser refuses to submit another one."""
    shown = [MomentInput().format_value(value) for value in ("2026-03-01T10:07", NOON + 14 * MINUTE, "x", None)]
    assert shown == ["2026-03-01T10:05", "2026-03-01T12:10", "x", None]


class Limited(ReportForm):
    DEFAULTS = {"range": "7d", "limit": "5"}
    compare = None
    limit = django_forms.IntegerField(min_value=1)


@pytest.mark.django_db(transaction=True)
def test_a_form_of_several_reports_has_the_fields_of_all(queue):
    waiting = registry.BY_SLUG["waiting"]
    limited = replace(waiting, slug="limited", form=Limited)
    form, _ = asking.asked_of([limited], {"queue": queue.pk})
    assert form.cleaned_data["limit"] == 5 and "compare" not in form.fields
    both, scope = asking.asked_of([waiting, limited], {"queue": queue.pk, "compare": "week", "limit": 7})
    assert both.cleaned_data["limit"] == 7 and scope.compared is not None
    alone, same = asking.asked_of([waiting], {"queue": queue.pk, "compare": "week"})
    assert requests.key_of(waiting, scope, both) == requests.key_of(waiting, same, alone), "fields of others do not matter"
    other, _ = asking.asked_of([waiting, limited], {"queue": queue.pk, "compare": "week", "limit": 8})
    assert requests.key_of(limited, scope, both) != requests.key_of(limited, scope, other)


@pytest.mark.django_db(transaction=True)
def test_ids_and_paths_are_read_once(queue):
    """Rows of tables look them up one by one."""
    scope = bound({"namespace": "demo"})
    assert scope.ids is scope.ids and scope.paths is scope.paths and scope.paths == {queue.pk: "billing/orders"}


# Cards


AXIS = Table("axis", "Data", [Column("at", "At", "instant"), Column("n", "Number", "count"), Column("m", "Most", "count")],
             [(NOON + HOUR, 2, 3), (NOON, 1, None)], is_axis=True)  # fmt: skip


def test_a_card_shows_the_first_chart_and_the_rest_in_its_details():
    first, second = Figure("One", [], columns="n"), Figure("Two", [])
    sections = [
        Section("text", "Words", "A sentence."),
        Section("drawn", "Only drawn", figures=[first]),
        Section("both", "Both", figures=[second], notes=["A <note>."]),
        Section("data", "Data", table=AXIS),
    ]
    card = cards.made_card(registry.BY_SLUG["waiting"], Report("Found.", sections, ["All."], 7))
    assert (card.sentence, list(card.notes), card.generated) == ("Found.", ["All."], 7)
    assert 'aria-label="One.' in card.picture and "Two" not in card.picture
    assert "A sentence." in card.details and "Only drawn" not in card.details and "A &lt;note&gt;." in card.details
    assert 'value="axis.csv"' in card.details and "One." not in card.details
    assert cards.made_card(registry.BY_SLUG["waiting"], Report("", refusal="Too few.")).details == ""


def test_the_code_that_makes_cards_is_where_their_version_looks_for_it():
    """So that a card is made again after any of it changed."""
    assert all(any(folder.glob("*.py")) for folder in cards.MADE_BY)


def test_the_values_at_the_pointer_are_those_of_the_table_oldest_first():
    lines = cards.readings(Figure("", [], columns="m n"), AXIS).split("\n")
    assert lines == ["At\tMost\tNumber", "2026-03-01 12:00\t–\t1", "2026-03-01 13:00\t3\t2"]
    assert cards.readings(Figure("", []), AXIS) == ""


@pytest.mark.django_db(transaction=True)
def test_a_card_is_rendered_once_for_each_result(viewer, queue, monkeypatch):
    made = []
    monkeypatch.setattr(cards, "made_card", lambda *given, make=cards.made_card: made.append(given) or make(*given))
    url = at("analysis_report", "waiting", queue=queue.pk)
    for waits in (1.0, 1.0, 50.0):
        result = a_stored_result([queue], waits=waits)
        card = AnalysisResult.objects.get().card
        assert card is None
        first = body_of(viewer.get(url))
        assert body_of(viewer.get(url)).count("half were received") == first.count("half were received") == 1
        assert AnalysisResult.objects.get(pk=result.pk).card
    assert len(made) == 3
    AnalysisResult.objects.update(made_at=datetime.now(UTC))  # another result, whose writer did not remove the card
    viewer.get(url)
    assert len(made) == 4


@pytest.mark.django_db(transaction=True)
def test_every_report_is_a_page_and_a_fragment(viewer, queue):
    for slug, analysis in registry.BY_SLUG.items():
        url = at("analysis_report", slug, queue=queue.pk)
        body = body_of(viewer.get(url))
        assert body.count("<h1") == 1 and analysis.question in body
        fragment = viewer.get(f"{url}&range=7d", headers={"HX-Request": "true"})
        assert fragment.status_code == 200 and b"<html" not in fragment.content
        whole = body_of(viewer.get(at("analysis_report", slug, namespace="demo")))
        assert ("is about a single queue" in whole) == analysis.needs_entity
        assert viewer.get(f"{url}&file=none.csv").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_table_can_be_downloaded(viewer, queue):
    a_stored_result([queue])
    url = at("analysis_report", "waiting", queue=queue.pk)
    for file_format, magic in (("csv", b"share,"), ("parquet", b"PAR1")):
        file = viewer.get(url, {"queue": queue.pk, "file": f"shares.{file_format}"})
        assert file.status_code == 200 and file.content.startswith(magic) and "attachment" in file["Content-Disposition"]
    assert viewer.get(url, {"queue": queue.pk, "file": "shares.exe"}).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_reports_of_missing_entities_are_not_found(viewer):
    url = at("analysis_report", "waiting")
    for query in ({"queue": "x"}, {"queue": 10**9}, {"queue": "9" * 40}, {"namespace": "none"}, {"namespace": "a\x00b"}, {}):
        assert viewer.get(url, query).status_code == 404, query
    assert viewer.get(at("analysis_report", "none")).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_only_administrators_with_admin_access_can_change_the_archive_retention(client, queue, settings):
    admin = signed_in(client, ADMINISTRATOR)
    page, link = at("analyses", namespace="demo"), f"/namespace/{queue.namespace_id}/change/"
    assert link in body_of(admin.get(page))
    get_user_model().objects.update(is_staff=False)
    assert link not in body_of(admin.get(page))
    settings.ROOT_URLCONF = ModuleType("without_admin")
    settings.ROOT_URLCONF.urlpatterns = [pattern for pattern in urls.urlpatterns if getattr(pattern, "app_name", "") != "admin"]
    get_user_model().objects.update(is_staff=True)
    assert link not in body_of(admin.get(page))


@pytest.mark.django_db(transaction=True)
def test_the_landing_page_shows_the_archive_retention(viewer, queue):
    assert "Events of demo are kept indefinitely." in body_of(viewer.get(at("analyses", namespace="demo")))
    Namespace.objects.filter(name="demo").update(archive_days=30)
    assert "kept for 30 days; roll-ups are kept indefinitely." in body_of(viewer.get(at("analyses", queue=queue.pk)))
    assert "kept for 30 days" in body_of(viewer.get(at("analyses")))  # of the namespace that was looked at last
