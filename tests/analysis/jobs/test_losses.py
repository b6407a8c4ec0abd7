"""Losses: counts by cause, since when a cause is known, and paths."""

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import losses

from .rows import HOUR, MINUTE, NOON, a_request, history, listed

DEAD, EXPIRED, MOVED = outcomes.DEAD_LETTERED, outcomes.EXPIRED, outcomes.MOVED


def lost(result: int, minutes: int = 1, **changes):
    """A life that ended so many minutes after noon, a minute after it began. cause: its reason."""
    at = NOON + minutes * MINUTE
    return {"result": result, "outcome": result, "ended_at": at, "enqueued_at": at - MINUTE} | changes


def test_causes_are_counted_by_queue_with_the_time_they_were_first_seen(spark):
    here = history(
        spark,
        lives=[
            lost(DEAD, 7, cause="Bad #"), lost(DEAD, 13, cause="Bad #"), lost(DEAD, -2 * 24 * 60, cause="Bad #"),
            lost(EXPIRED, 61), lost(EXPIRED, 30, entity_id=2), lost(outcomes.COMPLETED), lost(DEAD, 20, subqueue=1),
        ],
        open=[{"enqueued_at": NOON}],
    )  # fmt: skip
    tables = losses.tables(here)
    five = 5 * MINUTE
    assert listed(
        tables["causes"], "entity_id", "outcome", "cause", "messages", "entered_at", "first_at", "last_at", "since"
    ) == [
        (1, DEAD, "Bad #", 2, NOON + five, NOON + five, NOON + 2 * five, NOON - 48 * HOUR),
        (2, EXPIRED, None, 1, NOON + 25 * MINUTE, NOON + 30 * MINUTE, NOON + 30 * MINUTE, NOON + 30 * MINUTE),
    ]
    assert listed(tables["times"], "at", "outcome", "messages") == sorted(
        [(NOON + five, DEAD, 1), (NOON + 2 * five, DEAD, 1), (NOON + 30 * MINUTE, EXPIRED, 1)], key=repr
    )
    assert listed(tables["totals"], "left", "lost", "generated", "begun", "before") == [(4, 3, 0, NOON - 48 * HOUR, None)]


def test_losses_of_the_comparison_range_are_counted(spark):
    here = history(spark, a_request(compared=Span(NOON - HOUR, NOON)), lives=[lost(DEAD, -5), lost(MOVED, 5)])
    assert listed(losses.tables(here)["totals"], "lost", "before") == [(1, 1)]


def test_paths_of_lost_messages_are_counted(spark):
    here = history(
        spark,
        lives=[
            lost(EXPIRED, outcome=DEAD), lost(EXPIRED, outcome=DEAD), lost(EXPIRED, from_entity_id=7),
            lost(MOVED, to_entity_id=2), lost(EXPIRED, 61), lost(DEAD, subqueue=1), lost(outcomes.COMPLETED),
        ],
    )  # fmt: skip
    assert listed(losses.tables(here)["routes"], "entity_id", "outcome", "from_entity_id", "to_entity_id", "messages") == [
        (1, EXPIRED, 7, None, 1), (1, EXPIRED, None, None, 2), (1, MOVED, None, 2, 1),
    ]  # fmt: skip
