"""Flow and backlog: how many messages entered, left and were in the queue, by step."""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .. import traffic
from ..history import History, Span

SHORT = timedelta(hours=2)  # a range up to this long is listed by interval and queue


def tables(history: History) -> dict[str, DataFrame]:
    """flow: entity_id (NULL: all together; queues only of a short range), at (interval; NULL: all before the range), entered,
    left, depth (at its end), most (at the end of one of its steps). backlogs: of traffic.backlogs. before: entered, of the range
    to compare with. known: of traffic.known."""
    request, span = history.request, history.request.span
    depths = traffic.depths(traffic.movements(traffic.lives(history), span))
    is_shown = F.col("entity_id").isNull() | F.lit(span.end - span.start <= SHORT)
    return {
        "flow": _by_interval(history, depths.where(is_shown)),
        "backlogs": traffic.backlogs(depths, span),
        "before": _before(history, request.compared),
        "known": traffic.known(history),
    }


def _by_interval(history: History, depths: DataFrame) -> DataFrame:
    inside = F.col("at") >= F.lit(history.request.span.start)
    rows = depths.withColumn("step", F.col("at")).withColumn("at", F.when(inside, history.floor("step")))
    return rows.groupBy("entity_id", "at").agg(
        F.sum("entered").alias("entered"), F.sum("left").alias("left"),
        F.max_by("depth", "step").alias("depth"), F.max("depth").alias("most"),
    )  # fmt: skip


def _before(history: History, span: Span | None) -> DataFrame:
    chosen = traffic.lives(history).where(span.has("step") if span else F.lit(False))
    return chosen.agg(F.coalesce(F.sum("messages"), F.lit(0)).alias("entered"))
