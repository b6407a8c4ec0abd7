"""Flow and backlog: the computation as tables, and the page."""

from collections import Counter
from datetime import timedelta

import pytest

from explorer.analysis import messages
from explorer.analysis.reports import flow
from explorer.analysis.reports.report import difference
from explorer.analysis.reports.scope import Range

from .conftest import NOON

HOUR = timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)


def lived(began: int, ended: int, count: int = 1):
    return (NOON + began * HOUR, NOON + ended * HOUR, count)


def test_an_outage_is_a_peak_of_the_backlog_and_of_the_age():
    found = flow.flow(SPAN, [lived(0, 0, 5), lived(0, 2, 3), lived(1, 2, 4), lived(2, 2, 9)], {})
    assert (found.entered, found.left) == ([8, 4, 9, 0], [5, 0, 16, 0])
    assert found.depth == [3, 7, 0, 0]
    assert found.oldest == [HOUR, 2 * HOUR, None, None]


def test_messages_from_before_the_range_and_present_ones_are_in_the_backlog():
    found = flow.flow(SPAN, [lived(-5, 1, 2), lived(-9, -8, 7)], Counter({NOON - 2 * HOUR: 4, NOON + 2 * HOUR: 1}))
    assert found.depth == [6, 4, 5, 5]
    assert (found.entered, found.left) == ([0, 0, 1, 0], [0, 2, 0, 0])
    assert found.oldest == [6 * HOUR, 4 * HOUR, 5 * HOUR, 6 * HOUR]


def test_longer_intervals_have_the_backlog_and_age_at_their_end():
    span = Range(NOON, NOON + 30 * 24 * HOUR)
    found = flow.flow(span, [lived(0, 5, 3), lived(4, 13, 2)], {})
    assert (found.starts[:3], found.entered[:3]) == ([NOON + i * 6 * HOUR for i in range(3)], [5, 0, 0])
    assert (found.depth[:3], found.oldest[:3]) == ([2, 2, 0], [2 * HOUR, 8 * HOUR, None])


@pytest.mark.parametrize(
    ("lives", "there", "said"),
    [
        ([], {}, "No messages entered, left or waited in this range."),
        ([lived(0, 0, 5)], {}, "5 messages entered; at the end of no hour was one waiting."),
        (
            [lived(0, 2, 5)], {},
            "The backlog was largest at 2026-03-01 13:00: 5 messages; the oldest had waited at most 1 h. The queue is empty at "
            "the end.",
        ),
        (
            [lived(0, 3, 4)], {NOON: 6},
            "The backlog was largest at 2026-03-01 13:00: 10 messages; the oldest had waited at most 1 h. 6 are in the queue at "
            "the end; at the last pace it is empty in 1.5 h.",
        ),
    ],
)  # fmt: skip
def test_the_sentence(lives, there, said):
    assert flow.sentence(flow.flow(SPAN, lives, there), SPAN) == said


@pytest.mark.parametrize(
    ("count", "before", "said"),
    [(3, 2, "50\xa0% more than"), (1, 2, "50\xa0% fewer than"), (1000, 1001, "as many as"), (1, 0, "there were none")],
)
def test_a_number_against_that_of_another_range(count, before, said):
    assert said in difference(count, before, SPAN)


def test_the_page_shows_the_backlog_without_spark(report_of, queue):
    body = report_of("flow", queue=queue.pk)
    assert ": 6 messages; the oldest had waited at most 1 h. 1 is in the queue at the end" in body
    assert body.count('<svg class="chart') == 6 and "6 messages entered, 5 left." in body
    assert "there were none" in report_of("flow", queue=queue.pk, compare="before")


def test_a_namespace_has_the_sum_of_its_queues(report_of, queue, other_queue):
    assert "8 messages entered, 5 left." in report_of("flow", namespace="reports")
    assert "2 messages entered, 0 left." in report_of("flow", queue=other_queue.pk)


def test_a_long_tail_is_refused_with_what_to_do(report_of, queue, monkeypatch):
    monkeypatch.setattr(messages, "MOST_LIVES", 1)
    assert "manage.py roll_up_history" in report_of("flow", queue=queue.pk)
