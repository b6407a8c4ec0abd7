"""Rows of the archive for tests of frames: valid by default, so that a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from explorer.analysis.jobs import outcomes, schemas
from explorer.analysis.jobs.history import History, Request, Span

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
COLUMNS = {**schemas.BY_CONTENT, "lives": schemas.ENDED, "attempts": schemas.ATTEMPT}
ONCE: dict[str, dict[str, Any]] = {  # what a row has unless a test says otherwise
    "lives": {
        "entity_id": 1, "subqueue": 0, "outcome": outcomes.COMPLETED, "result": outcomes.COMPLETED, "enqueued_at": NOON,
        "ended_at": NOON + SECOND, "size": 100, "generated": False,
    },
    "attempts": {
        "entity_id": 1, "subqueue": 0, "attempt": 1, "outcome": outcomes.COMPLETED, "received_at": NOON,
        "ended_at": NOON + SECOND,
        "received_by": "a", "ended_by": "a", "let_go": True, "lost": False, "well": True, "rejected": False, "failed": False,
        "generated": False, "renewals": 0,
    },
    "open": {
        "entity_id": 1, "subqueue": 0, "begun": True, "is_waiting": False, "scheduled": False, "enqueued_at": NOON,
        "generated": False, "size": 100,
    },
    "events": {"entity_id": 1, "subqueue": 0, "at": NOON, "recorded_at": NOON},
    "counts": {"entity_id": 1, "subqueue": 0, "messages": 1, "generated": 0},
    "histograms": {"entity_id": 1, "subqueue": 0},
    "settings": {"entity_id": 1, "path": "q", "kind": "queue", "family": "service_bus", "actor": "user:a", "settings": "{}"},
}  # fmt: skip


def frame(spark: SparkSession, content: str, *rows: Mapping[str, Any]) -> DataFrame:
    """Rows of a content (COLUMNS), each with a sequence number of its own unless it names one."""
    columns = COLUMNS[content]
    full = [{"sequence_number": number, "event_id": number} | ONCE[content] | row for number, row in enumerate(rows, start=1)]
    unknown = {name for row in rows for name in row} - set(columns.names)
    assert not unknown, f"{content} has no column {unknown}"
    return spark.createDataFrame([tuple(row.get(name) for name in columns.names) for row in full], columns)


def history(spark: SparkSession, request: Request | None = None, **rows: Any) -> History:
    """A history with these rows by content; all of entities 1 to 3, of an hour from NOON on."""
    frames = {content: frame(spark, content, *row) for content, row in rows.items()}
    asked = request or a_request()
    return History(spark, asked, {**{content: frame(spark, content) for content in COLUMNS}, **frames})


def a_request(**changes: Any) -> Request:
    values: dict[str, Any] = {
        "entity_ids": [1, 2, 3], "span": Span(NOON, NOON + HOUR), "now": NOON + HOUR, "step": timedelta(minutes=5),
    }  # fmt: skip
    return Request(**values | changes)


def listed(table: DataFrame, *columns: str) -> list[tuple]:
    """The values of these columns of all rows, in order; instants are aware UTC."""

    def value(one: Any) -> Any:
        return one.replace(tzinfo=UTC) if isinstance(one, datetime) else one

    return sorted((tuple(value(row[name]) for name in columns) for row in table.collect()), key=repr)
