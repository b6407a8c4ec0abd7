"""Locks: the answer, and tables whose numbers lead to their deliveries."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from broker_core.common.types import Family
from explorer.analysis.reports import locks
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

SECOND = timedelta(seconds=1)
COLUMNS = {
    "losses": {
        "at": None, "receiver": None, "entity_id": None, "cause": None, "lost": 1, "last_at": NOON, "late": 0, "needed_us": None,
        "needed_95_us": None,
    },
    "deliveries": {
        "receiver": None, "entity_id": None, "deliveries": 10, "lost": 0, "lock_us": 5_000_000, "held_us": 2_000_000, "timed": 9,
        "nearly": 3, "generated": 1,
    },
    "worst": {
        "entity_id": 1, "sequence_number": 1, "attempt": 1, "outcome": 6, "received_at": NOON, "ended_at": NOON + 5 * SECOND,
        "receiver": "process:w", "error": None, "lost": False, "well": True,
    },
    "before": {"deliveries": 4, "lost": 1},
}  # fmt: skip
LOST = [
    {"at": NOON, "cause": "longer", "lost": 3}, {"at": NOON + HOUR / 2, "cause": "gone", "lost": 1},
    {"receiver": "process:w", "cause": "longer", "lost": 3}, {"receiver": "process:w", "cause": "gone", "last_at": NOON + HOUR},
    {"entity_id": 1, "cause": "longer", "lost": 3}, {"entity_id": 1, "cause": "gone", "lost": 1},
    {"entity_id": 1, "lost": 4, "late": 3, "needed_us": 7_200_000, "needed_95_us": 9_100_000}, {"lost": 4},
]  # fmt: skip


def shown(scope, **rows):
    return locks.present(scope, {}, tables(COLUMNS, before=[{}], **rows))


@pytest.fixture
def report():
    return shown(
        a_scope("payments", compared=SPAN.before(HOUR)),
        losses=LOST,
        deliveries=[{"entity_id": 1, "lost": 4}, {"receiver": "process:w", "lost": 4}],
        worst=[{"outcome": 12, "lost": True, "well": False}, {"attempt": 2, "received_at": NOON + 9 * SECOND}],
    )


def test_the_answer_names_the_queue_the_cause_and_a_sufficient_lock_duration(report):
    assert report.finding == (
        "4 of 10 deliveries of payments (40.0\xa0%) ended because their lock ended, mostly because work took longer than the "
        "lock of 5.0 s; a lock of at least 10 s would have kept 95\xa0% of the 3 that were settled too late, in the median 7.2 s "
        "after the receipt. From 2026-03-01 11:00 to 2026-03-01 12:00, 25.0\xa0% of all locks were lost (1 of 4)."
    )
    [link] = report.links
    assert link.value == "Preview a lock of 10 s for payments" and "lock_duration=10+s" in link.url
    assert report.generated == 1


def test_the_report_has_tables_and_charts(report):
    assert [section.name for section in report.sections] == ["times", "messages", "queues", "receivers"]
    times, messages, queues, receivers = report.sections
    assert [name for name, _ in times.figures[0].keys] == ["longer", "gone"]
    [row] = queues.table.rows
    assert [plain(value) for value in row] == [
        "payments", 10, 4, 0.4, 3, 1, 0, 5 * SECOND, 2 * SECOND, 3 / 9, 3, 7.2 * SECOND, 9.1 * SECOND,
    ]  # fmt: skip
    [row] = receivers.table.rows
    assert [plain(value) for value in row] == ["w", 10, 4, 0.4, 3, 1, 0, NOON + HOUR]
    [row] = messages.table.rows
    assert [plain(value) for value in row] == ["#1", "payments", 2, 1, 1, NOON, "completed"]
    assert [bar.name for bar in messages.figures[0].charts[0].shapes] == ["lock_lost", "completed"]


def test_numbers_link_to_their_deliveries(report):
    queues, receivers = report.tables["queues"].rows[0], report.tables["receivers"].rows[0]
    query = parse_qs(urlsplit(receivers[2].url).query)
    assert (query["deliveries"], query["receiver"], query["queue"]) == (["lost"], ["process:w"], ["1"])
    assert "deliveries=all" in queues[1].url and "receiver" not in queues[1].url


def test_the_answer_of_a_namespace_names_the_worst_queue():
    scope = a_scope("quiet", "payments", "orders")
    deliveries = [{"entity_id": i, "lost": lost, "lock_us": None} for i, lost in ((1, 0), (2, 4), (3, 1))]
    losses = [{"entity_id": i, "cause": "gone", "lost": lost} for i, lost in ((2, 4), (3, 1))]
    report = shown(scope, losses=losses, deliveries=deliveries)
    assert report.finding == (
        "4 of 10 deliveries of payments (40.0\xa0%) ended because their lock ended, more than of 1 other queue, "
        "because their receiver stopped."
    )
    assert [row[0] for row in report.tables["queues"].rows] == ["payments", "orders", "quiet"] and not report.links


def test_answers_without_lost_locks_say_so():
    report = shown(a_scope("q", family=Family.QUEUE_STORAGE), deliveries=[{"entity_id": 1}])
    assert report.finding == (
        "None of 10 deliveries of shop/q ended because their lease ended; 95\xa0% of those that succeeded took at most 2.0 s of "
        "the lock of 5.0 s."
    )
    assert [section.name for section in report.sections] == ["queues"]
    nothing = shown(a_scope("q"))
    assert nothing.finding == "No messages of shop/q were received in this range." and not nothing.sections


@pytest.mark.parametrize(("needed", "lock"), [(0.2, 1), (9.1, 10), (10, 10), (61, 65), (125, 125)])
def test_a_sufficient_lock_duration_is_suggested(needed, lock):
    assert locks.at_least(needed * SECOND) == lock * SECOND
