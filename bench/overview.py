"""The overview with 1,000 queues and 1,000,000 messages (10,000,000 with --large): server time of the page and its counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from uuid import uuid4

import psycopg
from django.contrib.auth import get_user_model
from django.test import Client

from broker_core import namespaces, reads
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.store import connections
from broker_core.store.statements import SQL

from . import measuring

QUEUES = 1_000
ROUNDS = 15
PAGE_MS, COUNTS_MS, LIST_MS = 100, 25, 50

# Messages as a million sends would have stored them, with their counts, inserted at once since sending is not measured here.
_FILL = """
WITH new_entities AS (
    INSERT INTO vitrine_entity (namespace_id, path, family, kind, rules_version, lock_duration, max_delivery_count,
                                dead_lettering_on_message_expiration, dead_lettering_on_filter_evaluation_exceptions,
                                requires_session, expires_whole_sessions, requires_duplicate_detection,
                                duplicate_detection_history_time_window, drops_locks_on_change, max_size_in_megabytes,
                                max_message_size_in_kilobytes, status, expiry_mode, history_level, hidden, created_at, updated_at)
    SELECT n.id, 'queue-' || to_char(i, 'FM0000'), 'service_bus', 'queue', 1, '1 min', 10,
           true, true, false, true, false, '10 min', false, 1024, 256, 'Active', 'eager', 2, false, now(), now()
      FROM vitrine_namespace AS n, generate_series(1, %(queues)s) AS i WHERE n.name = %(namespace)s RETURNING id),
heads AS (
    INSERT INTO vitrine_queue_head (entity_id, subqueue, head) SELECT id, s, 1 FROM new_entities, generate_series(0, 2) AS s),
counters AS (
    INSERT INTO vitrine_entity_counter (entity_id, next_number, bytes_sent)
    SELECT id, %(each)s + 1, %(each)s * 100 FROM new_entities),
activity AS (INSERT INTO vitrine_entity_activity (entity_id, last_activity_at) SELECT id, now() FROM new_entities),
counts AS (
    INSERT INTO vitrine_count_base (entity_id, subqueue, state, until, n)
    SELECT id, 0, 0, NULL::timestamptz, %(each)s FROM new_entities
     UNION ALL SELECT id, 0, 10, now() + i * interval '10 s', 1 FROM new_entities, generate_series(-2, 9) AS i
     UNION ALL SELECT id, s, t, NULL, 0 FROM new_entities, (VALUES (0, 1), (0, 2), (1, 0)) AS v(s, t)),
deltas AS (                                                        -- what a busy roll-up interval leaves waiting
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT id, 0, 0, 0, 1 FROM new_entities, generate_series(1, 10)),
traffic AS (
    INSERT INTO vitrine_traffic (entity_id, bucket, op, n)
    SELECT id, date_bin('10 s', now() - i * interval '10 s', 'epoch'), op, 10
      FROM new_entities, generate_series(1, 60) AS i, (VALUES (1), (6)) AS v(op))
INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, expires_at, message_id, body)
SELECT id, n, 100, now() - (%(each)s - n) * interval '1 s', CASE WHEN n %% 10 = 0 THEN now() + interval '1 day' END, 'id-' || n,
       convert_to(repeat('x', 100), 'UTF8')
  FROM new_entities, generate_series(1, %(each)s) AS n
"""


def run(report) -> None:
    """Server time of the overview page and its parts in milliseconds, medians of ROUNDS."""
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.create_namespace(namespace)
    user = get_user_model().objects.create_superuser(f"bench-{uuid4().hex[:8]}")
    try:
        connections.current().execute(_FILL, {"namespace": namespace, "queues": QUEUES, "each": measuring.scale.listed // QUEUES})
        connections.current().execute("ANALYZE vitrine_message, vitrine_count_base, vitrine_count_delta, vitrine_traffic")
        client = Client()
        client.force_login(user)
        page = _milliseconds(lambda: client.get(f"/namespaces/{namespace}/", HTTP_HOST="localhost"))
        report.row("overview page, server time", page, "ms", PAGE_MS, at_most=True)
        report.row("overview, all reads", _milliseconds(lambda: reads.overview(namespace)), "ms", PAGE_MS, at_most=True)
        counts = median(_ledger_milliseconds(namespace) for _ in range(ROUNDS))
        report.row("overview, counts of all queues", counts, "ms", COUNTS_MS, at_most=True)
        queue = EntityAddress(namespace, "queue-0500")
        listing = _milliseconds(lambda: reads.list_messages(queue, cursor="below-500"))
        report.row("a page of a list", listing, "ms", LIST_MS, at_most=True)
    finally:
        user.delete()
        for row in reads.overview(namespace):
            entities.delete_queue(row.address)


def _milliseconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


def _ledger_milliseconds(namespace: str) -> float:
    """The server time for summing the ledger in the overview's statement, from EXPLAIN ANALYZE."""
    params = {
        "ids": None,
        "namespace": namespace,
        "prefix": None,
        "topic_id": None,
        "hidden": False,
        "expired_cap": reads.EXPIRED_CAP_OF_MANY,
    }
    cursor = psycopg.ClientCursor(connections.current())
    [[found]] = cursor.execute(f"EXPLAIN (ANALYZE, TIMING ON, FORMAT JSON) {SQL['read_overview']}", params).fetchall()
    plan = found[0]["Plan"] if isinstance(found, list) else json.loads(found)[0]["Plan"]
    return next(node["Actual Total Time"] for node in plan["Plans"] if node.get("Subplan Name") == "CTE ledger")
