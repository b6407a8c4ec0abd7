"""What if? Replays the history of one queue with other settings, on resampled blocks of it, distributed over both.

Values of the request: time_to_live, lock (microseconds), deliveries (as the queue's family counts them), consumers; share (in per
cent) and within (microseconds) of the question how many consumers are needed; and `traits` of the queue: deliveries (the maximum
in force, as replays count it; None: unlimited), more (by how much that exceeds the family's number), notices_crashes,
by_visibility.
"""

from __future__ import annotations

import pickle
import random
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from .. import measures, outcomes, replaying, roll_up, simulation
from ..by_value import modules
from ..history import MAIN, History, Span, micros
from ..kinds import Kind
from ..replaying import RESAMPLES, CannotReplay, Delivery, End, Life, Refusal, Replayable, Traits
from ..simulation import Result, Setting

MOST_MESSAGES = 40_000  # that are replayed; of more, contiguous parts are drawn
PARTS = 8  # so many
MOST_WORK = 800_000  # messages times replays, about
SEARCHES = 8  # resampled histories for which the consumers that are needed are searched
REPLAYS_OF_SEARCH = 8
FEWEST_OF_RESAMPLE = 300  # messages
RESULTS = {"complete": Result.WELL, "delete": Result.WELL, "dead-letter": Result.WELL, "abandon": Result.FAILED}  # of refusals
MINUTE = 60_000_000
NOW, CHOSEN, VARIED = "now", "chosen", "varied"  # roles of settings
SEARCH = -1  # in place of a setting: the search for the consumers that are needed
ACTUAL = -1  # in place of a resample: what really happened; 0: the replay of the history as it was


def _integers(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


FIGURES = (
    *("messages", "processed", "expired", "unreceived", "dead_lettered", "duplicates", "deliveries", "locks_lost", "depth"),
    *("prompt", "due"),
)
WAITS = ("p50", "p75", "p90", "p95", "p99")  # simulation.QUANTILES
TASK = StructType([StructField("setting", IntegerType()), StructField("resample", IntegerType())])
OUTCOME = StructType([*TASK, *_integers(*FIGURES, *WAITS, "needed")])
SETTING = StructType([
    StructField("setting", IntegerType()), StructField("role", StringType()),
    *_integers("consumers", "prefetch", "lock_us", "deliveries", "time_to_live_us"),
])  # fmt: skip
ABOUT = StructType([
    StructField("problem", StringType()), StructField("varied", StringType()),
    *_integers("messages", "replayed", "generated", "before", "headless", "late", "longest", "backlog_ppm", "blocks"),
    *_integers("by_messages_ppm", "by_waiting_ppm"),
])  # fmt: skip


def tables(history: History) -> dict[str, DataFrame]:
    """about: one row: `problem` (why nothing is replayed), the `varied` setting, messages (that entered), replayed, generated,
    before (deliveries of messages that had entered before), longest (most deliveries of a message), and of replaying.Replayable
    headless, late, blocks; in millionths backlog, by_messages, by_waiting.
    settings: setting, role, consumers, prefetch, lock_us, deliveries (as replays count), time_to_live_us.
    outcomes: setting, resample, FIGURES, WAITS in microseconds, needed (consumers; of SEARCH alone).
    waits: measure, bins, counts: waiting and time of messages that were never received.
    """
    spark, values = history.spark, history.request.values
    waits = history.histograms().where(history.request.span.has("step"))
    waits_table = {
        "waits": roll_up.histograms(waits.where(F.col("measure").isin(measures.WAITING, measures.NEVER_RECEIVED)), "measure")
    }
    try:
        about, replayable = _read(history)
    except CannotReplay as problem:
        nothing = {"settings": spark.createDataFrame([], SETTING), "outcomes": spark.createDataFrame([], OUTCOME)}
        return {**waits_table, **nothing, "about": _row(spark, {"problem": str(problem)})}
    varied, settings = grid(replayable, values)
    plan = Plan.of(replayable, len(settings))
    work = Work(replayable, [setting for _, setting in settings], plan, _share(values), values.get("within") or MINUTE)
    about["varied"] = varied
    rows = [
        (at, role, setting.consumers, setting.prefetch, setting.lock, setting.deliveries, setting.time_to_live)
        for at, (role, setting) in enumerate(settings)
    ]
    return {
        **waits_table,
        "about": _row(spark, about),
        "settings": spark.createDataFrame(rows, SETTING),
        "outcomes": _outcomes(history, work),
    }


def grid(replayable: Replayable, values: Mapping[str, Any]) -> tuple[str, list[tuple[str, Setting]]]:
    """The setting that is varied, and the settings to replay with their roles: those in force, those that were chosen, and values
    around the chosen one; without one, multiples of the consumers."""
    more = values.get("traits", {}).get("more", 0)
    chosen_values = {
        name: values[name] for name in ("time_to_live", "lock", "deliveries", "consumers") if values.get(name) is not None
    }
    if "deliveries" in chosen_values:
        chosen_values["deliveries"] += more
    chosen = replace(replayable.setting, **chosen_values)
    varied = next(iter(chosen_values), "consumers")
    value = getattr(chosen, varied)
    if varied == "deliveries":
        around = [*range(1 + more, min(max(value, replayable.setting.deliveries or 0), 8) + 1)]
    elif varied == "consumers":
        around = sorted({max(1, replayable.setting.consumers // 2), *(by * replayable.setting.consumers for by in (1, 2, 4))})
    else:
        around = [value // 4, value // 2, 2 * value, 4 * value]
    ladder = [replace(chosen, **{varied: variant}) for variant in around]
    if varied != "consumers":
        ladder += [replace(chosen, consumers=by * chosen.consumers) for by in (2, 4)]
    roles = [
        (NOW, replayable.setting),
        *([(CHOSEN, chosen)] if chosen_values else []),
        *((VARIED, setting) for setting in ladder),
    ]
    return varied, [pair for at, pair in enumerate(roles) if pair[1] not in [setting for _, setting in roles[:at]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How often and how long histories are resampled. most: messages of each."""

    resamples: int
    searches: int
    most: int

    @classmethod
    def of(cls, replayable: Replayable, settings: int) -> Plan:
        """As the bound of the work allows."""
        count = len(replayable.history.messages)
        replays = RESAMPLES * settings + SEARCHES * REPLAYS_OF_SEARCH
        left = MOST_WORK - count * (settings + REPLAYS_OF_SEARCH)
        return cls(RESAMPLES, SEARCHES, min(count, max(FEWEST_OF_RESAMPLE, left // replays)))


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker needs; it runs tasks (setting, resample)."""

    replayable: Replayable
    settings: Sequence[Setting]
    plan: Plan
    share: float
    within: int

    @property
    def tasks(self) -> list[tuple[int, int]]:
        own = [(at, resample) for resample in range(self.plan.resamples + 1) for at in range(len(self.settings))]
        return [*((SEARCH, resample) for resample in range(self.plan.searches + 1)), *own]


def replayed(work: Work, setting: int, resample: int) -> tuple[simulation.Outcome | None, int | None]:
    """A task: the outcome of a setting, or the consumers that are needed with the chosen one."""
    history = work.replayable.history
    if resample:
        history = replaying.resampled(work.replayable, random.Random(resample), work.plan.most)
    if setting == SEARCH:
        chosen = replace(work.settings[min(1, len(work.settings) - 1)], consumers=1)
        return None, simulation.consumers_needed(history, chosen, work.share, work.within)
    return simulation.replay(history, work.settings[setting], within=work.within), None


def outcome_row(setting: int, resample: int, outcome: simulation.Outcome | None, needed: int | None) -> tuple[Any, ...]:
    """A row of OUTCOME."""
    if outcome is None:
        return (setting, resample, *([None] * len(FIGURES)), *([None] * len(WAITS)), needed)
    waits = outcome.waiting or (None,) * len(WAITS)
    return (setting, resample, *(getattr(outcome, name) for name in FIGURES), *waits, None)


def by_value(work: Work) -> bytes:
    """What a process without this package can run: pickle.loads gives a function of (setting, resample) that returns a row of
    OUTCOME. Workers of a cluster have no other part of it."""
    with modules(simulation, replaying, sys.modules[__name__]):
        return cloudpickle.dumps(lambda setting, resample: outcome_row(setting, resample, *replayed(work, setting, resample)))


def _outcomes(history: History, work: Work) -> DataFrame:
    """OUTCOME, of all tasks and of what really happened."""
    spark = history.spark
    shared, names = spark.sparkContext.broadcast(by_value(work)), OUTCOME.names

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = pickle.loads(shared.value)
        for batch in batches:
            rows = [task(*pair) for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
            columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
            types = [pa.int32()] * 2 + [pa.int64()] * (len(names) - 2)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names)

    tasks = spark.createDataFrame(work.tasks, TASK).repartition(4 * spark.sparkContext.defaultParallelism)
    actual = spark.createDataFrame([outcome_row(0, ACTUAL, work.replayable.actual, None)], OUTCOME)
    return tasks.mapInArrow(run, OUTCOME).unionByName(actual)


def _read(history: History) -> tuple[dict[str, Any], Replayable]:
    """The history to replay, and `about` it. Raises CannotReplay."""
    request = history.request
    traits = request.values.get("traits", {})
    lives = _lives(history)
    steps = _steps(lives)
    messages = sum(count for _, count in steps)
    parts = drawn(steps, request.span)
    chosen = lives.where(_within(parts, "enqueued_at")) if parts else lives
    attempts = history.attempts().where((F.col("subqueue") == MAIN) & request.span.has("received_at"))
    of_chosen = attempts.join(chosen.select("sequence_number"), "sequence_number", "left_semi")
    rows = chosen.select(
        F.col("sequence_number").alias("number"), micros(F.col("enqueued_at")).alias("arrived"),
        micros(F.col("first_received_at")).alias("received"), micros(F.col("ended_at")).alias("ended"), "end",
        F.col("time_to_live_us").alias("time_to_live"), F.col("session_id").isNotNull().alias("in_session"), "generated",
    ).toArrow().to_pylist()  # fmt: skip
    if any(row["in_session"] for row in rows):
        raise CannotReplay("Messages of this queue have sessions, whose order a replay does not follow.")
    place = Placed(parts or [request.span])
    arrived = {row["number"]: row["arrived"] for row in rows}
    usable = of_chosen.where(F.col("lost") | F.col("failed") | F.col("well") | F.col("rejected") | F.col("let_go"))
    events = history.events().where((F.col("kind") == Kind.SETTLE_REFUSED) & (F.col("subqueue") == MAIN))
    refused = events.where(F.col("reason").isin(*RESULTS) & (F.col("at") >= F.lit(request.span.start)))
    refused = refused.join(chosen.select("sequence_number"), "sequence_number", "left_semi")
    deliveries = [
        _delivery(row, place, arrived)
        for row in usable.select(
            F.col("sequence_number").alias("number"), "attempt", micros(F.col("received_at")).alias("received"),
            F.col("held_us").alias("held_us"), F.col("received_by").alias("holder"), F.col("lock_us").alias("lock"), "lost",
            "failed", (F.coalesce("renewals", F.lit(0)) > 0).alias("renews"),
        ).toArrow().to_pylist()
    ]  # fmt: skip
    refusals = [
        _refusal(row, place, arrived)
        for row in refused.select(
            F.col("sequence_number").alias("number"), micros(F.col("at")).alias("at"), F.col("actor").alias("holder"), "reason"
        ).toArrow().to_pylist()
    ]  # fmt: skip
    replayable = replaying.replayable(
        [_life(row, place) for row in rows], deliveries, refusals, place.until,
        Traits(traits.get("deliveries"), traits.get("notices_crashes", False), traits.get("by_visibility", False)),
        request.values.get("within") or MINUTE,
    )  # fmt: skip
    before = 0 if parts else attempts.join(lives.select("sequence_number"), "sequence_number", "left_anti").count()
    return {
        "messages": messages, "replayed": len(rows), "generated": sum(bool(row["generated"]) for row in rows), "before": before,
        "headless": replayable.headless, "late": replayable.late, "longest": max(delivery.place or 1 for delivery in deliveries),
        "backlog_ppm": round(1e6 * replayable.backlog), "blocks": len(replayable.blocks),
        "by_messages_ppm": round(1e6 * replayable.by_messages), "by_waiting_ppm": round(1e6 * replayable.by_waiting),
    }, replayable  # fmt: skip


def _lives(history: History) -> DataFrame:
    """The messages that entered the main list in the range, also those that are still there, as they were at its end: outcome 0
    and no ended_at if they had not ended."""
    request = history.request
    ended = history.lives().where((F.col("subqueue") == MAIN) & (F.col("outcome") != outcomes.CANCELLED))
    rows = ended.unionByName(history.open()).where(request.span.has("enqueued_at"))
    over = F.lit(request.span.end)
    is_there = F.col("ended_at").isNull() | (F.col("ended_at") >= over)
    received = F.coalesce("first_received_at", F.when(F.col("outcome") == outcomes.RECEIVED_AND_DELETED, F.col("ended_at")))
    return rows.withColumns({
        "first_received_at": F.when(received < over, received),
        "end": F.when(is_there, F.lit(int(End.THERE))).otherwise(_end()),
        "ended_at": F.when(~is_there, F.col("ended_at")),
        "time_to_live_us": F.coalesce("time_to_live_in_force_us", "time_to_live_us"),
    })  # fmt: skip


def _end() -> Column:
    """End, of a life that has ended."""
    with_reason = F.col("outcome").isin(*outcomes.WITH_REASON)
    by_broker = F.coalesce(F.col("reason").isin(*outcomes.BROKER_REASONS), F.lit(False))
    return (
        F.when(F.col("result") == outcomes.EXPIRED, int(End.EXPIRED))
        .when(with_reason & F.coalesce(F.col("reason").isin(*outcomes.LIMIT_REASONS), F.lit(False)), int(End.LIMIT))
        .when(F.col("outcome").isin(outcomes.COMPLETED, outcomes.RECEIVED_AND_DELETED), int(End.PROCESSED))
        .when(with_reason & ~by_broker, int(End.PROCESSED))  # rejected by its receiver
        .otherwise(int(End.REMOVED))
    )


def _steps(lives: DataFrame) -> list[tuple[datetime, int]]:
    """How many messages entered in each step of roll-ups, in order."""
    counted = lives.groupBy(roll_up.floor("enqueued_at", roll_up.STEP).alias("at")).count().orderBy("at").toArrow().to_pylist()
    return [(row["at"].replace(tzinfo=UTC), row["count"]) for row in counted]


def drawn(steps: Sequence[tuple[datetime, int]], span: Span, most: int = MOST_MESSAGES, count: int = PARTS) -> list[Span]:
    """Contiguous parts of a range with at most about so many messages, drawn at random but always the same ones; none: all of the
    range has no more. steps: (start, messages)."""
    if sum(messages for _, messages in steps) <= most:
        return []
    parts: list[Span] = []
    share = most // count
    begun, inside = steps[0][0], 0
    for at, messages in steps:
        if inside and inside + messages > share:
            parts.append(Span(max(begun, span.start), at))
            begun, inside = at, 0
        if messages > share:  # the beginning of a step is a part
            parts.append(Span(max(at, span.start), at + roll_up.STEP * (share / messages)))
            begun, inside = at + roll_up.STEP, 0
        else:
            inside += messages
    if inside:
        parts.append(Span(max(begun, span.start), min(steps[-1][0] + roll_up.STEP, span.end)))
    return sorted(random.Random(1).sample(parts, min(count, len(parts))), key=lambda part: part.start)


class Placed:
    """Puts parts of a range one after the other, each followed by as much time without arrivals."""

    def __init__(self, parts: Sequence[Span]):
        self.starts = [_us(part.start) for part in parts]
        lengths = [_us(part.end) - _us(part.start) for part in parts]
        gaps = [length if len(parts) > 1 else 0 for length in lengths]
        self.offsets = [0, *accumulate(length + gap for length, gap in zip(lengths, gaps, strict=True))]

    @property
    def until(self) -> int:
        return self.offsets[-1]

    def by(self, arrived: int) -> int:
        """What to add to the instants of a message that arrived then."""
        at = bisect_right(self.starts, arrived) - 1
        return self.offsets[at] - self.starts[at]


def _life(row: Mapping[str, Any], place: Placed) -> Life:
    by = place.by(row["arrived"])

    def moved(at: int | None) -> int | None:
        return None if at is None else at + by

    return Life(
        row["number"], row["arrived"] + by, moved(row["received"]), moved(row["ended"]), End(row["end"]), row["time_to_live"]
    )


def _delivery(row: Mapping[str, Any], place: Placed, arrived: Mapping[int, int]) -> Delivery:
    received = row["received"] + place.by(arrived[row["number"]])
    result = Result.VANISHED if row["lost"] else Result.FAILED if row["failed"] else Result.WELL
    return Delivery(
        row["number"],
        row["attempt"],
        received,
        received + (row["held_us"] or 0),
        row["holder"],
        result,
        row["lock"],
        row["renews"],
    )


def _refusal(row: Mapping[str, Any], place: Placed, arrived: Mapping[int, int]) -> Refusal:
    return Refusal(row["number"], row["at"] + place.by(arrived[row["number"]]), row["holder"], RESULTS[row["reason"]])


def _within(parts: Sequence[Span], column: str) -> Column:
    condition = F.lit(False)
    for part in parts:
        condition = condition | part.has(column)
    return condition


def _share(values: Mapping[str, Any]) -> float:
    return (values.get("share") or 95) / 100


def _row(spark: SparkSession, values: Mapping[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(values.get(name) for name in ABOUT.names)], ABOUT)


def _us(at: datetime) -> int:
    """Microseconds since 1970."""
    return int(at.timestamp()) * 1_000_000 + at.microsecond
