"""What reports about deliveries share: the band of a share, Gantt charts and heat maps by name."""

from datetime import timedelta

import pytest

from explorer.analysis.reports.attempts import wilson
from explorer.analysis.reports.scope import Range
from explorer.charts.chart import WIDTHS
from explorer.charts.rows import gantt, named_heat_map

from .scopes import HOUR, SPAN

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("count", "of", "band"), [(0, 0, (0, 1)), (5, 10, (0.237, 0.763)), (10, 10, (0.722, 1))])
def test_a_share_has_a_confidence_band(count, of, band):
    assert wilson(count, of) == pytest.approx(band, abs=0.001)


def test_a_gantt_chart_has_a_row_for_each_message(monkeypatch):
    monkeypatch.setitem(WIDTHS, "wide", 520)
    bars = [("abandoned", 0 * SECOND, 10 * SECOND, "x"), ("completed", 30 * SECOND, 40 * SECOND, "y")]
    chart = gantt([("#1", bars)], "wide")
    assert [bar.path for bar in chart.shapes] == ["M52.0 14.0V28.0H167.0V14.0z", "M397.0 14.0V28.0H512.0V14.0z"]
    assert [tick.text for tick in chart.x_ticks] == ["0", "10 s", "20 s", "30 s", "40 s"]
    longer = gantt([("dead letters of invoices", []), ("a" * 40, [])], "narrow")
    assert [len(tick.text) for tick in longer.y_ticks] == [15, 15]


def test_a_heat_map_by_name_merges_equal_neighbours():
    span = Range(SPAN.start, SPAN.start + 4 * HOUR, finest=HOUR)
    drawn = named_heat_map(span.buckets, [("w", [0.5, 0, 0, 1]), ("w", [0, 1, 0, 0])], "wide")
    assert [(shape.name, shape.path) for shape in drawn.cells] == [("heat-2", "M0 0.5h1"), ("heat-4", "M3 0.5h1M1 1.5h1")]
