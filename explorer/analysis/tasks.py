"""Celery tasks of analyses."""

from importlib.util import find_spec

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


@shared_task(name="explorer.roll_up_history", ignore_result=True)
def roll_up_history() -> dict:
    """A sweep of the explorer: requests a roll-up of the days that are over. Without Java or PySpark it does nothing."""
    return runs.recorded("roll_up_history", _request_roll_up)


def _request_roll_up() -> dict:
    from .running import submission  # it imports this module

    if problem := _cannot_run():
        return {"skipped": problem}
    run = submission.roll_up(actor=SCHEDULE)
    return {"requested": run is not None}


@shared_task(name="explorer.analyse_namespace", ignore_result=True)
def analyse_namespace(namespace: str) -> dict:
    """A daily run (explorer.analysis.daily): requests an analysis of the last 24 hours of all queues of a namespace."""
    return runs.recorded("analyse_namespace", lambda: _request_analysis(namespace))


def _request_analysis(namespace: str) -> dict:
    from .forms import ScopeForm
    from .running import submission

    asked = ScopeForm({"namespace": namespace})
    asked.is_valid()
    problem = _cannot_run() or ("" if asked.subject else f"There is no namespace {namespace}.")
    if problem or asked.subject is None:
        return {"namespace": namespace, "skipped": problem}
    if not asked.subject.entities:
        return {"namespace": namespace, "skipped": "It has no queues."}
    if submission.is_open(asked.subject, SCHEDULE):
        return {"namespace": namespace, "skipped": "Its last daily run has not ended yet."}
    return {"namespace": namespace, "run": submission.last_day(asked.subject, actor=SCHEDULE).pk}


def _cannot_run() -> str:
    """Why no run can be executed here; empty: one can be."""
    from .running import java

    return java.problem() or ("" if find_spec("pyspark") else "PySpark is not installed.")


@shared_task(name="explorer.end_dead_analyses", ignore_result=True)
def end_dead_analyses() -> dict:
    """A sweep of the explorer, recorded like those of the broker."""
    return runs.recorded("end_dead_analyses", lambda: {"ended": execution.end_dead_runs()})
