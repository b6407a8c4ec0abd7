"""The hot statements keep their join order, whatever the statistics say: plans are generic, and one that was made while a queue
was empty serves it when it is full (docs/design.md D4)."""

import re

import psycopg
import pytest

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.management.commands.show_sql import PLACEHOLDER
from broker_core.service_bus import entities
from broker_core.store import connections
from broker_core.store.statements import SQL
from tests.broker_state import entity_id

HOT = (
    *("send", "send_scheduled", "receive", "receive_and_delete", "receive_past_locked", "receive_and_delete_past_locked"),
    *("complete", "complete_one", "abandon", "release", "renew", "defer", "dead_letter"),
    *("storage_put", "storage_delete", "rabbit_publish", "rabbit_take", "rabbit_take_no_ack", "rabbit_acknowledge"),
    *("rabbit_take_past_locked", "rabbit_take_no_ack_past_locked"),
)
BY_PRIORITY = (
    *("rabbit_take_by_priority", "rabbit_take_no_ack_by_priority"),
    *("rabbit_lock_departing_at_head_by_priority", "rabbit_lock_departing_excess_by_priority"),
)
FILL = """
INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, message_id, body, priority, ready_priority,
                             locked_until, lock_token)
SELECT %(id)s, n, 1, now(), 'x', '', n %% 5, n %% 5, CASE WHEN n %% 4 = 0 THEN now() END,
       CASE WHEN n %% 4 = 0 THEN gen_random_uuid() END
  FROM generate_series(1, %(n)s) AS n
"""
# A message is found by its position, or by the row that this statement has locked.
BY_POSITION = re.compile(r"entity_id = .*subqueue = .*state = .*sequence_number (=|>=|= ANY) ")


def scans(plan):
    """The plan's scans of tables: the outer side of a join before its inner side."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan
    for child in plan.get("Plans", []):
        yield from scans(child)


def nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def require_order(name, plan):
    relations = list(scans(plan))
    for scan in relations:
        if scan["Relation Name"] == "vitrine_message":
            how = scan["Node Type"], scan.get("Index Name")
            assert how in {("Tid Scan", None), ("Index Scan", "vitrine_message_pkey")}, (name, scan)
            assert scan["Node Type"] == "Tid Scan" or BY_POSITION.search(scan["Index Cond"]), (name, scan)
    if name.startswith(("receive", "rabbit_take")):
        for part in ("returned", "later") if name.endswith("past_locked") else ("available",):
            [relations] = [list(scans(node)) for node in nodes(plan) if node.get("Subplan Name") == f"CTE {part}"]
            assert relations[-1]["Relation Name"] == "vitrine_message", (name, relations)  # the settings and the head come first
    for node in nodes(plan):
        if node["Node Type"] in {"Hash Join", "Merge Join"}:
            sides = [child for child in node["Plans"] if child["Parent Relationship"] in {"Outer", "Inner"}]
            assert "vitrine_message" not in {scan["Relation Name"] for side in sides for scan in scans(side)}, (name, node)


def require_priority_order(name, plan):
    """The first messages are read from the index in the order of priorities; the queue is never sorted."""
    [found] = [node for node in nodes(plan) if node.get("Subplan Name") in {"CTE available", "CTE walked"}]
    scan = list(scans(found))[-1]
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "vitrine_message_priority"), (name, scan)
    [limit] = [node for node in nodes(found) if node["Node Type"] == "Limit"]
    assert "Sort" not in {node["Node Type"] for node in nodes(limit)}, (name, limit)


@pytest.fixture
def connection(broker_database):
    """A connection of the broker's kind, to a database without any message."""
    with psycopg.connect(**connections.Database().parameters()) as own:
        own.execute("TRUNCATE vitrine_message")
        yield own
        own.execute("TRUNCATE vitrine_message")


def prepare(connection, name):
    """Prepare a statement as the broker does. Returns how to explain it: with its generic plan, as it is now."""
    places: list[str] = []

    def place(found):
        places.append(found[1])
        return f"${len(places)}"  # one for each use: some parameters are used as two types

    text = PLACEHOLDER.sub(place, SQL[name]).replace("%%", "%")
    connection.execute(f"PREPARE plan_{name} AS {text}".encode())
    return f"EXPLAIN (FORMAT JSON) EXECUTE plan_{name} ({', '.join(['NULL'] * len(places))})"


@pytest.mark.parametrize("before", ["new", "emptied and vacuumed"])
def test_the_join_order_is_stable_on_empty_small_and_full_tables(connection, before):
    namespaces.create_namespace("plans", Family.SERVICE_BUS)
    queue = EntityAddress("plans", "q")
    entities.create_queue(queue)
    if before != "new":
        connection.execute(FILL, {"id": entity_id(queue), "n": 20_000})
        connection.execute("ANALYZE vitrine_message")
        connection.execute("DELETE FROM vitrine_message")
    connection.execute("VACUUM vitrine_message")
    explain = {name: prepare(connection, name) for name in (*HOT, *BY_PRIORITY)}
    for n, analyzed in ((0, False), (2, False), (40, True), (20_000, False), (20_000, True)):
        connection.execute("DELETE FROM vitrine_message")
        connection.execute(FILL, {"id": entity_id(queue), "n": n})
        if analyzed:
            connection.execute("ANALYZE vitrine_message")
        for name, text in explain.items():
            [(plan,)] = connection.execute(text)
            (require_priority_order if name in BY_PRIORITY else require_order)(name, plan[0]["Plan"])


def test_the_oldest_message_of_each_state_is_found_through_indexes(connection):
    namespaces.create_namespace("plans", Family.SERVICE_BUS)
    queue = EntityAddress("plans", "q")
    entities.create_queue(queue)
    explain = prepare(connection, "read_oldest_messages")
    for n in (0, 20_000):
        connection.execute(FILL, {"id": entity_id(queue), "n": n})
        connection.execute("ANALYZE vitrine_message")
        [(plan,)] = connection.execute(explain)
        relations = [scan for scan in scans(plan[0]["Plan"]) if scan["Relation Name"] == "vitrine_message"]
        assert relations and {scan["Node Type"] for scan in relations} <= {"Index Scan", "Index Only Scan"}, relations
        assert all("entity_id" in scan.get("Index Cond", "") for scan in relations), relations
