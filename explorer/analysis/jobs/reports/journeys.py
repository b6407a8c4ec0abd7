"""Journeys: the ways of messages from queue to queue: copies of a topic, forwarded, moved and resubmitted messages, and those
that a correlation id leads from. The stay of a message among dead letters is not part of the time.

A message has at most one that it was made from. From the messages that nothing was made of, joins follow these links back, hop by
hop, over narrow columns; few messages are left after the first ones. Each hop is computed at once (localCheckpoint), since Spark
takes long to plan a chain of them; if an executor is lost meanwhile, the job fails.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .. import outcomes
from ..history import MAIN, History, percentile
from ..kinds import Kind

MOST_HOPS = 6
MOST_ALIKE = 20  # messages with one correlation id; more do not belong together
MOST_ROUTES = 200
MESSAGE = ("entity_id", "sequence_number")
PARENT = ("parent_id", "parent_number")
HOW = {
    outcomes.FORWARDED: "forwarded", outcomes.RESUBMITTED: "resubmitted", outcomes.MOVED: "moved",
    outcomes.DEAD_LETTERED: "dead-lettered", outcomes.PUBLISHED: "published",
}  # fmt: skip
CORRELATED, MADE = "correlated", "made from it"


def tables(history: History) -> dict[str, DataFrame]:
    """Journeys of two or more steps whose last step ended in the range, through a queue of the scope. The request has all
    entities of the namespace; `entity_ids` of its values are those of the scope.

    routes: route (text, its key), journeys, generated, p50_us, p95_us, longest_us; those with most journeys first. steps: route,
    step (from 0), entity_id, how (empty: sent), begins_us (median, since the start), waits_us (median), p50_us, p95_us, sum_us.
    examples: route, kind (median, longest), start, length_us, legs (entity_id, sequence_number, how, since_us, received_us,
    left_us from the start; received_us NULL: it was not received). before: journeys, in the range to compare with.
    """
    request = history.request
    compared = request.compared.has("ended_at") if request.compared else F.lit(False)
    messages = messages_of(history.lives())
    ends = messages.where(request.span.has("ended_at") | compared)
    chosen = request.values.get("entity_ids")
    both = journeys(messages, parents_of(history).localCheckpoint(), ends).where(passes(chosen) if chosen else F.lit(True))
    both = both.withColumn("is_now", request.span.has("ended_at")).localCheckpoint()
    current = both.where("is_now")
    shown_routes = routes(current)
    return {
        "routes": shown_routes,
        "steps": steps(current.join(F.broadcast(shown_routes.select("route")), "route")),
        "examples": examples(current, shown_routes),
        "before": both.where(~F.col("is_now")).agg(F.count("*").alias("journeys")),
    }


def messages_of(lives: DataFrame) -> DataFrame:
    """By message: entity_id, sequence_number, enqueued_at, first_received_at, ended_at (in the main list), last_outcome (also of
    its stay among dead letters), dead_us (this stay), message_id, generated."""
    entered = lives.where(F.col("enqueued_at").isNotNull() & (F.col("outcome") != outcomes.CANCELLED))
    dead = (
        entered.where(F.col("subqueue") != MAIN)
        .groupBy(*MESSAGE)
        .agg(F.max_by("outcome", "ended_at").alias("dead_outcome"), F.max("ended_at").alias("dead_until"))
    )
    main = entered.where(F.col("subqueue") == MAIN).select(
        *MESSAGE, "enqueued_at", "first_received_at", "ended_at", "outcome", "generated"
    )
    stay = F.unix_micros("dead_until") - F.unix_micros("ended_at")
    return main.join(dead, [*MESSAGE], "left").select(
        *MESSAGE, "enqueued_at", "first_received_at", "ended_at", F.coalesce("dead_outcome", "outcome").alias("last_outcome"),
        F.greatest(F.coalesce(stay, F.lit(0)), F.lit(0)).alias("dead_us"),
        F.coalesce("generated", F.lit(False)).alias("generated"),
    )  # fmt: skip


def parents_of(history: History) -> DataFrame:
    """entity_id, sequence_number, parent_id, parent_number, correlated: the message that each one was made from, else the one
    that its correlation id leads to."""
    lives = history.lives()
    made_from = lives.where((F.col("subqueue") == MAIN) & F.col("from_sequence_number").isNotNull()).select(
        *MESSAGE, F.col("from_entity_id").alias("parent_id"), F.col("from_sequence_number").alias("parent_number"),
        F.lit(0).alias("rank"),
    )  # fmt: skip
    became = lives.where(F.col("to_sequence_number").isNotNull()).select(
        F.col("to_entity_id").alias("entity_id"), F.col("to_sequence_number").alias("sequence_number"),
        F.col("entity_id").alias("parent_id"), F.col("sequence_number").alias("parent_number"), F.lit(1).alias("rank"),
    )  # fmt: skip
    correlated = correlations(history.events(), lives).withColumn("rank", F.lit(2))
    links = made_from.unionByName(became).unionByName(correlated)
    is_other = (F.col("parent_id") != F.col("entity_id")) | (F.col("parent_number") != F.col("sequence_number"))
    first = F.min(F.struct("rank", *PARENT))
    parents = links.where(is_other).groupBy(*MESSAGE).agg(first.alias("link"))
    return parents.select(*MESSAGE, *(f"link.{name}" for name in PARENT), (F.col("link.rank") == 2).alias("correlated"))


def correlations(events: DataFrame, lives: DataFrame) -> DataFrame:
    """entity_id, sequence_number, parent_id, parent_number: of messages with a correlation id, the one with that message id, else
    the one before with the same correlation id, if few have it."""
    named = events.where(F.col("kind").isin(Kind.SENT, Kind.PUBLISHED) & F.col("properties").contains('"correlation_id"')).select(
        F.get_json_object("properties", "$.correlation_id").alias("key"), "at", *MESSAGE
    )
    named = named.where(F.col("key") != "")
    keys = named.select("key").distinct()
    main = lives.where((F.col("subqueue") == MAIN) & F.col("message_id").isNotNull())
    keyed = main.select(F.col("message_id").alias("key"), "enqueued_at", *MESSAGE).join(keys, "key", "left_semi")
    first = keyed.groupBy("key").agg(F.min(F.struct("enqueued_at", *MESSAGE)).alias("first"))
    same_key = Window.partitionBy("key")
    before = F.lag(F.struct(*MESSAGE)).over(same_key.orderBy("at", *MESSAGE))
    grouped = named.withColumn("before", before).withColumn("same_key", F.count("*").over(same_key)).join(first, "key", "left")
    few = F.when(F.col("same_key") <= MOST_ALIKE, F.col("before"))
    parent = F.when(F.col("first").isNotNull(), F.struct(*(F.col(f"first.{name}") for name in MESSAGE))).otherwise(few)
    with_parent = grouped.select(*MESSAGE, parent.alias("parent")).where(F.col("parent").isNotNull())
    return with_parent.select(
        *MESSAGE, F.col("parent.entity_id").alias("parent_id"), F.col("parent.sequence_number").alias("parent_number")
    )


def journeys(messages: DataFrame, parents: DataFrame, ends: DataFrame) -> DataFrame:
    """The journeys that end with messages from which nothing was made: route (text), start (instant), ended_at, length_us,
    generated, legs: array of entity_id, sequence_number, how, since_us, received_us, left_us (from the start, without stays among
    dead letters). messages: as messages_of. parents: as parents_of. ends: those of the messages with which a journey may end."""
    known = messages.select(*MESSAGE, "enqueued_at", "first_received_at", "ended_at", "last_outcome", "dead_us", "generated")
    followed = parents.select(F.col("parent_id").alias("entity_id"), F.col("parent_number").alias("sequence_number")).distinct()
    # Only messages that something was made from are joined below.
    linked = known.join(followed, [*MESSAGE], "left_semi").join(parents, [*MESSAGE], "left").localCheckpoint()
    last = ends.join(parents, [*MESSAGE]).join(followed, [*MESSAGE], "left_anti")
    paths = last.select(F.array(_leg(how=F.lit(""))).alias("legs"), "ended_at", *PARENT, "correlated", "generated")
    done = []
    for _ in range(MOST_HOPS):
        paths = _one_hop_back(paths, linked).localCheckpoint()
        done.append(paths.where(F.col("parent_number").isNull()))
        paths = paths.where(F.col("parent_number").isNotNull())
        if paths.isEmpty():
            break
    all_paths = reduce(DataFrame.unionByName, [*done, paths]).where(F.size("legs") > 1)
    return _timed(all_paths)


def _leg(how: Column) -> Column:
    """A step of a journey, of the columns of a message. how: it came there."""
    return F.struct(
        *MESSAGE, how.alias("how"), F.unix_micros("enqueued_at").alias("since"),
        F.unix_micros("first_received_at").alias("received"), F.unix_micros("ended_at").alias("left"),
        F.col("dead_us").cast("long").alias("dead_us"),
    )  # fmt: skip


def _one_hop_back(paths: DataFrame, linked: DataFrame) -> DataFrame:
    """Prepends the message from which the first one of each path was made. A path whose first one was made from none that is
    known has no parent_number afterwards."""
    of_parent = linked.select(
        F.col("entity_id").alias("parent_id"), F.col("sequence_number").alias("parent_number"), F.col("last_outcome"),
        _leg(how=F.lit("")).alias("leg"), F.struct(*PARENT).alias("next"), F.col("correlated").alias("next_correlated"),
        F.col("generated").alias("parent_generated"),
    )  # fmt: skip
    joined = paths.join(of_parent, [*PARENT], "left")
    words = F.create_map(*(F.lit(value) for pair in HOW.items() for value in pair))
    by_outcome = F.coalesce(F.try_element_at(words, F.col("last_outcome").cast("int")), F.lit(MADE))
    how = F.when(F.col("correlated"), CORRELATED).otherwise(by_outcome)
    first = F.element_at("legs", 1).withField("how", how)
    rest = F.slice("legs", F.lit(2), F.size("legs"))
    is_known = F.col("leg").isNotNull()
    return joined.select(
        F.when(is_known, F.concat(F.array("leg"), F.array(first), rest)).otherwise(F.col("legs")).alias("legs"), "ended_at",
        *(F.col(f"next.{name}").alias(name) for name in PARENT), F.col("next_correlated").alias("correlated"),
        (F.col("generated") | F.coalesce("parent_generated", F.lit(False))).alias("generated"),
    )  # fmt: skip


def _timed(paths: DataFrame) -> DataFrame:
    """Adds start, route and length_us, and takes the stays among dead letters out of the times of legs."""
    start = F.array_min(F.transform("legs", lambda leg: leg.since))

    def moved(leg: Column, place: Column) -> Column:
        earlier = F.slice("legs", F.lit(1), place)
        dead = F.aggregate(earlier, F.lit(0).cast("long"), lambda total, leg: total + leg.dead_us)
        since = F.greatest(leg.since - F.col("start_us") - dead, F.lit(0))
        left = F.greatest(leg.left - F.col("start_us") - dead, since)
        received = F.least(F.greatest(leg.received - F.col("start_us") - dead, since), left)
        return F.struct(
            leg.entity_id.alias("entity_id"), leg.sequence_number.alias("sequence_number"), leg.how.alias("how"),
            since.alias("since_us"), F.when(leg.received.isNotNull(), received).alias("received_us"), left.alias("left_us"),
        )  # fmt: skip

    timed = paths.withColumn("start_us", start).withColumn("legs", F.transform("legs", moved))
    words = F.transform("legs", lambda leg: F.concat_ws(":", leg.entity_id.cast("string"), leg.how))
    return timed.select(
        F.array_join(words, " ").alias("route"), F.timestamp_micros("start_us").alias("start"), "ended_at", "generated",
        F.array_max(F.transform("legs", lambda leg: leg.left_us)).alias("length_us"), "legs",
    )  # fmt: skip


def passes(entity_ids: list[int]) -> Column:
    """Whether a journey passes one of these entities."""
    return F.exists("legs", lambda leg: leg.entity_id.isin(*entity_ids))


def routes(current: DataFrame) -> DataFrame:
    """The routes, those with most journeys first."""
    grouped = current.groupBy("route").agg(
        F.count("*").alias("journeys"), F.count_if("generated").alias("generated"),
        percentile("length_us", 0.5)[0].alias("p50_us"), percentile("length_us", 0.95)[0].alias("p95_us"),
        F.max("length_us").alias("longest_us"),
    )  # fmt: skip
    return grouped.orderBy(F.desc("journeys"), F.desc("p50_us"), "route").limit(MOST_ROUTES)


def steps(current: DataFrame) -> DataFrame:
    """The table "steps"."""
    each = current.select("route", F.posexplode("legs").alias("step", "leg")).select("route", "step", "leg.*")
    takes = F.col("left_us") - F.col("since_us")
    waits = F.coalesce("received_us", "left_us") - F.col("since_us")
    return each.withColumn("takes", takes).withColumn("waits", waits).groupBy("route", "step").agg(
        F.first("entity_id").alias("entity_id"), F.first("how").alias("how"), percentile("since_us", 0.5)[0].alias("begins_us"),
        percentile("waits", 0.5)[0].alias("waits_us"), percentile("takes", 0.5)[0].alias("p50_us"),
        percentile("takes", 0.95)[0].alias("p95_us"), F.sum("takes").alias("sum_us"),
    )  # fmt: skip


def examples(current: DataFrame, shown_routes: DataFrame) -> DataFrame:
    """The table "examples"."""
    joined = current.join(F.broadcast(shown_routes.select("route", "p50_us", "longest_us")), "route")
    example = F.struct("start", "length_us", "legs")
    parts = []
    for kind, length in (("median", "p50_us"), ("longest", "longest_us")):
        same = joined.where(F.col("length_us") == F.col(length)).groupBy("route").agg(F.min(example).alias("example"))
        parts.append(same.select("route", F.lit(kind).alias("kind"), "example.*"))
    return parts[0].unionByName(parts[1])
