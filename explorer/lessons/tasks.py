"""The Celery tasks of sandboxes."""

from celery import shared_task

from broker_core.sweeps import runs

from . import sandboxes
from .load import running


@shared_task(name="explorer.remove_old_sandboxes", ignore_result=True)
def remove_old_sandboxes() -> dict:
    """A sweep of the explorer: removes the sandboxes that are older than a day."""
    return runs.recorded("remove_old_sandboxes", sandboxes.remove_old)


@shared_task(name=running.TASK, ignore_result=True)
def run_load(load_id: int) -> None:
    """Run a load for a while, and request the rest. A second task for the same load does nothing."""
    if running.run(load_id):
        running.request_slice(load_id)
