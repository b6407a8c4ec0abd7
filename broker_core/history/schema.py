"""The columns of the archive's files.

A file has its schema's version in its metadata. Later versions may add columns but never change the meaning of one.

Version 1 has 2^63 - 1 as the time-to-live of most messages that had none (UNKNOWN_TIME_TO_LIVE); readers treat it as unknown.
In version 2 a message without a time-to-live of its own has NULL. Version 3 adds most columns of ADDED, and attempts; version 4
adds `chosen_properties` of lives. In earlier files these columns are read as NULL.
"""

import pyarrow as pa

VERSION = 4
UNKNOWN_TIME_TO_LIVE = 2**63 - 1  # in files of version 1
GENERATED_ACTOR = "generated"  # of generated demonstration history, which is labelled wherever it is shown

_INSTANT = pa.timestamp("us", tz="UTC")

EVENT = pa.schema(
    [
        pa.field("event_id", pa.int64(), nullable=False),
        pa.field("recorded_at", _INSTANT, nullable=False),
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("at", _INSTANT, nullable=False),
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("subqueue", pa.int16(), nullable=False),
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("kind", pa.int16(), nullable=False),
        pa.field("message_id", pa.string()),
        pa.field("delivery_count", pa.int32()),
        pa.field("locked_until", _INSTANT),
        pa.field("actor", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("enqueued_at", _INSTANT),
        pa.field("first_received_at", _INSTANT),
        pa.field("last_received_at", _INSTANT),
        pa.field("session_id", pa.string()),
        pa.field("size", pa.int32()),
        pa.field("time_to_live_us", pa.int64()),
        pa.field("properties", pa.string()),  # JSON
        pa.field("application_properties", pa.string()),  # JSON
        pa.field("details", pa.string()),  # JSON
        # The defaults in force when the event was recorded, of the entity and of a subscription's topic. default_limits_own:
        # whether the default also limits messages that have a time-to-live of their own.
        pa.field("entity_time_to_live_us", pa.int64()),
        pa.field("topic_time_to_live_us", pa.int64()),
        pa.field("default_limits_own", pa.bool_()),
        # The message that this one became (link "to"), or was made from ("from", "activated_from", "resubmitted_from",
        # "published_from"); the first one if there are several.
        pa.field("link", pa.string()),
        pa.field("linked_entity_id", pa.int64()),
        pa.field("linked_sequence_number", pa.int64()),
    ]
)

LIFE = pa.schema(
    [
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("subqueue", pa.int16(), nullable=False),
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("outcome", pa.int16(), nullable=False),  # the kind of the event that ended it; 0: not ended
        pa.field("reason", pa.string()),
        pa.field("enqueued_at", _INSTANT),
        pa.field("first_received_at", _INSTANT),
        pa.field("last_received_at", _INSTANT),
        pa.field("ended_at", _INSTANT),
        pa.field("delivery_count", pa.int32()),
        pa.field("time_to_live_us", pa.int64()),
        pa.field("size", pa.int32()),
        pa.field("message_id", pa.string()),
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("generated", pa.bool_(), nullable=False),
        # time_to_live_us is the message's own, limited by the default when it was sent; in force is what applied at its end.
        pa.field("time_to_live_in_force_us", pa.int64()),
        pa.field("time_to_live_source", pa.string()),  # own, entity, topic
        pa.field("error", pa.string()),  # the reason without numbers and ids
        pa.field("session_id", pa.string()),
        pa.field("deliveries", pa.int32()),  # these three: NULL if the history level was not "full"
        pa.field("renewals", pa.int32()),
        pa.field("locks_lost", pa.int32()),
        pa.field("settled_by", pa.string()),
        pa.field("scheduled", pa.bool_()),
        pa.field("from_entity_id", pa.int64()),  # the message that this one was made from
        pa.field("from_sequence_number", pa.int64()),
        pa.field("to_entity_id", pa.int64()),  # the message that this one became; the first if there are several
        pa.field("to_sequence_number", pa.int64()),
        pa.field("chosen_properties", pa.string()),  # JSON: the values of keys that an operator chose (history/properties.py)
    ]
)

ATTEMPT = pa.schema(
    [
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("subqueue", pa.int16(), nullable=False),
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("attempt", pa.int32()),  # its place among those that are known; NULL: of a receive-and-delete
        pa.field("outcome", pa.int16(), nullable=False),  # the kind of the event that ended it
        pa.field("received_at", _INSTANT, nullable=False),
        pa.field("ended_at", _INSTANT, nullable=False),
        pa.field("locked_until", _INSTANT),  # at the receipt
        pa.field("lock_ended_at", _INSTANT),  # after the last renewal
        pa.field("renewals", pa.int32()),
        pa.field("delivery_count", pa.int32()),
        pa.field("received_by", pa.string()),
        pa.field("ended_by", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("error", pa.string()),  # the reason without numbers and ids
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("generated", pa.bool_(), nullable=False),
    ]
)

# Deliveries that were received in an hour by a client and ended in a way (broker_core.history.clients).
CLIENT = pa.schema(
    [
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("subqueue", pa.int16(), nullable=False),
        pa.field("hour", _INSTANT, nullable=False),
        pa.field("client", pa.string()),
        pa.field("outcome", pa.int16(), nullable=False),  # the kind of the event that ended them
        pa.field("deliveries", pa.int64(), nullable=False),
        pa.field("held_us", pa.int64(), nullable=False),  # from receipts to ends, in sum
        pa.field("first_at", _INSTANT, nullable=False),  # the first receipt
        pa.field("last_at", _INSTANT, nullable=False),  # the last end
        pa.field("generated", pa.int64(), nullable=False),
    ]
)

# A revision of an entity's settings (broker_core.history.configuration).
SETTING = pa.schema(
    [
        pa.field("revision_id", pa.int64(), nullable=False),
        pa.field("entity_id", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("since", _INSTANT, nullable=False),  # until the next revision of the entity
        pa.field("actor", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),  # JSON
    ]
)

# Counts of a roll-up; a row for each combination of the columns before `messages` (explorer/analysis/jobs/measures.py).
ROLLUP = pa.schema(
    [
        pa.field("entity_id", pa.int64()),
        pa.field("subqueue", pa.int16()),
        pa.field("hour", _INSTANT),  # of a life: in which the message was enqueued; of an attempt: received
        pa.field("end_hour", _INSTANT),
        pa.field("outcome", pa.int16()),
        pa.field("cause", pa.string()),  # the reason without numbers and ids; NULL for expired messages
        pa.field("time_to_live_bin", pa.int32()),  # of the one in force; NULL: none, or unknown
        pa.field("measure", pa.int16()),
        pa.field("bin", pa.int32()),
        pa.field("messages", pa.int64()),
        pa.field("generated", pa.int64()),  # how many of them are generated history
    ]
)

# Columns by the version that added them. Those of version 1 are not listed.
ADDED = dict.fromkeys((*EVENT.names[EVENT.get_field_index("entity_time_to_live_us") :],
                       *LIFE.names[LIFE.get_field_index("time_to_live_in_force_us") :]), 3)  # fmt: skip
ADDED["chosen_properties"] = 4


# Of compacted files only: which slice a row is of.
SLICE = pa.field("slice_id", pa.int64())


def conform(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """The table with exactly these columns: those that it lacks, as files of earlier versions may, are NULL."""
    there = set(table.column_names)
    arrays = [table[c.name] if c.name in there else pa.nulls(table.num_rows, c.type) for c in columns]
    return pa.table(arrays, names=columns.names).cast(columns)


def with_metadata(schema: pa.Schema, **facts) -> pa.Schema:
    """The schema with its version and these facts in the metadata, under `vitrine.`."""
    stated = {"version": VERSION, **facts}
    return schema.with_metadata({f"vitrine.{name}": str(value) for name, value in stated.items()})


def version_of(found: pa.Schema) -> int | None:
    """The schema version in a file's metadata; None if it has none."""
    text = (found.metadata or {}).get(b"vitrine.version", b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


def problem_of(found: pa.Schema, expected: pa.Schema) -> str | None:
    """Why a file with this schema cannot be read as `expected`, as the end of a sentence; None if it can."""
    version = version_of(found)
    if version is None:
        return "has no schema version, so Vitrine did not write it"
    if not 1 <= version <= VERSION:
        return f"has schema version {version}; this version of Vitrine reads 1 to {VERSION}"
    expected = pa.schema([field for field in expected if ADDED.get(field.name, 1) <= version])
    missing = [field.name for field in expected if field.name not in found.names]
    if missing:
        return f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
    for field in expected:
        if found.field(field.name).type != field.type:
            return f"has the column {field.name} as {found.field(field.name).type}, not as {field.type}"
    return None
