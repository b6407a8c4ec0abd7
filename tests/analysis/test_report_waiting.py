"""Waiting and work: the computation as tables, and the page."""

from collections import Counter
from datetime import timedelta

from explorer.analysis.jobs.measures import NEVER_RECEIVED, PROCESSING, WAITING, bin_of
from explorer.analysis.reports import waiting
from explorer.analysis.reports.drawings import duration_heat_map
from explorer.analysis.reports.scope import Range
from explorer.analysis.reports.waiting import Times

from .conftest import NOON

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)


def bins(*seconds: float) -> Counter:
    return Counter(bin_of(round(one * 1e6)) for one in seconds)


def near(found: timedelta, seconds: float) -> bool:
    return abs(found.total_seconds() / seconds - 1) < 0.04


def test_rows_are_added_up_by_key_and_measure():
    rows = [("a", WAITING, 7, 2), ("a", WAITING, 7, 1), ("b", NEVER_RECEIVED, 9, 4), ("a", PROCESSING, 3, 5), ("a", 0, 0, 9)]
    assert waiting.times_by(rows) == {
        "a": Times(Counter({7: 3}), Counter(), Counter({3: 5})), "b": Times(Counter(), Counter({9: 4}), Counter())
    }  # fmt: skip


def test_percentiles_count_messages_that_were_not_received():
    assert near(Times(bins(1, 2, 3, 4)).wait(0.5), 2)
    assert near(Times(bins(1, 2), bins(60, 60)).wait(0.5), 2)
    assert Times(bins(1), bins(60, 60)).wait(0.5) is None
    assert near(Times(work=bins(1, 2, 3, 4)).processing(0.75), 3)
    assert Times().wait(0.5) is None and Times().processing(0.5) is None


def test_the_sentence_names_the_slowest_interval():
    times = Times(bins(*[10] * 60, *[100] * 40), work=bins(*[2] * 50))
    said = waiting.sentence(times, {NOON: 10 * SECOND, NOON + HOUR: 100 * SECOND})
    assert said == (
        "Of 100 messages, half were received within 10 s, 95\xa0% within 1.7 min. Processing took 2.0 s in the median, 95\xa0% "
        "within 2.0 s. Slowest were those from 2026-03-01 13:00 on: half waited 1.7 min, 10 times as long."
    )
    assert "half waited 5.6 h, over 1,000 times as long" in waiting.sentence(times, {NOON: 20_000 * SECOND})
    assert waiting.sentence(times, {NOON: None}).endswith("from 2026-03-01 12:00 on, fewer than half were received.")
    assert "the median is beyond what was observed" in waiting.sentence(Times(bins(1), bins(9, 9)), {})
    assert waiting.sentence(Times(), {}) == "No messages entered in this range."


def test_a_heat_map_has_a_row_for_a_quarter_of_a_decade():
    counts = {(0, 1.0): 1, (1, 1.0): 1, (2, 1.0): 100, (2, 9.5): 3}
    drawn = duration_heat_map(SPAN.buckets, counts, {"p50": [SECOND] * 4}, "wide", SPAN.partial)
    assert [(shape.name, shape.path) for shape in drawn.cells] == [
        ("heat-0", "M0 3.5h2"), ("heat-1", "M2 0.5h1"), ("heat-4", "M2 3.5h1")
    ]  # fmt: skip
    assert drawn.down * 4 == drawn.chart.bottom - drawn.chart.top


def test_the_page_has_both_heat_maps_and_leads_to_the_messages(report_of, queue):
    body = report_of("waiting", queue=queue.pk, compare="before")
    assert "Of 6 messages, half were received within 2.0 h" in body and "there were no messages" in body
    assert body.count('<svg class="chart heat') == 4
    assert f"/analyses/messages/?queue={queue.pk}" in body


def test_a_namespace_lists_the_slowest_queue_first(report_of, queue, other_queue):
    body = report_of("waiting", namespace="reports").partition('id="queues"')[2]
    assert body.index(">other<") < body.index(">q<") and "100.0 %" in body
