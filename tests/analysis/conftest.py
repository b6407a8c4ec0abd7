"""One Spark session for all tests of this folder: it takes seconds to start."""

from datetime import UTC, datetime

import pytest

from explorer.analysis import java
from explorer.analysis.jobs import outcomes, schemas

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    import os

    from explorer.analysis.jobs import runner

    os.environ["JAVA_HOME"] = str(java.find())
    scratch = tmp_path_factory.mktemp("spark")
    session = runner.session(
        {
            "name": "tests",
            "master": "local[2]",
            "scratch": str(scratch),
            "driver_memory": "1g",
            "spark": {"spark.sql.shuffle.partitions": "2"},
        }
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def lives(spark):
    """Make a frame of lives from dicts; by default a completed message of queue 1 that waited 1 s and took 2 s."""
    numbers = iter(range(1, 1_000_000))

    def make(*rows: dict):
        return spark.createDataFrame([a_life(sequence_number=next(numbers)) | row for row in rows], schemas.LIFE)

    return make


def a_life(**changes) -> dict:
    from datetime import timedelta

    enqueued = changes.get("enqueued_at", NOON)
    received = enqueued + timedelta(seconds=1)
    return {
        "entity_id": 1,
        "subqueue": 0,
        "sequence_number": 1,
        "outcome": outcomes.COMPLETED,
        "reason": None,
        "enqueued_at": enqueued,
        "first_received_at": received,
        "last_received_at": received,
        "ended_at": received + timedelta(seconds=2),
        "delivery_count": 0,
        "time_to_live_us": None,
        "size": 100,
        "message_id": "m",
        "xid": 10,
        "generated": False,
        **dict.fromkeys(schemas.LIFE.names[schemas.LIFE.names.index("time_to_live_in_force_us") :]),
    } | changes
