"""Job "lives": derives lives (a message that left a list) and attempts (a delivery that ended) from new events, and carries what
it needs of messages that have not ended to the next time.

One pass: the events are distributed by message and put in order, window functions add up what happened to each message so far,
and an event that ends something yields a row with all of it. Rows are written by content, day and namespace.

Specification: events (new files), earlier (files of events before them, which end nothing by themselves), open (files of messages
that were carried), output (a folder to write, in the archive), partitions, keys (by entity id, the chosen properties), keep_after
(ISO 8601: messages without an event since then are not carried), and days (only rows of these days and namespaces are written;
absent: all, and the messages to carry), and today (ISO 8601). docs/history.md describes the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from . import chosen, outcomes, schemas, stored
from .kinds import BEGINNINGS, GENERATED, LIFE_ENDS, NO_CHANGE, TERMINAL, Kind
from .runner import Reporter

STEPS = 2
MESSAGE = ("entity_id", "sequence_number")
MOST_CHARACTERS = 120  # of an error
CARRIED = 0  # the kind of a carried message that no consumer has
NEXT = (1, 2, 3)  # places after an event at which an undo of it is looked for
# What an event says. The columns that decide what happened are shuffled and sorted as columns of their own, the others in one
# structure each: a row of few columns is much cheaper to copy.
OF_EVENT = (
    *("recorded_at", "message_id", "delivery_count", "reason", "session_id", "size", "entity_time_to_live_us"),
    *("topic_time_to_live_us", "default_limits_own", "link", "linked_entity_id", "linked_sequence_number", "namespace"),
)
DECIDING = (
    *("entity_id", "sequence_number", "event_id", "kind", "subqueue", "at", "actor", "locked_until", "enqueued_at"),
    *("first_received_at", "last_received_at"),
)
# What the first event of a message says, and is kept until its end.
FIRST = (
    *("time_to_live_us", "entity_time_to_live_us", "topic_time_to_live_us", "session_id", "size", "message_id", "scheduled"),
    *("is_waiting", "from_entity_id", "from_sequence_number", "chosen_properties", "enqueued_at"),
)
# What a carried message says in addition, of its events before.
BEFORE = (
    *("deliveries", "renewals", "locks_lost", "other_deliveries", "other_renewals", "other_locks_lost", "renewals_before"),
    *("lock_ended_at", "generated"),
)
_COUNTED = (("deliveries", Kind.RECEIVED), ("renewals", Kind.RENEWED), ("locks_lost", Kind.LOCK_LOST))
_COLUMNS = {field.name: field.dataType for field in (*schemas.EVENT, *schemas.OPEN)} | {"namespace": LongType()}


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    reporter.step(f"Deriving lives from {len(spec['events']):,} files of events")
    rows = derived(spark, spec)
    stored.write(rows, spec["output"], by=("content", "day", "namespace"))
    return {}


def derived(spark: SparkSession, spec: dict) -> DataFrame:
    """The rows of "lives" and "open", as `ended`."""
    known = events(spark, spec, "events", is_new=True)
    if spec.get("earlier"):
        known = known.unionByName(events(spark, spec, "earlier", is_new=False))
    known = _with_inherited(spark, spec, known).transform(_packed)
    if spec.get("open"):
        known = known.unionByName(carried(spark, spec))
    only, today = spec.get("days"), date.fromisoformat(spec["today"])
    ended_rows = ended(histories(known, spec["partitions"]), carry=only is None, keep_after=spec.get("keep_after"), today=today)
    if only is None:
        return ended_rows
    conditions = [(F.col("day") == partition["day"]) & (F.col("namespace") == partition["namespace_id"]) for partition in only]
    return ended_rows.where(reduce(Column.__or__, conditions))


def events(spark: SparkSession, spec: dict, name: str, *, is_new: bool) -> DataFrame:
    """The events of the files of spec[name]: DECIDING, OF_EVENT, `begun`, FIRST and `is_new`."""
    begins = F.col("kind").isin(*BEGINNINGS)
    from_ = begins & (F.col("link") != "to")
    return stored.read(spark, schemas.EVENT, spec[name]).select(
        *dict.fromkeys((*DECIDING, *OF_EVENT)),
        "time_to_live_us",
        F.coalesce(F.col("link") == "activated_from", F.lit(False)).alias("scheduled"),
        (F.col("kind") == Kind.SCHEDULED).alias("is_waiting"),
        F.when(from_, F.col("linked_entity_id")).alias("from_entity_id"),
        F.when(from_, F.col("linked_sequence_number")).alias("from_sequence_number"),
        chosen.of_events(spec.get("keys") or {}).alias("chosen_properties"),
        begins.alias("begun"),
        F.lit(is_new).alias("is_new"),
    )


def carried(spark: SparkSession, spec: dict) -> DataFrame:
    """The messages of the files of spec["open"], as packed events: each is the receipt of the one who has it, or no step."""
    rows = stored.read(spark, schemas.OPEN, spec["open"])
    is_held = F.col("received_at").isNotNull()
    values = {
        "kind": F.when(is_held, F.lit(int(Kind.RECEIVED))).otherwise(F.lit(CARRIED)).cast("short"),
        "at": F.coalesce("received_at", "recorded_at"),
        "actor": F.col("received_by"),
        "is_new": F.lit(False),
    }
    absent = {name: F.lit(None).cast(_COLUMNS[name]) for name in (*DECIDING, *OF_EVENT) if name not in rows.columns}
    return _packed(rows.withColumns(absent | values), before=F.struct(*BEFORE))


def histories(known: DataFrame, partitions: int) -> DataFrame:
    """Each event with what had happened to its message until then. Messages are distributed over so many partitions, and sorted.
    Event ids are in the order in which things happened (broker_core.history.archive)."""
    rows = known.repartition(partitions, *MESSAGE).sortWithinPartitions(*MESSAGE, "event_id")
    message = Window.partitionBy(*MESSAGE).orderBy("event_id")
    until_now = message.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = message.rowsBetween(Window.unboundedPreceding, -1)
    main, is_new, kind = F.col("subqueue") == 0, F.col("before").isNull(), F.col("kind")
    counted = {}
    for name, counts in _COUNTED:
        happened = is_new & (kind == counts)
        counted[f"n_{name}"] = F.when(is_new, (happened & main).cast("int")).otherwise(F.col(f"before.{name}"))
        counted[f"n_other_{name}"] = F.when(is_new, (happened & ~main).cast("int")).otherwise(F.col(f"before.other_{name}"))
    until = F.when(is_new, F.when(kind.isin(Kind.RECEIVED, Kind.RENEWED), F.col("locked_until"))).otherwise(
        F.col("before.lock_ended_at")
    )
    received_at = F.when(is_new & main & (kind == Kind.RECEIVED), F.col("at"))
    rows = rows.withColumns(
        {
            **{name: F.sum(value).over(until_now).cast("int") for name, value in counted.items()},
            "first": F.first("beginning", ignorenulls=True).over(until_now),
            "until": F.last(until, ignorenulls=True).over(until_now),
            "known_enqueued_at": F.last("enqueued_at", ignorenulls=True).over(until_now),
            "known_first_received_at": F.first(F.coalesce("first_received_at", received_at), ignorenulls=True).over(until_now),
            "known_last_received_at": F.last(F.coalesce(received_at, "last_received_at"), ignorenulls=True).over(until_now),
            "was_carried": F.max(~is_new).over(until_now),
            **{f"next_{place}": F.lead("kind", place).over(message) for place in NEXT},
        }
    )
    renewed = F.when(is_new, F.col("n_renewals") + F.col("n_other_renewals")).otherwise(F.col("before.renewals_before"))
    step = F.when(_is_step(), F.struct("kind", "at", "actor", "locked_until", "subqueue", renewed.alias("renewed")))
    return rows.withColumns(
        {
            "step": F.last(step, ignorenulls=True).over(until_now),
            "began": F.last(step, ignorenulls=True).over(before),
        }
    )


def ended(rows: DataFrame, *, carry: bool, keep_after: str | None, today: date) -> DataFrame:
    """The rows of "lives" (schemas.ENDED) and, to `carry`, of "open" (schemas.OPEN), with `content`, `day` and `namespace`."""
    rows = rows.transform(_by_content, carry, keep_after).select("*", "event.*").withColumns(_common())
    life, attempt, stays = F.col("life"), F.col("attempt"), F.col("content") == "open"
    values = {name: [(life | attempt if name in schemas.SHARED else life, column)] for name, column in _life().items()}
    values |= {schemas.ATTEMPT_NAMES[name]: [(attempt, column)] for name, column in _attempt().items()}
    for name, column in _open().items():
        values.setdefault(name, []).append((stays, column))
    columns = [*schemas.ENDED, *(field for field in schemas.OPEN if field.name not in schemas.ENDED.names)]
    return rows.select(
        *("content", F.when(stays, F.lit(today)).otherwise(F.to_date("recorded_at")).alias("day"), "namespace"),
        *(_chosen(values[field.name]).cast(field.dataType).alias(field.name) for field in columns),
    )


def _by_content(rows: DataFrame, carry: bool, keep_after: str | None) -> DataFrame:
    """A row for each content to which an event belongs: `content`, and of "lives" `life` and `attempt`: whether it ended one."""
    new, kind = F.col("is_new"), F.col("kind")
    ends_attempt = new & (_at_once() | (_is_step() & (kind != Kind.RECEIVED) & (F.col("began.kind") == Kind.RECEIVED)))
    stays = F.col(f"next_{NEXT[0]}").isNull() & F.coalesce(~F.col("step.kind").isin(*TERMINAL), F.col("was_carried"))
    if keep_after:
        stays &= F.col("event.recorded_at") > F.lit(datetime.fromisoformat(keep_after))
    flags = {
        "life": new & kind.isin(*LIFE_ENDS) & ~_taken_back(), "attempt": ends_attempt, "stays": stays if carry else F.lit(False),
    }  # fmt: skip
    rows = rows.withColumns({name: F.coalesce(flag, F.lit(False)) for name, flag in flags.items()})
    rows = rows.where("life OR attempt OR stays").withColumn("content", F.explode(_contents()))
    return rows.withColumns({name: (F.col("content") == "lives") & F.col(name) for name in ("life", "attempt")})


def _contents() -> Column:
    """The contents in which an event has a row; NULL: in none."""
    ends, stays = F.col("life") | F.col("attempt"), F.col("stays")
    lives, open_ = F.lit("lives"), F.lit("open")
    return F.when(ends & stays, F.array(lives, open_)).when(ends, F.array(lives)).when(stays, F.array(open_))


def normalised(reason: Column) -> Column:
    """A reason without what varies from message to message: numbers and ids become #."""
    for pattern in (
        r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"(?iU)\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b",
        r"(?U)\d+",
    ):
        reason = F.regexp_replace(reason, pattern, "#")
    return F.substring(F.trim(F.regexp_replace(reason, r"(?U)\s+", " ")), 1, MOST_CHARACTERS)


def _packed(rows: DataFrame, before: Column | None = None) -> DataFrame:
    """Events as `histories` takes them. before: what is known of a carried message (BEFORE)."""
    types = StructType([StructField(name, _COLUMNS[name]) for name in BEFORE])
    return rows.select(
        *(*DECIDING, "is_new", F.struct(*OF_EVENT).alias("event")),
        F.when(F.col("begun"), F.struct(*FIRST)).alias("beginning"),
        (F.lit(None).cast(types) if before is None else before).alias("before"),
    )


def _with_inherited(spark: SparkSession, spec: dict, known: DataFrame) -> DataFrame:
    """First events without chosen properties get those of the message that their message was made from."""
    keys = spec.get("keys")
    if not keys:
        return known
    begun = stored.read(spark, schemas.EVENT, spec["events"]).where(F.col("kind").isin(*BEGINNINGS))
    looking = chosen.bare_copies(begun, keys)
    if looking.isEmpty():  # mostly; finding out costs much less than the joins
        return known
    inherited = chosen.with_origins(looking, begun, keys)
    joined = known.join(inherited, list(MESSAGE), "left")
    return joined.withColumn(
        "chosen_properties", F.coalesce("chosen_properties", F.when(F.col("kind").isin(*BEGINNINGS), F.col("inherited")))
    ).drop("inherited")


def _at_once() -> Column:
    return F.col("kind") == Kind.RECEIVED_AND_DELETED


def _is_step() -> Column:
    """Whether an event changes who has the message."""
    return ~F.col("kind").isin(*NO_CHANGE) & (F.col("kind") != CARRIED)


def _taken_back() -> Column:
    """Whether an undo returned the message after this end: then its life goes on. Refused settlements may lie between."""
    is_restored, between = F.lit(False), F.lit(True)
    for place in NEXT:
        following = F.coalesce(F.col(f"next_{place}"), F.lit(CARRIED))
        is_restored |= between & (following == Kind.RESTORED)
        between &= following.isin(*NO_CHANGE)
    return is_restored


def _chosen(values: Sequence[tuple[Column, Column]]) -> Column:
    """The value of the first condition that holds."""
    case = F.when(*values[0])
    for condition, value in values[1:]:
        case = case.when(condition, value)
    return case


def _same(*names: str) -> dict[str, Column]:
    return {name: F.col(name) for name in names}


def _common() -> dict[str, Column]:
    """What several columns are made of."""
    expired = F.col("kind").isin(*outcomes.WITH_REASON) & F.coalesce(F.col("reason").isin(*outcomes.EXPIRY_REASONS), F.lit(False))
    error = F.when((F.col("life") | F.col("attempt")) & F.col("reason").isNotNull(), normalised(F.col("reason")))
    return {
        "error": error,
        "result": F.when(expired, F.lit(outcomes.EXPIRED)).otherwise(F.col("kind")),
        "of_list": F.when(F.col("kind") == Kind.DEAD_LETTERED, F.lit(0)).otherwise(F.col("subqueue")),
    }


def _life() -> dict[str, Column]:
    subqueue = F.col("of_list")
    begun = F.col("first").isNotNull()
    own = {name: F.when(subqueue == 0, F.col(f"n_{name}")).otherwise(F.col(f"n_other_{name}")) for name, _ in _COUNTED}
    recorded = (own["deliveries"] > 0) | F.col("last_received_at").isNull()
    in_force, source = _time_to_live(subqueue)
    first_received = F.coalesce("first_received_at", F.when(_at_once(), F.col("at")))
    by_receiver = (F.col("kind") == Kind.COMPLETED) | (
        F.col("kind").isin(*outcomes.WITH_REASON) & ~F.coalesce(F.col("reason").isin(*outcomes.BROKER_REASONS), F.lit(False))
    )
    waiting = _passed(F.col("enqueued_at"), first_received)
    onward = F.col("link") == "to"
    return {
        **_same(
            *("entity_id", "sequence_number", "enqueued_at", "first_received_at", "last_received_at", "reason", "delivery_count"),
            *("result", "error"),
        ),
        "subqueue": subqueue,
        "outcome": F.col("kind"),
        "cause": F.when(F.col("result") != outcomes.EXPIRED, F.col("error")),
        "ended_at": F.col("at"),
        "waiting_us": waiting,
        "never_received_us": F.when(
            waiting.isNull() & F.col("enqueued_at").isNotNull(),
            F.greatest(F.least(_passed(F.col("enqueued_at"), F.col("at")), in_force), F.lit(0)),
        ),
        "processing_us": F.when(by_receiver, _passed(F.col("last_received_at"), F.col("at"))),
        **{name: F.when(begun & recorded, own[name]) for name, _ in _COUNTED},
        "time_to_live_us": F.col("first.time_to_live_us"),
        "time_to_live_in_force_us": in_force,
        "time_to_live_source": source,
        "size": F.coalesce("first.size", "size"),
        "message_id": F.coalesce("message_id", "first.message_id"),
        "session_id": F.coalesce("first.session_id", "session_id"),
        "settled_by": F.col("actor"),
        "scheduled": F.coalesce("first.scheduled", F.lit(False)),
        "from_entity_id": F.col("first.from_entity_id"),
        "from_sequence_number": F.col("first.from_sequence_number"),
        "to_entity_id": F.when(onward, F.col("linked_entity_id")),
        "to_sequence_number": F.when(onward, F.col("linked_sequence_number")),
        "chosen_properties": F.col("first.chosen_properties"),
        "generated": _generated(),
    }


def _time_to_live(subqueue: Column) -> tuple[Column, Column]:
    """The time-to-live in force at the end of a life, and its source: own, entity or topic.

    The broker stores a message's own time-to-live, limited by the defaults in force when it was sent. Without one, the defaults
    at the end apply; `default_limits_own` (RabbitMQ, retroactive): these limit a stored one, too. Only messages in the main queue
    expire.
    """
    stored_, entity, topic = F.col("first.time_to_live_us"), F.col("entity_time_to_live_us"), F.col("topic_time_to_live_us")
    default = F.least(entity, topic)
    limited = F.coalesce(F.col("default_limits_own") & (default < stored_), F.lit(False))
    by_default = stored_.isNull() | limited
    known = (subqueue == 0) & F.col("first").isNotNull()
    in_force = F.when(known, F.when(by_default, default).otherwise(stored_))
    of_entity = F.when(by_default, entity).otherwise(F.col("first.entity_time_to_live_us"))
    of_topic = F.when(by_default, topic).otherwise(F.col("first.topic_time_to_live_us"))
    source = F.when(in_force == of_entity, "entity").when(in_force == of_topic, "topic").otherwise("own")
    return in_force, F.when(in_force.isNotNull(), source)


def _attempt() -> dict[str, Column]:
    """The delivery that began with the step before and that this event ended; a receive-and-delete is both."""
    began, at_once = F.col("began"), _at_once()

    def either(of_step: Column, of_event: Column) -> Column:
        return F.when(at_once, of_event).otherwise(of_step)

    locked_until = F.when(~at_once, began["locked_until"])
    return _judged(
        {
            "subqueue": either(began["subqueue"], F.col("subqueue")),
            "attempt": F.when(~at_once, F.col("n_deliveries") + F.col("n_other_deliveries")),
            "outcome": F.col("kind"),
            "received_at": either(began["at"], F.col("at")),
            "locked_until": locked_until,
            "lock_ended_at": F.when(locked_until.isNotNull(), F.col("until")),
            "renewals": either(F.col("n_renewals") + F.col("n_other_renewals") - began["renewed"], F.lit(0)),
            "received_by": either(began["actor"], F.col("actor")),
            "ended_by": F.col("actor"),
        }
    )


def _judged(attempt: dict[str, Column]) -> dict[str, Column]:
    """Adds what became of a delivery (schemas.ATTEMPT)."""
    outcome, reason, ended_at = attempt["outcome"], F.col("reason"), F.col("at")

    def because(reasons: Sequence[str]) -> Column:
        return outcome.isin(*outcomes.WITH_REASON) & F.coalesce(reason.isin(*reasons), F.lit(False))

    by_limit = because(outcomes.LIMIT_REASONS)
    rejected = outcome.isin(*outcomes.WITH_REASON) & ~because(outcomes.BROKER_REASONS)
    late = F.coalesce(ended_at >= attempt["lock_ended_at"], F.lit(False))
    own = F.coalesce(attempt["ended_by"] == attempt["received_by"], F.lit(True))
    settled = outcome.isin(Kind.COMPLETED, Kind.ABANDONED, Kind.DEFERRED)
    let_go = settled | rejected | ((outcome == Kind.RELEASED) & own) | (by_limit & ~late)
    lost = (outcome == Kind.LOCK_LOST) | (late & ~let_go)
    until = F.when(let_go, ended_at).otherwise(F.least(ended_at, attempt["lock_ended_at"]))
    lock = F.unix_micros(attempt["locked_until"]) - F.unix_micros(attempt["received_at"])
    return attempt | {
        "held_us": _passed(attempt["received_at"], until),
        "lock_us": F.when(lock > 0, lock),
        "let_go": let_go,
        "lost": lost,
        "well": outcome.isin(Kind.COMPLETED, Kind.RECEIVED_AND_DELETED),
        "rejected": rejected,
        "failed": (outcome == Kind.ABANDONED) | lost | by_limit,
    }


def _open() -> dict[str, Column]:
    """What is carried of the message of which this is the last event."""
    is_held, first = F.col("step.kind") == Kind.RECEIVED, F.col("first")
    return {
        **_same("entity_id", "sequence_number", "event_id", "recorded_at"),
        "subqueue": F.coalesce("step.subqueue", "subqueue"),
        "begun": first.isNotNull(),
        **{name: first[name] for name in FIRST if name not in ("enqueued_at", "is_waiting", "scheduled", "message_id")},
        "is_waiting": F.coalesce(first["is_waiting"], F.lit(False)),
        "scheduled": F.coalesce(first["scheduled"], F.lit(False)),
        "message_id": F.coalesce(first["message_id"], "message_id"),
        "enqueued_at": F.coalesce(first["enqueued_at"], "known_enqueued_at"),
        **{name: F.col(f"n_{name}") for name, _ in _COUNTED},
        **{f"other_{name}": F.col(f"n_other_{name}") for name, _ in _COUNTED},
        "first_received_at": F.col("known_first_received_at"),
        "last_received_at": F.col("known_last_received_at"),
        "received_at": F.when(is_held, F.col("step.at")),
        "received_by": F.when(is_held, F.col("step.actor")),
        "locked_until": F.when(is_held, F.col("step.locked_until")),
        "lock_ended_at": F.when(is_held, F.col("until")),
        "renewals_before": F.when(is_held, F.col("step.renewed")),
        "generated": F.coalesce("before.generated", _generated()),
    }


def _generated() -> Column:
    return F.coalesce(F.col("actor").startswith(GENERATED), F.lit(False))


def _passed(since: Column, until: Column) -> Column:
    """Microseconds, never negative: a namespace's clock may have been set back in between."""
    return F.when(since.isNotNull() & until.isNotNull(), F.greatest(F.unix_micros(until) - F.unix_micros(since), F.lit(0)))
