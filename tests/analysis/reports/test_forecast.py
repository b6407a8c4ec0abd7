"""Recurring backlog: which peaks repeat, when they come next, and how much history that takes."""

from types import SimpleNamespace

import pytest

from explorer.analysis.reports import forecast
from explorer.analysis.reports.forecast import Peak
from explorer.analysis.survival import CannotTell

from .report_inputs import DAY, HOUR, NOON, a_scope, tables

WEEK = 7 * DAY
MONDAY = NOON - 12 * HOUR - 6 * DAY  # before noon, a Sunday
EIGHT = [0] * 8


def high(slot: int, weeks: list[int], backlog: list[int] | None = None, entity_id: int = 1):
    values = {"entity_id": entity_id, "slot": slot, "backlog": backlog or [40] * 8, "weeks": weeks}
    return SimpleNamespace(**values)


def hours(**changes: list[int]) -> list[dict]:
    """All hours of the week with nothing in them; h9: the backlog of the tenth."""
    return [{"slot": i, "arrivals": EIGHT, "backlog": changes.get(f"h{i}", EIGHT)} for i in range(168)]


def test_adjacent_hours_are_one_peak():
    peaks = forecast.peaks([high(9, [0, 1, 2], [10, 20, 30, 0]), high(10, [0, 1, 3], [50, 20, 0, 40]), high(20, [0, 1, 2])], 4)
    assert peaks == [Peak(1, 20, 1, {0: 40, 1: 40, 2: 40}), Peak(1, 9, 2, {0: 50, 1: 20, 2: 30, 3: 40})]
    assert peaks[1].when == "Monday 09:00 to 11:00" and peaks[1].median == 35


def test_hours_across_the_end_of_the_week_are_one_peak():
    [peak] = forecast.peaks([high(0, [0, 1, 2]), high(167, [0, 1, 2])], 3)
    assert (peak.slot, peak.hours, peak.when) == (167, 2, "Sunday 23:00 to 01:00")


@pytest.mark.parametrize(
    ("seen", "weeks", "count"), [([0, 1, 2], 3, 1), ([0, 1, 3], 3, 0), ([0, 1, 2], 8, 0), ([0, 1, 2, 3], 8, 1)]
)
def test_a_peak_must_repeat_in_three_weeks_and_in_half_of_all_weeks(seen, weeks, count):
    assert len(forecast.peaks([high(9, seen)], weeks)) == count


def test_a_peak_has_its_next_and_its_last_occurrence():
    peak = Peak(1, 9, 2, {1: 40, 2: 40, 3: 40})
    assert forecast.next_at(peak, NOON) == MONDAY + WEEK + 9 * HOUR
    assert forecast.next_at(peak, MONDAY + 10 * HOUR) == MONDAY + 9 * HOUR
    assert forecast.last_at(peak, NOON) == MONDAY - WEEK + 9 * HOUR


def test_a_peak_across_the_end_of_the_week_is_not_over_on_monday():
    peak = Peak(1, 166, 4, {1: 40, 2: 40, 3: 40})
    assert forecast.next_at(peak, MONDAY + HOUR) == MONDAY - 2 * HOUR
    assert forecast.next_at(peak, MONDAY + 2 * HOUR) == MONDAY + 166 * HOUR


def test_the_answer_shows_the_next_seven_days():
    inputs = tables(
        hours=hours(h9=[30, 10, 20, 99, 0, 0, 0, 0]),
        peaks=[{"entity_id": 2, "slot": 9, "backlog": [30, 10, 20, 0, 0, 0, 0, 0], "weeks": [0, 1, 2]}],
        known=[{"since": NOON - 3 * WEEK, "messages": 0, "generated": 3}],
    )
    report = forecast.present(a_scope("a", "b", start=NOON - DAY, end=NOON), {}, inputs)
    assert report.finding == (
        "Probably yes: b had a large backlog on Monday 09:00 to 10:00 UTC in 3 of 3 weeks (median 20 messages, at most 30). It "
        "is expected next on 2026-03-02 09:00."
    )
    assert [section.name for section in report.sections] == ["backlog", "peaks", "arrivals", "data"] and report.generated == 3
    rows = {row[0]: row[4:] for row in report.tables["hours"].rows}
    assert len(rows) == 168 and rows[MONDAY + WEEK + 9 * HOUR] == (20, 10, 30), "not of the fourth week, before the history"
    assert "/analyses/report/flow/?queue=2&range=custom&start=2026-02-23T08" in report.tables["peaks"].rows[0][5].url


def test_a_short_history_says_when_a_forecast_becomes_possible():
    inputs = tables(hours=hours(), peaks=[], known=[{"since": NOON - 2 * WEEK, "messages": 0, "generated": 0}])
    with pytest.raises(CannotTell, match="begins at 2026-02-15 12:00. .* can be told from 2026-03-08 12:00 on"):
        forecast.present(a_scope(end=NOON, start=NOON - DAY), {}, inputs)
    inputs = tables(hours=hours(), peaks=[])
    assert forecast.present(a_scope(), {}, inputs).finding.startswith("No backlog of shop/q came again")
