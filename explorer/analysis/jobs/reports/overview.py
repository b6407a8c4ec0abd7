"""Overview: hours in which a number of a queue was unusual for the hour and the weekday.

The numbers ("metrics") are counts, or mean bins of durations (bins are logarithmic, so that it is that of the geometric mean).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .. import measures, outcomes, traffic
from ..constants import (
    ARRIVALS,
    COUNTS,
    EARLY,
    FAILURES,
    FEWEST_ALIKE,
    FEWEST_HOURS,
    LEAST_SCORE,
    LOCKS,
    LOOK_BACK,
    LOSSES,
    PROCESSING,
    WAITING,
)
from ..history import History, Span
from ..kinds import Kind

FEWEST_TIMES = 10  # messages in an hour whose typical duration counts
LEAST_COUNT = 5
LEAST_SPREAD = 8.0  # bins, a quarter of an octave
MOST = 2000  # unusual hours
COLUMNS = "entity_id long, metric int, at timestamp, value double, usual double, score double"
DAY_SECONDS, WEEK_SECONDS = 86_400, 7 * 86_400


def tables(history: History) -> dict[str, DataFrame]:
    """hours: entity_id, metric, at, value, usual, score (in usual spreads; negative: less than usual), the most unusual ones.
    before: the same of the range to compare with. known: of traffic.known."""
    request = history.request
    nothing = Span(request.span.start, request.span.start)
    return {
        "hours": unusual(history, request.span),
        "before": unusual(history, request.compared or nothing),
        "known": traffic.known(history),
    }


def unusual(history: History, span: Span) -> DataFrame:
    """COLUMNS: the unusual hours of a range, of those that are over."""
    whole = Span(_hour(span.start), _hour(span.end))
    if whole.start >= whole.end:
        return history.spark.createDataFrame([], COLUMNS)
    values = by_hour(history, Span(whole.start - LOOK_BACK, whole.end))
    hourly = values.transform(_with_early).transform(_with_past, whole).transform(_judged)
    return hourly.orderBy(F.abs("score").desc(), "entity_id", "metric", "at").limit(MOST)


def by_hour(history: History, span: Span) -> DataFrame:
    """entity_id, metric, at (hour), value (double). Counts have every hour of the span; durations those with enough messages."""
    kinds = F.explode(F.array(*(F.lit(count) for count in COUNTS)))
    zeros = traffic.hours(history, span).select("entity_id", kinds.alias("metric"), "at", F.lit(0).cast("long").alias("n"))
    counts = _counts(history).where(span.has("at")).unionByName(zeros).groupBy("entity_id", "metric", "at")
    typical = _durations(history).where(span.has("at")).groupBy("entity_id", "metric", "at")
    times = typical.agg((F.sum(F.col("bin") * F.col("n")) / F.sum("n")).alias("value"), F.sum("n").alias("n"))
    return counts.agg(F.sum("n").cast("double").alias("value")).unionByName(times.where(F.col("n") >= FEWEST_TIMES).drop("n"))


def _counts(history: History) -> DataFrame:
    """entity_id, metric, at, n."""
    is_life, outcome = F.col("measure") == measures.LIFE, F.col("outcome")
    is_attempt = F.col("measure") == measures.ATTEMPT
    of = {
        ARRIVALS: ("step", is_life), LOSSES: ("end_step", is_life & outcome.isin(*outcomes.LOST)),
        FAILURES: ("end_step", is_attempt & traffic.is_failed()), LOCKS: ("end_step", is_attempt & (outcome == Kind.LOCK_LOST)),
    }  # fmt: skip
    entries = [
        F.when(chosen, F.struct(F.lit(metric).alias("metric"), F.date_trunc("hour", step).alias("at")))
        for metric, (step, chosen) in of.items()
    ]
    counted = history.counts().where(F.col("measure").isin(measures.LIFE, measures.ATTEMPT))
    each = counted.select("entity_id", F.explode(F.array_compact(F.array(*entries))).alias("entry"), F.col("messages").alias("n"))
    return each.select("entity_id", "entry.metric", "entry.at", "n")


def _durations(history: History) -> DataFrame:
    """entity_id, metric, at, bin, n. Messages that were not received count as waiting."""
    of = {measures.WAITING: WAITING, measures.NEVER_RECEIVED: WAITING, measures.PROCESSING: PROCESSING}
    metric = F.create_map(*(F.lit(name) for pair in of.items() for name in pair))[F.col("measure")]
    return history.histograms().select("entity_id", metric.alias("metric"), F.date_trunc("hour", "step").alias("at"), "bin", "n")


def _with_early(values: DataFrame) -> DataFrame:
    """Without the hours before the first one of a queue in which something happened. Adds before: of an early hour, the values of
    all hours before it."""
    first = F.min(F.when(F.col("value") > 0, F.col("at"))).over(Window.partitionBy("entity_id"))
    known = values.withColumn("since", first).where(F.col("at") >= F.col("since"))
    is_early = F.col("at") < F.col("since") + F.lit(EARLY)
    so_far = Window.partitionBy("entity_id", "metric").orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
    return known.withColumn("before", F.when(is_early, F.collect_list(F.when(is_early, F.col("value"))).over(so_far)))


def _with_past(values: DataFrame, span: Span) -> DataFrame:
    """A row for each hour of the span: entity_id, metric, at, value, before, and all: the same hour of all days, of each at (in
    seconds) and value."""
    inside = (F.col("at") >= F.lit(span.start)) & (F.col("at") < F.lit(span.end))
    grouped = values.groupBy("entity_id", "metric", F.hour("at")).agg(
        F.collect_list(F.struct(F.unix_seconds("at").alias("at"), "value")).alias("all"),
        F.collect_list(F.when(inside, F.struct("at", "value", "before"))).alias("hours"),
    )  # fmt: skip
    return grouped.select("entity_id", "metric", "all", F.inline("hours"))


def _comparable_values() -> Column:
    """The values to compare an hour with: of the same hour of the same weekday in the four weeks before, or of the days in these
    if there are too few; of an early hour, of those before. NULL: there are too few."""
    at, early = F.unix_seconds("at"), F.col("before")
    days = F.filter("all", lambda pair: (at - pair["at"]).between(1, LOOK_BACK.days * DAY_SECONDS))

    def chosen(days: Column) -> Column:
        weeks = F.filter(days, lambda pair: (at - pair["at"]) % WEEK_SECONDS == 0)
        enough = _let(weeks, lambda weeks: F.when(F.size(weeks) >= FEWEST_ALIKE, weeks).otherwise(days))
        return F.when(F.size(days) >= FEWEST_ALIKE, enough)

    values = F.transform(_let(days, chosen), lambda pair: pair["value"])
    return F.when(early.isNull(), values).when(F.size(early) >= FEWEST_HOURS, early)


def _judged(rows: DataFrame) -> DataFrame:
    """COLUMNS, of unusual hours."""
    is_count, value = F.col("metric").isin(*COUNTS), F.col("value")

    def scored(usual: Column, away: Column) -> Column:
        off, spread = value - usual, 1.4826 * away
        of_count = F.when(F.abs(off) >= LEAST_COUNT, off / F.greatest(spread, F.sqrt(F.greatest(usual, F.lit(1.0)))))
        score = F.when(is_count, of_count).otherwise(off / F.greatest(spread, F.lit(LEAST_SPREAD)))
        return F.struct(usual.alias("usual"), score.alias("score"))

    def compared(known: Column) -> Column:
        return _let(_median(known), lambda usual: _let(
            _median(F.transform(known, lambda element: F.abs(element - usual))), lambda away: scored(usual, away)
        ))  # fmt: skip

    judged = rows.select("entity_id", "metric", "at", "value", F.inline(F.array(_let(_comparable_values(), compared))))
    is_finding = (F.col("score") > 0) | (F.col("metric") == ARRIVALS)
    return judged.where((F.abs("score") >= LEAST_SCORE) & is_finding)


def _median(values: Column) -> Column:
    """Of an array that is not empty."""

    def middle(ordered: Column) -> Column:
        low, high = (F.element_at(ordered, F.floor((F.size(ordered) + more) / 2).cast("int")) for more in (1, 2))
        return (low + high) / 2

    return _let(F.sort_array(values), middle)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """The body with a value that is computed once: the optimizer would repeat a column at each place where it is used."""
    return F.transform(F.array(value), body)[0]


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
