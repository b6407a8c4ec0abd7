"""The columns that jobs read: `LIFE` and `ATTEMPT` equal the Arrow schemas of the archive (broker_core.history.schema), which a
test checks."""

from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

LIFE = StructType(
    [
        StructField("entity_id", LongType(), nullable=False),
        StructField("subqueue", ShortType(), nullable=False),
        StructField("sequence_number", LongType(), nullable=False),
        StructField("outcome", ShortType(), nullable=False),
        StructField("reason", StringType()),
        StructField("enqueued_at", TimestampType()),
        StructField("first_received_at", TimestampType()),
        StructField("last_received_at", TimestampType()),
        StructField("ended_at", TimestampType()),
        StructField("delivery_count", IntegerType()),
        StructField("time_to_live_us", LongType()),
        StructField("size", IntegerType()),
        StructField("message_id", StringType()),
        StructField("xid", LongType(), nullable=False),
        StructField("generated", BooleanType(), nullable=False),
        StructField("time_to_live_in_force_us", LongType()),
        StructField("time_to_live_source", StringType()),
        StructField("error", StringType()),
        StructField("session_id", StringType()),
        StructField("deliveries", IntegerType()),
        StructField("renewals", IntegerType()),
        StructField("locks_lost", IntegerType()),
        StructField("settled_by", StringType()),
        StructField("scheduled", BooleanType()),
        StructField("from_entity_id", LongType()),
        StructField("from_sequence_number", LongType()),
        StructField("to_entity_id", LongType()),
        StructField("to_sequence_number", LongType()),
        StructField("chosen_properties", StringType()),
    ]
)

ATTEMPT = StructType(
    [
        StructField("entity_id", LongType(), nullable=False),
        StructField("subqueue", ShortType(), nullable=False),
        StructField("sequence_number", LongType(), nullable=False),
        StructField("attempt", IntegerType()),
        StructField("outcome", ShortType(), nullable=False),
        StructField("received_at", TimestampType(), nullable=False),
        StructField("ended_at", TimestampType(), nullable=False),
        StructField("locked_until", TimestampType()),
        StructField("lock_ended_at", TimestampType()),
        StructField("renewals", IntegerType()),
        StructField("delivery_count", IntegerType()),
        StructField("received_by", StringType()),
        StructField("ended_by", StringType()),
        StructField("reason", StringType()),
        StructField("error", StringType()),
        StructField("xid", LongType(), nullable=False),
        StructField("generated", BooleanType(), nullable=False),
    ]
)

SLICE = "slice_id"  # a column of compacted files
