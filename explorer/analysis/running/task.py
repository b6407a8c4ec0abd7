"""The Celery task that executes a run."""

from __future__ import annotations

from celery import shared_task
from celery.worker import state

from . import execution
from .kinds import KINDS


@shared_task(name="explorer.run_analysis", ignore_result=True)
def run_analysis(run_id: int) -> None:
    """Execute a run. The task is acknowledged at its start: a run whose worker dies fails by its lease and is not restarted."""
    execution.execute(run_id, KINDS, should_stop=_is_stopping)


def _is_stopping() -> bool:
    """Whether this worker was asked to stop. A worker with the solo pool waits for its task, so the task has to check.

    Celery stores the exit code there, which may be 0; None or False mean that no stop was requested.
    """
    return any(code is not None and code is not False for code in (state.should_stop, state.should_terminate))
