"""The columns of a file of ended messages of another system (docs/history.md). Without PySpark, so that launchers use the same
definitions."""

from .kinds import LIFE_ENDS, Kind

REQUIRED = ("enqueued_at", "ended_at", "outcome")
# Columns in the order of their times, which must not contradict each other.
TIMES = ("enqueued_at", "first_received_at", "last_received_at", "ended_at")
# The types of all columns, as Spark names them.
COLUMNS = {
    **dict.fromkeys(TIMES, "timestamp"), "outcome": "string", "sequence_number": "bigint", "deliveries": "int", "size": "int",
    "time_to_live_seconds": "double", **dict.fromkeys(("message_id", "reason", "session_id", "settled_by"), "string"),
}  # fmt: skip
OUTCOMES = {name.lower(): kind for name, kind in vars(Kind).items() if kind in LIFE_ENDS}
