"""Messages that entered and left queues by step, the backlog that follows from both, and what a report's history consists of."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from . import measures, outcomes, roll_up
from .history import History, Span
from .kinds import Kind

LOW = 0.1  # of the largest backlog: up to it, a backlog has drained


def lives(history: History) -> DataFrame:
    """The rows of History.counts that count messages."""
    return history.counts().where(F.col("measure") == measures.LIFE)


def known(history: History) -> DataFrame:
    """One row: since (the first step of all that was read; NULL: there is nothing), and of those that entered in the range:
    messages, generated."""
    inside = history.request.span.has("step")
    sums = [F.coalesce(F.sum(F.when(inside, F.col(name))), F.lit(0)).alias(name) for name in ("messages", "generated")]
    return lives(history).agg(F.min("step").alias("since"), *sums)


def is_failed() -> Column:
    """Whether a row of counts of attempts is of failed deliveries."""
    gone = F.col("outcome").isin(outcomes.DEAD_LETTERED, outcomes.MOVED, outcomes.DROPPED)
    taken_away = F.coalesce(F.col("cause").isin(*outcomes.TAKEN_AWAY), F.lit(False))
    return F.col("outcome").isin(Kind.ABANDONED, Kind.LOCK_LOST) | (gone & ~taken_away)


def movements(counted: DataFrame, span: Span) -> DataFrame:
    """entity_id, at (step), entered, left; of `lives`. What was before the span is in one step before it."""
    relevant = counted.where((F.col("step") < span.end) & (F.col("end_step").isNull() | (F.col("end_step") >= span.start)))
    none, messages = F.lit(0).cast("long"), F.col("messages")
    entering = F.struct(F.col("step").alias("at"), messages.alias("entered"), none.alias("left"))
    leaving = F.struct(F.col("end_step").alias("at"), none.alias("entered"), messages.alias("left"))
    moves = relevant.select("entity_id", F.inline(F.array(entering, leaving))).where(F.col("at") < span.end)
    return summed(moves.withColumn("at", F.greatest("at", F.lit(span.start - roll_up.STEP))), "entity_id", "at")


def summed(moves: DataFrame, *keys: str) -> DataFrame:
    """The keys, entered, left."""
    return moves.groupBy(*keys).agg(F.sum("entered").alias("entered"), F.sum("left").alias("left"))


def depths(moves: DataFrame) -> DataFrame:
    """entity_id (NULL: all together), at (step), entered, left, depth: how many were there at the end of the step."""
    each = moves.withColumn("entity_id", F.explode(F.array("entity_id", F.lit(None).cast("long"))))
    until_now = Window.partitionBy("entity_id").orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    depth = F.sum(F.col("entered") - F.col("left")).over(until_now)
    return summed(each, "entity_id", "at").withColumn("depth", depth)


def backlogs(depths: DataFrame, span: Span) -> DataFrame:
    """entity_id (NULL: all together), entered, left, depth (at the end of the span), and the largest backlog: most; most_at, the
    step at whose end it was reached; since, the step from which on it was above a tenth of it (NULL: since before the span);
    until, the next step at whose end it was not (NULL: it did not drain). depths: of `depths`."""
    whole, at, inside = Window.partitionBy("entity_id"), F.col("at"), F.col("at") >= F.lit(span.start)
    low = F.col("depth") <= LOW * F.col("most")
    with_most = (
        depths.withColumn("most", F.max("depth").over(whole))
        .withColumn("most_at", F.min(F.when(F.col("depth") == F.col("most"), at)).over(whole))
        .withColumn("low_at", F.max(F.when(low & (at < F.col("most_at")), at)).over(whole))
    )  # fmt: skip
    rising = (at <= F.col("most_at")) & (F.col("low_at").isNull() | (at > F.col("low_at")))
    return with_most.groupBy("entity_id").agg(
        *(_total(name, inside) for name in ("entered", "left")),
        F.max_by("depth", "at").alias("depth"),
        *(F.first(name).alias(name) for name in ("most", "most_at")),
        F.min(F.when(rising, at)).alias("began"),
        F.min(F.when(low & (at > F.col("most_at")), at)).alias("until"),
    ).withColumn("since", F.when(F.col("began") >= F.lit(span.start), F.col("began"))).drop("began")  # fmt: skip


def hours(history: History, span: Span) -> DataFrame:
    """entity_id, at: every hour of a span of each entity, from the beginning of an hour."""
    ids = F.array(*(F.lit(entity_id).cast("long") for entity_id in history.request.entity_ids))
    steps = F.sequence(F.lit(span.start), F.lit(span.end - timedelta(microseconds=1)), F.expr("INTERVAL 1 HOUR"))
    return history.spark.range(1).select(F.explode(ids).alias("entity_id")).select("entity_id", F.explode(steps).alias("at"))


def _total(name: str, inside: Column) -> Column:
    return F.coalesce(F.sum(F.when(inside, F.col(name))), F.lit(0)).alias(name)
