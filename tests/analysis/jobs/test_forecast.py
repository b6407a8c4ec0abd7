"""Recurring backlog: values by hour of the week, and the hours that were large in several weeks."""

from datetime import UTC, datetime, timedelta

from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import forecast

from .rows import HOUR, MINUTE, a_request, history, listed

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
WEEK = timedelta(days=7)
ASKED = a_request(span=Span(MONDAY - HOUR, MONDAY + MINUTE), now=MONDAY + MINUTE)


def batch(weeks: int, count: int = 12, hours: float = 9, entity_id: int = 1) -> list[dict]:
    """Messages that came on a Monday at 9 some weeks ago and stayed for half an hour."""
    at = MONDAY - weeks * WEEK + hours * HOUR
    return [{"enqueued_at": at + MINUTE, "ended_at": at + 31 * MINUTE, "entity_id": entity_id} for _ in range(count)]


def test_hours_of_the_week_have_a_value_for_each_week(spark):
    tables = forecast.tables(history(spark, ASKED, lives=batch(1) + batch(3, 20) + batch(9, 50)))
    hours = {slot: (arrivals, backlog) for slot, arrivals, backlog in listed(tables["hours"], "slot", "arrivals", "backlog")}
    values = [12, 0, 20, 0, 0, 0, 0, 0]
    assert len(hours) == 168 and hours[9] == (values, values) and hours[10] == ([0] * 8, [0] * 8)


def test_a_backlog_between_two_events_lasts_through_the_hours(spark):
    at = MONDAY - WEEK + 9 * HOUR
    tables = forecast.tables(history(spark, ASKED, lives=[{"enqueued_at": at, "ended_at": at + 2.5 * HOUR}]))
    backlog = dict(listed(tables["hours"], "slot", "backlog"))
    assert [backlog[slot][0] for slot in range(8, 13)] == [0, 1, 1, 1, 0]


def test_a_large_backlog_in_three_weeks_is_a_peak(spark):
    rows = [*batch(1), *batch(2), *batch(4), *batch(1, 9, hours=20), *(batch(1, 50, entity_id=2) + batch(2, 50, entity_id=2))]
    peaks = forecast.tables(history(spark, ASKED, lives=rows))["peaks"]
    assert listed(peaks, "entity_id", "slot", "backlog", "weeks") == [(1, 9, [12, 12, 0, 12, 0, 0, 0, 0], [0, 1, 3])]


def test_a_queue_that_always_has_a_backlog_has_no_peak(spark):
    start = MONDAY - 7 * WEEK
    rows = [{"enqueued_at": start, "ended_at": MONDAY + HOUR} for _ in range(12)]
    assert listed(forecast.tables(history(spark, ASKED, lives=rows + batch(1) + batch(2) + batch(3)))["peaks"]) == []
