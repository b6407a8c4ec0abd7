"""Job "roll up": counts the lives and attempts of whole days by hour, outcome, cause, time-to-live and histogram bin.

Specification: days ([{"day", "namespace_id", "lives": [files], "attempts": [files]}]), messages (lives in them), result (a folder
to write), scratch, master, name. Writes `result/rows`, Parquet files with the columns `day`, `namespace_id` and measures.COLUMNS,
in no order.
"""

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from . import measures, outcomes, runner, schemas, transforms

STEPS = 2


def run(spark: SparkSession, spec: dict, reporter: runner.Reporter) -> dict:
    reporter.step(f"Rolling up {len(spec['days'])} days")
    rows = rolled_up(spark, spec["days"])
    rows.write.mode("overwrite").parquet(str(Path(spec["result"]) / "rows"))
    return {"messages": spec["messages"]}


def rolled_up(spark: SparkSession, days: list[dict]) -> DataFrame:
    """The rows of all days, each file read once."""
    lives = [of_day(spark, schemas.LIFE, day, "lives").transform(of_lives) for day in days if day["lives"]]
    attempts = [of_day(spark, schemas.ATTEMPT, day, "attempts").transform(of_attempts) for day in days if day["attempts"]]
    counted = reduce(DataFrame.unionByName, [*lives, *attempts])
    return counted.groupBy("day", "namespace_id", *measures.KEYS).agg(
        F.count("*").alias("messages"), F.count_if("generated").alias("generated")
    )


def of_day(spark: SparkSession, columns, day: dict, content: str) -> DataFrame:
    frame = spark.read.schema(columns).parquet(*day[content])
    return frame.withColumn("day", F.lit(day["day"])).withColumn("namespace_id", F.lit(day["namespace_id"]).cast("long"))


def of_lives(lives: DataFrame) -> DataFrame:
    """A row for each measure of each life that entered its list."""
    entered = lives.where(F.col("enqueued_at").isNotNull() & (F.col("outcome") != outcomes.CANCELLED))
    timed = entered.transform(transforms.with_time_in_queue).transform(transforms.with_expiry)
    age = F.least(F.unix_micros("ended_at") - F.unix_micros("enqueued_at"), "time_to_live_in_force_us")
    never_received = F.when(F.col("waiting_us").isNull(), F.greatest(age, F.lit(0)))
    values = [
        (measures.LIFE, F.lit(0)),
        (measures.WAITING, F.col("waiting_us")),
        (measures.NEVER_RECEIVED, never_received),
        (measures.PROCESSING, F.col("processing_us")),
    ]
    return _measured(timed, values).select(
        *("day", "namespace_id", "entity_id", "subqueue"),
        F.date_trunc("hour", "enqueued_at").alias("hour"),
        F.date_trunc("hour", "ended_at").alias("end_hour"),
        "outcome",
        F.when(F.col("outcome") != outcomes.EXPIRED, F.col("error")).alias("cause"),
        bin_of(F.col("time_to_live_in_force_us")).alias("time_to_live_bin"),
        *("measure", "bin", "generated"),
    )


def of_attempts(attempts: DataFrame) -> DataFrame:
    """A row for each measure of each attempt."""
    held = F.greatest(F.unix_micros("ended_at") - F.unix_micros("received_at"), F.lit(0))
    lock = F.unix_micros("locked_until") - F.unix_micros("received_at")
    use = F.when(lock > 0, F.expr("held * 1000 div lock"))
    timed = attempts.withColumn("held", held).withColumn("lock", lock)
    return _measured(timed, [(measures.HELD, F.col("held")), (measures.LOCK_USE, use)]).select(
        *("day", "namespace_id", "entity_id", "subqueue"),
        F.date_trunc("hour", "received_at").alias("hour"),
        F.date_trunc("hour", "ended_at").alias("end_hour"),
        *("outcome", F.col("error").alias("cause"), F.lit(None).cast("int").alias("time_to_live_bin")),
        *("measure", "bin", "generated"),
    )


def _measured(frame: DataFrame, values: list[tuple[int, Column]]) -> DataFrame:
    """A row for each value that there is, with its `measure` and `bin`."""
    entries = [F.struct(F.lit(measure).cast("short").alias("measure"), bin_of(value).alias("bin")) for measure, value in values]
    exploded = frame.withColumn("entry", F.explode(F.array(*entries))).where("entry.bin IS NOT NULL")
    return exploded.withColumn("measure", F.col("entry.measure")).withColumn("bin", F.col("entry.bin"))


def bin_of(value: Column) -> Column:
    """As measures.bin_of. The logarithm only suggests the octave; shifts decide."""
    value = value.cast("long")
    guess = F.floor(F.log2(F.greatest(value, F.lit(1)).cast("double"))).cast("int")
    above, below = F.call_function("shiftright", value, guess) == 0, F.call_function("shiftright", value, guess) > 1
    exponent = guess - F.when(above, 1).otherwise(0) + F.when(below, 1).otherwise(0)
    octave = F.greatest(exponent - measures.BITS, F.lit(0))
    number = octave * (1 << measures.BITS) + F.call_function("shiftright", value, octave.cast("int"))
    return F.when(value < (1 << measures.BITS), value).otherwise(number).cast("int")


if __name__ == "__main__":
    runner.main(run, steps=STEPS)
