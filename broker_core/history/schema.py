"""The columns of the archive, and the derivation of a message's life from the event that ended it.

A file has its schema's version in its metadata. Later versions may add columns but never change the meaning of one.

Version 1 has 2^63 - 1 as the time-to-live of most messages that had none (UNKNOWN_TIME_TO_LIVE); readers treat it as unknown.
In version 2 a message without a time-to-live of its own has NULL.
"""

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue

VERSION = 2
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
    ]
)

# A message's life in a list ends when it leaves the list for good. An activated message continues under a new number.
LIFE_ENDS = frozenset(kind for kind in EventKind if kind.is_terminal or kind is EventKind.DEAD_LETTERED) - {EventKind.ACTIVATED}


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
    missing = [field.name for field in expected if field.name not in found.names]
    if missing:
        return f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
    for field in expected:
        if found.field(field.name).type != field.type:
            return f"has the column {field.name} as {found.field(field.name).type}, not as {field.type}"
    return None


def lives(events: pa.Table) -> pa.Table:
    """The lives that these events ended, one row each. Takes EVENT, returns LIFE.

    A life that ended in dead-lettering was in the main queue, although the event is recorded in the dead-letter queue.
    """
    ends = events.filter(pc.is_in(events["kind"], pa.array(sorted(LIFE_ENDS), pa.int16())))
    dead_lettered = pc.equal(ends["kind"], int(EventKind.DEAD_LETTERED))
    main = pa.scalar(int(SubQueue.MAIN), pa.int16())
    columns = {
        "subqueue": pc.if_else(dead_lettered, main, ends["subqueue"]),
        "outcome": ends["kind"],
        "ended_at": ends["at"],
        "generated": pc.fill_null(pc.equal(ends["actor"], GENERATED_ACTOR), False),
    }
    return pa.table([columns[name] if name in columns else ends[name] for name in LIFE.names], schema=LIFE)
