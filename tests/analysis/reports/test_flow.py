"""Flow and backlog: the answer, and numbers that lead to their messages."""

from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from explorer.analysis.reports import flow
from explorer.analysis.reports.report import difference
from explorer.analysis.reports.scope import Range

from .report_inputs import DAY, HOUR, MINUTE, NOON, a_scope, tables

FIVE = 5 * MINUTE


def moved(at, entered: int, left: int, depth: int, most: int | None = None, **keys) -> dict:
    return {**keys, "at": at, "entered": entered, "left": left, "depth": depth, "most": depth if most is None else most}


def backlog(most: int = 0, most_at=NOON, since=NOON, until=None, entered: int = 5, left: int = 5, **keys) -> dict:
    numbers = {"entered": entered, "left": left, "depth": entered - left, "most": most, "most_at": most_at}
    return {**keys, **numbers, "since": since, "until": until}


def sentence_of(rows: list[dict], **total) -> str:
    scope = a_scope()
    points = flow.flow(scope.range.buckets, [SimpleNamespace(**row) for row in rows])
    return flow.sentence(scope, points, SimpleNamespace(**backlog(**total)))


def test_the_backlog_stays_constant_between_intervals_with_traffic():
    rows = [
        SimpleNamespace(**row) for row in (moved(None, 9, 2, 7), moved(NOON + FIVE, 1, 8, 0, 8), moved(NOON + 3 * FIVE, 2, 0, 2))
    ]
    points = flow.flow([NOON + i * FIVE for i in range(5)], rows)
    assert (points.entered, points.left) == ([0, 1, 0, 2, 0], [0, 8, 0, 0, 0])
    assert (points.depth, points.most) == ([7, 0, 0, 2, 2], [7, 8, 0, 2, 2])


def test_the_sentence_says_when_the_backlog_peaked_and_how_it_drained():
    rows = [moved(NOON, 57, 0, 57), moved(NOON + 4 * FIVE, 0, 57, 0)]
    assert sentence_of(rows, most=57, until=NOON + 4 * FIVE) == (
        "The backlog of shop/q was largest at 2026-03-01 12:05: 57 messages, from 2026-03-01 12:00 on. It drained within 20 min. "
        "It ended empty."
    )
    assert (
        sentence_of([], most=0, entered=1) == "1 message entered shop/q; none was in the queue at the end of a step of 5 minutes."
    )
    assert flow.sentence(a_scope(), flow.flow([], []), None).startswith("No messages entered, left or waited in shop/q")


def test_the_sentence_estimates_when_a_remaining_backlog_will_drain():
    rows = [moved(NOON, 10, 0, 10), moved(NOON + HOUR - FIVE, 0, 2, 8)]
    assert sentence_of(rows, most=10, since=None) == (
        "The backlog of shop/q was largest at 2026-03-01 12:05: 10 messages, since before the range. It did not drain: at the "
        "end 8 messages were in the queue; at the last pace it is empty in 20 min."
    )


def test_numbers_link_to_their_messages():
    inputs = tables(
        flow=[
            moved(NOON, 5, 0, 5, entity_id=None), moved(NOON + FIVE, 0, 5, 0, entity_id=None),
            moved(NOON, 3, 0, 3, entity_id=1), moved(NOON, 4, 0, 4, entity_id=2),
        ], 
        backlogs=[
            backlog(5, until=NOON + FIVE, entity_id=None), backlog(3, until=NOON + FIVE, entity_id=1), backlog(4, entity_id=2)
        ],
        before=[{"entered": 0}],
        known=[{"since": NOON - DAY, "messages": 5, "generated": 0}],
    )  # fmt: skip
    report = flow.present(a_scope("a", "b", end=NOON + 3 * FIVE), {}, inputs)
    assert report.finding.endswith("The largest of one queue was that of b, 4 at 2026-03-01 12:05.")
    assert [section.name for section in report.sections] == ["backlog", "traffic", "queues", "steps", "data"]
    _, entered, left, depth, most = report.tables["flow"].rows[1]
    assert (entered.value, left.value, depth, most) == (0, 5, 0, 0)
    query = parse_qs(urlsplit(left.url).query)
    assert query["left_start"] == [(NOON + FIVE).isoformat()] and query["start"] == [(NOON - DAY).isoformat()]
    assert [row[:2] for row in report.tables["steps"].rows] == [(NOON, "a"), (NOON, "b")]
    worst = report.tables["queues"].rows[0]
    assert worst[0] == "b" and parse_qs(urlsplit(worst[4].url).query)["left_start"] == [(NOON + FIVE).isoformat()]


@pytest.mark.parametrize(
    ("count", "before", "words"),
    [(3, 2, "50\xa0% more than"), (1, 2, "50\xa0% fewer than"), (1000, 1001, "as many as"), (1, 0, "there were none")],
)
def test_a_number_is_compared_with_the_other_range(count, before, words):
    assert words in difference(count, before, Range(NOON, NOON + HOUR))
