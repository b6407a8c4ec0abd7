"""Waiting and work: the answer, and its pictures from histograms."""

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

from explorer.analysis.jobs.measures import NEVER_RECEIVED, PROCESSING, WAITING, bin_of
from explorer.analysis.reports import waiting
from explorer.analysis.reports.scope import Range
from explorer.analysis.reports.times import Times, times_by, together
from explorer.charts.columns import duration_heat_map

from .report_inputs import DAY, HOUR, NOON, a_scope, tables

SECOND = timedelta(seconds=1)


def bins(*seconds: float) -> Counter:
    return Counter(bin_of(round(second * 1e6)) for second in seconds)


def near(found: timedelta, seconds: float) -> bool:
    return abs(found.total_seconds() / seconds - 1) < 0.04


def row(seconds: float, count: int, measure: int = WAITING, **keys) -> dict:
    return {**keys, "measure": measure, "bins": [bin_of(round(seconds * 1e6))], "counts": [count]}


def test_rows_are_summed_by_key_and_measure():
    rows_given = [("a", WAITING, 7, 2), ("a", WAITING, 7, 1), ("b", NEVER_RECEIVED, 9, 4), ("a", PROCESSING, 3, 5)]
    rows = [
        SimpleNamespace(key=key, measure=measure, bins=[number], counts=[count]) for key, measure, number, count in rows_given
    ]
    times = times_by(rows, "key")
    assert times == {
        "a": Times(Counter({7: 3}), Counter(), Counter({3: 5})), "b": Times(Counter(), Counter({9: 4}), Counter())
    }  # fmt: skip
    assert together(times.values()) == Times(Counter({7: 3}), Counter({9: 4}), Counter({3: 5}))


def test_percentiles_include_messages_that_were_not_received():
    assert near(Times(bins(1, 2, 3, 4)).wait(0.5), 2)
    assert near(Times(bins(1, 2), bins(60, 60)).wait(0.5), 2)
    assert Times(bins(1), bins(60, 60)).wait(0.5) is None
    assert near(Times(work=bins(1, 2, 3, 4)).processing(0.75), 3)
    assert Times().wait(0.5) is None and Times().processing(0.5) is None


def test_the_sentence_names_the_queue_and_the_slowest_interval():
    times = Times(bins(*[10] * 60, *[100] * 40), work=bins(*[2] * 50))
    said = waiting.sentence("shop/q", times, {NOON: 10 * SECOND, NOON + HOUR: 100 * SECOND})
    assert said == (
        "Of 100 messages in shop/q, half were received within 10 s, 95\xa0% within 1.7 min. Processing took 2.0 s in the median, "
        "95\xa0% within 2.0 s. Slowest were those from 2026-03-01 13:00 on: half waited 1.7 min, 10 times as long."
    )
    assert "half waited 5.6 h, over 1,000 times as long" in waiting.sentence("q", times, {NOON: 20_000 * SECOND})
    assert waiting.sentence("q", times, {NOON: None}).endswith("from 2026-03-01 12:00 on, fewer than half were received.")
    assert "the median is beyond what was observed" in waiting.sentence("q", Times(bins(1), bins(9, 9)), {})
    assert waiting.sentence("q", Times(), {}) == "No messages entered q in this range."


def test_a_namespace_shows_its_slowest_queue_and_one_chart_before_the_details():
    inputs = tables(
        times=[row(1, 50, at=NOON), row(60, 50, at=NOON + HOUR / 2), row(1, 20, PROCESSING, at=NOON)],
        queues=[row(1, 50, entity_id=1), row(60, 50, entity_id=2)],
        known=[{"since": NOON - DAY, "messages": 100, "generated": 7}],
    )
    report = waiting.present(a_scope("a", "b"), {}, inputs)
    assert "The slowest queue is b: 95\xa0% within 1.0 min." in report.finding and report.generated == 7
    assert [section.name for section in report.sections] == ["wait", "work", "shares", "queues", "data"]
    first = report.tables["queues"].rows[0]
    assert first[0] == "b" and first[1].value == 50 and first[1].url.startswith("/analyses/messages/?queue=2&start=")
    assert len(report.tables["times"].rows) == 12


def test_without_messages_the_report_has_no_sections():
    report = waiting.present(a_scope(), {}, tables(times=[], queues=[]))
    assert report.finding == "No messages entered shop/q in this range." and not report.sections


def test_a_heat_map_has_four_rows_for_each_decade():
    span = Range(NOON, NOON + 4 * DAY)
    counts = {(0, 1.0): 1, (1, 1.0): 1, (2, 1.0): 100, (2, 9.5): 3}
    starts = span.buckets[:4]
    drawn = duration_heat_map(starts, counts, {"p50": [SECOND] * 4}, "wide", [False] * 4)
    assert [(shape.name, shape.path) for shape in drawn.cells] == [
        ("heat-0", "M0 3.5h2"), ("heat-1", "M2 0.5h1"), ("heat-4", "M2 3.5h1")
    ]  # fmt: skip
    assert drawn.down * 4 == drawn.bottom - drawn.top
