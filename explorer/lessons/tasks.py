"""The Celery task of sandboxes."""

from celery import shared_task

from broker_core.sweeps import runs

from . import sandboxes


@shared_task(name="explorer.remove_old_sandboxes", ignore_result=True)
def remove_old_sandboxes() -> dict:
    """A sweep of the explorer: removes the sandboxes that are older than a day."""
    return runs.recorded("remove_old_sandboxes", sandboxes.remove_old)
