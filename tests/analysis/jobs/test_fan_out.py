"""Topics and fan-out: copies of topics and of exchanges, and how far they lag behind the fastest."""

import json

import pytest

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.reports import fan_out

from .rows import HOUR, MINUTE, NOON, SECOND, a_request, history, listed

TOPIC = 3


def published(number: int, minute: int = 0):
    at = NOON + minute * MINUTE
    return {"entity_id": TOPIC, "sequence_number": number, "outcome": outcomes.PUBLISHED, "result": outcomes.PUBLISHED,
            "enqueued_at": at, "ended_at": at}  # fmt: skip


def copy(entity_id: int, of: int, seconds: int, result: int = outcomes.COMPLETED):
    """A copy of a topic's message that ended so many seconds after noon."""
    return {"entity_id": entity_id, "from_entity_id": TOPIC, "from_sequence_number": of, "outcome": result, "result": result,
            "ended_at": NOON + seconds * SECOND}  # fmt: skip


TARGET = ("source", "source_id", "entity_id", "taken", "handled", "lost", "there", "fastest", "compared", "lag_p95_us")


@pytest.mark.slow
def test_fan_out_counts_copies_and_lag_by_subscription(spark):
    here = history(
        spark,
        lives=[
            published(1), published(2), published(3), published(9, -5),
            copy(1, 1, 1), copy(1, 2, 2), copy(2, 1, 5), copy(2, 2, 2, outcomes.DEAD_LETTERED), copy(1, 9, 3), {"entity_id": 1},
        ],
        open=[{"entity_id": 2, "from_entity_id": TOPIC, "from_sequence_number": 2}],
    )  # fmt: skip
    tables = fan_out.tables(here)
    assert listed(tables["targets"], *TARGET) == [
        (None, TOPIC, 1, 2, 2, 0, 0, 1, 1, 0), (None, TOPIC, 2, 3, 1, 1, 1, 0, 1, 4_000_000),
    ]  # fmt: skip
    assert listed(tables["topics"], "source_id", "published") == [(TOPIC, 3)]
    assert listed(tables["sources"], "source", "source_id", "taken") == [(None, TOPIC, 2)]
    assert listed(tables["before"], "published") == [(0,)]


def sent(entity_id: int, number: int, xid: int, key: str = "k", exchange: str = "news", minute: int = 0):
    properties = json.dumps({"exchange": exchange, "routing_key": key})
    return {"entity_id": entity_id, "sequence_number": number, "kind": Kind.SENT, "xid": xid, "properties": properties,
            "at": NOON + minute * MINUTE}  # fmt: skip


@pytest.mark.slow
def test_copies_of_an_exchange_are_matched_by_publish_key_and_place(spark):
    events = [sent(1, 1, 7), sent(1, 2, 7), sent(2, 1, 7), sent(2, 2, 8), sent(2, 3, 8, exchange=""), sent(1, 3, 5, minute=-5)]
    lives = [
        {"entity_id": entity_id, "sequence_number": number, "ended_at": NOON + number * SECOND}
        for entity_id, number in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3))
    ]
    asked = a_request(compared=Span(NOON - HOUR, NOON))
    tables = fan_out.tables(history(spark, asked, lives=lives, events=events))
    assert listed(tables["targets"], *TARGET[:5], "compared") == [("news", None, 1, 2, 2, 1), ("news", None, 2, 2, 2, 1)]
    assert listed(tables["sources"], "source", "taken") == [("news", 3)]
    assert listed(tables["before"], "published") == [(1,)]
    none = fan_out.tables(history(spark, a_request(values={"family": "service_bus"}), lives=lives, events=events))
    assert listed(none["targets"]) == []
