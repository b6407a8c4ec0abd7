"""Celery tasks of analyses."""

from celery import shared_task
from celery.worker import state

from broker_core.common.types import Actor, Right
from broker_core.sweeps import runs

from .running import execution

SCHEDULE = Actor("process", "schedule", Right.OPERATE)


@shared_task(name="explorer.run_analysis", queue="analysis", ignore_result=True)
def run_analysis(run_id: int) -> None:
    """Execute a run. The task is acknowledged at its start: a run whose worker dies fails by its lease and is not restarted."""
    execution.execute(run_id, should_stop=_is_stopping)


def _is_stopping() -> bool:
    """Whether this worker was asked to stop. A worker with the solo pool waits for its task, so the task has to check.

    Celery stores the exit code there, which may be 0; None or False mean that no stop was requested.
    """
    return any(code is not None and code is not False for code in (state.should_stop, state.should_terminate))


@shared_task(name="explorer.maintain_history", ignore_result=True)
def maintain_history() -> dict:
    """A sweep of the explorer: requests the nightly jobs. It does nothing without Java or PySpark, and as long as nobody has
    opened an analysis, so that an installation without analyses starts no Spark."""
    return runs.recorded("maintain_history", _request_maintenance)


def _request_maintenance() -> dict:
    from explorer.models import AnalysisRun

    from .pages import asking
    from .running import submission  # both import this module

    if problem := asking.problem():
        return {"skipped": problem}
    if not AnalysisRun.objects.filter(kind=AnalysisRun.REPORTS).exists():
        return {"skipped": "No analysis was opened yet."}
    return {"requested": submission.maintain(actor=SCHEDULE) is not None}


@shared_task(name="explorer.end_dead_analyses", ignore_result=True)
def end_dead_analyses() -> dict:
    """A sweep of the explorer, recorded like those of the broker."""
    return runs.recorded("end_dead_analyses", lambda: {"ended": execution.end_dead_runs()})
