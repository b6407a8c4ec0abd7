"""Insights: the charts of each range and scope, their table, marks of changes, and what is refused."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from broker_core import service_bus, sweeps
from broker_core.common.types import Actor, Right
from broker_core.reads import Times, TrafficPoint
from broker_core.service_bus.rules.values import Message
from explorer.charts import changes, traffic
from explorer.models import AuditRecord
from explorer.pages import insights

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def points(*counts, seconds=60, **values):
    """An interval for each count of sent messages; the last is not over."""
    return [
        TrafficPoint(
            START + i * timedelta(seconds=seconds), seconds, n, n // 2, 0, partial=i == len(counts) - 1,
            **{name: of[i] for name, of in values.items()},
        )
        for i, n in enumerate(counts)
    ]  # fmt: skip


def panel(name, made):
    return next(candidate for candidate in made if candidate.name == name)


@pytest.mark.parametrize(
    ("sent", "seconds", "unit"),
    [(600, 10, "second"), (10, 10, "minute"), (0, 10, "minute"), (1, 600, "hour"), (1, 43_200, "day")],
)
def test_rates_have_a_readable_unit(sent, seconds, unit):
    assert traffic.rate_unit(points(sent, sent, seconds=seconds))[1] == unit


def test_the_current_interval_is_hatched_and_has_a_rate_after_a_quarter_of_its_length():
    some = points(60, 60, 30)
    early, late = (
        panel("rates", traffic.panels(some, now=some[-1].at + timedelta(seconds=passed))).charts[0] for passed in (5, 30)
    )
    assert len(early.bands) == len(late.bands) == 1

    def ends(chart):
        return next(shape.path for shape in chart.shapes if shape.name == "sent").count("L")

    assert (ends(early), ends(late)) == (1, 2)


def test_the_legend_has_the_latest_rates_in_the_charts_unit_and_the_caption_the_totals():
    some = points(600, 276, 90)
    for passed, sent, completed in ((5, "4.6/s", "2.3/s"), (30, "3.0/s", "1.5/s")):
        rates = panel("rates", traffic.panels(some, now=some[-1].at + timedelta(seconds=passed)))
        assert [(line.value, line.word) for line in rates.lines] == [(sent, "in"), (completed, "out")]
        assert rates.title == "Messages per second" and rates.sentence == "966 in and 483 out in 3 min"
    idle = panel("rates", traffic.panels(points(0, 0), now=START))
    assert [line.value for line in idle.lines] == ["0/min", "0/min"]


def test_times_are_percentiles_in_total_and_for_each_interval():
    slow, quick = Times(20, 10, (0,) * 27 + (2,)), Times(0.02, 0.002, (0, 0, 0, 10))
    some = points(1, 1, waiting=[slow, quick])
    waiting = panel("waiting", traffic.panels(some, now=START))
    assert [line.value for line in waiting.lines] == ["2.5 ms", "10 s", "10 s"]
    assert panel("processing", traffic.panels(some, now=START)).note == "No completed messages in 2 min."


def test_the_table_has_the_numbers_of_the_charts():
    some = points(5, 7, active=[4, 9], dead=[0, 2])
    newest, oldest = traffic.rows(some)
    names = [column.name for column in traffic.COLUMNS]
    for row, point in ((oldest, some[0]), (newest, some[1])):
        for name in ("sent", "completed", "active", "dead"):
            assert row.values[names.index(name)] == getattr(point, name)
    drawn = {name for panel in traffic.panels(some, now=START) for name in panel.columns.split()}
    assert drawn <= set(names)


def test_a_beginning_is_marked_and_the_time_before_it_is_shaded_and_has_no_line():
    some = points(0, 0, 60, 90)
    beginning = traffic.Beginning(START + timedelta(minutes=2), "shop created")
    for since, before, first in ((beginning.at, 2, 2), (START + timedelta(seconds=90), 1.5, 1), (None, 0, 0)):
        chart = panel("rates", traffic.panels(some, now=some[-1].at + timedelta(minutes=1), since=since)).charts[0]
        assert chart.before == pytest.approx(before * chart.slot, abs=0.1)
        line = next(shape.path for shape in chart.shapes if shape.name == "sent")
        assert line.startswith(f"M{chart.left + (first + 0.5) * chart.slot:.1f} ")
    generated = panel("rates", traffic.panels(points(5, 5, 60), now=START, since=START + timedelta(minutes=2))).charts[0]
    assert next(shape.path for shape in generated.shapes if shape.name == "sent").startswith(f"M{52 + generated.slot / 2:.1f} ")
    [mark] = traffic.marked([], beginning)
    assert (mark.letter, mark.at, mark.text, mark.actor) == ("A", beginning.at, "shop created", "")


def test_only_the_newest_changes_are_marked():
    records = [
        SimpleNamespace(at=START + timedelta(minutes=i), action="a", namespace="n", path="p", actor="user:a") for i in range(30)
    ]
    marks = traffic.marked(reversed(records))
    assert [marks[0].at, marks[-1].at] == [records[10].at, records[-1].at]
    assert marks[0].letter == "A"


@pytest.mark.parametrize("shown", insights.RANGES, ids=lambda one: one.name)
def test_each_range_shows_its_traffic(shop, as_, shown):
    sweeps.roll_up_counts()
    html = as_("viewer").get(f"/insights/?range={shown.name}&entity={shop}").content.decode()
    assert "7 in and 1 out" in html.replace("\n", " ")
    assert ('data-live="' in html) == bool(shown.refresh_seconds)


def test_a_change_of_settings_is_marked_and_listed(shop, as_):
    AuditRecord.objects.create(
        actor="user:ada", action="change settings", namespace=shop.namespace, path=shop.path, outcome="done"
    )
    html = as_("viewer").get(f"/insights/?range=5m&entity={shop}").content.decode()
    assert html.count(f"change settings: {shop}</title>") == 14  # seven charts, each in two widths
    assert re.search(rf'{shop} by <a class="actor".*?</svg>ada</a>', " ".join(html.split()))


@pytest.mark.parametrize("of", ["entity={0}", "namespace={0.namespace}", "namespace="])
def test_a_deploy_is_marked_on_every_chart_that_its_namespace_is_in(shop, as_, of):
    changes.mark_deploy("1.4", [shop.namespace], actor=Actor("process", "pipeline", Right.ALL))
    text = " ".join(as_("viewer").get(f"/insights/?range=5m&{of.format(shop)}").content.decode().split())
    title = f"deploy: {shop.namespace}: 1.4</title>"
    assert text.count(title) == text.count('<svg class="chart') >= 12  # six charts or seven, each in two widths
    assert f'Deploy <span class="quiet">{shop.namespace}: 1.4 by' in text


def test_the_creation_of_a_namespace_is_marked(shop, as_):
    text = as_("viewer").get(f"/insights/?range=1h&namespace={shop.namespace}").content.decode()
    assert f"{shop.namespace} created".capitalize() in text and 'class="before"' in text


def test_the_download_has_the_same_numbers(shop, as_):
    service_bus.send(shop, [Message(b"x")] * 3)
    answer = as_("viewer").get(f"/insights/?range=1h&entity={shop}&format=csv")
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sum(int(line["sent"]) for line in lines) == 10
    assert int(lines[-1]["active"]) == 6


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("range=2h", 400, "2h"),
        ("entity=nothing", 400, "nothing"),
        ("entity=no/such", 404, "There is no queue or topic named no/such"),
        ("namespace=none-such", 404, "There is no namespace named none-such"),
    ],
)
def test_a_link_to_a_missing_object_is_refused_with_a_reason(broker_database, as_, query, status, text):
    answer = as_("viewer").get(f"/insights/?{query}")
    assert answer.status_code == status
    assert text in answer.content.decode()
