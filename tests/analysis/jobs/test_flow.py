"""Flow and backlog: a burst inside an hour is seen, and who entered and left in a short range."""

from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import flow

from .rows import HOUR, MINUTE, NOON, a_request, history, listed

QUARTER = a_request(span=Span(NOON + 5 * MINUTE, NOON + 20 * MINUTE))
DAYS = a_request(span=Span(NOON - 2 * HOUR, NOON + 166 * HOUR), step=HOUR)


def burst(count: int, entity_id: int = 1) -> list[dict]:
    """Messages that were in the queue from 6 to 12 minutes after noon."""
    life_row = {"enqueued_at": NOON + 6 * MINUTE, "ended_at": NOON + 12 * MINUTE, "entity_id": entity_id}
    return [dict(life_row) for _ in range(count)]


def test_a_quarter_of_an_hour_is_listed_by_step_and_queue(spark):
    tables = flow.tables(history(spark, QUARTER, lives=burst(3) + burst(2, 2), open=[{"enqueued_at": NOON}]))
    five, ten = NOON + 5 * MINUTE, NOON + 10 * MINUTE
    assert listed(tables["flow"].where("entity_id IS NOT NULL"), "entity_id", "at", "entered", "left", "depth") == [
        (1, None, 1, 0, 1), (1, ten, 0, 3, 1), (1, five, 3, 0, 4), (2, ten, 0, 2, 0), (2, five, 2, 0, 2)
    ]  # fmt: skip
    assert listed(tables["flow"].where("entity_id IS NULL"), "at", "entered", "left", "depth", "most") == [
        (None, 1, 0, 1, 1), (ten, 0, 5, 1, 1), (five, 5, 0, 6, 6)
    ]  # fmt: skip
    assert listed(tables["backlogs"], "entity_id", "most", "depth") == [(1, 4, 1), (2, 2, 0), (None, 6, 1)]
    assert listed(tables["before"], "entered") == [(0,)]


def test_a_peak_inside_an_hour_is_the_largest_of_the_hour(spark):
    tables = flow.tables(history(spark, DAYS, lives=burst(5)))
    assert listed(tables["flow"], "entity_id", "at", "depth", "most") == [(None, NOON, 0, 5)], (
        "a long range is not listed by queue"
    )


def test_the_comparison_range_has_its_own_flow(spark):
    asked = a_request(span=Span(NOON + HOUR, NOON + 2 * HOUR), compared=Span(NOON, NOON + HOUR))
    assert listed(flow.tables(history(spark, asked, lives=burst(5)))["before"], "entered") == [(5,)]
