"""Job "roll up": counts the lives and attempts of days and namespaces by step of entering and of leaving, outcome and cause; and
histograms of the durations of lives by step.

Specification: lives (files of the days), output (a folder to write), step_seconds. Writes the contents "counts" and
"histograms" of schemas.py, by content, day and namespace. A report counts what no roll-up has yet by the same functions
(jobs/history.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from . import measures, outcomes, schemas, stored
from .measures import STEP
from .runner import Reporter

STEPS = 3
DAY = ("day", "namespace")  # of the files of which rows are
KEYS = ("entity_id", "subqueue", "measure", "step", "end_step", "outcome", "cause")


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    step = timedelta(seconds=spec["step_seconds"])
    rows = stored.read(spark, schemas.ENDED, spec["lives"])
    lives, attempts = ended_lives(rows), ended_attempts(rows)
    counts = counts_of_lives(lives, step, by=DAY).unionByName(counts_of_attempts(attempts, step, by=DAY))
    contents = {
        "counts": counts,
        "histograms": _arrays(bins(lives, step, by=DAY), (*DAY, "entity_id", "subqueue", "step"), ("measure", "bin")),
    }  # fmt: skip
    for content, content_rows in contents.items():
        reporter.step(f"Counting {len(spec['lives']):,} files of lives: {content}")
        rows = content_rows.withColumn("content", F.lit(content)).coalesce(1)
        mode = "append"  # the folder is new, and each content has a folder of its own in it
        stored.write(rows.sortWithinPartitions("entity_id"), spec["output"], by=("content", *DAY), mode=mode)
    return {}


def ended_lives(rows: DataFrame) -> DataFrame:
    """The lives of rows of schemas.ENDED: schemas.LIFE, with `day` and `namespace` if they have them."""
    return rows.where(F.col("outcome").isNotNull()).select(*schemas.LIFE.names, *_day(rows))


def ended_attempts(rows: DataFrame) -> DataFrame:
    """The attempts of rows of schemas.ENDED: schemas.ATTEMPT, with `day` and `namespace` if they have them."""
    names = schemas.ATTEMPT_NAMES
    columns = [F.col(names[name]).alias(name) if name in names else F.col(name) for name in schemas.ATTEMPT.names]
    return rows.where(F.col(names["outcome"]).isNotNull()).select(*columns, *_day(rows))


def counts_of_lives(lives: DataFrame, step: timedelta = STEP, by: Sequence[str] = ()) -> DataFrame:
    """schemas.COUNT of schemas.LIFE: a row for each combination of keys, of messages that entered their list."""
    rows = entered(lives).select(
        *(*by, "entity_id", "subqueue"),
        F.lit(measures.LIFE).cast("short").alias("measure"),
        floor("enqueued_at", step).alias("step"),
        floor("ended_at", step).alias("end_step"),
        F.col("result").alias("outcome"),
        *("cause", "generated"),
    )
    return _counted(rows, by)


def counts_of_attempts(attempts: DataFrame, step: timedelta = STEP, by: Sequence[str] = ()) -> DataFrame:
    """schemas.COUNT of schemas.ATTEMPT."""
    rows = attempts.select(
        *(*by, "entity_id", "subqueue"),
        F.lit(measures.ATTEMPT).cast("short").alias("measure"),
        floor("received_at", step).alias("step"),
        floor("ended_at", step).alias("end_step"),
        *("outcome", F.col("error").alias("cause"), "generated"),
    )
    return _counted(rows, by)


def bins(lives: DataFrame, step: timedelta = STEP, by: Sequence[str] = ()) -> DataFrame:
    """entity_id, subqueue, measure, step, bin, n: the histograms of waiting, of never having been received, and of processing."""
    values = {
        measures.WAITING: F.col("waiting_us"),
        measures.NEVER_RECEIVED: F.col("never_received_us"),
        measures.PROCESSING: F.col("processing_us"),
    }
    entries = [F.struct(F.lit(measure).alias("measure"), bin_of(value).alias("bin")) for measure, value in values.items()]
    keys = (*by, "entity_id", "subqueue")
    each = entered(lives).select(*keys, floor("enqueued_at", step).alias("step"), F.inline(F.array(*entries)))
    return each.where("bin IS NOT NULL").groupBy(*keys, "measure", "step", "bin").agg(F.count("*").alias("n"))


def histograms(bins: DataFrame, *keys: str) -> DataFrame:
    """Rows with bin and n as arrays: the keys, bins array<int> in order, counts array<int>."""
    return _arrays(bins, keys, ("bin",))


def entered(lives: DataFrame) -> DataFrame:
    """Those that entered their list: not scheduled messages that were cancelled."""
    return lives.where(F.col("enqueued_at").isNotNull() & (F.col("outcome") != outcomes.CANCELLED))


def floor(at: Column | str, step: timedelta) -> Column:
    """The start of the step in which an instant is. Steps are counted from a Monday."""
    seconds, monday = int(step.total_seconds()), 4 * 86_400
    return F.timestamp_seconds(F.floor((F.unix_seconds(at) - monday) / seconds) * seconds + monday)


def bin_of(value: Column) -> Column:
    """As measures.bin_of. The logarithm only suggests the octave; shifts decide."""
    value = value.cast("long")
    guess = F.floor(F.log2(F.greatest(value, F.lit(1)).cast("double"))).cast("int")
    above, below = F.call_function("shiftright", value, guess) == 0, F.call_function("shiftright", value, guess) > 1
    exponent = guess - F.when(above, 1).otherwise(0) + F.when(below, 1).otherwise(0)
    octave = F.greatest(exponent - measures.BITS, F.lit(0))
    number = octave * (1 << measures.BITS) + F.call_function("shiftright", value, octave.cast("int"))
    return F.when(value < (1 << measures.BITS), value).otherwise(number).cast("int")


def _counted(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    return rows.groupBy(*by, *KEYS).agg(F.count("*").alias("messages"), F.count_if("generated").alias("generated"))


def _arrays(bins: DataFrame, keys: Sequence[str], of: Sequence[str]) -> DataFrame:
    """The keys; each of the columns `of` as an array, named in the plural, in their order; and counts, of the sums of n."""
    total = bins.groupBy(*keys, *of).agg(F.sum("n").cast("int").alias("n"))
    each = total.groupBy(*keys).agg(F.array_sort(F.collect_list(F.struct(*of, "n"))).alias("each"))
    return each.select(*keys, *(F.col(f"each.{name}").alias(f"{name}s") for name in of), F.col("each.n").alias("counts"))


def _day(rows: DataFrame) -> list[str]:
    return [name for name in DAY if name in rows.columns]
