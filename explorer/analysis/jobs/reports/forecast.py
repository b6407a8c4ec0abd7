"""Recurring backlog: arrivals and backlog by hour of the week, and the hours in which the backlog was large in several weeks."""

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .. import traffic
from ..constants import FEWEST_WEEKS, LARGE, LARGE_TIMES, MOST_WEEKS, WEEK, WEEK_HOURS
from ..history import History, Span

MOST_PEAKS = 2000
MONDAY = 4 * 86_400


def tables(history: History) -> dict[str, DataFrame]:
    """hours: of all queues together, slot (hour of the week from Monday, UTC), arrivals and backlog, arrays by week, the last one
    first (backlog: the largest at the end of a step). peaks: entity_id, slot, backlog, weeks: the places in these arrays of the
    weeks in which it was large, at least FEWEST_WEEKS. known: of traffic.known."""
    span = weeks_before(history.request.span.end)
    moves = traffic.movements(traffic.lives(history), span).unionByName(
        traffic.hours(history, span).select("entity_id", "at", F.lit(0).alias("entered"), F.lit(0).alias("left"))
    )
    by_hour = _by_hour(traffic.depths(moves), span)
    is_queue = F.col("entity_id").isNotNull()
    return {
        "hours": _by_slot(by_hour.where(~is_queue), "arrivals", "backlog"),
        "peaks": _by_slot(by_hour.where(is_queue).transform(_with_large), "backlog", "is_large").transform(_peaks),
        "known": traffic.known(history),
    }


def weeks_before(end: datetime) -> Span:
    """The last MOST_WEEKS weeks that are over in whole hours."""
    hour = end.replace(minute=0, second=0, microsecond=0)
    return Span(hour - MOST_WEEKS * WEEK, hour)


def _by_hour(depths: DataFrame, span: Span) -> DataFrame:
    """entity_id, hour, slot, week (0: the last one), arrivals, backlog. depths: with at least one step in every hour."""
    inside = depths.where(F.col("at") >= F.lit(span.start)).withColumn("hour", F.date_trunc("hour", "at"))
    by_hour = inside.groupBy("entity_id", "hour").agg(F.sum("entered").alias("arrivals"), F.max("depth").alias("backlog"))
    seconds = F.unix_seconds("hour")
    return by_hour.withColumns(
        {
            "slot": ((seconds - MONDAY) / 3600 % WEEK_HOURS).cast("int"),
            "week": F.floor((F.unix_seconds(F.lit(span.end)) - 3600 - seconds) / (WEEK_HOURS * 3600)).cast("int"),
        }
    )


def _with_large(by_hour: DataFrame) -> DataFrame:
    """Adds is_large: whether the backlog was large for the queue. Hours before its first message do not count as usual."""
    queue = Window.partitionBy("entity_id")
    used = (F.col("arrivals") > 0) | (F.col("backlog") > 0)
    since = F.min(F.when(used, F.col("hour"))).over(queue)
    usual = F.median(F.when(F.col("hour") >= F.col("since"), F.col("backlog"))).over(queue)
    large = (F.col("backlog") >= LARGE) & (F.col("backlog") >= LARGE_TIMES * F.col("usual"))
    return by_hour.withColumn("since", since).withColumn("usual", usual).withColumn("is_large", large)


def _by_slot(by_hour: DataFrame, *columns: str) -> DataFrame:
    """entity_id, slot, and the columns as arrays by week."""
    grouped = by_hour.groupBy("entity_id", "slot").agg(F.array_sort(F.collect_list(F.struct("week", *columns))).alias("w"))
    return grouped.select("entity_id", "slot", *(F.col(f"w.{name}").alias(name) for name in columns))


def _peaks(slots: DataFrame) -> DataFrame:
    large = F.filter(F.sequence(F.lit(0), F.size("backlog") - 1), lambda week: F.element_at("is_large", week + 1))
    repeated = slots.withColumn("weeks", large).where(F.size("weeks") >= FEWEST_WEEKS)
    ranked = repeated.orderBy(F.size("weeks").desc(), F.array_max("backlog").desc(), "entity_id", "slot")
    return ranked.limit(MOST_PEAKS).select("entity_id", "slot", "backlog", "weeks")
