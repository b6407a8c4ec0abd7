"""Valid runs by default, so that a test states only what matters to it."""

from datetime import UTC, datetime, timedelta

from explorer.models import AnalysisRun

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_run(**changes) -> AnalysisRun:
    """An unsaved run of reports about demo/orders."""
    values = {
        "namespace": "demo", "subject": "demo/orders", "request": {"query": {}, "reports": [], "keys": []},
        "requested_by": "user:alice", "requested_at": NOON + timedelta(hours=4),
    }  # fmt: skip
    return AnalysisRun(**values | changes)
