"""Job "roll up": counts the lives and attempts of whole days by hour, outcome, cause, time-to-live and histogram bin.

Specification: days (day, namespace_id, and the slices that are `covered` by another roll-up), archive (its address), lives and
attempts (files in it, under `<content>/day=.../namespace=.../`), messages (lives in them), result (a folder to write). Writes
`result/rows`, Parquet files with the columns `day`, `namespace` and measures.COLUMNS, in no order.
"""

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from . import measures, outcomes, runner, schemas, transforms

STEPS = 2


def run(spark: SparkSession, spec: dict, reporter: runner.Reporter) -> dict:
    reporter.step(f"Rolling up {len(spec['lives']) + len(spec['attempts']):,} files")
    rolled_up(spark, spec).write.mode("overwrite").parquet(str(Path(spec["result"]) / "rows"))
    return {"messages": spec["messages"]}


def rolled_up(spark: SparkSession, spec: dict) -> DataFrame:
    """The rows of all files, each read once."""
    lives = of_lives(stored(spark, schemas.LIFE, spec, "lives"))
    attempts = of_attempts(stored(spark, schemas.ATTEMPT, spec, "attempts"))
    return (
        lives.unionByName(attempts)
        .groupBy("day", "namespace", *measures.KEYS)
        .agg(F.count("*").alias("messages"), F.count_if("generated").alias("generated"))
    )


def stored(spark: SparkSession, columns: StructType, spec: dict, content: str) -> DataFrame:
    """The rows of one content that no roll-up covers, with `day` and `namespace` from their paths."""
    added = [StructField(schemas.SLICE, LongType()), StructField("day", StringType()), StructField("namespace", LongType())]
    with_path = StructType([*columns, *added])
    if not spec[content]:
        return spark.createDataFrame([], with_path)
    reader = spark.read.schema(with_path).option("basePath", f"{spec['archive'].rstrip('/')}/{content}")
    rows = reader.parquet(*spec[content])
    for day in spec["days"]:
        if day["covered"]:
            here = (F.col("day") == day["day"]) & (F.col("namespace") == day["namespace_id"])
            rows = rows.where(~F.coalesce(here & F.col(schemas.SLICE).isin(day["covered"]), F.lit(False)))
    return rows


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
        *("day", "namespace", "entity_id", "subqueue"),
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
        *("day", "namespace", "entity_id", "subqueue"),
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
