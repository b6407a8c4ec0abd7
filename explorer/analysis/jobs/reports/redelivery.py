"""Redelivery: why deliveries did not succeed, whether another one helps, and what became of resubmitted messages."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .. import outcomes
from ..history import MAIN, History, Span
from .locks import with_receiver, worst

MOST_DELIVERIES = 10  # by their place; later ones are counted together
MOST_REASONS = 500
MESSAGE = ("entity_id", "sequence_number")


def tables(history: History) -> dict[str, DataFrame]:
    """Of the deliveries from main lists that ended in the range.

    steps: as success_by_delivery. reasons: as `reasons`. worst: as locks.worst. messages: one row with messages, again (how many
    were delivered more than once), generated (messages). totals: one row with deliveries, well, and before, before_well of the
    range to compare with. resubmitted: as `resubmitted`.
    """
    request = history.request
    attempts = history.attempts().where(F.col("subqueue") == MAIN)
    current = attempts.where(request.span.has("ended_at"))
    return {
        "steps": success_by_delivery(current),
        "reasons": reasons(current),
        "worst": worst(current.where(~is_done_at_once()).transform(with_receiver), ~F.col("well")),
        "messages": messages(current),
        "totals": totals(attempts, request.span, request.compared),
        "resubmitted": resubmitted(history.lives().where(request.span.has("ended_at"))),
    }


def success_by_delivery(attempts: DataFrame) -> DataFrame:
    """By the place of a delivery among those of its message: delivery (1 to MOST_DELIVERIES; the next one stands for all later
    ones), deliveries, succeeded, failed. attempts: schemas.ATTEMPT; a receive-and-delete has no place and is not counted."""
    place = F.least("attempt", F.lit(MOST_DELIVERIES + 1)).alias("delivery")
    return (
        attempts.where(F.col("attempt").isNotNull())
        .groupBy(place)
        .agg(F.count("*").alias("deliveries"), F.count_if("well").alias("succeeded"), F.count_if("failed").alias("failed"))
    )


def is_done_at_once():
    """Whether a delivery is the only one of its message, and succeeded. Most are; only the others are sorted by message."""
    return F.col("well") & F.coalesce(F.col("attempt") == 1, F.lit(False))


def reasons(attempts: DataFrame) -> DataFrame:
    """Why deliveries did not succeed: entity_id, outcome, error, deliveries, messages, later (how many of these messages
    succeeded later), held_us (in sum), latest (the number of the message of the last one), latest_at; most frequent first."""
    keys = ("entity_id", "outcome", "error")
    tried = attempts.where(~is_done_at_once())
    succeeded = tried.where("well").select(*MESSAGE).distinct().withColumn("later", F.lit(1))
    by_message = (
        tried.where(~F.col("well"))
        .withColumn("held_for", F.greatest(F.unix_micros("ended_at") - F.unix_micros("received_at"), F.lit(0)))
        .groupBy(*keys, "sequence_number")
        .agg(F.count("*").alias("deliveries"), F.sum("held_for").alias("held_us"), F.max("ended_at").alias("latest_at"))
    )
    by_reason = by_message.join(succeeded, [*MESSAGE], "left").groupBy(*keys).agg(
        F.sum("deliveries").alias("deliveries"), F.count("*").alias("messages"), F.count("later").alias("later"),
        F.sum("held_us").alias("held_us"), F.max_by("sequence_number", F.struct("latest_at", "sequence_number")).alias("latest"),
        F.max("latest_at").alias("latest_at"),
    )  # fmt: skip
    return by_reason.orderBy(F.desc("deliveries"), *keys).limit(MOST_REASONS)


def messages(attempts: DataFrame) -> DataFrame:
    """One row: messages, again (delivered more than once), generated."""
    at_once = attempts.where(is_done_at_once()).select(F.lit(1).cast("long").alias("n"), "generated")
    others = attempts.where(~is_done_at_once()).groupBy(*MESSAGE)
    rest = others.agg(F.count("*").alias("n"), F.max("generated").alias("generated"))
    return at_once.unionByName(rest.select("n", "generated")).agg(
        F.count("*").alias("messages"), F.count_if(F.col("n") > 1).alias("again"), F.count_if("generated").alias("generated")
    )


def totals(attempts: DataFrame, span: Span, compared: Span | None) -> DataFrame:
    """One row: deliveries, well, before, before_well (0 without a range to compare with)."""
    inside, before = span.has("ended_at"), compared.has("ended_at") if compared else F.lit(False)
    return attempts.where(inside | before).agg(
        F.count_if(inside).alias("deliveries"), F.count_if(inside & F.col("well")).alias("well"),
        F.count_if(before).alias("before"), F.count_if(before & F.col("well")).alias("before_well"),
    )  # fmt: skip


def resubmitted(lives: DataFrame) -> DataFrame:
    """What became of messages that were resubmitted from dead-letter or poison queues, by the entity they were in: entity_id,
    messages, ended (left their queue again), lost. lives: that ended in the range."""
    moved = lives.where((F.col("outcome") == outcomes.RESUBMITTED) & F.col("to_sequence_number").isNotNull()).select(
        F.col("entity_id").alias("of"),
        F.col("to_entity_id").alias("entity_id"),
        F.col("to_sequence_number").alias("sequence_number"),
    )
    after = lives.where(F.col("subqueue") == MAIN).select(*MESSAGE, "result").join(F.broadcast(moved), [*MESSAGE])
    lost = F.col("result").isin(*outcomes.LOST)
    counted = moved.select("of", F.lit(1).alias("messages"), F.lit(0).alias("ended"), F.lit(0).alias("lost")).unionByName(
        after.select("of", F.lit(0).alias("messages"), F.lit(1).alias("ended"), lost.cast("int").alias("lost"))
    )
    return counted.groupBy(F.col("of").alias("entity_id")).agg(
        *(F.sum(name).alias(name) for name in ("messages", "ended", "lost"))
    )
