"""Incidents: the answer, the change before an onset, and the figures of each change."""

import json
from datetime import timedelta

from explorer.analysis.jobs import measures
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.reports import incidents
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, a_scope, tables

MINUTE = timedelta(minutes=1)
AT = NOON + 25 * MINUTE
COLUMNS = {
    "onsets": {
        "number": 1, "kind": "failed", "entity_id": 2, "at": AT, "before": 1000, "before_bad": 10, "after": 700, "after_bad": 63,
    },
    "changes": {
        "number": 1, "at": AT - 4 * MINUTE, "entity_id": None, "actor": "user:a", "name": "orders 2.4.0", "old": None,
        "new": None,
    },
    "times": {"point": "onset", "number": 1, "side": "before", "measure": measures.WAITING, "bins": [bin_of(200_000)],
              "counts": [40]},
    "shares": {
        "point": "change", "number": 1, "side": "before", "left": 100, "lost": 0, "deliveries": 100, "failed": 0, "lock_lost": 0,
        "generated": 0,
    },
    "chart": {"at": AT, "bad": 9, "total": 100},
    "waits": {"at": AT, "measure": measures.WAITING, "bins": [bin_of(200_000)], "counts": [40]},
    "about": {"generated": 5, "real_clock": True},
}  # fmt: skip
SETTINGS = {
    "at": NOON, "name": None, "entity_id": 2, "old": json.dumps({"lock_duration": "00:00:30", "options": "{}"}),
    "new": json.dumps({"lock_duration": "00:01:00", "options": '{"max_length": 5}'}),
}  # fmt: skip


def shown(about=None, **rows):
    made = tables(COLUMNS, about=[about or {}], **rows)
    return incidents.present(a_scope("orders", "payments"), {"window": "1"}, made)


def test_the_answer_names_the_clearest_onset_and_the_change_before_it():
    report = shown(onsets=[{"number": 2, "entity_id": 1}, {}], changes=[{}, SETTINGS | {"number": 2}], chart=[{}])
    assert report.finding == (
        "Failed deliveries of payments rose from 1.0\xa0% to 9.0\xa0% at 2026-03-01 12:25, 4.0 min after the deploy of orders "
        "2.4.0. 1 other onset is listed below."
    )
    assert [section.name for section in report.sections] == ["onset", "onsets", "figures", "changes"] and report.generated == 5
    marks = report.sections[0].figures[0].charts[0].marks
    assert [mark.letter for mark in marks] == ["C", "T"]
    first, second = report.tables["onsets"].rows
    assert [plain(cell) for cell in first[1:]] == [
        "payments", "failed deliveries", 0.01, 0.09, 63, "the deploy of orders 2.4.0", 4 * MINUTE,
    ]  # fmt: skip
    assert second[1] == "orders" and second[6] == "the deploy of orders 2.4.0"


def test_only_setting_changes_of_the_same_queue_explain_an_onset():
    report = shown(onsets=[{}], changes=[SETTINGS])
    assert report.finding.endswith("25 min after lock duration: 00:00:30 → 00:01:00; max length: none → 5.")
    other = shown(onsets=[{}], changes=[SETTINGS | {"entity_id": 1}])
    assert other.finding.endswith("; no change or deploy is known in the hour before.")
    assert other.tables["changes"].rows[0][2] == "orders"


def test_a_change_within_the_step_of_the_onset_precedes_it():
    [onset] = tables(COLUMNS, onsets=[{}])["onsets"]

    def nearest(minutes: float, now=NOON + HOUR):
        known = [incidents.Change(1, AT + minutes * MINUTE, "x", "")]
        return bool(incidents.nearest(onset, known, now, HOUR))

    assert nearest(4) and not nearest(5) and nearest(-60) and not nearest(-61)
    assert nearest(59, now=AT + timedelta(days=8))  # known by the hour
    said = shown(onsets=[{}], changes=[{"at": AT + MINUTE}]).finding
    assert "at 2026-03-01 12:25, in the same minutes as the deploy" in said


def test_long_waits_are_described_by_time_and_drawn():
    times = [{}, {"side": "after", "bins": [bin_of(90_000_000)]}]
    report = shown(onsets=[{"kind": "waiting"}], times=times, waits=[{}])
    assert report.finding == (
        "Messages of payments that waited long rose from 1.0\xa0% to 9.0\xa0% at 2026-03-01 12:25 (median wait 199 ms → "
        "1.5 min); no change or deploy is known in the hour before."
    )
    figure = report.sections[0].figures[0]
    assert [name for name, _ in figure.keys] == ["p50", "p95"]
    assert [row[0] for row in report.tables["figures"].rows if row[3] != "no"] == ["waiting, median", "waiting, 95\xa0%"]


def test_the_row_of_a_change_shows_its_effect():
    shares = [{}, {"side": "after", "failed": 40}]
    report = shown(changes=[{}], shares=shares)
    assert report.finding.startswith("No onset of failed deliveries") and "comparing the hour before and after" in report.finding
    [row] = report.tables["changes"].rows
    assert [plain(cell) for cell in row[1:]] == [
        "the deploy of orders 2.4.0", "all queues", "a", 100, 100, "failed deliveries more (0.0\xa0% → 40.0\xa0%)",
    ]  # fmt: skip


def test_a_namespace_with_its_own_clock_has_no_changes():
    assert incidents.OTHER_CLOCK in shown({"real_clock": False}).notes
    assert incidents.differences({"a": "1", "options": None}, {"a": "1"}) == ""
