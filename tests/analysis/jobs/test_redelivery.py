"""Redelivery: success by delivery, reasons, and what became of resubmitted messages."""

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import redelivery

from .rows import HOUR, MINUTE, NOON, SECOND, a_request, frame, history, listed

ABANDONED, LOST = 7, 12


def tried(number: int, attempt: int | None, second: int = 0, **changes):
    """A delivery that took two seconds and succeeded."""
    at = NOON + second * SECOND
    times = {"received_at": at, "ended_at": at + 2 * SECOND}
    return {"sequence_number": number, "attempt": attempt} | times | changes


def failed(number: int, attempt: int, second: int = 0, outcome: int = ABANDONED, **changes):
    return tried(number, attempt, second, outcome=outcome, well=False, failed=True, **changes)


TRIED = [
    failed(1, 1, error="Bad #"), failed(1, 2, 10, error="Bad #"), tried(1, 3, 20),
    failed(2, 1, 5, error="Bad #"), failed(2, 2, 30, LOST),
    tried(3, 1, generated=True), tried(4, None), tried(5, 1, entity_id=2),
]  # fmt: skip


def test_success_by_delivery_groups_late_deliveries_and_skips_unnumbered_deliveries(spark):
    attempts = frame(spark, "attempts", *TRIED, tried(6, 11), failed(7, 15))
    assert listed(redelivery.success_by_delivery(attempts), "delivery", "deliveries", "succeeded", "failed") == [
        (1, 4, 2, 2), (11, 2, 1, 1), (2, 2, 0, 2), (3, 1, 1, 0),
    ]  # fmt: skip


def test_reasons_say_how_many_messages_succeeded_later(spark):
    tables = redelivery.tables(history(spark, attempts=TRIED))
    columns = ("entity_id", "outcome", "error", "deliveries", "messages", "later", "held_us", "latest")
    assert listed(tables["reasons"], *columns) == [
        (1, LOST, None, 1, 1, 0, 2_000_000, 2), (1, ABANDONED, "Bad #", 3, 2, 1, 6_000_000, 1),
    ]  # fmt: skip
    assert listed(tables["messages"], "messages", "again", "generated") == [(5, 2, 1)]
    assert listed(tables["worst"], "sequence_number", "attempt", "well") == [
        (1, 1, False), (1, 2, False), (1, 3, True), (2, 1, False), (2, 2, False),
    ]  # fmt: skip


def test_only_deliveries_from_main_lists_that_ended_in_the_range_count(spark):
    late = [tried(1, 1), failed(2, 1, 3600), failed(3, 1, -3600), failed(4, 1, -1800), tried(5, 1, subqueue=1)]
    here = history(spark, a_request(compared=Span(NOON - HOUR / 2 - MINUTE, NOON)), attempts=late)
    tables = redelivery.tables(here)
    assert listed(tables["totals"], "deliveries", "well", "before", "before_well") == [(1, 1, 1, 0)]
    assert listed(tables["messages"], "messages") == [(1,)] and listed(tables["reasons"]) == []


def test_resubmitted_messages_are_counted_by_outcome(spark):
    def moved(number: int, **changes):
        return {"subqueue": 1, "outcome": outcomes.RESUBMITTED, "to_entity_id": 1, "to_sequence_number": number} | changes

    lives = [
        moved(10), moved(11), moved(12), moved(13), moved(11, entity_id=2), {"subqueue": 1, "outcome": outcomes.PURGED},
        {"sequence_number": 10, "outcome": outcomes.DEAD_LETTERED, "result": outcomes.EXPIRED}, {"sequence_number": 11},
        {"sequence_number": 12, "result": outcomes.DEAD_LETTERED}, {"sequence_number": 99, "result": outcomes.DEAD_LETTERED},
    ]  # fmt: skip
    resubmitted = redelivery.tables(history(spark, lives=lives))["resubmitted"]
    assert listed(resubmitted, "entity_id", "messages", "ended", "lost") == [(1, 4, 3, 2), (2, 1, 1, 0)]
