"""Transformations of a data frame of lives (schemas.LIFE). Durations are in microseconds."""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from . import outcomes

QUANTILES = (0.50, 0.95, 0.99)


def lives_and_still_there(lives: DataFrame, still_there: DataFrame, *, exported_xmin: int) -> DataFrame:
    """Ended lives and those that had not ended at the export, each message once.

    For a message that left between the export and the archiving that followed it, the ended life is used. Such ends are in
    transactions from `exported_xmin` (the export's snapshot) on, so only these few are compared.
    """
    ended_since = lives.where(F.col("xid") >= exported_xmin).select("entity_id", "subqueue", "sequence_number")
    waiting = still_there.join(F.broadcast(ended_since), ["entity_id", "subqueue", "sequence_number"], "left_anti")
    return lives.unionByName(waiting)


def entered_between(lives: DataFrame, start: datetime, end: datetime, entity_ids: list[int]) -> DataFrame:
    """Lives in the main queue of these entities that began at or after `start` and before `end` (by `enqueued_at`).

    A scheduled message that was cancelled never entered.
    """
    return lives.where(
        (F.col("subqueue") == 0)
        & (F.col("outcome") != outcomes.CANCELLED)
        & F.col("entity_id").isin(entity_ids)
        & (F.col("enqueued_at") >= F.lit(start))
        & (F.col("enqueued_at") < F.lit(end))
    )


def with_expiry(lives: DataFrame) -> DataFrame:
    """Messages that left because their time-to-live ended have the outcome "expired" and no reason, wherever they went."""
    expired = F.col("outcome").isin(list(outcomes.WITH_REASON)) & F.coalesce(
        F.col("reason").isin(list(outcomes.EXPIRY_REASONS)), F.lit(False)
    )
    outcome = F.when(expired, F.lit(outcomes.EXPIRED).cast("short")).otherwise(F.col("outcome"))
    reason = F.when(F.col("outcome") != outcomes.EXPIRED, F.col("reason"))
    return lives.withColumn("outcome", outcome).withColumn("reason", reason)


def with_time_in_queue(lives: DataFrame) -> DataFrame:
    """Adds `waiting_us` and `processing_us`; null if the message was not received, or not settled by a receiver.

    waiting_us:    enqueued to first received. A receive-and-delete is its own first receive.
    processing_us: last received to settled by the receiver: completed, or dead-lettered, moved or dropped for
                   a reason of its own.
    """
    first_received = F.coalesce("first_received_at", F.when(F.col("outcome") == outcomes.RECEIVED_AND_DELETED, F.col("ended_at")))
    by_receiver = (F.col("outcome") == outcomes.COMPLETED) | (
        F.col("outcome").isin(list(outcomes.WITH_REASON))
        & ~F.coalesce(F.col("reason"), F.lit("")).isin(list(outcomes.BROKER_REASONS))
    )
    return lives.withColumn("waiting_us", _microseconds("enqueued_at", first_received)).withColumn(
        "processing_us", F.when(by_receiver, _microseconds("last_received_at", F.col("ended_at")))
    )


def _microseconds(since: str, until: Column) -> Column:
    """A duration, never negative: a namespace's clock may have been set back in between."""
    elapsed = F.unix_micros(until) - F.unix_micros(F.col(since))
    return F.when(elapsed < 0, 0).otherwise(elapsed)


def with_bucket(lives: DataFrame, unit: str) -> DataFrame:
    """Adds `bucket_at`, the start of the minute, hour or day (UTC) in which the message was enqueued."""
    return lives.withColumn("bucket_at", F.date_trunc(unit, "enqueued_at"))


def time_and_outcome(lives: DataFrame, keys: list[str], *, accuracy: int) -> DataFrame:
    """Per `keys`: counts of outcomes, and percentiles of `waiting_us` and `processing_us`.

    Adds `messages`, a count for each of outcomes.COLUMNS and `other`, `waited` and `processed` (numbers of such times),
    `generated` (how many are generated demo history), and `waiting_us` and `processing_us`: arrays in the order of
    QUANTILES, null without values. percentile_approx: the rank of a result is off by at most 1 / accuracy, and equal input gives
    equal output.
    """

    def outcome(code: int) -> Column:
        return F.count_if(F.col("outcome") == code)

    def percentiles(name: str) -> Column:
        return F.percentile_approx(name, list(QUANTILES), accuracy).alias(name)

    return lives.groupBy(*keys).agg(
        F.count("*").alias("messages"),
        *[outcome(code).alias(name) for name, code in outcomes.COLUMNS.items()],
        F.count_if(~F.col("outcome").isin(list(outcomes.COLUMNS.values()))).alias("other"),
        F.count("waiting_us").alias("waited"),
        F.count("processing_us").alias("processed"),
        F.count_if("generated").alias("generated"),
        percentiles("waiting_us"),
        percentiles("processing_us"),
    )


def reasons(lives: DataFrame, keys: list[str], *, most: int) -> DataFrame:
    """Per `keys` and `reason`: `messages` dead-lettered, moved or dropped. Only the `most` frequent reasons are named."""
    left = lives.where(F.col("outcome").isin(list(outcomes.WITH_REASON))).withColumn(
        "reason", F.coalesce(F.col("reason"), F.lit(outcomes.NO_REASON))
    )
    named = (
        left.groupBy("entity_id", "reason")
        .count()
        .withColumn("rank", F.expr("row_number() OVER (PARTITION BY entity_id ORDER BY count DESC, reason)"))
        .select("entity_id", "reason", (F.col("rank") <= most).alias("named"))
    )
    labelled = left.join(F.broadcast(named.where("named")), ["entity_id", "reason"], "left").withColumn(
        "reason", F.when(F.col("named"), F.col("reason")).otherwise(F.lit(outcomes.OTHER_REASONS))
    )
    return labelled.groupBy(*keys, "reason").agg(F.count("*").alias("messages"))
