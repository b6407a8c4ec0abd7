"""A search over all messages and their history, slice by slice: 1,000 queues, half of whose messages are gone, and three days of
events. Nearly all conditions match nothing, so that every row is examined."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from broker_core import namespaces, reads
from broker_core.common.types import EventKind, Family
from broker_core.history import retention
from broker_core.store import connections

from . import measuring
from .overview import fill, remove

QUEUES = 1_000
SLICES = 12  # of each search
SLICE_MS = 700
LOOK_UP_MS = 500
DAYS = 2.5

_EVENTS = """
INSERT INTO vitrine_message_event (recorded_at, at, xid, entity_id, sequence_number, subqueue, kind, size, message_id, session_id,
                                   actor, properties, application_properties)
SELECT x.at, x.at, (3 + x.place * (pg_current_xact_id()::text::bigint - 3) / %(events)s)::text::xid8, x.id, x.number, 0, x.kind,
       100, x.path || '-' || x.number, NULL, 'key:sender',
       CASE WHEN x.kind = %(sent)s THEN jsonb_build_object('subject', 'order', 'correlation_id', 'c-' || x.number) END,
       CASE WHEN x.kind = %(sent)s THEN jsonb_build_object('tenant', jsonb_build_array('string', 'tenant-' || x.number %% 97)) END
  FROM (SELECT e.id, e.path, k.kind, k.number, row_number() OVER w AS place,
               now() - %(length)s * (1 - row_number() OVER w / %(events)s::float8) AS at
          FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
         CROSS JOIN generate_series(1, %(each)s) AS i
         CROSS JOIN LATERAL (VALUES (i, %(sent)s::smallint), (i + %(each)s, %(sent)s), (i + %(each)s, %(completed)s))
                            AS k(number, kind)
         WHERE n.name = %(namespace)s
        WINDOW w AS (ORDER BY i, k.number, k.kind, e.id)) AS x
 ORDER BY x.place
"""
_SEARCHES = (  # the first part of each is looked for in the history, those of the second part in the stored messages
    ("a property", "prop.tenant:nobody"),
    ("a correlation id", "correlation=c-none"),
    ("a text", "nothing-like-it"),
    ("a time", "at:2001-01-01"),
    ("one entity", "entity=none/queue-000500 subject:order"),
    ("what is gone", "state:gone id:nothing-like-it"),
    ("a body", 'body:"nothing"'),
    ("a value in JSON", "$.order.id>4700"),
)


def run(report) -> None:
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    try:
        each = max(1, measuring.scale.listed // QUEUES // 2)
        fill(namespace, QUEUES, messages=each * QUEUES)
        _record(namespace, each)
        for name, text in _SEARCHES:
            _search(report, name, text.replace("none/", f"{namespace}/"))
        for name, id in (("a message that is present", "queue-000500-1"), ("one that is gone", f"queue-000500-{each + 1}")):
            began = time.perf_counter()
            result = reads.messages_with_id(id)
            took = (time.perf_counter() - began) * 1000
            assert len(result.messages) == 1, result
            report.row(f"look up {name} by its id", took, "ms", LOOK_UP_MS, at_most=True)
    finally:
        remove(namespace)


def _record(namespace: str, each: int) -> None:
    """The events of the stored messages, and of as many that were completed."""
    retention.create_partitions(days_before=int(DAYS) + 1)
    params = {"namespace": namespace, "each": each, "events": 3 * each * QUEUES, "length": timedelta(days=DAYS)}
    kinds = {"sent": int(EventKind.SENT), "completed": int(EventKind.COMPLETED)}
    connections.current().execute(_EVENTS, params | kinds)
    connections.current().execute("ANALYZE vitrine_message_event")
    retention.index_closed_partitions()


def _search(report, name: str, text: str) -> None:
    message_filter, cursor, scanned, slices = reads.parse_filter(text, now=datetime.now(UTC)), None, 0, []
    while len(slices) < SLICES:
        began = time.perf_counter()
        part = reads.search_slice(message_filter, cursor)
        slices.append(time.perf_counter() - began)
        scanned, cursor = scanned + part.scanned, part.cursor
        if cursor is None:
            break
    report.row(f"search by {name}", scanned / sum(slices), "rows/s", None)
    report.row(f"search by {name}, the longest slice", max(slices) * 1000, "ms", SLICE_MS, at_most=True)
