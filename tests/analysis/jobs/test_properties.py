"""Hot properties and sessions: which values of messages fail or wait more, and when sessions stalled."""

import json
from datetime import timedelta
from typing import Any

import pytest

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import properties

from .rows import HOUR, MINUTE, NOON, SECOND, a_request, history, listed

DAY = timedelta(days=1)


def of(spark, rows, **changes):
    asked = a_request(**{"span": Span(NOON, NOON + DAY), "now": NOON + DAY, **changes})
    return properties.tables(history(spark, asked, lives=rows))


def region(name, **changes):
    return {"chosen_properties": json.dumps({"region": name}), "waiting_us": 10**6} | changes


@pytest.mark.slow
def test_values_are_compared_with_the_other_values_of_their_queue(spark):
    rows = [region("eu", result=outcomes.DEAD_LETTERED if i % 2 else outcomes.COMPLETED, size=512 + i) for i in range(40)]
    rows += [region("us", deliveries=2 if i == 0 else 1, size=600) for i in range(60)]
    rows += [
        {"time_to_live_in_force_us": 90_000_000, "size": 0, "session_id": "s"},
        {"entity_id": 2}, region("eu", entity_id=2, never_received_us=9 * 10**6, waiting_us=None),
        region("eu", outcome=outcomes.CANCELLED), region("eu", subqueue=1), region("eu", ended_at=NOON - SECOND),
    ]  # fmt: skip
    tables = of(spark, rows)
    columns = ("entity_id", "key", "value", "messages", "failed", "slow", "others", "others_failed", "others_slow", "tested")
    assert listed(tables["values"], *columns) == sorted(
        [
            (1, "property:region", "eu", 40, 20, 0, 61, 1, 0, 2), (1, "property:region", "us", 60, 1, 0, 41, 20, 0, 2),
            (1, "size", "512", 100, 21, 0, 1, 0, 0, 2), (1, "size", "1", 1, 0, 0, 100, 21, 0, 2),
            (1, "time-to-live", "90000000", 1, 0, 0, 100, 21, 0, 1), (1, "session", "s", 1, 0, 0, 100, 21, 0, 1),
            (2, "property:region", "eu", 1, 0, 0, 1, 0, 0, 1),
        ],
        key=repr,
    )  # fmt: skip
    assert listed(tables["all"], "messages") == [(103,)] and listed(tables["before"]) == []


def test_the_value_with_longer_waits_is_found_in_its_queue(spark):
    """The other queue is slow as a whole, which is not its region's doing."""
    rows = [region("eu", waiting_us=60 * 10**6) for _ in range(35)] + [region("us") for _ in range(400)]
    rows += [region("eu" if i % 2 else "us", entity_id=2, waiting_us=60 * 10**6) for i in range(20)]
    slow_values = listed(of(spark, rows)["values"], "entity_id", "value", "slow")
    assert [row for row in slow_values if row[2]] == [(1, "eu", 35)]


@pytest.mark.slow
def test_only_frequent_and_unusual_values_are_kept(spark, monkeypatch):
    """Of 30 sessions the most frequent ones, and the one that fails, which is not frequent; keys are not limited together."""
    monkeypatch.setattr(properties, "MOST_FREQUENT", 2)
    monkeypatch.setattr(properties, "MOST_UNUSUAL", 1)
    monkeypatch.setattr(properties, "FEWEST", 3)
    rows: list[Any] = [{"session_id": f"s{i % 30:02}"} for i in range(90)] + [{"session_id": "busy"} for _ in range(6)]
    rows += [{"session_id": "z", "result": outcomes.EXPIRED} for _ in range(3)]
    tables = of(spark, rows)["values"]
    assert listed(tables, "value", "messages", "tested") == [("busy", 6, 32), ("s00", 3, 32), ("z", 3, 32)]
    monkeypatch.setattr(properties, "MOST_VALUES", 1)
    assert listed(of(spark, rows)["values"], "value") == [("z",)]


@pytest.mark.slow
def test_the_same_values_are_counted_in_the_comparison_range(spark):
    rows = [region("eu"), region("us"), region("eu", ended_at=NOON - HOUR), region("ca", ended_at=NOON - HOUR)]
    tables = of(spark, rows, compared=Span(NOON - DAY, NOON))
    assert listed(tables["before"], "key", "value", "messages") == [("property:region", "eu", 1)]


@pytest.mark.slow
def test_a_session_is_stalled_while_messages_wait_and_no_message_leaves(spark):
    at = [(0, 1), (10, 20), (12, 21)]
    rows = [
        {"session_id": "a", "enqueued_at": NOON + since * MINUTE, "ended_at": NOON + until * MINUTE, "waiting_us": until * 10**6}
        for since, until in at
    ]
    rows += [{"session_id": "b", "deliveries": 2}, {"entity_id": 2, "session_id": "a"}, {}]
    tables = of(spark, rows, span=Span(NOON, NOON + HOUR))
    columns = ("entity_id", "session", "messages", "failed", "wait_us", "still_us", "since", "first")
    assert listed(tables["sessions"], *columns, "queue_messages", "queue_sessions") == [
        (1, "a", 3, 0, 21_000_000, 600_000_000, NOON + 10 * MINUTE, 2, 4, 2),
        (1, "b", 1, 1, None, 1_000_000, NOON, 4, 4, 2),
        (2, "a", 1, 0, None, 1_000_000, NOON, 5, 1, 1),
    ]
    assert listed(tables["spells"], "entity_id", "session", "since", "until") == [
        (1, "a", NOON + since * MINUTE, NOON + until * MINUTE) for since, until in ((0, 1), (10, 20), (20, 21))
    ]
