"""Which events end a life, and what a life says."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from broker_core.common.types import EventKind, SubQueue
from broker_core.history import schema

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def events(*rows: dict) -> pa.Table:
    default = dict.fromkeys(schema.EVENT.names) | {
        "event_id": 1,
        "recorded_at": NOON,
        "xid": 7,
        "at": NOON,
        "entity_id": 1,
        "subqueue": 0,
        "sequence_number": 1,
        "kind": 1,
    }
    return pa.Table.from_pylist([default | row for row in rows], schema=schema.EVENT)


@pytest.mark.parametrize("kind", EventKind)
def test_what_takes_a_message_away_ends_its_life_but_activation_does_not(kind):
    ends = kind is EventKind.DEAD_LETTERED or (kind.is_terminal and kind is not EventKind.ACTIVATED)
    assert schema.lives(events({"kind": kind})).num_rows == ends


def test_a_life_repeats_what_its_last_event_knows():
    [life] = schema.lives(
        events(
            {"kind": EventKind.COMPLETED, "enqueued_at": NOON, "reason": "r", "message_id": "m", "delivery_count": 2, "xid": 9}
        )
    ).to_pylist()
    assert (life["outcome"], life["enqueued_at"], life["ended_at"], life["xid"]) == (6, NOON, NOON, 9)
    assert (life["reason"], life["message_id"], life["delivery_count"], life["generated"]) == ("r", "m", 2, False)


def test_a_dead_letter_lived_in_the_main_queue_and_what_ends_there_in_the_dead_letter_queue():
    rows = schema.lives(
        events(
            {"kind": EventKind.DEAD_LETTERED, "subqueue": int(SubQueue.DEAD_LETTER)},
            {"kind": EventKind.COMPLETED, "subqueue": int(SubQueue.DEAD_LETTER)},
        )
    ).to_pylist()
    assert [(row["outcome"], row["subqueue"]) for row in rows] == [(10, 0), (6, 1)]


def test_generated_history_is_labelled():
    rows = schema.lives(events({"kind": 6, "actor": "generated"}, {"kind": 6, "actor": "user:alice"}, {"kind": 6})).to_pylist()
    assert [row["generated"] for row in rows] == [True, False, False]


def test_spark_reads_the_columns_that_the_archive_writes():
    """Both are written down, and mean the same; Spark's is in the job, which knows nothing of us."""
    from pyspark.sql.pandas.types import from_arrow_type

    from explorer.analysis.jobs import schemas

    spark = {field.name: (field.dataType, field.nullable) for field in schemas.LIFE}
    assert spark == {field.name: (from_arrow_type(field.type), field.nullable) for field in schema.LIFE}


def test_spark_knows_outcomes_by_the_brokers_numbers():
    from explorer.analysis.jobs import schemas

    for name in ("COMPLETED", "DEAD_LETTERED", "EXPIRED", "CANCELLED", "PURGED", "RECEIVED_AND_DELETED"):
        assert getattr(schemas, name) == EventKind[name]
