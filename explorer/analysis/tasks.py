"""Celery's side of analyses."""

from celery import shared_task
from celery.worker import state

from broker_core.sweeps import runs

from . import launch


@shared_task(name="explorer.run_analysis", queue="analysis", ignore_result=True)
def run_analysis(run_id: int) -> None:
    """Execute a run. Acknowledged when it begins: a run whose worker dies is declared dead by its lease, not begun again."""
    launch.execute(run_id, should_stop=_is_stopping)


def _is_stopping() -> bool:
    """Whether this worker was asked to stop. With the solo pool it waits for its task, so the task must look.

    Celery keeps the exit code there, which may be 0; None or False while nobody asked.
    """
    return any(asked is not None and asked is not False for asked in (state.should_stop, state.should_terminate))


@shared_task(name="explorer.end_dead_analyses", ignore_result=True)
def end_dead_analyses() -> dict:
    """A sweep of the explorer's own, recorded like the broker's."""
    return runs.recorded("end_dead_analyses", lambda: {"ended": launch.end_dead_runs()})
