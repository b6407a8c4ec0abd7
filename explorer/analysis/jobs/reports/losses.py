"""Losses: messages that were lost, by queue, result and cause, by time, and by where they came from and went to."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .. import outcomes, traffic
from ..history import MAIN, History, Span

MOST_ROWS = 1000  # of causes and of routes, most messages first
KEYS = ("entity_id", "outcome", "cause")


def tables(history: History) -> dict[str, DataFrame]:
    """causes: entity_id, outcome, cause, messages, entered_at (the first step in which one of them had entered), first_at,
    last_at (the first and last step in which they were lost), since (the first one that is known). times: at (interval of the
    loss), outcome, messages. routes: entity_id, outcome, from_entity_id, to_entity_id (NULL: none), messages. totals: one row
    with left (messages that left), lost, generated, begun (the first step of the known history), before (lost in the range to
    compare with; NULL: there is none)."""
    request = history.request
    ends = traffic.lives(history).where(F.col("end_step").isNotNull())
    lost = ends.where(is_lost("outcome"))
    current = lost.where(request.span.has("end_step"))
    times = current.withColumn("at", history.floor("end_step")).groupBy("at", "outcome").agg(F.sum("messages").alias("messages"))
    return {
        "causes": causes(lost.where(F.col("end_step") < request.span.end), request.span),
        "times": times,
        "routes": routes(history.lives().where(request.span.has("ended_at"))),
        "totals": totals(ends, request.span, request.compared),
    }


def is_lost(outcome: str) -> Column:
    """Whether this outcome (of schemas.LIFE, as `result`) is a loss."""
    return F.col(outcome).isin(*outcomes.LOST)


def causes(lost: DataFrame, span: Span) -> DataFrame:
    """The causes of losses in a range. lost: counts of lost messages of a longer time, which says since when a cause is known."""
    inside = span.has("end_step")
    return (
        lost.groupBy(*KEYS)
        .agg(
            F.sum(F.when(inside, F.col("messages"))).alias("messages"),
            F.min(F.when(inside, F.col("step"))).alias("entered_at"),
            F.min(F.when(inside, F.col("end_step"))).alias("first_at"),
            F.max(F.when(inside, F.col("end_step"))).alias("last_at"),
            F.min("end_step").alias("since"),
        )
        .where(F.col("messages") > 0)
        .orderBy(F.desc("messages"), *KEYS)
        .limit(MOST_ROWS)
    )


def routes(lives: DataFrame) -> DataFrame:
    """Where lost messages came from, and where they went."""
    keys = ("entity_id", "outcome", "from_entity_id", "to_entity_id")
    lost = lives.where((F.col("subqueue") == MAIN) & is_lost("result"))
    return (
        lost.select(*(F.col("result").alias(name) if name == "outcome" else F.col(name) for name in keys))
        .groupBy(*keys)
        .agg(F.count("*").alias("messages"))
        .orderBy(F.desc("messages"), *keys)
        .limit(MOST_ROWS)
    )


def totals(ends: DataFrame, span: Span, compared: Span | None) -> DataFrame:
    """Of the counts of messages that left, one row."""
    inside, lost = span.has("end_step"), is_lost("outcome")
    before = F.sum(F.when(compared.has("end_step") & lost, F.col("messages")).otherwise(0)) if compared else F.lit(None)
    return ends.agg(
        F.sum(F.when(inside, F.col("messages")).otherwise(0)).alias("left"),
        F.sum(F.when(inside & lost, F.col("messages")).otherwise(0)).alias("lost"),
        F.sum(F.when(inside, F.col("generated")).otherwise(0)).alias("generated"),
        F.min("end_step").alias("begun"),
        before.cast("long").alias("before"),
    )
