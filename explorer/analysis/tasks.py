"""Celery tasks of analyses."""

from importlib.util import find_spec

from celery import shared_task
from celery.worker import state

from broker_core.common.types import Actor, Right
from broker_core.sweeps import runs

from . import launch


@shared_task(name="explorer.run_analysis", queue="analysis", ignore_result=True)
def run_analysis(run_id: int) -> None:
    """Execute a run. The task is acknowledged at its start: a run whose worker dies fails by its lease and is not restarted."""
    launch.execute(run_id, should_stop=_is_stopping)


def _is_stopping() -> bool:
    """Whether this worker was asked to stop. A worker with the solo pool waits for its task, so the task has to check.

    Celery stores the exit code there, which may be 0; None or False mean that no stop was requested.
    """
    return any(code is not None and code is not False for code in (state.should_stop, state.should_terminate))


@shared_task(name="explorer.roll_up_history", ignore_result=True)
def roll_up_history() -> dict:
    """A sweep of the explorer: requests a roll-up of the days that are over. Without Java or PySpark it does nothing."""
    return runs.recorded("roll_up_history", _request_roll_up)


def _request_roll_up() -> dict:
    from . import java, submission  # submission imports this module

    problem = java.problem() or ("" if find_spec("pyspark") else "PySpark is not installed.")
    if problem:
        return {"skipped": problem}
    run = submission.roll_up(actor=Actor("process", "schedule", Right.OPERATE))
    return {"requested": run is not None}


@shared_task(name="explorer.end_dead_analyses", ignore_result=True)
def end_dead_analyses() -> dict:
    """A sweep of the explorer, recorded like those of the broker."""
    return runs.recorded("end_dead_analyses", lambda: {"ended": launch.end_dead_runs()})
