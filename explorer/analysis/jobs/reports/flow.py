"""Flow and backlog: how many messages entered, left and were in the queue, by step."""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .. import traffic
from ..history import History, Span

SHORT = timedelta(hours=2)  # a range up to this long is listed by interval and queue


def tables(history: History) -> dict[str, DataFrame]:
    """flow: at (interval; NULL: all before the range), entered, left, depth (at its end), most (at the end of one of its steps).
    total, queues (with entity_id): of traffic.backlogs. steps: entity_id, at, entered, left, depth, of a short range. before:
    entered, most, of the range to compare with. known: of traffic.known."""
    request, span = history.request, history.request.span
    counted = traffic.lives(history)
    moves = traffic.movements(counted, span)
    depths = moves.transform(traffic.with_depth, "entity_id")
    together = moves.transform(traffic.summed, "at").transform(traffic.with_depth)
    is_short = F.lit(span.end - span.start <= SHORT)
    return {
        "flow": _by_interval(history, together),
        "total": traffic.backlogs(together, span),
        "queues": traffic.backlogs(depths, span, "entity_id"),
        "steps": _by_interval(history, depths.where(is_short), "entity_id").where("at IS NOT NULL").drop("most"),
        "before": _before(counted, request.compared),
        "known": traffic.known(history),
    }


def _by_interval(history: History, depths: DataFrame, *keys: str) -> DataFrame:
    inside = F.col("at") >= F.lit(history.request.span.start)
    rows = depths.withColumn("step", F.col("at")).withColumn("at", F.when(inside, history.floor("step")))
    return rows.groupBy(*keys, "at").agg(
        F.sum("entered").alias("entered"), F.sum("left").alias("left"),
        F.max_by("depth", "step").alias("depth"), F.max("depth").alias("most"),
    )  # fmt: skip


def _before(counted: DataFrame, span: Span | None) -> DataFrame:
    """entered, most: one row, or none without such a range."""
    if span is None:
        return counted.where(F.lit(False)).select(F.col("messages").alias("entered"), F.col("messages").alias("most"))
    depths = traffic.movements(counted, span).transform(traffic.summed, "at").transform(traffic.with_depth)
    return traffic.backlogs(depths, span).select("entered", "most")
