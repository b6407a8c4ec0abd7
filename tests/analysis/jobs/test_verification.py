"""The job that compares lives with events: a history of random events keeps all rules, and each kind of damage breaks its own."""

from typing import Any

import pytest
from pyspark.sql import functions as F

from explorer.analysis.jobs import lives, schemas, verification
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.roll_up import ended_attempts, ended_lives

from .random_events import random_events


@pytest.fixture(scope="module")
def derived(spark, tmp_path_factory):
    """The events of a random history, and the lives, attempts and carried messages of them."""
    import pyarrow.parquet as pq

    from broker_core.history import ordering

    folder = tmp_path_factory.mktemp("events") / "day=2026-03-01" / "namespace=1"
    folder.mkdir(parents=True)
    table = random_events(11, 3000)
    by_message = table.sort_by([(name, "ascending") for name in ("entity_id", "sequence_number", "event_id")])
    pq.write_table(ordering.in_order(by_message), folder / "a.parquet")
    spec: dict[str, Any] = {"events": [str(folder / "a.parquet")], "partitions": 2, "today": "2026-03-02", "keys": {}}
    rows = lives.derived(spark, spec).cache()
    events = lives.stored.read(spark, schemas.EVENT, spec["events"]).cache()
    ended = rows.where("content = 'lives'")
    return events, ended_lives(ended), ended_attempts(ended), rows.where("content = 'open'").select(*schemas.OPEN.names)


def broken(*frames) -> dict[str, int]:
    results: dict[str, int] = {}
    for row in verification.wrong(verification.counted(*frames)).collect():
        results[row["rule"]] = results.get(row["rule"], 0) + row["messages"]
    return results


@pytest.mark.slow
def test_an_intact_history_satisfies_all_rules(derived):
    assert verification.counted(*derived).count() > 300
    assert broken(*derived) == {}


@pytest.mark.slow
def test_each_kind_of_damage_violates_its_rule(derived):
    events, lived, tried, carried = derived
    assert broken(events, lived.where("sequence_number % 5 != 0"), tried, carried).keys() == {"ends"}
    assert broken(events, lived, tried.where("sequence_number % 5 != 0"), carried).keys() == {"receipts", "losses"}
    assert broken(events, lived, tried, carried.where("false")).keys() == {"receipts"}
    swapped = tried.withColumn("outcome", F.when(F.col("outcome") == Kind.LOCK_LOST, Kind.ABANDONED).otherwise(F.col("outcome")))
    assert broken(events, lived, swapped, carried).keys() == {"losses"}
    twice = events.unionByName(events.where((F.col("kind") == Kind.SETTLE_REFUSED) | (F.col("kind") == Kind.RENEWED)))
    assert broken(twice, lived, tried, carried).keys() == {"twice"}
