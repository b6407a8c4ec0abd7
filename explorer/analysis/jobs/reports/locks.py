"""Locks: which deliveries lost their locks, by cause, and how long the locks should have been where settlements came too late."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..history import MAIN, History, micros, percentile
from ..kinds import GENERATED, KEYS, Kind

# Settlements of a receiver that has finished its work, in the reasons of those that were refused.
FINISHING = ("complete", "abandon", "dead-letter", "defer", "delete")
LONGER, GONE, UNSETTLED = "longer", "gone", "unsettled"  # causes
SHORTEST_US = 60_000_000  # a receiver that receives nothing for so long, or for the length of its lock, has stopped
NEARLY = 0.8  # of the lock
MOST_RECEIVERS = 200
MOST_MESSAGES = 12
MOST_DELIVERIES = 50  # of one of these messages
MESSAGE = ("entity_id", "sequence_number")


def tables(history: History) -> dict[str, DataFrame]:
    """Of the deliveries from main lists that were received in the range.

    losses: lost, last_at, late (how many were settled after the lock had ended), needed_us and needed_95_us (from the receipt to
    these settlements: median and 95th percentile), by (at, cause), (receiver, cause), (entity_id, cause), entity_id, and in all;
    at: the interval of the receipt; NULL where they are not counted by it. deliveries: deliveries and lost, by receiver (those
    with most losses) or entity_id; by entity_id also lock_us (median), held_us (of those that succeeded: 95th percentile), timed
    (those that succeeded, of locks that end by time), nearly (those of them that used most of the lock), generated (first
    deliveries of generated messages). worst: the deliveries of the messages that lost most locks: entity_id, sequence_number,
    attempt, outcome, received_at, ended_at, receiver, error, lost, well. before: deliveries, lost, of the range to compare with.
    """
    request = history.request
    attempts = history.attempts().where(F.col("subqueue") == MAIN).transform(with_receiver)
    current = attempts.where(request.span.has("received_at"))
    before = attempts.where(request.compared.has("received_at")) if request.compared else attempts.where(F.lit(False))
    lost = losses(attempts, history.events()).where(request.span.has("received_at"))
    return {
        "losses": lost.withColumn("at", history.floor("received_at")).transform(grouped),
        "deliveries": deliveries(current),
        "worst": worst(current, F.col("lost")),
        "before": before.agg(F.count("*").alias("deliveries"), F.count_if("lost").alias("lost")),
    }


def with_receiver(attempts: DataFrame) -> DataFrame:
    """Adds receiver: who received it; empty: unknown."""
    return attempts.withColumn("receiver", identity_of("received_by"))


def identity_of(stored: str) -> Column:
    """The actor that a column names, as in broker_core.common.actors: without the client of a key and the mark of generated
    history; empty: unknown."""
    real = F.regexp_replace(F.coalesce(stored, F.lit("")), f"^{GENERATED}:", "")
    return F.regexp_replace(real, f"(?s)^(?:{'|'.join(KEYS)}):([^@]+)@.*$", "key:$1")


def losses(attempts: DataFrame, events: DataFrame) -> DataFrame:
    """The deliveries whose lock was lost: entity_id, sequence_number, received_at, lock_ended (instant), receiver, cause, and
    needed_us, how long after the receipt it was settled in vain; NULL: that is not known.

    attempts: of main lists, with receiver. Work was longer than the lock if the lock was renewed, if a later delivery of the
    message took longer, if the receiver used the lock after its end, or if it received nothing else until then. A receiver has
    stopped if it received nothing for the length of the lock afterwards.
    """
    lost = attempts.transform(lost_with_later_work).transform(with_late_settlements, events)
    return with_next_receipts(lost, attempts).select(
        *(*MESSAGE, "received_at", F.timestamp_micros("ended_us").alias("lock_ended"), "receiver"),
        _cause().alias("cause"),
        (F.col("settled_us") - F.col("received_us")).alias("needed_us"),
    )


def lost_with_later_work(attempts: DataFrame) -> DataFrame:
    """Lost deliveries: entity_id, sequence_number, receiver, received_at, received_us, ended_us (when the lock ended), lock_us,
    renewed, longest_us (how long a later delivery that succeeded was held; NULL: none did)."""
    # A later delivery is at least the second one of its message, so that the others need not be sorted.
    tried = attempts.where(F.col("lost") | (F.col("attempt") > 1))
    later = Window.partitionBy(*MESSAGE).orderBy(F.col("received_at").desc()).rowsBetween(Window.unboundedPreceding, -1)
    return (
        tried.withColumn("longest_us", F.max(F.when(F.col("well"), F.col("held_us"))).over(later))
        .where("lost")
        .select(
            *(*MESSAGE, "receiver", "received_at", "lock_us", "longest_us"),
            micros(F.col("received_at")).alias("received_us"),
            micros(F.least("ended_at", "lock_ended_at")).alias("ended_us"),
            (F.coalesce("renewals", F.lit(0)) > 0).alias("renewed"),
        )
    )


def with_late_settlements(lost: DataFrame, events: DataFrame) -> DataFrame:
    """Adds used_late (whether the receiver tried to use the lock after its end) and settled_us (when it first tried to settle).
    An attempt at it belongs to the delivery to this receiver whose lock had ended last."""
    refused = events.where((F.col("kind") == Kind.SETTLE_REFUSED) & (F.col("subqueue") == MAIN)).select(
        *MESSAGE, identity_of("actor").alias("receiver"), micros(F.col("at")).alias("tried_us"), "reason"
    )
    in_order = Window.partitionBy(*MESSAGE, "receiver").orderBy("ended_us", "received_us")
    until = lost.withColumn("next_us", F.lead("ended_us").over(in_order))
    tried = F.col("tried_us")
    inside = (tried >= F.col("ended_us")) & (F.col("next_us").isNull() | (tried < F.col("next_us")))
    joined = until.join(refused, [*MESSAGE, "receiver"], "left").withColumn("is_inside", F.coalesce(inside, F.lit(False)))
    finished = F.col("is_inside") & F.col("reason").isin(*FINISHING)
    return joined.groupBy(*lost.columns).agg(
        F.max("is_inside").alias("used_late"), F.min(F.when(finished, tried)).alias("settled_us")
    )


def with_next_receipts(lost: DataFrame, attempts: DataFrame) -> DataFrame:
    """Adds, in microseconds since 1970, when the receiver next received a message after the receipt (next_us), and from the end
    of the lock on (after_us); NULL: it received none."""
    # Rows are sorted by numbers, because texts with the same beginning are compared to their ends.
    number = F.row_number().over(Window.orderBy("receiver")).alias("number")
    losers = F.broadcast(attempts.where("lost").select("receiver").distinct().select("receiver", number))
    receipts = attempts.join(losers, "receiver").select("number", micros(F.col("received_at")).alias("us"))
    marks = F.array(
        F.struct(F.lit("next").alias("mark"), (F.col("received_us") + 1).alias("us")),
        F.struct(F.lit("after").alias("mark"), F.col("ended_us").alias("us")),
    )
    marked = lost.join(losers, "receiver").select("number", F.struct(*lost.columns).alias("loss"), F.inline(marks))
    points = marked.unionByName(receipts, allowMissingColumns=True)
    # From the last one on, and at an instant the receipts first.
    in_order = Window.partitionBy("number").orderBy(F.desc("us"), F.asc_nulls_first("mark"))
    is_receipt = F.col("mark").isNull()
    then = F.last(F.when(is_receipt, F.col("us")), ignorenulls=True).over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    return (
        points.withColumn("then", then)
        .where(~is_receipt)
        .groupBy("loss")
        .agg(*(F.max(F.when(F.col("mark") == name, F.col("then"))).alias(f"{name}_us") for name in ("next", "after")))
        .select("loss.*", "next_us", "after_us")
    )


def grouped(lost: DataFrame) -> DataFrame:
    """The table "losses"."""
    keys = [F.col(name) for name in ("at", "receiver", "entity_id", "cause")]
    at, receiver, entity_id, cause = keys
    sets = [[at, cause], [receiver, cause], [entity_id, cause], [entity_id], []]
    counted = lost.groupingSets(sets, *keys).agg(
        F.count("*").alias("lost"), F.max("lock_ended").alias("last_at"), F.count("needed_us").alias("late"),
        percentile(F.col("needed_us"), 0.5, 0.95).alias("needed"),
    )  # fmt: skip
    return counted.select("*", F.col("needed")[0].alias("needed_us"), F.col("needed")[1].alias("needed_95_us")).drop("needed")


def deliveries(attempts: DataFrame) -> DataFrame:
    """The table "deliveries"."""
    timed = F.col("well") & F.col("lock_us").isNotNull()
    counts = [F.count("*").alias("deliveries"), F.count_if("lost").alias("lost")]
    losers = attempts.groupBy("receiver").agg(*counts).where("lost > 0")
    queues = attempts.groupBy("entity_id").agg(
        *counts, percentile(F.col("lock_us"), 0.5)[0].alias("lock_us"),
        percentile(F.when(timed, F.col("held_us")), 0.95)[0].alias("held_us"), F.count_if(timed).alias("timed"),
        F.count_if(timed & (F.col("held_us") > F.col("lock_us") * NEARLY)).alias("nearly"),
        F.count_if(F.col("generated") & (F.coalesce("attempt", F.lit(1)) == 1)).alias("generated"),
    )  # fmt: skip
    most = losers.orderBy(F.desc("lost"), "receiver").limit(MOST_RECEIVERS)
    return most.unionByName(queues, allowMissingColumns=True)


def worst(attempts: DataFrame, failed: Column) -> DataFrame:
    """The deliveries of the messages with most deliveries that failed: columns as of the table "worst"."""
    messages = attempts.where(failed).groupBy(*MESSAGE).agg(F.count("*").alias("failures"))
    chosen = messages.orderBy(F.desc("failures"), *MESSAGE).limit(MOST_MESSAGES)
    in_order = Window.partitionBy(*MESSAGE).orderBy("received_at", "ended_at")
    numbered = attempts.join(F.broadcast(chosen), [*MESSAGE], "left_semi").withColumn("place", F.row_number().over(in_order))
    return numbered.where(F.col("place") <= MOST_DELIVERIES).select(
        *MESSAGE, "attempt", "outcome", "received_at", "ended_at", "receiver", "error", "lost", "well"
    )


def _cause() -> Column:
    """Of LONGER, GONE and UNSETTLED. RabbitMQ has no lock that work could exceed."""
    lock = F.col("lock_us")
    silence = F.col("ended_us") + F.greatest(F.coalesce(lock, F.lit(0)), F.lit(SHORTEST_US))
    longer = F.col("used_late") | F.col("renewed") | F.coalesce(F.col("longest_us") > lock, F.lit(False))
    stopped = F.col("after_us").isNull() | (F.col("after_us") > silence)
    went_on = lock.isNull() | F.coalesce(F.col("next_us") < F.col("ended_us"), F.lit(False))
    return F.when(longer, LONGER).when(stopped, GONE).when(went_on, UNSETTLED).otherwise(LONGER)
