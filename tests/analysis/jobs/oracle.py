"""What lives and attempts must be: the rules once more, in PyArrow and without Spark, which the job "lives" is compared with.

All events are in memory; those of earlier slices are given as `before`.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue

# A message's life in a list ends when it leaves the list for good. An activated message continues under a new number.
LIFE_ENDS = frozenset(kind for kind in EventKind if kind.is_terminal or kind is EventKind.DEAD_LETTERED) - {EventKind.ACTIVATED}
MESSAGE = ["entity_id", "sequence_number"]
LIST = [*MESSAGE, "subqueue"]
MOST_CHARACTERS = 120  # of a normalised error

BEGINNINGS = (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)
_DELIVERY_ENDS = (EventKind.ABANDONED, EventKind.RELEASED, EventKind.DEFERRED, EventKind.LOCK_LOST)  # the life goes on
NO_CHANGE = (EventKind.RENEWED, EventKind.DUPLICATE_DROPPED, EventKind.SETTLE_REFUSED, EventKind.EDITED)  # a delivery goes on
READ = [
    *("event_id", "xid", "at", *LIST, "kind", "locked_until", "actor", "session_id", "size", "time_to_live_us"),
    *("entity_time_to_live_us", "topic_time_to_live_us", "link", "linked_entity_id", "linked_sequence_number"),
]
LIFE = (
    *(*LIST, "outcome", "reason", "enqueued_at", "first_received_at", "last_received_at", "ended_at", "delivery_count"),
    *("time_to_live_us", "size", "message_id", "generated", "time_to_live_in_force_us", "time_to_live_source", "error"),
    *("session_id", "deliveries", "renewals", "locks_lost", "settled_by", "scheduled", "from_entity_id"),
    *("from_sequence_number", "to_entity_id", "to_sequence_number"),
)
ATTEMPT = (
    *(*LIST, "attempt", "outcome", "received_at", "ended_at", "locked_until", "lock_ended_at", "renewals", "delivery_count"),
    *("received_by", "ended_by", "reason", "error", "generated"),
)
_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I), "#"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.I), "#"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"\s+"), " "),
)


def lives(events: pa.Table, before: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The lives and the attempts that these events of a slice ended, ordered by message. before: the events of earlier slices."""
    known = events.select([*READ, "reason", "delivery_count"]).append_column("new", pa.repeat(True, events.num_rows))
    earlier = before.select([*READ, "reason", "delivery_count"]).append_column("new", pa.repeat(False, before.num_rows))
    whole = in_order(pa.concat_tables([earlier, known]))
    return _lives(events, whole), _attempts(whole)


def ended(events: pa.Table) -> pa.Table:
    """The messages that these events ended, one row each, with what the event itself says.

    A life that ended in dead-lettering was in the main queue, although the event is recorded in the dead-letter queue.
    """
    ends = _not_taken_back(events)
    main = pa.scalar(int(SubQueue.MAIN), pa.int16())
    onward = pc.fill_null(pc.equal(ends["link"], "to"), False)
    columns = {
        "subqueue": pc.if_else(_is(ends, (EventKind.DEAD_LETTERED,)), main, ends["subqueue"]),
        "outcome": ends["kind"],
        "ended_at": ends["at"],
        "settled_by": ends["actor"],
        "to_entity_id": _where(onward, ends["linked_entity_id"]),
        "to_sequence_number": _where(onward, ends["linked_sequence_number"]),
        "chosen_properties": pa.nulls(ends.num_rows, pa.string()),  # of an operator's choice
        "generated": pc.fill_null(pc.equal(ends["actor"], "generated"), False),
    }
    return pa.table(columns | {name: ends[name] for name in ends.column_names if name not in columns})


def _not_taken_back(events: pa.Table) -> pa.Table:
    """The events that ended lives, without those that an undo took back within the slice: such a life goes on."""
    ends = events.filter(_is(events, (*LIFE_ENDS, EventKind.RESTORED)))
    ends = ends.sort_by([(name, "ascending") for name in (*MESSAGE, "event_id")])
    taken_back = pc.and_(_same_message(ends), pc.equal(_next(ends["kind"]), int(EventKind.RESTORED)))
    return ends.filter(pc.and_(_is(ends, LIFE_ENDS), pc.invert(pc.fill_null(taken_back, False))))


def normalised(reason: str | None) -> str | None:
    """A reason or error without what varies from message to message: numbers and ids become #."""
    if reason is None:
        return None
    for pattern, replacement in _VARIABLE:
        reason = pattern.sub(replacement, reason)
    return reason.strip()[:MOST_CHARACTERS]


def in_order(events: pa.Table) -> pa.Table:
    """The events of each message in the order in which they happened. A receive that notices that a lock had ended may write its
    own event before that of the loss: both are of one transaction and one instant."""
    rows = events.sort_by([(name, "ascending") for name in (*MESSAGE, "event_id")]).to_pylist()
    for first, second in zip(range(len(rows)), range(1, len(rows)), strict=False):
        received, other = rows[first], rows[second]
        same = all(received[name] == other[name] for name in (*MESSAGE, "xid", "at"))
        takes = received["kind"] in (EventKind.RECEIVED, EventKind.RECEIVED_AND_DELETED)
        if same and takes and other["kind"] == EventKind.LOCK_LOST and other["locked_until"] <= other["at"]:
            rows[first], rows[second] = other, received
    return pa.Table.from_pylist(rows, schema=events.schema)


def _lives(events: pa.Table, whole: pa.Table) -> pa.Table:
    first = whole.filter(_is(whole, BEGINNINGS))
    begun = first.group_by(MESSAGE, use_threads=False).aggregate(
        [(name, "first") for name in ("time_to_live_us", "session_id", "size", "entity_time_to_live_us", "topic_time_to_live_us",
                                      "link", "linked_entity_id", "linked_sequence_number")]
    )  # fmt: skip
    begun = begun.append_column("begun", pa.chunked_array([pa.repeat(True, begun.num_rows)]))
    counts = whole.select(LIST).append_column("kind", whole["kind"])
    for name, kind in (("deliveries", EventKind.RECEIVED), ("renewals", EventKind.RENEWED), ("lost", EventKind.LOCK_LOST)):
        counts = counts.append_column(name, pc.cast(pc.equal(whole["kind"], int(kind)), pa.int32()))
    counts = counts.group_by(LIST).aggregate([(name, "sum") for name in ("deliveries", "renewals", "lost")])
    joined = ended(events).join(begun, MESSAGE, join_type="left outer").join(counts, LIST, join_type="left outer")
    joined = joined.sort_by([(name, "ascending") for name in (*LIST, "event_id")])
    in_force, source = _time_to_live(joined)
    recorded = pc.or_(pc.greater(joined["deliveries_sum"], 0), pc.is_null(joined["last_received_at"]))
    counted = pc.and_(pc.fill_null(joined["begun"], False), pc.fill_null(recorded, False))  # level "full", and from the beginning
    columns = {
        "time_to_live_us": joined["time_to_live_us_first"],
        "time_to_live_in_force_us": in_force,
        "time_to_live_source": source,
        "error": normalised_all(joined["reason"]),
        "size": pc.coalesce(joined["size_first"], joined["size"]),
        "session_id": pc.coalesce(joined["session_id_first"], joined["session_id"]),
        "deliveries": _where(counted, joined["deliveries_sum"]),
        "renewals": _where(counted, joined["renewals_sum"]),
        "locks_lost": _where(counted, joined["lost_sum"]),
        "scheduled": pc.fill_null(pc.equal(joined["link_first"], "activated_from"), False),
        "from_entity_id": joined["linked_entity_id_first"],
        "from_sequence_number": joined["linked_sequence_number_first"],
    }
    return pa.table([columns[name] if name in columns else joined[name] for name in LIFE], names=[*LIFE])


def _time_to_live(lives_: pa.Table) -> tuple[Any, Any]:
    """The time-to-live in force at the end of each life, and its source: own, entity or topic.

    The broker stores a message's own time-to-live, limited by the defaults in force when it was sent. Without one, the defaults
    at the end apply; `default_limits_own` (RabbitMQ, retroactive): these limit a stored one, too. Only messages in the main queue
    expire.
    """
    stored = lives_["time_to_live_us_first"]
    entity, topic = lives_["entity_time_to_live_us"], lives_["topic_time_to_live_us"]
    default = pc.min_element_wise(entity, topic)
    limited = pc.fill_null(pc.and_(lives_["default_limits_own"], pc.less(default, stored)), False)
    by_default = pc.or_(pc.is_null(stored), limited)
    known = pc.and_(pc.equal(lives_["subqueue"], int(SubQueue.MAIN)), pc.fill_null(lives_["begun"], False))
    in_force = _where(known, pc.if_else(by_default, default, stored))
    of_entity = pc.if_else(by_default, entity, lives_["entity_time_to_live_us_first"])
    of_topic = pc.if_else(by_default, topic, lives_["topic_time_to_live_us_first"])
    source = pc.if_else(
        pc.fill_null(pc.equal(in_force, of_entity), False),
        "entity",
        pc.if_else(pc.fill_null(pc.equal(in_force, of_topic), False), "topic", "own"),
    )
    return in_force, _where(pc.is_valid(in_force), source)


def _attempts(whole: pa.Table) -> pa.Table:
    """Deliveries that an event of the slice (one with a `day`) ended, or receives that were their own end."""
    received = pc.cast(_is(whole, (EventKind.RECEIVED,)), pa.int64())
    renewed = pc.cast(_is(whole, (EventKind.RENEWED,)), pa.int64())
    until = pc.if_else(_is(whole, (EventKind.RECEIVED, EventKind.RENEWED)), whole["locked_until"], None)
    whole = whole.append_column("receipts", pc.cumulative_sum(received)).append_column("renewed", pc.cumulative_sum(renewed))
    whole = whole.append_column("until", pc.fill_null_forward(until))
    steps = whole.filter(pc.invert(_is(whole, NO_CHANGE)))
    first = pc.fill_null(pc.invert(_previous(_same_message(steps))), True)
    before_message = pc.fill_null_forward(pc.if_else(first, pc.subtract(steps["receipts"], pc.cast(
        _is(steps, (EventKind.RECEIVED,)), pa.int64())), None))  # fmt: skip
    ends = _following(steps, ("at", "kind", "actor", "reason", "new", "delivery_count", "renewed", "until"))
    columns = {
        "attempt": pc.cast(pc.subtract(steps["receipts"], before_message), pa.int32()),
        "received_at": steps["at"],
        "received_by": steps["actor"],
        "locked_until": steps["locked_until"],
        "lock_ended_at": _where(pc.is_valid(steps["locked_until"]), ends["until"]),
        "renewals": pc.cast(pc.subtract(ends["renewed"], steps["renewed"]), pa.int32()),
        "ended_at": ends["at"],
        "ended_by": ends["actor"],
        "outcome": ends["kind"],
        "delivery_count": ends["delivery_count"],
        "reason": ends["reason"],
        "generated": pc.fill_null(pc.equal(ends["actor"], "generated"), False),
        "new": ends["new"],
    }
    columns |= {name: steps[name] for name in LIST}
    ended = pc.and_(_is(steps, (EventKind.RECEIVED,)), _same_message(steps))
    ended = pc.and_(ended, pc.fill_null(pc.not_equal(ends["kind"], int(EventKind.RECEIVED)), False))
    kept = pa.table(columns).filter(pc.and_(ended, columns["new"]))
    at_once = _received_and_deleted(whole)
    table = pa.concat_tables([kept.select(at_once.column_names), at_once], promote_options="default")
    table = table.append_column("error", normalised_all(table["reason"]))
    table = table.sort_by([(name, "ascending") for name in (*LIST, "attempt")])
    return table.select([*ATTEMPT])


def _received_and_deleted(whole: pa.Table) -> pa.Table:
    """Receive-and-delete is a delivery that ends at once."""
    rows = whole.filter(pc.and_(_is(whole, (EventKind.RECEIVED_AND_DELETED,)), whole["new"]))
    none = pa.nulls(rows.num_rows, pa.timestamp("us", tz="UTC"))
    zero = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    return pa.table(
        {name: rows[name] for name in LIST}
        | {
            "attempt": pa.nulls(rows.num_rows, pa.int32()), "received_at": rows["at"], "received_by": rows["actor"],
            "locked_until": none, "lock_ended_at": none, "renewals": zero, "ended_at": rows["at"], "ended_by": rows["actor"],
            "outcome": rows["kind"], "delivery_count": rows["delivery_count"], "reason": rows["reason"],
            "generated": pc.fill_null(pc.equal(rows["actor"], "generated"), False), "new": rows["new"],
        }
    )  # fmt: skip


def normalised_all(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """As `normalised`, for a column."""
    encoded = reasons.combine_chunks().dictionary_encode()
    words = pa.array([normalised(reason) for reason in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([words.take(encoded.indices)])


def _is(events: pa.Table, kinds) -> Any:
    return pc.is_in(events["kind"], pa.array(sorted(map(int, kinds)), pa.int16()))


def _where(condition: Any, values: Any) -> Any:
    return pc.if_else(condition, values, None)


def _same_message(events: pa.Table) -> Any:
    """Whether the next event is of the same message."""
    same = [pc.equal(_next(events[name]), events[name]) for name in MESSAGE]
    return pc.fill_null(pc.and_(*same), False)


def _following(events: pa.Table, names) -> dict[str, Any]:
    return {name: _next(events[name]) for name in names}


def _next(column: Any) -> Any:
    return _shifted(column, 1)


def _previous(column: Any) -> Any:
    return _shifted(column, -1)


def _shifted(column: Any, by: int) -> Any:
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    gap = pa.nulls(min(1, len(column)), column.type)
    parts = [*column.slice(1).chunks, gap] if by > 0 else [gap, *column.slice(0, max(0, len(column) - 1)).chunks]
    return pa.chunked_array(parts, column.type)
