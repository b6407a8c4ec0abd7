"""Celery tasks of analyses."""

from celery import shared_task

from broker_core.common.types import Actor, Right
from broker_core.sweeps import runs
from explorer.models import AnalysisRun

from .pages import asking
from .running import execution, submission
from .running.task import run_analysis  # noqa: F401  registered by Celery

SCHEDULE = Actor("process", "schedule", Right.OPERATE)


@shared_task(name="explorer.maintain_history", ignore_result=True)
def maintain_history() -> dict:
    """A sweep of the explorer: requests the nightly jobs. It does nothing without Java or PySpark, and as long as nobody has
    opened an analysis, so that an installation without analyses starts no Spark."""
    return runs.recorded("maintain_history", _request_maintenance)


def _request_maintenance() -> dict:
    if problem := asking.problem():
        return {"skipped": problem}
    if not AnalysisRun.objects.filter(kind=AnalysisRun.REPORTS).exists():
        return {"skipped": "No analysis was opened yet."}
    return {"requested": submission.maintain(actor=SCHEDULE) is not None}


@shared_task(name="explorer.end_dead_analyses", ignore_result=True)
def end_dead_analyses() -> dict:
    """A sweep of the explorer, recorded like those of the broker."""
    return runs.recorded("end_dead_analyses", lambda: {"ended": execution.end_dead_runs()})
