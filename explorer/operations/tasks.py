"""Celery tasks of operations."""

from celery import shared_task

from broker_core import operations as core
from broker_core.sweeps import runs

from . import runner

SLICE_SECONDS = 10.0  # of one task, so that a long operation does not keep others from running


@shared_task(name="explorer.run_operation", ignore_result=True)
def run_operation(operation_id: int) -> None:
    """Run an operation for a while, and request the rest. A second task for the same operation does nothing."""
    operation = core.find(operation_id)
    if operation is not None and runner.run(operation, seconds=SLICE_SECONDS):
        run_operation.delay(operation_id)


@shared_task(name="explorer.resume_operations", ignore_result=True)
def resume_operations() -> dict:
    """A sweep of the explorer: requests operations that no worker runs, since a worker died or Celery could not be reached."""

    def request() -> dict:
        due = core.due()
        for operation_id in due:
            run_operation.delay(operation_id)
        return {"requested": len(due)} if due else {}

    return runs.recorded("resume_operations", request)
