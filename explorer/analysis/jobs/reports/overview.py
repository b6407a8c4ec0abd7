"""Overview: hours in which a number of a queue was unusual for the hour and the weekday.

The numbers ("metrics") are counts, or mean bins of durations (bins are logarithmic, so that it is that of the geometric mean).
"""

from __future__ import annotations

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

LOST = (outcomes.EXPIRED, outcomes.DEAD_LETTERED, outcomes.DROPPED, outcomes.MOVED, outcomes.PURGED, outcomes.DELETED)
ABANDONED, LOCK_LOST = 7, 12  # outcomes of deliveries
FAILED = (ABANDONED, LOCK_LOST, outcomes.DEAD_LETTERED, outcomes.DROPPED, outcomes.MOVED)
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
        return history.spark.createDataFrame(
            [], "entity_id long, metric int, at timestamp, value double, usual double, score double"
        )
    values = by_hour(history, Span(whole.start - LOOK_BACK, whole.end)).transform(_with_since)
    judged = _alike(values, whole).unionByName(_just_before(values, whole))
    ranked = judged.transform(_scored).orderBy(F.abs("score").desc(), "entity_id", "metric", "at")
    return ranked.limit(MOST)


def by_hour(history: History, span: Span) -> DataFrame:
    """entity_id, metric, at (hour), value (double). Counts have every hour of the span; durations those with enough messages."""
    kinds = F.explode(F.array(*(F.lit(one) for one in COUNTS)))
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
        ARRIVALS: ("step", is_life), LOSSES: ("end_step", is_life & outcome.isin(*LOST)),
        FAILURES: ("end_step", is_attempt & outcome.isin(*FAILED)), LOCKS: ("end_step", is_attempt & (outcome == LOCK_LOST)),
    }  # fmt: skip
    entries = [
        F.when(chosen, F.struct(F.lit(metric).alias("metric"), F.date_trunc("hour", step).alias("at")))
        for metric, (step, chosen) in of.items()
    ]
    counted = history.counts().where(F.col("measure").isin(measures.LIFE, measures.ATTEMPT))
    each = counted.select("entity_id", F.explode(F.array_compact(F.array(*entries))).alias("one"), F.col("messages").alias("n"))
    return each.select("entity_id", "one.metric", "one.at", "n")


def _durations(history: History) -> DataFrame:
    """entity_id, metric, at, bin, n. Messages that were not received count as waiting."""
    of = {measures.WAITING: WAITING, measures.NEVER_RECEIVED: WAITING, measures.PROCESSING: PROCESSING}
    metric = F.create_map(*(F.lit(one) for pair in of.items() for one in pair))[F.col("measure").cast("int")]
    timed = history.histograms().where(F.col("measure").isin(*of))
    return timed.select("entity_id", metric.alias("metric"), F.date_trunc("hour", "step").alias("at"), "bin", "n")


def _with_since(values: DataFrame) -> DataFrame:
    """Without the hours before the first one of a queue in which something happened. Adds since, that hour."""
    first = F.min(F.when(F.col("value") > 0, F.col("at"))).over(Window.partitionBy("entity_id"))
    return values.withColumn("since", first).where(F.col("at") >= F.col("since"))


def _alike(values: DataFrame, span: Span) -> DataFrame:
    """The hours of a range with `known`: the values of the same hour of the same weekday in the four weeks before, or of the same
    hour of the days in these if there are too few."""
    apart = _seconds_between(F.col("here.at"))
    return _with_past(values.withColumn("slot", F.hour("at")), span, "slot").select(
        "entity_id", "metric", "here.*",
        F.filter("all", lambda one: (apart(one) > 0) & (apart(one) <= LOOK_BACK.days * DAY_SECONDS)).alias("days"),
    ).withColumn("weeks", F.filter("days", lambda one: _seconds_between(F.col("at"))(one) % WEEK_SECONDS == 0)).withColumn(
        "past", F.when(F.size("weeks") >= FEWEST_ALIKE, F.col("weeks")).when(F.size("days") >= FEWEST_ALIKE, F.col("days"))
    ).where(F.col("past").isNotNull() & (F.col("at") >= F.col("since") + F.lit(EARLY))).transform(_with_known)  # fmt: skip


def _just_before(values: DataFrame, span: Span) -> DataFrame:
    """The same of the early hours of a queue's history: `known` has those before."""
    early = values.where(F.col("at") < F.col("since") + F.lit(EARLY))
    past = F.filter("all", lambda one: _seconds_between(F.col("here.at"))(one) > 0)
    rows = _with_past(early, span).select("entity_id", "metric", "here.*", past.alias("past"))
    return rows.where(F.size("past") >= FEWEST_HOURS).transform(_with_known)


def _with_past(values: DataFrame, span: Span, *keys: str) -> DataFrame:
    """A row for each hour of the span, here: at, value, since; all: the hours (at, value) with the same keys."""
    inside = (F.col("at") >= F.lit(span.start)) & (F.col("at") < F.lit(span.end))
    grouped = values.groupBy("entity_id", "metric", *keys).agg(
        F.collect_list(F.struct("at", "value")).alias("all"),
        F.collect_list(F.when(inside, F.struct("at", "value", "since"))).alias("judged"),
    )  # fmt: skip
    return grouped.select("entity_id", "metric", "all", F.explode("judged").alias("here"))


def _with_known(rows: DataFrame) -> DataFrame:
    return rows.select("entity_id", "metric", "at", "value", F.transform("past", lambda one: one["value"]).alias("known"))


def _scored(rows: DataFrame) -> DataFrame:
    """entity_id, metric, at, value, usual, score, of unusual hours."""
    away = F.transform("known", lambda one: F.abs(one - F.col("usual")))
    off, spread = F.col("value") - F.col("usual"), 1.4826 * F.col("away")
    of_count = F.when(F.abs(off) >= LEAST_COUNT, off / F.greatest(spread, F.sqrt(F.greatest("usual", F.lit(1.0))))).otherwise(0.0)
    score = F.when(F.col("metric").isin(*COUNTS), of_count).otherwise(off / F.greatest(spread, F.lit(LEAST_SPREAD)))
    scored = rows.withColumn("usual", _median("known")).withColumn("away", _median(away)).withColumn("score", score)
    is_finding = (F.col("score") > 0) | (F.col("metric") == ARRIVALS)
    return scored.where((F.abs("score") >= LEAST_SCORE) & is_finding).drop("known", "away")


def _median(values: Column | str) -> Column:
    """Of an array that is not empty."""
    ordered = F.array_sort(values)
    size = F.size(ordered)
    low, high = (F.element_at(ordered, (F.floor((size + more) / 2)).cast("int")) for more in (1, 2))
    return (low + high) / 2


def _seconds_between(at: Column):
    """How long before an instant an hour of an array was."""
    return lambda one: F.unix_seconds(at) - F.unix_seconds(one["at"])


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
