"""The columns of the files that jobs read and write. The archiver writes EVENT and SETTING (broker_core.history.schema, which a
test compares); the others are written by jobs alone. Durations are in microseconds, instants are UTC.

A file may have more columns than its schema names: those of the other contents of one pass, all NULL (jobs/lives.py).
"""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

VERSION = 5  # of the files that jobs write, in the metadata of their first column

_TYPES: dict[str, DataType] = {
    "long": LongType(),
    "int": IntegerType(),
    "short": ShortType(),
    "string": StringType(),
    "bool": BooleanType(),
    "instant": TimestampType(),
    "ints": ArrayType(IntegerType(), containsNull=False),
}


def _columns(**kinds: str) -> StructType:
    """Columns by name, of the kinds of _TYPES."""
    return StructType([StructField(name, _TYPES[kind]) for name, kind in kinds.items()])


EVENT = _columns(
    event_id="long", recorded_at="instant", xid="long", at="instant", entity_id="long", subqueue="short",
    sequence_number="long", kind="short", message_id="string", delivery_count="int", locked_until="instant", actor="string",
    reason="string", enqueued_at="instant", first_received_at="instant", last_received_at="instant", session_id="string",
    size="int", time_to_live_us="long", properties="string", application_properties="string", details="string",
    entity_time_to_live_us="long", topic_time_to_live_us="long", default_limits_own="bool", link="string",
    linked_entity_id="long", linked_sequence_number="long",
)  # fmt: skip

# A message's stay in a list, which ended. docs/history.md says what the columns mean.
LIFE = _columns(
    entity_id="long", subqueue="short", sequence_number="long",
    outcome="short",  # the kind of the event that ended it; 0: it has not ended (rows of History.open)
    result="short",  # the outcome as analyses count it (jobs/outcomes.py): expired, whatever became of the message
    reason="string",  # of the last event
    error="string",  # the reason without numbers and ids
    cause="string",  # the same, NULL where the result is expired
    enqueued_at="instant", first_received_at="instant", last_received_at="instant", ended_at="instant",
    waiting_us="long",  # enqueued to first received
    # Of a message that was never received: how long it could have been, at most its time-to-live. Its waiting would be longer.
    never_received_us="long",
    processing_us="long",  # last received to settled by the receiver
    delivery_count="int", deliveries="int", renewals="int", locks_lost="int",
    time_to_live_us="long", time_to_live_in_force_us="long", time_to_live_source="string",
    size="int", message_id="string", session_id="string", settled_by="string", scheduled="bool",
    from_entity_id="long", from_sequence_number="long", to_entity_id="long", to_sequence_number="long",
    chosen_properties="string",  # JSON: the values of the keys that an operator chose
    generated="bool",
)  # fmt: skip

# A delivery that ended.
ATTEMPT = _columns(
    entity_id="long", subqueue="short", sequence_number="long",
    attempt="int",  # its place among those of the message that are known; NULL: of a receive-and-delete
    outcome="short",  # the kind of the event that ended it
    received_at="instant", ended_at="instant",
    locked_until="instant",  # at the receipt
    lock_ended_at="instant",  # after the last renewal
    renewals="int", delivery_count="int", received_by="string", ended_by="string", reason="string", error="string",
    held_us="long",  # how long the receiver had it: until it let go, or until the lock ended or the message was taken away
    lock_us="long",  # the lock at the receipt; NULL: locks of this family do not end by time
    let_go="bool",  # whether the receiver ended the delivery, so that held_us is the whole time it needed
    lost="bool",  # whether the lock ended first
    well="bool", rejected="bool",  # whether it was the last one because it was processed, or rejected by its receiver
    failed="bool",  # whether it counts as a failed delivery
    generated="bool",
)  # fmt: skip

# A file of lives has a row for each event that ended a life, a delivery, or both: LIFE (all NULL but the columns in SHARED, if no
# life ended), and what ATTEMPT has in addition under these names (NULL if no delivery ended).
SHARED = ("entity_id", "sequence_number", "ended_at", "reason", "error", "delivery_count", "generated")
ATTEMPT_NAMES = {name: f"attempt_{name}".replace("attempt_attempt", "attempt") for name in ATTEMPT.names if name not in SHARED}
ENDED = StructType(
    [*LIFE, *(StructField(ATTEMPT_NAMES[field.name], field.dataType) for field in ATTEMPT if field.name in ATTEMPT_NAMES)]
)

# A message that has not ended: what later events of it need (jobs/lives.py), and reports as lives that have not ended.
OPEN = _columns(
    entity_id="long", subqueue="short", sequence_number="long",
    event_id="long", recorded_at="instant",  # of its last event
    begun="bool", scheduled="bool", is_waiting="bool",  # is_waiting: scheduled, and not activated yet
    enqueued_at="instant", time_to_live_us="long", entity_time_to_live_us="long", topic_time_to_live_us="long",
    session_id="string", size="int", message_id="string", from_entity_id="long", from_sequence_number="long",
    chosen_properties="string", generated="bool",
    deliveries="int", renewals="int", locks_lost="int",  # in the main list
    other_deliveries="int", other_renewals="int", other_locks_lost="int",  # in the other one, such as of dead letters
    first_received_at="instant", last_received_at="instant",
    # The delivery that has not ended, if there is one.
    received_at="instant", received_by="string", locked_until="instant", lock_ended_at="instant", renewals_before="int",
)  # fmt: skip

# Counts of a roll-up. measure: LIFE or ATTEMPT (jobs/measures.py). Of a life: step is that of entering, outcome its result; of an
# attempt: step is that of the receipt. end_step: of leaving.
COUNT = _columns(
    entity_id="long", subqueue="short", measure="short", step="instant", end_step="instant", outcome="short", cause="string",
    messages="long", generated="long",
)  # fmt: skip

# Histograms of a roll-up, by step of entering. The arrays have equal lengths: an entry is a measure, a bin of its values
# (jobs/measures.py), and the number of lives in it; they are ordered by measure and bin.
HISTOGRAM = _columns(entity_id="long", subqueue="short", step="instant", measures="ints", bins="ints", counts="ints")

# A revision of an entity's settings, in force from `since` to the next one.
SETTING = _columns(
    revision_id="long", entity_id="long", path="string", kind="string", family="string", since="instant", actor="string",
    settings="string",
)  # fmt: skip

BY_CONTENT = {
    "events": EVENT, "lives": ENDED, "open": OPEN, "counts": COUNT, "histograms": HISTOGRAM,
    "settings": SETTING,
}  # fmt: skip
