"""Hot properties and sessions: the messages of each value of what they can be told apart by, and the times in which sessions
stalled."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .. import dimensions, outcomes
from ..history import MAIN, History, Span, micros, percentile

FAILED = (outcomes.EXPIRED, outcomes.DEAD_LETTERED, outcomes.DROPPED, outcomes.MOVED)
SLOW = 0.9  # slower than this share of the queue's messages
FEWEST = 30  # messages of a value, and of the others, that are compared
MOST_TESTED = 200  # values of a key
MOST_FREQUENT = 20  # of a queue and key
MOST_UNUSUAL = 20
MOST_VALUES = 3000  # in all, the most unusual
MOST_SESSIONS = 100  # those with most messages, and those with the longest waits
MOST_DRAWN = 10
SPELL = 0.01  # of the range; shorter ones are not drawn


def tables(history: History) -> dict[str, DataFrame]:
    """Of the messages that left main lists in the range.

    values: entity_id, key and value (explorer.analysis.dimensions), messages, failed, slow, those of the others of the queue
    (others, others_failed, others_slow), tested (values of the key in the queue): the most frequent values, and those that
    differ most. before: entity_id, key, value, messages, failed, slow, of these values in the range to compare with. sessions:
    entity_id, session, messages, failed, wait_us (longest), still_us (the longest time in which messages waited and none left),
    since, first (the number of the message whose leaving ended it), queue_messages, queue_sessions. spells: entity_id, session,
    since, until, of the sessions that stalled longest. all: messages, generated.
    """
    request, lives = history.request, history.lives()
    current = judged(lives.transform(left_in, request.span))
    frequent = values(current)
    rows = current.where(F.col("session_id").isNotNull()).withColumnRenamed("session_id", "session")
    chosen = spells(rows, busiest(rows))
    return {
        "values": frequent,
        "before": before(lives, frequent, request.compared),
        "sessions": sessions(chosen, rows),
        "spells": drawn(chosen, (request.span.end - request.span.start) * SPELL),
        "all": current.agg(F.count("*").alias("messages"), F.count_if("generated").alias("generated")),
    }


def left_in(lives: DataFrame, span: Span) -> DataFrame:
    is_ended = (F.col("subqueue") == MAIN) & (F.col("outcome") != outcomes.CANCELLED) & F.col("enqueued_at").isNotNull()
    return lives.where(is_ended & span.has("ended_at"))


def judged(lives: DataFrame) -> DataFrame:
    """Adds wait_us, failed (by its end, or delivered more than once), and slow: whether it waited longer than most of its
    queue."""
    waited = lives.withColumn("wait_us", F.coalesce("waiting_us", "never_received_us"))
    limits = waited.groupBy("entity_id").agg(percentile(F.col("wait_us"), SLOW)[0].alias("limit_us"))
    failed = F.col("result").isin(*FAILED) | (F.coalesce("deliveries", F.lit(0)) > 1)
    return (
        waited.join(F.broadcast(limits), "entity_id")
        .withColumn("failed", failed)
        .withColumn("slow", F.coalesce(F.col("wait_us") > F.col("limit_us"), F.lit(False)))
    )


def values(lives: DataFrame) -> DataFrame:
    """The table "values". lives: judged."""
    by_key = Window.partitionBy("entity_id", "key")
    totals = lives.groupBy("entity_id").agg(*(total.alias(f"others{end}") for end, total in _sums().items()))
    counted = by_value(lives).join(F.broadcast(totals), "entity_id")
    for end, name in (("", "messages"), ("_failed", "failed"), ("_slow", "slow")):
        counted = counted.withColumn(f"others{end}", F.col(f"others{end}") - F.col(name))
    unusual = F.greatest(_difference("failed"), _difference("slow"))
    ranked = (
        counted.where("others > 0")  # a key with one value says nothing
        .withColumn("tested", F.least(F.count("*").over(by_key), F.lit(MOST_TESTED)))
        .withColumn("unusual", unusual)
        .withColumn("frequent_place", F.row_number().over(by_key.orderBy(F.desc("messages"), "value")))
        .withColumn("unusual_place", F.row_number().over(by_key.orderBy(F.desc("unusual"), F.desc("messages"), "value")))
    )
    top = ranked.where((F.col("frequent_place") <= MOST_FREQUENT) | (F.col("unusual_place") <= MOST_UNUSUAL))
    first = top.orderBy(F.desc("unusual"), F.desc("messages"), "entity_id", "key", "value").limit(MOST_VALUES)
    return first.drop("unusual", "frequent_place", "unusual_place")


def by_value(lives: DataFrame) -> DataFrame:
    """entity_id, key, value, messages, failed, slow. Equal messages are counted before their values are taken apart."""
    sums = [total.alias(end.removeprefix("_") or "messages") for end, total in _sums().items()]
    size = F.length(F.bin(F.greatest("size", F.lit(1)).cast("long"))) - 1  # twice the power of 2
    octave = F.call_function("shiftleft", F.lit(1).cast("long"), size).alias("size")
    equal = lives.groupBy("entity_id", octave, "time_to_live_in_force_us", "chosen_properties").agg(*sums)
    properties = F.from_json("chosen_properties", "map<string,string>")
    pairs = [
        F.array(
            _pair(dimensions.SIZE, F.col("size").cast("string")),
            _pair(dimensions.TIME_TO_LIVE, F.col("time_to_live_in_force_us").cast("string")),
        ),
        F.transform(
            F.coalesce(F.map_entries(properties), F.array()),
            lambda entry: _pair(F.concat(F.lit(dimensions.PROPERTY), entry.key), entry.value),
        ),
    ]
    apart = equal.select("entity_id", "messages", "failed", "slow", F.inline(F.concat(*pairs))).where("value IS NOT NULL")
    totals = [F.sum(name).alias(name) for name in ("messages", "failed", "slow")]
    of_sessions = lives.where("session_id IS NOT NULL").groupBy("entity_id", F.col("session_id").alias("value")).agg(*sums)
    return (
        apart.groupBy("entity_id", "key", "value")
        .agg(*totals)
        .unionByName(of_sessions.withColumn("key", F.lit(dimensions.SESSION)))
    )


def before(lives: DataFrame, current: DataFrame, span: Span | None) -> DataFrame:
    """The table "before"."""
    earlier = judged(lives.transform(left_in, span) if span else lives.where(F.lit(False)))
    return by_value(earlier).join(current.select("entity_id", "key", "value"), ["entity_id", "key", "value"], "left_semi")


def busiest(rows: DataFrame) -> DataFrame:
    """entity_id, session: those with most messages, and those with the longest waits."""
    totals = rows.groupBy("entity_id", "session").agg(F.count("*").alias("messages"), F.max("wait_us").alias("wait_us"))
    tops = [totals.orderBy(F.desc(name), "entity_id", "session").limit(MOST_SESSIONS) for name in ("messages", "wait_us")]
    return tops[0].unionByName(tops[1]).select("entity_id", "session").distinct()


def spells(rows: DataFrame, chosen: DataFrame) -> DataFrame:
    """The messages of these sessions, each with the time until it left in which messages waited and none left: since, until,
    still_us."""
    chosen_rows = rows.join(F.broadcast(chosen), ["entity_id", "session"], "left_semi")
    session = Window.partitionBy("entity_id", "session")
    in_order = session.orderBy("ended_at", "sequence_number")
    not_left = session.orderBy(F.desc("ended_at"), F.desc("sequence_number")).rowsBetween(Window.unboundedPreceding, 0)
    waiting = F.least(F.greatest(F.lag("ended_at").over(in_order), F.col("oldest")), F.col("ended_at"))
    return (
        chosen_rows.withColumn("oldest", F.min("enqueued_at").over(not_left))
        .withColumn("since", waiting)
        .withColumn("until", F.col("ended_at"))
        .withColumn("still_us", micros(F.col("until")) - micros(F.col("since")))
    )


def sessions(spell_rows: DataFrame, rows: DataFrame) -> DataFrame:
    """The table "sessions"."""
    longest = F.max_by(F.struct("still_us", "since", "sequence_number"), F.struct("still_us", -micros(F.col("until"))))
    queues = rows.groupBy("entity_id").agg(
        F.count("*").alias("queue_messages"), F.count_distinct("session").alias("queue_sessions")
    )
    each = spell_rows.groupBy("entity_id", "session").agg(
        F.count("*").alias("messages"), F.count_if("failed").alias("failed"), F.max("wait_us").alias("wait_us"),
        longest.alias("longest"),
    )  # fmt: skip
    return each.join(F.broadcast(queues), "entity_id").select(
        *("entity_id", "session", "messages", "failed", "wait_us", "longest.still_us", "longest.since"),
        F.col("longest.sequence_number").alias("first"), "queue_messages", "queue_sessions",
    )  # fmt: skip


def drawn(spell_rows: DataFrame, shortest: timedelta) -> DataFrame:
    """The table "spells"."""
    long = spell_rows.where(F.col("still_us") >= max(1, round(shortest / timedelta(microseconds=1))))
    worst = long.groupBy("entity_id", "session").agg(F.max("still_us").alias("most"))
    chosen = worst.orderBy(F.desc("most"), "entity_id", "session").limit(MOST_DRAWN)
    return long.join(F.broadcast(chosen), ["entity_id", "session"], "left_semi").select("entity_id", "session", "since", "until")


def _sums() -> dict[str, Column]:
    """Counts of messages by the end of their name."""
    return {"": F.count("*"), "_failed": F.count_if("failed"), "_slow": F.count_if("slow")}


def _pair(key: str | Column, value: Column) -> Column:
    return F.struct((F.lit(key) if isinstance(key, str) else key).alias("key"), value.alias("value"))


def _difference(name: str) -> Column:
    """By how many standard deviations a value's share exceeds that of the others; 0: too few to compare."""
    n, others = F.col("messages"), F.col("others")
    pooled = (F.col(name) + F.col(f"others_{name}")) / (n + others)
    spread = F.sqrt(pooled * (1 - pooled) * (1 / n + 1 / others))
    known = (n >= FEWEST) & (others >= FEWEST) & (spread > 0)
    return F.when(known, (F.col(name) / n - F.col(f"others_{name}") / others) / spread).otherwise(0.0)
