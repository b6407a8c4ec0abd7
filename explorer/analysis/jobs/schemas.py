"""The columns that jobs read, and the codes of outcomes.

`LIFE` equals the Arrow schema of the archive (broker_core.history.schema.LIFE), which a test checks. Outcomes are the
codes of the events that end a message's life, so that every aggregation buffer stays fixed-width.
"""

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

COMPLETED = 6
DEAD_LETTERED = 10
EXPIRED = 11
CANCELLED = 13
PURGED = 14
RESUBMITTED = 15
DELETED = 16
FORWARDED = 17
RECEIVED_AND_DELETED = 18
DROPPED = 21
MOVED = 22
STILL_THERE = 0  # the message had not left when the analysis began

# Outcomes that have a reason.
WITH_REASON = (DEAD_LETTERED, MOVED, DROPPED)
# Reasons of a dead-lettering, move or drop because the time-to-live ended: the outcome is "expired", wherever the message went.
EXPIRY_REASONS = ("TTLExpiredException", "expired")
# Reasons that the broker writes: no receiver settled the message, so no processing time is known.
BROKER_REASONS = (
    *("TTLExpiredException", "MaxDeliveryCountExceeded", "HeaderSizeExceeded"),  # Service Bus
    *("MaxDequeueCountExceeded", "Requeued"),  # Queue Storage: to the poison queue and, by an operator, back
    *("expired", "maxlen", "delivery_limit", "moved"),  # RabbitMQ, "moved" by an operator; a receiver's reason is "rejected"
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
    ]
)
