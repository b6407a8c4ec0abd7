"""Messages that entered and left by step, and the backlog."""

from explorer.analysis.jobs import traffic
from explorer.analysis.jobs.history import Span

from .rows import HOUR, MINUTE, NOON, a_request, history, listed

FIVE = 5 * MINUTE
SPAN = Span(NOON, NOON + HOUR)


def lived(began: int, ended: int, entity_id: int = 1) -> dict:
    """A message from a minute after noon to another."""
    return {"enqueued_at": NOON + began * MINUTE, "ended_at": NOON + ended * MINUTE, "entity_id": entity_id}


def moves(here):
    return traffic.movements(traffic.lives(here), SPAN)


def test_earlier_messages_and_open_messages_are_in_the_backlog(spark):
    here = history(
        spark,
        lives=[lived(-90, -70), lived(-90, 12), lived(1, 2), lived(3, 70), lived(61, 62)],
        open=[{"enqueued_at": NOON - 9 * MINUTE}, {"enqueued_at": NOON + 22 * MINUTE}],
    )
    assert listed(traffic.depths(moves(here)).where("entity_id = 1"), "at", "entered", "left", "depth") == [
        (NOON - FIVE, 2, 0, 2), (NOON, 2, 1, 3), (NOON + 2 * FIVE, 0, 1, 2), (NOON + 4 * FIVE, 1, 0, 3),
    ]  # fmt: skip


def test_the_largest_backlog_has_a_beginning_and_an_end(spark):
    peak = [lived(11, 41) for _ in range(10)] + [lived(16, 41) for _ in range(10)]
    here = history(spark, lives=[lived(1, 9), lived(6, 46), *peak, lived(2, 58, 2)])
    backlogs = traffic.backlogs(traffic.depths(moves(here)), SPAN)
    queues = backlogs.where("entity_id IS NOT NULL")
    assert listed(queues, "entity_id", "entered", "left", "depth", "most", "most_at", "since", "until") == [
        (1, 22, 22, 0, 21, NOON + 3 * FIVE, NOON + 2 * FIVE, NOON + 8 * FIVE),
        (2, 1, 1, 0, 1, NOON, NOON, NOON + 11 * FIVE),
    ]  # fmt: skip
    assert listed(backlogs.where("entity_id IS NULL"), "entered", "most", "most_at", "depth") == [(23, 22, NOON + 3 * FIVE, 0)]


def test_a_backlog_that_spans_the_range_has_no_beginning_and_no_end(spark):
    here = history(spark, lives=[lived(-30, 90)])
    [backlog, _] = traffic.backlogs(traffic.depths(moves(here)), SPAN).orderBy("entity_id").collect()
    assert (backlog.entered, backlog.left, backlog.depth, backlog.most, backlog.since, backlog.until) == (0, 0, 1, 1, None, None)


def test_the_known_table_has_the_beginning_of_the_history_and_the_arrivals_in_the_range(spark):
    here = history(spark, lives=[lived(-90, -70), lived(1, 2) | {"generated": True}, lived(2, 2)])
    assert listed(traffic.known(here), "since", "messages", "generated") == [(NOON - 90 * MINUTE, 2, 1)]
    assert listed(traffic.known(history(spark)), "since", "messages", "generated") == [(None, 0, 0)]


def test_traffic_has_a_row_for_every_hour_of_every_entity(spark):
    here = history(spark, a_request(entity_ids=[1, 2]))
    hours = traffic.hours(here, Span(NOON, NOON + 2 * HOUR))
    assert listed(hours, "entity_id", "at") == [(1, NOON), (1, NOON + HOUR), (2, NOON), (2, NOON + HOUR)]
