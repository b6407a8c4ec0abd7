"""Losses: the computation as tables, and the page."""

from datetime import timedelta

from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import losses
from explorer.analysis.reports.scope import Range

from .conftest import NOON

HOUR = timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)


def left(hour: int, count: int, outcome: int, cause=None, entity_id: int = 1):
    return (entity_id, NOON + hour * HOUR, outcome, cause, count)


ENDS = [
    left(1, 3, outcomes.EXPIRED),
    left(2, 2, outcomes.DEAD_LETTERED, "Bad #"),
    left(3, 4, outcomes.DEAD_LETTERED, "Bad #"),
    left(0, 50, outcomes.COMPLETED),
    left(1, 9, outcomes.FORWARDED),
]


def test_losses_are_by_the_hour_of_the_loss_and_by_cause():
    causes = losses.causes(ENDS)
    assert losses.by_bucket(SPAN, ENDS) == {"expired": [0, 3, 0, 0], "dead_lettered": [0, 0, 2, 4]}
    assert [(loss.outcome, loss.cause, loss.messages) for loss in causes] == [("dead_lettered", "Bad #", 6), ("expired", "", 3)]
    assert (causes[0].first_at, causes[0].last_at) == (NOON + 2 * HOUR, NOON + 3 * HOUR)
    assert losses.sentence(causes) == "9 messages were lost. Most frequent: dead-lettered (Bad #), 6."
    assert losses.sentence([]) == "No messages were lost in this time."


def test_the_page_names_the_cause(report_of, queue):
    assert "2 messages were lost. Most frequent: dead-lettered (Order #), 2." in report_of("losses", queue=queue.pk)
