"""Topics and fan-out: what subscriptions and bound queues took of what was published, and how far they lag behind the fastest.

A copy of a topic's message names that message. RabbitMQ's copies do not: those of one publish have the same transaction, routing
key and message id, and the first of these in one queue is a copy of the first one in another.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .. import outcomes
from ..history import MAIN, History, Span, percentile
from ..kinds import Kind

HANDLED = (outcomes.COMPLETED, outcomes.RECEIVED_AND_DELETED, outcomes.FORWARDED)
SOURCE = ("source", "source_id")  # the exchange (its name) or the topic (its id); the other one is NULL
MOST_TARGETS = 1000


def tables(history: History) -> dict[str, DataFrame]:
    """Of the messages that were published in the range; the request has all entities of the namespace, topics included.

    targets: source, source_id, entity_id, taken, handled, lost, there (not ended), generated, p50_us, p95_us (until handled),
    fastest, compared (how many copies have a lag), lag_p50_us, lag_p95_us. sources: source, source_id, taken (messages of which
    there is a copy). topics: source_id, published. before: published, in the range to compare with, and range (whether there is
    one).
    """
    span, compared = history.request.span, history.request.compared
    copies = copies_of(history, span)
    earlier = compared or Span(span.start, span.start)
    before = (
        published(history.lives(), earlier)
        .select(F.lit(1).alias("row"))
        .unionByName(of_exchanges(history, earlier).select(*SOURCE, "message").distinct().select(F.lit(1).alias("row")))
    )
    return {
        "targets": targets(copies),
        "sources": copies.groupBy(*SOURCE).agg(F.countDistinct("message").alias("taken")),
        "topics": published(history.lives(), span).groupBy("source_id").agg(F.count("*").alias("published")),
        "before": before.agg(F.count("*").alias("published")),
    }


def copies_of(history: History, span: Span) -> DataFrame:
    """source, source_id, message (text, equal for all copies of a message), entity_id, enqueued_at, result, ended_at,
    generated."""
    columns = ("entity_id", "sequence_number", "enqueued_at", "result", "ended_at", "generated")
    links = ("from_entity_id", "from_sequence_number")
    lives = history.lives().where((F.col("subqueue") == MAIN) & (F.col("ended_at") >= F.lit(span.start)))
    entered = lives.select(*columns, *links).unionByName(history.open().select(*columns, *links))
    topics = published(history.lives(), span).withColumnRenamed("source_id", "from_entity_id")
    of_topics = entered.join(topics, list(links)).select(
        F.lit(None).cast("string").alias("source"), F.col("from_entity_id").alias("source_id"),
        F.col("from_sequence_number").cast("string").alias("message"), *columns,
    )  # fmt: skip
    exchanges = of_exchanges(history, span).join(entered.select(*columns), ["entity_id", "sequence_number"])
    return of_topics.unionByName(exchanges.select(*of_topics.columns)).drop("sequence_number")


def published(lives: DataFrame, span: Span) -> DataFrame:
    """The messages that topics published in a range: source_id, from_sequence_number (its number at the topic)."""
    published_lives = lives.where((F.col("outcome") == outcomes.PUBLISHED) & span.has("ended_at"))
    return published_lives.select(F.col("entity_id").alias("source_id"), F.col("sequence_number").alias("from_sequence_number"))


def of_exchanges(history: History, span: Span) -> DataFrame:
    """The messages that entered queues by an exchange: source, source_id, message, entity_id, sequence_number."""
    events = history.events()
    if history.request.values.get("family", "rabbitmq") != "rabbitmq":
        events = events.where(F.lit(False))
    named = events.where((F.col("kind") == Kind.SENT) & span.has("at") & F.col("properties").contains('"exchange"')).select(
        F.get_json_object("properties", "$.exchange").alias("source"),
        F.get_json_object("properties", "$.routing_key").alias("routing_key"),
        *("entity_id", "sequence_number", "xid", "message_id"),
    )
    key = ("source", "xid", "routing_key", "message_id")
    place = F.row_number().over(Window.partitionBy(*key, "entity_id").orderBy("sequence_number"))
    parts = [
        F.coalesce(column.cast("string"), F.lit(""))
        for column in (F.col("xid"), F.col("routing_key"), F.col("message_id"), place)
    ]
    return named.where(F.col("source") != "").select(
        "source", F.lit(None).cast("long").alias("source_id"), F.concat_ws("\n", *parts).alias("message"), "entity_id",
        "sequence_number",
    )  # fmt: skip


def targets(copies: DataFrame) -> DataFrame:
    """What each subscription or queue took, those that lag most first. A lag is behind the copy that was handled first."""
    is_handled = F.coalesce(F.col("result").isin(*HANDLED), F.lit(False))
    ended = F.unix_micros("ended_at")
    same = Window.partitionBy(*SOURCE, "message")
    timed = copies.withColumn("handled_us", F.when(is_handled, F.greatest(ended - F.unix_micros("enqueued_at"), F.lit(0))))
    timed = timed.withColumn("first", F.min(F.when(is_handled, ended)).over(same))
    timed = timed.withColumn("others", F.count(F.when(is_handled, 1)).over(same))
    lagging = timed.withColumn("lag_us", F.when(is_handled & (F.col("others") > 1), ended - F.col("first")))
    by_target = lagging.groupBy(*SOURCE, "entity_id").agg(
        F.count("*").alias("taken"), F.count("handled_us").alias("handled"),
        F.count_if(F.col("result").isin(*outcomes.LOST)).alias("lost"),
        F.count_if(F.col("result") == outcomes.STILL_THERE).alias("there"), F.count_if("generated").alias("generated"),
        percentile("handled_us", 0.5)[0].alias("p50_us"), percentile("handled_us", 0.95)[0].alias("p95_us"),
        F.count_if(F.col("lag_us") == 0).alias("fastest"), F.count("lag_us").alias("compared"),
        percentile("lag_us", 0.5)[0].alias("lag_p50_us"), percentile("lag_us", 0.95)[0].alias("lag_p95_us"),
    )  # fmt: skip
    return by_target.orderBy(F.desc_nulls_last("lag_p95_us"), F.desc("taken"), "entity_id").limit(MOST_TARGETS)
