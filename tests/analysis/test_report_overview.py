"""The overview of what was unusual: the computation as tables, and the page."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from broker_core.history import schema
from broker_core.namespaces import get_clock
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.reports import overview
from explorer.analysis.reports.overview import ARRIVALS, LOCKS, LOSSES, WAITING
from explorer.analysis.reports.scope import Range

from .conftest import NOON

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
HOURS = [NOON + i * HOUR for i in range(4)]
LONG_AGO = NOON - 5 * WEEK


def usual(value: float, **changes: float) -> dict:
    """A value in each hour of four weeks before noon, and in the four hours after it; changes: those of the latter, h0 to h3."""
    series = {NOON + i * HOUR: value for i in range(-28 * 24, 4)}
    return series | {HOURS[int(name[1:])]: other for name, other in changes.items()}


@pytest.mark.parametrize(
    ("metric", "values", "found"),
    [
        (ARRIVALS, usual(100), []),
        (ARRIVALS, usual(100, h1=200, h2=180), [(HOURS[1], HOURS[3], 380, 200, 10)]),
        (ARRIVALS, usual(100, h1=0), [(HOURS[1], HOURS[2], 0, 100, -10)]),
        (ARRIVALS, usual(100, h0=200, h1=0), [(HOURS[0], HOURS[1], 200, 100, 10), (HOURS[1], HOURS[2], 0, 100, -10)]),
        (LOSSES, usual(100, h1=0), []),
        (LOSSES, {HOURS[2]: 9}, [(HOURS[2], HOURS[3], 9, 0, 9)]),
        (LOCKS, {HOURS[2]: 4}, []),
        (WAITING, usual(100, h3=180), [(HOURS[3], HOURS[3] + HOUR, 180, 100, 10)]),
        (WAITING, usual(100, h3=120), []),
        (WAITING, {HOURS[3]: 180}, []),
    ],
)
def test_what_is_unusual(metric, values, found):
    got = overview.findings({(metric, 1): values}, HOURS, LONG_AGO)
    assert [(one.start, one.end, one.was, one.usual, one.score) for one in got] == found


def test_the_usual_is_that_of_the_weekday_if_it_is_known():
    busy = {NOON - i * DAY: 1000.0 if i % 7 == 0 else 10.0 for i in range(29)}
    assert overview.findings({(ARRIVALS, 1): busy}, HOURS[:1], LONG_AGO) == []
    assert [one.usual for one in overview.findings({(ARRIVALS, 1): busy}, HOURS[:1], NOON - 10 * DAY)] == [10]


@pytest.mark.parametrize(("since", "count"), [(5 * WEEK, 5), (20 * DAY, 20), (3 * DAY, 3), (2 * DAY, 48), (23 * HOUR, None)])
def test_which_hours_say_what_is_usual(since, count):
    found = overview.usual_hours(NOON - since, NOON, NOON)
    assert (found and len(found)) == count and all(one < NOON for one in found or ())


def test_findings_are_ranked_and_said():
    series = {(ARRIVALS, 1): usual(100, h1=200), (WAITING, 2): usual(bin_of(1_000_000), h2=bin_of(60_000_000))}
    found = overview.findings(series, HOURS, LONG_AGO)
    assert [one.entity_id for one in found] == [2, 1]
    assert overview.sentence(found, {1: "a", 2: "b"}) == (
        "2 findings. Most unusual: b, 2026-03-01 14:00 to 2026-03-01 15:00: messages waited longer than usual (1.0 min, usually "
        "1.0 s)."
    )
    assert overview.sentence([], {}) == "Nothing was unusual for the hour and the weekday."


def test_messages_that_are_still_there_have_entered_and_wait():
    there = [SimpleNamespace(entity_id=1, hour=NOON, received=False, waited_us=60_000_000, messages=12)]
    found = overview.by_hour(overview.of_present(there))
    assert found[ARRIVALS, 1] == {NOON: 12} and found[WAITING, 1] == {NOON: bin_of(60_000_000)}
    assert found[LOSSES, 1] == {}


def test_the_page_needs_history_and_leads_to_the_evidence(report_of, queue, monkeypatch):
    assert "the overview needs 24 hours of it before the range" in report_of("overview", queue=queue.pk)
    hour = f"{get_clock('reports').now:%Y-%m-%dT%H}"
    begun = {"range": "custom", "start": f"{hour}:00", "end": f"{hour}:01"}
    assert "no whole hour that is over" in report_of("overview", queue=queue.pk, **begun)
    monkeypatch.setattr(overview, "usual_hours", lambda since, before, at: [before - i * HOUR for i in range(1, 25)])
    monkeypatch.setattr(overview, "LEAST_COUNT", 1)
    monkeypatch.setattr(overview, "LEAST_SCORE", 1)
    body = report_of("overview", namespace="reports")
    assert "More messages entered" in body and f'"/analyses/flow/?queue={queue.pk}&range=custom&start=' in body


def test_what_was_unusual_in_another_range(monkeypatch):
    series = {(ARRIVALS, 1): usual(100, h1=200), (LOSSES, 1): usual(0, h2=9)}
    found, span = overview.findings(series, HOURS, LONG_AGO), Range(NOON - DAY, NOON)
    begin = "From 2026-02-28 12:00 to 2026-03-01 12:00"
    for before, said in (
        (found[1:], f"{begin} there was 1 finding, 1 of the same kind, such as in q: more messages were lost."),
        ([replace(found[0], entity_id=2)], f"{begin} there was 1 finding, none of the same kind."),
        ([], f"{begin} nothing was unusual."),
    ):
        monkeypatch.setattr(overview, "unusual", lambda rows, span, before=before: before)
        assert overview.compared(found, None, span, {1: "q"}) == said
    monkeypatch.undo()
    assert "too little history before" in overview.compared(found, schema.ROLLUP.empty_table(), span, {1: "q"})
