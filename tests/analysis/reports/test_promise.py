"""Service level: how messages that were never received are counted, and the verdict by period."""

from collections import Counter
from datetime import timedelta

import pytest

from explorer.analysis.jobs.measures import NEVER_RECEIVED, WAITING, bin_of
from explorer.analysis.reports import promise
from explorer.analysis.reports.promise import Level, Promise, PromiseForm
from explorer.analysis.reports.times import Times

from .report_inputs import DAY, NOON, a_scope, tables

MINUTE = timedelta(minutes=1)
MONDAY = NOON - NOON.hour * timedelta(hours=1) - 6 * DAY
VALUES = {"share": 95.0, "time": MINUTE}


def seconds(**counts: int) -> Counter:
    """A histogram: s10=3 are 3 messages of 10 seconds."""
    return Counter({bin_of(int(name[1:]) * 1_000_000): count for name, count in counts.items()})


def row(at, count: int, wait: int = 10, measure: int = WAITING, entity_id: int = 1) -> dict:
    return {"entity_id": entity_id, "at": at, "measure": measure, "bins": [bin_of(wait * 1_000_000)], "counts": [count]}


@pytest.mark.parametrize(
    ("received", "never", "level"),
    [
        (seconds(s10=95, s90=5), seconds(), Level(100, 0.95, 5, 0)),
        (seconds(s10=90), seconds(s90=10), Level(100, 0.9, 10, 0)),
        (seconds(s10=90, s90=5), seconds(s5=5), Level(100, 90 / 95, 5, 5)),
        (seconds(s10=50), seconds(s30=50), Level(100, 0.5, 0, 50)),
        (seconds(), seconds(s30=9), Level(9, 0, 0, 9)),
    ],
)
def test_a_message_that_was_never_received_misses_the_target(received, never, level):
    found = promise.level(Times(received, never), MINUTE)
    assert (found.messages, found.late, found.undecided) == (level.messages, level.late, level.undecided)
    assert found.share_in_time == pytest.approx(level.share_in_time)


def test_few_messages_are_not_judged():
    half = Promise(0.5, MINUTE)
    assert [Level(n, kept, 0, 0).verdict(half) for n, kept in ((29, 0.1), (30, 0.49), (30, 0.5))] == ["", "broken", "kept"]


def test_the_answer_names_the_weeks_and_the_queue():
    rows = [
        row(MONDAY, 100), row(MONDAY + 7 * DAY, 80), row(MONDAY + 7 * DAY, 20, 300, entity_id=2),
        row(MONDAY + 7 * DAY, 30, 300, NEVER_RECEIVED, entity_id=2),
    ]  # fmt: skip
    scope = a_scope("a", "b", start=MONDAY, end=MONDAY + 14 * DAY)
    report = promise.present(scope, VALUES, tables(queues=rows))
    assert report.finding == (
        "The promise of 95\xa0% within 1 min was broken in 1 week of 2 (the week of 2026-03-02): 78.3\xa0% of 230 messages in "
        "all queues of shop were received within 1 min. b broke it most: 50 messages not in time."
    )
    week, messages, kept, late, undecided, verdict = report.tables["periods"].rows[0]
    assert (week, messages.value, late.value, undecided, verdict) == ("the week of 2026-03-02", 130, 50, 0, "broken")
    assert kept == pytest.approx(80 / 130) and "order=waiting" in late.url
    assert report.tables["queues"].rows[0][0] == "b"


def test_a_target_that_was_met_is_shown_by_month():
    scope = a_scope(start=NOON, end=NOON + 100 * DAY)
    march, april = NOON.replace(hour=0), NOON.replace(month=4, hour=0)
    report = promise.present(scope, VALUES, tables(queues=[row(march, 50), row(april, 50), row(NOON.replace(month=5), 2)]))
    assert report.finding.startswith(
        "The promise of 95\xa0% within 1 min was kept in all 2 months: 100.0\xa0% of 102 messages in"
    )
    assert [row[0] for row in report.tables["periods"].rows] == ["2026-05", "2026-04", "2026-03 (from 2026-03-01 12:00)"]


def test_too_few_messages_say_so():
    report = promise.present(a_scope(), VALUES, tables(queues=[row(MONDAY, 5)]))
    assert "too few in each week to judge the promise of 95\xa0% within 1 min" in report.finding
    assert promise.present(a_scope(), VALUES, tables(queues=[])).finding == "No messages entered shop/q in this range."


def test_the_form_has_a_default_target():
    assert PromiseForm.base_fields.keys() >= {"share", "time"} and "compare" not in PromiseForm.base_fields
    form = PromiseForm({"share": "99.9", "time": "30 s"})
    form.fields.pop("queue")  # needs the database
    form.is_valid()
    assert (form.cleaned_data["share"], form.cleaned_data["time"]) == (99.9, timedelta(seconds=30))
