"""Every statement takes its time from the namespace's clock (docs/design.md D6); those that take the database's are listed here,
with why."""

import re

from broker_core.store.statements import KEEPING, SQL

REAL_TIME = re.compile(
    r"\b(?:clock_timestamp|statement_timestamp|transaction_timestamp|now)\(\)|\bcurrent_timestamp\b", re.IGNORECASE
)
# A receiver waits in real time, whatever its namespace's clock does; and a page shows both clocks side by side.
ALLOWED = re.compile(r"waiting_until\)? *(?:>|<=) *clock_timestamp\(\)|clock_timestamp\(\) AS real_now")
OF_REAL_TIME = {
    "set_clock": "the manual clock is reckoned from the real one",
    "import_namespace": "the manual clock is reckoned from the real one",
    "create_namespace": "created_at is the database's time",
    "create_entity": "created_at is the database's time",
    "create_rule": "created_at is the database's time",
    "insert_binding": "created_at is the database's time",
    "insert_exchanges": "created_at is the database's time",
    "set_queue_effects": "updated_at is the database's time",
    "storage_set_options": "updated_at is the database's time",
    "browse_connections": "a process's lease is of real time",
    "create_policy": "created_at is the database's time",
    "update_policy": "updated_at is the database's time",
    "update_entity": "updated_at is the database's time",
    "set_status": "updated_at is the database's time",
    "set_protected": "updated_at is the database's time",
    "record_revisions": "a revision is of the database's time",
    "bury_namespace": "deleted_at is the database's time",
    "delete_entities": "deleted_at is the database's time",
    "forget_deleted": "updated_at is the database's time",
    "watch_entities": "a receiver waits in real time",
    "roll_up": "traffic is by real time",
    "read_traffic": "traffic is by real time",
    "read_overview": "rates are messages per real second",
    "read_tallies": "rates are messages per real second",
    "read_tree": "rates are messages per real second",
    "read_flows": "rates are messages per real second",
    "read_published": "the last hour is of real time",
    "read_actor_activity": "what an actor did lately is by real time",
    "rabbit_published": "the last hour is of real time",
    "forget_ended_counts": "traffic is kept by real time",
    "read_health": "how old a snapshot is",
    "register_process": "a process's lease is of real time",
    "reassign_to_dead_process": "a process's lease is of real time",
    "renew_lease": "a process's lease is of real time",
    "remote_consumers": "a process's lease is of real time",
    "mark_dead_processes": "a process's lease is of real time",
    "read_listeners": "a process's lease is of real time",
    **dict.fromkeys(
        ("record_clients", "read_clients", "close_client"), "clients are connected, and processes live, in real time"
    ),
    **dict.fromkeys(
        ("operation", "operations", "operation_create", "operation_claim", "operation_progress", "operation_end"),
        "an operation is a person's, in real time",
    ),
    **dict.fromkeys(("operation_change", "operations_due", "operation_of_deletion"), "an operation is a person's, in real time"),
    **dict.fromkeys(
        ("soft_deleted_by", "restore_entities", "end_soft_deletions"), "a deleted entity can be restored for 30 real minutes"
    ),
    **dict.fromkeys(
        ("hide", "keep_originals", "purge_hidden", "forget_operations"), "an operation can be undone for 30 real minutes"
    ),
}
OF_VITRINE_ITSELF = ("history_", "start_sweep_run", "finish_sweep_run", "forget_sweep_runs")


def test_only_the_listed_statements_use_the_databases_time():
    names = {name.removesuffix(KEEPING) for name, sql in SQL.items() if REAL_TIME.search(ALLOWED.sub("", sql))}
    of_messages = {name for name in names if not name.startswith(OF_VITRINE_ITSELF)}
    assert of_messages == set(OF_REAL_TIME)
