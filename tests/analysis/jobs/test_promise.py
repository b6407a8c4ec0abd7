"""Service level: waiting by week or month of entering."""

from datetime import timedelta

from explorer.analysis.jobs import measures
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.jobs.reports import promise

from .rows import HOUR, NOON, a_request, history, listed

DAY = timedelta(days=1)
SUNDAY = NOON  # 2026-03-01


def tables_of(spark, days: int):
    asked = a_request(span=Span(SUNDAY - DAY, SUNDAY + days * DAY), now=SUNDAY + days * DAY)
    rows = [
        {"waiting_us": 5}, {"waiting_us": 5, "enqueued_at": SUNDAY + DAY}, {"waiting_us": 7, "enqueued_at": SUNDAY - 2 * DAY},
        {"never_received_us": 9, "enqueued_at": SUNDAY + DAY, "entity_id": 2},
    ]  # fmt: skip
    return listed(promise.tables(history(spark, asked, lives=rows))["queues"], "entity_id", "at", "measure", "bins", "counts")


def test_weeks_begin_on_monday(spark):
    midnight = SUNDAY - 12 * HOUR
    assert tables_of(spark, 30) == sorted(
        [
            (1, midnight - 6 * DAY, measures.WAITING, [bin_of(5)], [1]),
            (1, midnight + DAY, measures.WAITING, [bin_of(5)], [1]),
            (2, midnight + DAY, measures.NEVER_RECEIVED, [bin_of(9)], [1]),
        ],
        key=repr,
    )


def test_long_ranges_are_grouped_by_month(spark):
    march = SUNDAY - 12 * HOUR
    assert [row[:2] + row[4:] for row in tables_of(spark, 100)] == [(1, march, [2]), (2, march, [1])]
