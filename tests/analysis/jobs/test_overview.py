"""Overview: hours that were unusual for the hour and the weekday."""

from datetime import timedelta

import pytest

from explorer.analysis.jobs import measures, outcomes
from explorer.analysis.jobs.constants import ARRIVALS, FAILURES, LOCKS, LOSSES, WAITING
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.reports import overview

from .rows import HOUR, NOON, a_request, history, listed

DAY = timedelta(days=1)
ASKED = a_request(entity_ids=[1], span=Span(NOON, NOON + 2 * HOUR))


def count(at, messages: int, outcome: int = outcomes.COMPLETED, measure: int = measures.LIFE) -> dict:
    return {"measure": measure, "step": at, "end_step": at, "outcome": outcome, "messages": messages}


def every_hour(days: int, *changes: dict) -> list[dict]:
    """100 messages in each hour of some days before noon and the two hours after, but for the hours that `changes` have."""
    changed = {change["step"] for change in changes}
    hours = [NOON + i * HOUR for i in range(-24 * days, 2)]
    return [count(at, 100) for at in hours if at not in changed] + list(changes)


def unusual(spark, rows: list[dict], asked=ASKED, **others: list[dict]) -> list[tuple]:
    hours = overview.tables(history(spark, asked, counts=rows, **others))["hours"]
    return listed(hours, "metric", "at", "value", "usual", "score")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([], []),
        ([count(NOON, 200)], [(ARRIVALS, NOON, 200, 100, 10)]),
        ([count(NOON + HOUR, 0)], [(ARRIVALS, NOON + HOUR, 0, 100, -10)]),
        ([count(NOON, 100), count(NOON, 9, outcomes.EXPIRED)], [(LOSSES, NOON, 9, 0, 9)]),
        ([count(NOON, 100), count(NOON, 4, outcomes.EXPIRED)], []),
        (
            [count(NOON, 100), count(NOON, 9, Kind.LOCK_LOST, measures.ATTEMPT)],
            [(FAILURES, NOON, 9, 0, 9), (LOCKS, NOON, 9, 0, 9)],
        ),
        ([count(NOON, 100), count(NOON, 9, outcomes.MOVED, measures.ATTEMPT) | {"cause": "moved"}], []),  # by an operator
    ],
)
def test_unusual_hours_are_found(spark, changes, found):
    assert unusual(spark, every_hour(10, *changes)) == found


@pytest.mark.slow
def test_the_usual_value_is_that_of_the_weekday_if_known(spark):
    busy = [count(NOON - i * DAY, 1000 if i % 7 == 0 else 10) for i in range(28)]
    first = [count(NOON - 28 * DAY - HOUR, 1)]
    assert unusual(spark, first + busy) == []
    assert unusual(spark, busy[:14]) == [(ARRIVALS, NOON, 1000, 10, 990 / 10**0.5)]


@pytest.mark.slow
def test_an_early_history_is_compared_with_the_hours_before(spark):
    def begun(hours: int) -> list[dict]:
        return [count(NOON - i * HOUR, 100) for i in range(1, hours + 1)] + [count(NOON, 200), count(NOON + HOUR, 100)]

    assert unusual(spark, begun(6)) == [(ARRIVALS, NOON, 200, 100, 10)]
    assert unusual(spark, begun(5)) == []


def test_typical_durations_require_enough_messages(spark):
    def bins(at, number: int, messages: int) -> dict:
        return {"measures": [measures.WAITING], "step": at, "bins": [number], "counts": [messages]}

    days = [bins(NOON + hour * HOUR - i * DAY, 100, 10) for i in range(1, 6) for hour in (0, 1)]
    few, slow = bins(NOON, 400, 9), bins(NOON + HOUR, 180, 10)
    assert unusual(spark, every_hour(10), histograms=[*days, few, slow]) == [(WAITING, NOON + HOUR, 180, 100, 10)]


@pytest.mark.slow
def test_the_comparison_range_has_its_own_usual_values(spark):
    asked = a_request(entity_ids=[1], span=ASKED.span, compared=Span(NOON - DAY, NOON - DAY + HOUR))
    tables = overview.tables(history(spark, asked, counts=every_hour(10, count(NOON - DAY, 300))))
    assert listed(tables["before"], "at", "value") == [(NOON - DAY, 300)] and listed(tables["hours"]) == []


def test_a_range_without_a_whole_hour_is_not_judged(spark):
    asked = a_request(entity_ids=[1], span=Span(NOON, NOON + HOUR / 2))
    assert unusual(spark, every_hour(10, count(NOON, 500)), asked) == []
