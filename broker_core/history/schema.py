"""The columns of the files that the archiver writes. Jobs write the others (explorer/analysis/jobs/schemas.py).

A file has its schema's version in its metadata. Later versions may add columns but never change the meaning of one.
"""

import json

import pyarrow as pa

VERSION = 5
_ROWS_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"

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


def conform(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """The table with exactly these columns: those that it lacks, as files of earlier versions may, are NULL."""
    present = set(table.column_names)
    arrays = [table[c.name] if c.name in present else pa.nulls(table.num_rows, c.type) for c in columns]
    return pa.table(arrays, names=columns.names).cast(columns)


def with_metadata(schema: pa.Schema, **facts) -> pa.Schema:
    """The schema with its version and these facts in the metadata, under `vitrine.`."""
    stated = {"version": VERSION, **facts}
    return schema.with_metadata({f"vitrine.{name}": str(value) for name, value in stated.items()})


def version_of(columns: pa.Schema) -> int | None:
    """The schema version in a file's metadata, or, if a job wrote it, in that of a column; None if it has none."""
    stated = columns.metadata or {}
    text = stated.get(b"vitrine.version", b"").decode(errors="replace")
    if text.isdecimal():
        return int(text)
    fields = json.loads(stated.get(_ROWS_OF_SPARK, b"{}")).get("fields", [])
    return next((field["metadata"]["vitrine.version"] for field in fields if "vitrine.version" in field["metadata"]), None)


def problem_of(actual: pa.Schema, expected: pa.Schema | None) -> str | None:
    """Why a file with this schema cannot be read as `expected`, as the end of a sentence; None if it can. expected: None: only
    the version is checked."""
    version = version_of(actual)
    if version is None:
        return "has no schema version, so Vitrine did not write it"
    if not 1 <= version <= VERSION:
        return f"has schema version {version}; this version of Vitrine reads 1 to {VERSION}"
    missing = [field.name for field in expected or () if field.name not in actual.names]
    if missing:
        return f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
    for field in expected or ():
        if actual.field(field.name).type != field.type:
            return f"has the column {field.name} as {actual.field(field.name).type}, not as {field.type}"
    return None
