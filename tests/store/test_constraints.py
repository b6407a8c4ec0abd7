"""What must never be is refused by the database itself, by a constraint whose name says what; on messages only in the tests
(tests/message_constraints.sql)."""

from uuid import uuid4

import psycopg
import pytest

from broker_core.common.types import LedgerState, MessageState, SubQueue
from broker_core.store import connections

NOW = "2026-01-01T00:00:00Z"
TOKEN = str(uuid4())
MESSAGE = {"entity_id": -1, "sequence_number": 1, "size": 0, "enqueued_at": NOW, "body": b""}
COUNT = {"entity_id": -1, "subqueue": 0, "state": 0, "n": 1}
TRAFFIC = {"entity_id": -1, "step": 10, "bucket": NOW}
SESSION = {"entity_id": -1, "session_id": "s"}
HEAD = {"entity_id": -1, "subqueue": 0}
STORAGE = {"visible_at": NOW, "lock_token": TOKEN}
RABBIT = {"owner_id": 1, "lock_token": TOKEN}


def insert(table, row):
    columns = ", ".join(row)
    values = ", ".join(f"%({column})s" for column in row)
    with connections.current().transaction(force_rollback=True):
        connections.current().execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", row)


@pytest.mark.parametrize(
    ("table", "row", "forbidden", "constraint"),
    [
        ("vitrine_message", MESSAGE, {"subqueue": 4}, "out_of_range"),
        ("vitrine_message", MESSAGE, {"state": 3}, "out_of_range"),
        ("vitrine_message", MESSAGE, {"delivery_count": -1}, "out_of_range"),
        ("vitrine_message", MESSAGE, {"state": 2}, "scheduled"),  # without its instant
        ("vitrine_message", MESSAGE, {"subqueue": 1}, "dead"),  # without its instant
        ("vitrine_message", MESSAGE, {"expires_at": "2025-01-01T00:00:00Z"}, "life"),
        ("vitrine_message", MESSAGE, {"lock_token": TOKEN}, "half_locked"),
        ("vitrine_message", MESSAGE, {"locked_until": NOW}, "half_locked"),
        ("vitrine_message", MESSAGE, {"visible_at": NOW}, "half_locked"),  # a storage queue's message without a receipt
        ("vitrine_message", MESSAGE | STORAGE, {"locked_until": NOW}, "half_locked"),
        ("vitrine_message", MESSAGE | STORAGE, {"owner_id": 1}, "half_locked"),
        ("vitrine_message", MESSAGE, {"owner_id": 1}, "half_locked"),  # a delivery without its token
        ("vitrine_message", MESSAGE | RABBIT, {"locked_until": NOW}, "half_locked"),
        ("vitrine_message", MESSAGE | RABBIT | {"priority": 1}, {"ready_priority": 1}, "ready_priority"),
        ("vitrine_message", MESSAGE | {"priority": 1, "ready_priority": 1}, {"ready_priority": None}, "ready_priority"),
        ("vitrine_queue_head", HEAD, {"subqueue": 4}, "out_of_range"),
        ("vitrine_session", SESSION, {"lock_token": TOKEN}, "half_locked"),
        ("vitrine_session", SESSION, {"locked_until": NOW}, "half_locked"),
        ("vitrine_count_base", COUNT, {"subqueue": 4}, "out_of_range"),
        ("vitrine_count_base", COUNT, {"state": 3}, "out_of_range"),
        ("vitrine_count_base", COUNT, {"state": 15, "until": NOW}, "out_of_range"),
        ("vitrine_count_base", COUNT, {"state": 10}, "out_of_range"),  # locked, but until when?
        ("vitrine_count_base", COUNT, {"until": NOW}, "out_of_range"),
        ("vitrine_traffic", TRAFFIC, {"step": 20}, "out_of_range"),
    ],
)
def test_forbidden_rows_violate_a_constraint(db, table, row, forbidden, constraint):
    insert(table, row)
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        insert(table, row | forbidden)
    assert refusal.value.diag.constraint_name == f"{table}_{constraint}"


def test_every_member_of_the_enums_is_allowed_and_the_next_number_is_not(db):
    """A member that is added needs a migration that lets it in."""
    message = MESSAGE | {"dead_lettered_at": NOW, "scheduled_enqueue_at": NOW}
    ended = COUNT | {"until": NOW}
    for table, row, column, members in (
        ("vitrine_message", message, "subqueue", SubQueue),
        ("vitrine_message", message, "state", MessageState),
        ("vitrine_queue_head", HEAD, "subqueue", SubQueue),
        ("vitrine_count_base", COUNT, "subqueue", SubQueue),
        ("vitrine_count_base", COUNT, "state", MessageState),
        ("vitrine_count_base", ended, "state", LedgerState),
    ):
        for member in members:
            insert(table, row | {column: member})
        with pytest.raises(psycopg.errors.CheckViolation):
            insert(table, row | {column: max(members) + 1})
