"""Journeys: links followed back over several hops, correlation, and times without stays among dead letters."""

import json

import pytest

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.reports import journeys

from .rows import HOUR, NOON, SECOND, a_request, frame, history, listed

MICROS = 1_000_000


def life(entity_id: int, number: int, since: int, left: int, **changes):
    """A life from one second after noon to another; received after a second."""
    return {
        "entity_id": entity_id, "sequence_number": number, "enqueued_at": NOON + since * SECOND,
        "first_received_at": NOON + (since + 1) * SECOND, "ended_at": NOON + left * SECOND,
    } | changes  # fmt: skip


def source(entity_id: int, number: int):
    return {"from_entity_id": entity_id, "from_sequence_number": number}


def routes(found) -> list[tuple]:
    return listed(found["routes"], "route", "journeys", "longest_us")


@pytest.mark.slow
def test_time_in_the_dead_letter_queue_is_excluded_from_the_journey(spark):
    here = history(
        spark,
        lives=[
            life(1, 1, 0, 4, outcome=outcomes.DEAD_LETTERED),
            life(1, 1, 0, 604, subqueue=1, outcome=outcomes.RESUBMITTED, to_entity_id=1, to_sequence_number=2),
            life(1, 2, 604, 610),
            life(2, 5, 0, 3, outcome=outcomes.DEAD_LETTERED), life(2, 5, 0, 500, subqueue=1, outcome=outcomes.PURGED),
        ],
    )  # fmt: skip
    tables = journeys.tables(here)
    assert routes(tables) == [("1: 1:resubmitted", 1, 10 * MICROS)]
    assert listed(tables["steps"], "step", "entity_id", "how", "begins_us", "waits_us", "p50_us", "sum_us") == [
        (0, 1, "", 0, MICROS, 4 * MICROS, 4 * MICROS),
        (1, 1, "resubmitted", 4 * MICROS, MICROS, 6 * MICROS, 6 * MICROS),
    ]
    [example] = [row for row in tables["examples"].collect() if row.kind == "longest"]
    assert [(leg.sequence_number, leg.since_us, leg.received_us, leg.left_us) for leg in example.legs] == [
        (1, 0, MICROS, 4 * MICROS), (2, 4 * MICROS, 5 * MICROS, 10 * MICROS),
    ]  # fmt: skip


@pytest.mark.slow
def test_journeys_that_branch_count_for_each_end_and_end_in_the_range(spark):
    forwarded = {"outcome": outcomes.FORWARDED}
    rows = [
        life(1, 1, -10, 0, **forwarded), life(2, 1, 0, 5, **source(1, 1)), life(3, 1, 0, 7, **source(1, 1), **forwarded),
        life(2, 2, 7, 4000, **source(3, 1)),  # ends after the range
        life(1, 9, -50, -40, **forwarded), life(2, 9, -40, -30, **source(1, 9)),  # ended before
        life(3, 8, 0, 5, **source(1, 77)),  # made from a message that is not known
    ]  # fmt: skip
    tables = journeys.tables(history(spark, a_request(compared=Span(NOON - HOUR, NOON)), lives=rows))
    assert routes(tables) == [("1: 2:forwarded", 1, 15 * MICROS)]
    assert listed(tables["before"], "journeys") == [(1,)]


def test_only_journeys_through_the_scope_count(spark):
    rows = [
        life(1, 1, 0, 1, outcome=outcomes.PUBLISHED), life(2, 1, 1, 5, **source(1, 1)), life(3, 1, 1, 5, **source(1, 1)),
    ]  # fmt: skip
    tables = journeys.tables(history(spark, a_request(values={"entity_ids": [3]}), lives=rows))
    assert routes(tables) == [("1: 3:published", 1, 5 * MICROS)]


@pytest.mark.slow
def test_cycles_of_linked_messages_end_the_journey(spark):
    rows = [life(1, 1, 0, 1, **source(2, 1)), life(2, 1, 0, 1, **source(1, 1)), life(3, 1, 0, 1, **source(3, 1)),
            life(3, 2, 1, 2, **source(1, 1))]  # fmt: skip
    [(route, count, _)] = routes(journeys.tables(history(spark, lives=rows)))
    assert (route.count(":"), count) == (journeys.MOST_HOPS + 1, 1)


def sent(entity_id: int, number: int, correlation, second: int = 0):
    properties = json.dumps({"correlation_id": correlation})
    return {"entity_id": entity_id, "sequence_number": number, "kind": Kind.SENT, "properties": properties,
            "at": NOON + second * SECOND}  # fmt: skip


def test_correlation_links_to_the_message_with_that_id_or_to_the_previous_message(spark):
    lives = frame(spark, "lives", life(1, 1, 0, 1, message_id="a"), life(1, 2, 5, 6, message_id="a"))
    many = [sent(3, number, "many", number) for number in range(1, journeys.MOST_ALIKE + 2)]
    rows = [sent(2, 1, "a"), sent(2, 3, "s", 3), sent(2, 2, "s", 1), sent(1, 7, "s", 2), sent(2, 8, ""), sent(2, 9, 5), *many]
    links = journeys.correlations(frame(spark, "events", *rows), lives)
    assert listed(links, "entity_id", "sequence_number", "parent_id", "parent_number") == [
        (1, 7, 2, 2), (2, 1, 1, 1), (2, 3, 1, 7),
    ]  # fmt: skip


def test_correlation_starts_a_journey_unless_the_message_has_a_recorded_source(spark):
    lives = [
        life(1, 1, 0, 3, message_id="a"), life(2, 1, 1, 9), life(3, 4, 0, 1, outcome=outcomes.FORWARDED),
        life(2, 2, 1, 5, **source(3, 4)),
    ]  # fmt: skip
    events = [sent(2, 1, "a"), sent(2, 2, "a")]
    tables = journeys.tables(history(spark, lives=lives, events=events))
    assert routes(tables) == [("1: 2:correlated", 1, 9 * MICROS), ("3: 2:forwarded", 1, 5 * MICROS)]
