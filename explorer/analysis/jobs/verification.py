"""Job "verification": compares lives, attempts and carried messages with the events that they were derived from.

Specification: events, lives, open (files). The result has `messages` (how many were compared) and `wrong`: objects with `rule`
(of RULES), `day`, `namespace`, `messages` (how many), and entity_id and sequence_number of one of them.

Not compared, since their lives may rightly have less than their events: messages whose beginning is not in the events any more,
that an operator's undo returned, or whose events are further apart than the seven days for which a message is carried.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from . import schemas, stored
from .kinds import BEGINNINGS, LIFE_ENDS, NO_CHANGE, Kind
from .lives import MESSAGE
from .roll_up import ended_attempts, ended_lives
from .runner import Reporter

STEPS = 2
CARRIED_DAYS = 7
# What is 0 for each message, as columns of `counted`: events that are there twice; receives without deliveries; locks lost, and
# ends, without those of deliveries and lives.
RULES = ("twice", "receipts", "losses", "ends")


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    reporter.step(f"Comparing lives with {len(spec['events']):,} files of events")
    rows = stored.read(spark, schemas.ENDED, spec["lives"])
    comparison = counted(
        stored.read(spark, schemas.EVENT, spec["events"]), ended_lives(rows), ended_attempts(rows),
        stored.read(spark, schemas.OPEN, spec["open"]),
    ).cache()  # fmt: skip
    return {"messages": comparison.count(), "wrong": [row.asDict() for row in wrong(comparison).collect()]}


def counted(events: DataFrame, lives: DataFrame, attempts: DataFrame, carried: DataFrame) -> DataFrame:
    """entity_id, sequence_number, day (of its last event), namespace, and the columns of RULES, of each message that is
    compared."""
    message = Window.partitionBy(*MESSAGE).orderBy("event_id")
    before = message.rowsBetween(Window.unboundedPreceding, -1)
    kind = F.col("kind")
    steps = events.withColumns(
        {
            "had": F.last(F.when(~kind.isin(*NO_CHANGE), kind), ignorenulls=True).over(before),
            "again": F.coalesce(F.lag("event_id").over(message) == F.col("event_id"), F.lit(False)),
        }
    )
    of_events = steps.select(
        *(*MESSAGE, "day", "namespace", "recorded_at", "again"),
        kind.isin(*BEGINNINGS).alias("begins"), (kind == Kind.RESTORED).alias("returned"),
        kind.isin(Kind.RECEIVED, Kind.RECEIVED_AND_DELETED).alias("receipts"),
        ((kind == Kind.LOCK_LOST) & (F.col("had") == Kind.RECEIVED)).alias("losses"), kind.isin(*LIFE_ENDS).alias("ends"),
    )  # fmt: skip
    sides = [
        of_events,
        _derived(attempts, receipts=F.lit(True), losses=F.col("outcome") == Kind.LOCK_LOST),
        _derived(lives, ends=F.lit(True)),
        _derived(carried.where("received_at IS NOT NULL"), receipts=F.lit(True)),
    ]
    each = sides[0].withColumn("sign", F.lit(1))
    for side in sides[1:]:
        each = each.unionByName(side.withColumn("sign", F.lit(-1)), allowMissingColumns=True)
    span = F.max("recorded_at") - F.min("recorded_at")
    total = each.groupBy(*MESSAGE).agg(
        F.max("day").alias("day"), F.max("namespace").alias("namespace"), F.count_if("again").alias("twice"),
        *(F.sum(F.col(name).cast("int") * F.col("sign")).alias(name) for name in ("receipts", "losses", "ends")),
        F.count_if("begins").alias("begun"), F.count_if("returned").alias("returned"), span.alias("span"),
    )  # fmt: skip
    whole = (F.col("begun") > 0) & (F.col("returned") == 0) & (F.col("span") < F.make_dt_interval(F.lit(CARRIED_DAYS)))
    return total.where(whole).select(*MESSAGE, "day", "namespace", *(F.coalesce(name, F.lit(0)).alias(name) for name in RULES))


def wrong(counted: DataFrame) -> DataFrame:
    """rule, day, namespace, messages, entity_id, sequence_number: for each rule that some messages do not keep."""
    broken = [F.when(F.col(name) != 0, F.lit(name)) for name in RULES]
    each = counted.select(*MESSAGE, "day", "namespace", F.explode(F.array_compact(F.array(*broken))).alias("rule"))
    by_rule = each.groupBy("rule", "day", "namespace").agg(
        F.count("*").alias("messages"), F.min(F.struct(*MESSAGE)).alias("example")
    )
    return by_rule.select("rule", "day", "namespace", "messages", "example.*").orderBy("day", "namespace", "rule")


def _derived(rows: DataFrame, **counts: Column) -> DataFrame:
    return rows.select(*MESSAGE, *(value.alias(name) for name, value in counts.items()))
