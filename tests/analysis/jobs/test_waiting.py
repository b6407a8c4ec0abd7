"""Waiting and work: histograms by interval and queue, with messages that were never received."""

from datetime import timedelta

from explorer.analysis.jobs import measures
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.jobs.reports import waiting

from .rows import HOUR, MINUTE, NOON, a_request, history, listed


def test_histograms_by_interval_count_received_waiting_and_processed_messages(spark):
    here = history(
        spark,
        lives=[
            {"waiting_us": 1000, "processing_us": 50},
            {"waiting_us": 1000, "enqueued_at": NOON + 7 * MINUTE},
            {"never_received_us": 9_000_000, "enqueued_at": NOON + 7 * MINUTE, "entity_id": 2},
            {"waiting_us": 1000, "enqueued_at": NOON - MINUTE},  # before the range
        ],
        open=[{"enqueued_at": NOON + 50 * MINUTE}],
    )
    tables = waiting.tables(here)
    five = timedelta(minutes=5)
    assert listed(tables["times"], "at", "measure", "bins", "counts") == sorted(
        [
            (NOON, measures.WAITING, [bin_of(1000)], [1]),
            (NOON, measures.PROCESSING, [bin_of(50)], [1]),
            (NOON + five, measures.WAITING, [bin_of(1000)], [1]),
            (NOON + five, measures.NEVER_RECEIVED, [bin_of(9_000_000)], [1]),
            (NOON + 10 * five, measures.NEVER_RECEIVED, [bin_of(600_000_000)], [1]),
        ],
        key=repr,
    )
    assert listed(tables["queues"], "entity_id", "measure", "counts") == [
        (1, measures.WAITING, [2]), (1, measures.NEVER_RECEIVED, [1]), (1, measures.PROCESSING, [1]),
        (2, measures.NEVER_RECEIVED, [1]),
    ]  # fmt: skip
    assert listed(tables["before"]) == []
    assert listed(tables["known"], "since", "messages") == [(NOON - 5 * MINUTE, 4)]


def test_the_comparison_range_is_counted_separately(spark):
    asked = a_request(compared=Span(NOON - HOUR, NOON))
    here = history(spark, asked, lives=[{"waiting_us": 5}, {"waiting_us": 7, "enqueued_at": NOON - MINUTE}])
    assert listed(waiting.tables(here)["before"], "bins") == [([7],)]
