"""The overview with 1,000 and with 100,000 queues and 1,000,000 messages (10,000,000 with --large): server time of the page, of
its counts, and of a page of a list."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

import psycopg
from django.contrib.auth import get_user_model
from django.test import Client

from broker_core import namespaces, reads, sweeps
from broker_core.common.types import EntityAddress, Family
from broker_core.reads import EntityFilter
from broker_core.store import connections
from broker_core.store.statements import SQL
from explorer.pages import now as now_page
from explorer.pages import overview as entities_page

from . import measuring
from .measuring import empty

BUSY = 10_000  # at most so many queues have locks and traffic
ROUNDS = 15


@dataclass(frozen=True)
class Size:
    """A number of queues, and the milliseconds that the page and its counts may take; sorted: the page in another order."""

    queues: int
    page: float
    counts: float
    sorted: float


SIZES = (Size(1_000, 150, 15, 150), Size(100_000, 1_000, 300, 1_000))
FOLDED = 20_000  # entries of the ledger in a batch of the sweep
LIST_MS = 50

# Messages as a million sends would have stored them, with their counts, inserted at once since sending is not measured here.
_FILL = """
WITH new_entities AS (
    INSERT INTO vitrine_entity (namespace_id, path, family, kind, rules_version, lock_duration, max_delivery_count,
                                dead_lettering_on_message_expiration, dead_lettering_on_filter_evaluation_exceptions,
                                requires_session, expires_whole_sessions, requires_duplicate_detection,
                                duplicate_detection_history_time_window, drops_locks_on_change, max_size_in_megabytes,
                                max_message_size_in_kilobytes, status, expiry_mode, history_level, hidden, created_at, updated_at)
    SELECT n.id, 'queue-' || to_char(i, 'FM000000'), 'service_bus', 'queue', 1, '1 min', 10,
           true, true, false, true, false, '10 min', false, 1024, 256, 'Active', 'eager', 2, false, now(), now()
      FROM vitrine_namespace AS n, generate_series(1, %(queues)s) AS i WHERE n.name = %(namespace)s RETURNING id, path),
busy AS (SELECT id FROM new_entities ORDER BY id LIMIT %(busy)s),
heads AS (
    INSERT INTO vitrine_queue_head (entity_id, subqueue, head) SELECT id, s, 1 FROM new_entities, generate_series(0, 2) AS s),
counters AS (
    INSERT INTO vitrine_entity_counter (entity_id, next_number, bytes_sent)
    SELECT id, %(each)s + 1, %(each)s * 100 FROM new_entities),
activity AS (INSERT INTO vitrine_entity_activity (entity_id, last_activity_at) SELECT id, now() FROM new_entities),
counts AS (
    INSERT INTO vitrine_count_base (entity_id, subqueue, state, until, n)
    SELECT id, 0, 0, NULL::timestamptz, %(each)s FROM new_entities
     UNION ALL SELECT id, 0, 10, now() + i * interval '10 s', 1 FROM busy, generate_series(-2, 9) AS i
     UNION ALL SELECT id, s, t, NULL, 0 FROM new_entities, (VALUES (0, 1), (0, 2), (1, 0)) AS v(s, t)),
deltas AS (                                                        -- what a busy roll-up interval leaves waiting
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT id, 0, 0, 0, 1 FROM busy, generate_series(1, 10)),
traffic AS (
    INSERT INTO vitrine_traffic (entity_id, step, bucket, sent, completed)
    SELECT id, s, date_bin(make_interval(secs => s), now(), 'epoch') - i * make_interval(secs => s), 10, 10
      FROM busy, (VALUES (10), (60)) AS v(s), generate_series(1, 60) AS i)
INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, expires_at, message_id, body)
SELECT id, n, 100, now() - (%(each)s - n) * interval '1 s', CASE WHEN n %% 10 = 0 THEN now() + interval '1 day' END,
       path || '-' || n, convert_to('{"order": {"id": ' || n || ', "text": "' || repeat('x', 70) || '"}}', 'UTF8')
  FROM new_entities, generate_series(1, %(each)s) AS n
"""


def run(report) -> None:
    measuring.make_bare_tables()
    for size in SIZES:
        _of_size(report, size)


def _of_size(report, size: Size) -> None:
    """Server time of the overview page and its parts in milliseconds, medians of ROUNDS."""
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    user = get_user_model().objects.create_superuser(f"bench-{uuid4().hex[:8]}")
    try:
        fill(namespace, size.queues)
        client = Client()
        client.force_login(user)
        name = f"overview of {size.queues:,} queues"
        for words, address in (("the page", f"/namespaces/{namespace}/"), ("Now", "/")):
            first = _milliseconds(lambda address=address: _first_reading(client, address))
            report.line(f"{name}: {words}, when its sums are not kept", f"{first:.3g} ms")
        page = _milliseconds(lambda: client.get(f"/namespaces/{namespace}/", HTTP_HOST="localhost"))
        report.row(f"{name}: the page, server time", page, "ms", size.page, at_most=True)
        sums = _milliseconds(lambda: reads.tallies(EntityFilter(namespace=namespace)))
        report.line(f"{name}: its sums", f"{sums:.3g} ms")
        counts = median(_ledger_milliseconds(namespace) for _ in range(ROUNDS))
        report.row(f"{name}: the counts of all", counts, "ms", size.counts, at_most=True)
        for words, query in (("sorted by a count", "sort=-active"), ("what needs attention first", "sort=-attention")):
            sorted_ = _milliseconds(lambda query=query: client.get(f"/namespaces/{namespace}/?{query}", HTTP_HOST="localhost"))
            report.row(f"{name}: the page, {words}", sorted_, "ms", size.sorted, at_most=True)
        now = _milliseconds(lambda: client.get("/", HTTP_HOST="localhost"))
        report.row(f"{name}: Now, with what needs a person", now, "ms", size.sorted, at_most=True)
        live_map = _milliseconds(lambda: client.get(f"/map/?namespace={namespace}", HTTP_HOST="localhost"))
        report.row(f"{name}: the live map", live_map, "ms", size.page, at_most=True)
        day = _milliseconds(lambda: client.get(f"/insights/?range=1d&namespace={namespace}", HTTP_HOST="localhost"))
        report.row(f"{name}: the charts of a day of all", day, "ms", size.page, at_most=True)
        folded = _fold_milliseconds(namespace)
        report.line(f"{name}: folding {FOLDED:,} entries of {min(size.queues, BUSY):,} queues into traffic", folded)
        queue = EntityAddress(namespace, "queue-000500")
        milliseconds = _milliseconds(lambda: reads.entity(queue))
        report.line(f"{name}: one queue's counts, rates and state", f"{milliseconds:.3g} ms")
        listing = _milliseconds(lambda: reads.list_messages(queue, cursor="below-500"))
        report.row(f"{name}: a page of a list", listing, "ms", LIST_MS, at_most=True)
    finally:
        user.delete()
        remove(namespace)


def _first_reading(client: Client, address: str) -> None:
    entities_page.trees.clear()
    now_page.health.clear()
    client.get(address, HTTP_HOST="localhost")


def fill(namespace: str, queues: int, messages: int | None = None) -> None:
    each = max(1, (messages or measuring.scale.listed) // queues)
    params = {"namespace": namespace, "queues": queues, "each": each, "busy": min(queues, BUSY)}
    connections.current().execute(_FILL, params)
    connections.current().execute(
        "ANALYZE vitrine_entity, vitrine_message, vitrine_count_base, vitrine_count_delta, vitrine_traffic"
    )


def remove(namespace: str) -> None:
    """As if each queue had been deleted, and swept."""
    empty()
    connections.current().execute("TRUNCATE vitrine_queue_head, vitrine_entity_counter, vitrine_entity_activity, vitrine_traffic")
    connections.current().execute(
        "DELETE FROM vitrine_entity USING vitrine_namespace AS n WHERE n.id = namespace_id AND n.name = %s", [namespace]
    )


def _fold_milliseconds(namespace: str) -> str:
    """How long the sweep takes for a batch of entries, spread over the busy queues."""
    times = []
    for _ in range(5):
        connections.current().execute(
            "INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op) SELECT e.id, 0, 0, 0, 1 FROM (SELECT e.id"
            " FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = %s ORDER BY e.id"
            " LIMIT %s) AS e, generate_series(1, %s) AS i",
            [namespace, BUSY, max(1, FOLDED // BUSY)],
        )
        began = time.perf_counter()
        sweeps.roll_up_counts()
        times.append((time.perf_counter() - began) * 1000)
    return f"{median(times):.3g} ms"


def _milliseconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


def _ledger_milliseconds(namespace: str) -> float:
    """The server time for summing the ledger in the statement of the sums, from EXPLAIN ANALYZE."""
    with connections.current().transaction():
        cursor = psycopg.ClientCursor(connections.current())
        cursor.execute(SQL["prepare_for_sums"])
        params = EntityFilter(namespace=namespace).parameters()
        params |= {"with_oldest": False, "expired_cap": reads.EXPIRED_CAP_OF_MANY}
        statement = f"EXPLAIN (ANALYZE, TIMING ON, FORMAT JSON) {SQL['read_tallies']}"
        [[plan]] = cursor.execute(statement, params).fetchall()
    nodes = {node.get("Subplan Name"): node["Actual Total Time"] for node in plan[0]["Plan"]["Plans"]}
    return nodes["CTE lists"] + nodes["CTE holds"] - nodes["CTE entities"]  # these are read for the holds
