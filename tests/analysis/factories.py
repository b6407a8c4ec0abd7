"""Valid analyses by default, so that a test states only what matters to it."""

from datetime import UTC, datetime, timedelta

from explorer.models import AnalysisResult, AnalysisRun

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
COUNTS = (
    *("completed", "expired", "dead_lettered", "moved", "forwarded", "resubmitted", "dropped", "received_and_deleted", "purged"),
    *("deleted", "other"),
    "still_there",
)


def a_run(**changes) -> AnalysisRun:
    """An unsaved run over three hours of queue 1, demo/orders."""
    given = {
        "queues": [{"id": 1, "namespace": "demo", "path": "orders"}],
        "start_at": NOON,
        "end_at": NOON + timedelta(hours=3),
        "bucket": "hour",
        "requested_by": "user:alice",
        "requested_at": NOON + timedelta(hours=4),
    }
    return AnalysisRun(**given | changes)


def a_result(**changes) -> AnalysisResult:
    """An unsaved result of queue 1 whose `messages` is the sum of its outcomes."""
    counts = dict.fromkeys(COUNTS, 0) | {name: changes[name] for name in COUNTS if name in changes}
    given = {"entity_id": 1, "bucket_at": None, "generated": 0, "waited": 0, "processed": 0, "messages": sum(counts.values())}
    return AnalysisResult(**given | counts | changes)
