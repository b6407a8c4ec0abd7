"""Incidents: when trouble began, and what the changes before it did.

Trouble of an entity is counted by step: deliveries that failed or lost their lock, lost messages, and messages that waited long.
It begins at a step if the share after it is clearly larger than before it, over the same length of time on both sides, and more
clearly so than at the steps around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from .. import measures, roll_up
from ..history import History, Request, Span
from ..kinds import Kind
from ..traffic import is_failed
from .losses import is_lost

FAILED, LOCKS, LOST, WAITING = "failed", "locks", "lost", "waiting"  # kinds of trouble
FEWEST = 30  # messages or deliveries before an onset
FEWEST_BAD = 5  # more than expected from before
CLEAR = 4.0  # standard errors between the shares before and after
TIMES_MORE = 2.0
MOST_ONSETS = 20
MOST_CHANGES = 50  # the newest
LONG_BINS = 3 << measures.BITS  # so many bins above the first quartile a wait is long: eight times as long
LONG_US = 1_000_000  # and at least so long
# What a row of vitrine_entity has besides settings.
NOT_SETTINGS = ("id", "updated_at", "created_at", "rules_version", "deleted_at", "deleted_by", "deleted_messages", "path", "key")


def tables(history: History) -> dict[str, DataFrame]:
    """Values of the request: window (hours on each side, text), deploys (at, name, actor; instants in ISO 8601), real_clock
    (whether the namespace's clock shows real time, in which changes are recorded; otherwise there are none).

    onsets: number (from 1, the clearest first), kind, entity_id, at (the start of a step), before, before_bad, after, after_bad
    (messages or deliveries, and those in trouble). changes: number (from 1, the newest first), at, entity_id (NULL: of all),
    actor, name (of a deploy; NULL: settings), old, new (settings, JSON of texts). times: point (onset or change), number, side
    (before, after), measure, bins, counts. shares: point, number, side, left, lost, deliveries, failed, lock_lost, generated.
    chart: at (interval), bad, total, of the first onset. waits: at, measure, bins, counts, of its entity. about: real_clock,
    generated.
    """
    request = history.request
    length = timedelta(hours=int(request.values.get("window") or 1))
    near = Span(request.span.start - length, request.span.end + length)
    counts = history.counts().where(near.has("end_step"))
    bins = history.histograms().where(near.has("step")).persist()
    troubles = trouble_of_counts(counts).unionByName(trouble_of_waiting(bins, request.span))
    first_onsets = onsets(troubles, request.span, length).persist()
    known = changes(history).persist()
    sides = sides_of(first_onsets, known, request, length).persist()
    first = F.broadcast(first_onsets.where("number = 1").select("kind", "entity_id"))
    at = history.floor("step").alias("at")
    inside = request.span.has("step")
    return {
        "onsets": first_onsets,
        "changes": known,
        "times": roll_up.histograms(beside(bins, sides, "step"), "point", "number", "side", "measure"),
        "shares": shares(counts, sides),
        "chart": troubles.where(inside).join(first, ["kind", "entity_id"]).groupBy(at).agg(
            F.sum("bad").alias("bad"), F.sum("total").alias("total")
        ),
        "waits": roll_up.histograms(
            bins.where(inside & F.col("measure").isin(measures.WAITING, measures.NEVER_RECEIVED))
            .join(first.where(F.col("kind") == WAITING).select("entity_id"), "entity_id").withColumn("at", at), "at", "measure"
        ),
        "about": counts.where((F.col("measure") == measures.LIFE) & request.span.has("end_step")).agg(
            F.coalesce(F.sum("generated"), F.lit(0)).alias("generated"), F.lit(has_real_clock(request)).alias("real_clock")
        ),
    }  # fmt: skip


def has_real_clock(request: Request) -> bool:
    """Whether changes can be compared with events."""
    return bool(request.values.get("real_clock", True))


def trouble_of_counts(counts: DataFrame) -> DataFrame:
    """kind, entity_id, step, bad, total: of messages or deliveries by the step in which they ended."""
    ended = counts.where(F.col("end_step").isNotNull()).withColumn("step", F.col("end_step"))
    sums = ended.groupBy("entity_id", "step").agg(*sums_of_ended())
    of = {FAILED: ("failed", "deliveries"), LOCKS: ("lock_lost", "deliveries"), LOST: ("lost", "left")}
    kinds = [
        F.struct(F.lit(kind).alias("kind"), F.col(bad).alias("bad"), F.col(total).alias("total"))
        for kind, (bad, total) in of.items()
    ]
    return sums.select("entity_id", "step", F.inline(F.array(*kinds))).where("total > 0")


def sums_of_ended() -> list[Column]:
    """Of rows of counts: left, lost (messages), deliveries, failed, lock_lost."""
    is_life, is_attempt = F.col("measure") == measures.LIFE, F.col("measure") == measures.ATTEMPT
    of = {
        "left": is_life, "lost": is_life & is_lost("outcome"), "deliveries": is_attempt, "failed": is_attempt & is_failed(),
        "lock_lost": is_attempt & (F.col("outcome") == Kind.LOCK_LOST),
    }  # fmt: skip
    return [F.sum(F.when(condition, F.col("messages")).otherwise(0)).alias(name) for name, condition in of.items()]


def trouble_of_waiting(bins: DataFrame, span: Span) -> DataFrame:
    """The same of messages by the step in which they entered: bad are those that waited eight times as long as the fastest
    quarter of the range, and at least a second. bins: entity_id, measure, step, bin, n."""
    waited = bins.where(F.col("measure").isin(measures.WAITING, measures.NEVER_RECEIVED))
    counted = waited.where(span.has("step")).groupBy("entity_id", "bin").agg(F.sum("n").alias("n"))
    by_entity = Window.partitionBy("entity_id")
    upto = F.sum("n").over(by_entity.orderBy("bin"))
    quartile = counted.withColumn("upto", upto).withColumn("all", F.sum("n").over(by_entity)).where("4 * upto >= all")
    limit = F.greatest(F.min("bin") + LONG_BINS, F.lit(measures.bin_of(LONG_US)))
    limits = quartile.groupBy("entity_id").agg(limit.alias("limit"))
    judged = waited.join(F.broadcast(limits), "entity_id").withColumn("is_long", F.col("bin") >= F.col("limit"))
    # A message that was not received for less than this time may have become either.
    known = judged.where(F.col("is_long") | (F.col("measure") == measures.WAITING))
    return known.groupBy(F.lit(WAITING).alias("kind"), "entity_id", "step").agg(
        F.sum(F.when(F.col("is_long"), F.col("n")).otherwise(0)).alias("bad"), F.sum("n").alias("total")
    )


def onsets(troubles: DataFrame, span: Span, length: timedelta) -> DataFrame:
    """The table "onsets". troubles: kind, entity_id, step, bad, total. length: of what is compared on each side of a step."""
    seconds, by_step = int(length.total_seconds()), Window.partitionBy("entity_id", "kind").orderBy("second")

    def until(second: int, name: str) -> Column:
        # A frame that only grows costs one addition for each row, one that slides as many as it has rows.
        return F.coalesce(F.sum(name).over(by_step.rangeBetween(Window.unboundedPreceding, second)), F.lit(0))

    sides = {"before": (-seconds, -1), "after": (0, seconds - 1)}
    sums = {
        side + of: until(last, name) - until(first - 1, name)
        for side, (first, last) in sides.items() for name, of in (("total", ""), ("bad", "_bad"))
    }  # fmt: skip
    rows = troubles.withColumn("second", F.unix_seconds("step")).withColumns(sums)
    share, expected = F.col("after_bad") / F.col("after"), F.col("before_bad") / F.col("before")
    both = (F.col("after_bad") + F.col("before_bad")) / (F.col("after") + F.col("before"))
    error = F.sqrt(both * (1 - both) * (1 / F.col("after") + 1 / F.col("before")))
    more = F.col("after_bad") - F.col("after") * expected
    rows = rows.where(span.has("step") & (F.col("before") >= FEWEST) & (F.col("after") > 0))
    # Where all are bad afterwards and none were before, the pooled error is still above zero.
    rows = rows.withColumn("clearness", F.when(error > 0, (share - expected) / error))
    rows = rows.where((F.col("clearness") >= CLEAR) & (more >= FEWEST_BAD) & (share >= TIMES_MORE * expected))
    around = F.max(F.struct("clearness", (-F.col("second")).alias("earlier"))).over(by_step.rangeBetween(-seconds, seconds))
    best = rows.withColumn("best", around).where(F.col("second") == -F.col("best.earlier"))
    clearest = best.orderBy(F.desc("clearness"), "kind", "entity_id", "step").limit(MOST_ONSETS)
    number = F.row_number().over(Window.orderBy(F.desc("clearness"), "kind", "entity_id", "step"))
    figures = [name for side in sides for name in (side, f"{side}_bad")]
    return clearest.select(number.alias("number"), "kind", "entity_id", F.col("step").alias("at"), *figures)


def changes(history: History) -> DataFrame:
    """The table "changes"."""
    request = history.request
    if not has_real_clock(request):
        return numbered(of_settings(history.settings(), request.span).limit(0))
    marked = of_deploys(history.spark, request.values.get("deploys") or (), request.span)
    return numbered(of_settings(history.settings(), request.span).unionByName(marked))


def numbered(all_changes: DataFrame) -> DataFrame:
    """The newest changes, with number."""
    newest = (F.desc("at"), F.asc_nulls_first("entity_id"), F.asc("name"))
    return (
        all_changes.orderBy(*newest).limit(MOST_CHANGES).select(F.row_number().over(Window.orderBy(*newest)).alias("number"), "*")
    )


def of_settings(revisions: DataFrame, span: Span) -> DataFrame:
    """The revisions in a range that changed a setting: at, entity_id, actor, name (NULL), old, new (settings as JSON: texts)."""
    in_order = Window.partitionBy("entity_id").orderBy("revision_id")
    parsed = F.from_json("settings", "map<string,string>")
    settings = F.map_from_entries(F.array_sort(F.map_entries(F.map_filter(parsed, lambda name, _: ~name.isin(*NOT_SETTINGS)))))
    known = revisions.withColumn("new", F.to_json(settings))
    followed = known.withColumn("old", F.lag("new").over(in_order))
    return followed.where((F.col("old") != F.col("new")) & span.has("since")).select(
        F.col("since").alias("at"), "entity_id", "actor", F.lit(None).cast("string").alias("name"), "old", "new"
    )


def of_deploys(spark: SparkSession, deploys: Sequence[dict], span: Span) -> DataFrame:
    """The same of the deploys in a range."""
    rows = [(datetime.fromisoformat(deploy["at"]), None, deploy["actor"], deploy["name"], None, None) for deploy in deploys]
    columns = "at timestamp, entity_id long, actor string, name string, old string, new string"
    return spark.createDataFrame(rows, columns).where(span.has("at"))


def sides_of(onset_rows: DataFrame, known: DataFrame, request: Request, length: timedelta) -> DataFrame:
    """The times that are compared: point, number, entity_id (NULL: all), side, start, end. The step in which a change happened is
    on neither side."""
    old = F.col("at") < F.lit(request.now - measures.AGED)
    seconds = F.when(old, int(measures.COARSE.total_seconds())).otherwise(int(roll_up.STEP.total_seconds()))
    second, window = F.unix_seconds("at"), int(length.total_seconds())
    points = onset_rows.select(F.lit("onset").alias("point"), "number", "entity_id", "at").unionByName(
        known.select(F.lit("change").alias("point"), "number", "entity_id", "at")
    )
    until = F.col("second") - F.col("second") % F.col("seconds")
    whole = F.unix_micros("at") % (F.col("seconds") * 1_000_000) == 0
    since = F.when(whole, until).otherwise(until + F.col("seconds"))
    at = F.timestamp_seconds
    both = F.array(
        F.struct(F.lit("before").alias("side"), at(until - window).alias("start"), at(until).alias("end")),
        F.struct(F.lit("after").alias("side"), at(since).alias("start"), at(since + window).alias("end")),
    )
    return (
        points.withColumn("second", second).withColumn("seconds", seconds).select("point", "number", "entity_id", F.inline(both))
    )


def beside(rows: DataFrame, sides: DataFrame, step: str) -> DataFrame:
    """Rows with the points that they are beside: point, number, side. A row may be beside several. step: the instant of a row,
    the start of a step."""
    last = F.col("end") - F.expr("INTERVAL 1 MICROSECOND")
    steps = F.explode(F.sequence("start", last, F.lit(roll_up.STEP))).alias("near")
    near = sides.select("point", "number", "side", F.col("entity_id").alias("of"), steps)
    same = F.col("of").isNull() | (F.col("of") == F.col("entity_id"))
    return rows.join(F.broadcast(near), (F.col(step) == F.col("near")) & same)


def shares(counts: DataFrame, sides: DataFrame) -> DataFrame:
    """The table "shares"."""
    generated = F.sum(F.when(F.col("measure") == measures.LIFE, F.col("generated")).otherwise(0)).alias("generated")
    return beside(counts, sides, "end_step").groupBy("point", "number", "side").agg(*sums_of_ended(), generated)
