"""Receivers: how many deliveries each had, how they ended, how long each took, and when it received."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..history import MAIN, History, percentile
from .locks import with_receiver

MOST_RECEIVERS = 200  # those with most deliveries
MOST_DRAWN = 12


def tables(history: History) -> dict[str, DataFrame]:
    """Of the deliveries from main lists that were received in the range and have ended.

    receivers: receiver (empty: unknown), queues, deliveries, succeeded, lost (locks), rejected, failed (otherwise), work_us and
    work_95_us (of those that succeeded, how long they were held: median, 95th percentile), last_at (receipt); most deliveries
    first. times: receiver, at (interval of the receipt), deliveries, of the first of these. all, before (of the range to compare
    with): receivers, deliveries, unsuccessful, generated (first deliveries of generated messages).
    """
    request = history.request
    attempts = history.attempts().where(F.col("subqueue") == MAIN).transform(with_receiver)
    current = attempts.where(request.span.has("received_at"))
    before = attempts.where(request.compared.has("received_at")) if request.compared else attempts.where(F.lit(False))
    return {
        "receivers": receivers(current),
        "times": times(current.withColumn("at", history.floor("received_at"))),
        "all": in_all(current),
        "before": in_all(before),
    }


def receivers(attempts: DataFrame) -> DataFrame:
    work = F.when(F.col("well"), F.col("held_us"))
    by_receiver = attempts.groupBy("receiver").agg(
        F.size(F.collect_set("entity_id")).alias("queues"), F.count("*").alias("deliveries"),
        F.count_if("well").alias("succeeded"),
        F.count_if("lost").alias("lost"), F.count_if("rejected").alias("rejected"),
        F.count_if(F.col("failed") & ~F.col("lost")).alias("failed"), percentile(work, 0.5, 0.95).alias("work"),
        F.max("received_at").alias("last_at"),
    )  # fmt: skip
    by_receiver = by_receiver.select("*", F.col("work")[0].alias("work_us"), F.col("work")[1].alias("work_95_us")).drop("work")
    return by_receiver.orderBy(F.desc("deliveries"), "receiver").limit(MOST_RECEIVERS)


def times(attempts: DataFrame) -> DataFrame:
    counted = attempts.groupBy("receiver", "at").agg(F.count("*").alias("deliveries"))
    most = counted.groupBy("receiver").agg(F.sum("deliveries").alias("n")).orderBy(F.desc("n"), "receiver").limit(MOST_DRAWN)
    return counted.join(F.broadcast(most), "receiver", "left_semi")


def in_all(attempts: DataFrame) -> DataFrame:
    return attempts.agg(
        F.count_distinct("receiver").alias("receivers"), F.count("*").alias("deliveries"),
        F.count_if(F.col("lost") | F.col("rejected") | F.col("failed")).alias("unsuccessful"),
        F.count_if(F.col("generated") & (F.coalesce("attempt", F.lit(1)) == 1)).alias("generated"),
    )  # fmt: skip
