"""The sweeps as Celery tasks. How often each runs is the site's affair; late or twice does no harm (design D5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from celery import shared_task

from broker_core.common.errors import ServerBusy

from . import sweeps
from .sweeps import runs


def sweep_task(sweep: Callable[[], Any]) -> Any:
    """A task `broker_core.<name>` that runs the sweep and records the run under its name."""

    @wraps(sweep)
    def run() -> dict[str, Any]:
        return runs.recorded(sweep.__name__, sweep)

    return shared_task(name=f"broker_core.{sweep.__name__}", ignore_result=True)(run)


@sweep_task
def expire_messages():
    return sweeps.expire_messages()


@sweep_task
def end_locks():
    return sweeps.end_locks()


@sweep_task
def end_connections():
    return sweeps.end_connections()


@sweep_task
def activate_scheduled():
    return sweeps.activate_scheduled()


@sweep_task
def forward_messages():
    return sweeps.forward_messages()


@sweep_task
def forget_seen_ids():
    return sweeps.forget_seen_ids()


@sweep_task
def forget_sessions():
    return sweeps.forget_sessions()


@sweep_task
def advance_heads():
    return sweeps.advance_heads()


@sweep_task
def roll_up_counts():
    return sweeps.roll_up_counts()


@sweep_task
def delete_idle_entities():
    return sweeps.delete_idle_entities()


@sweep_task
def remove_deleted_entities():
    return sweeps.remove_deleted_entities()


@sweep_task
def check_ledger():
    return sweeps.check_ledger()


@sweep_task
def forget_sweep_runs():
    return runs.forget_sweep_runs()


@sweep_task
def archive_events():
    from .history import archive  # pyarrow and ADBC: only a worker that archives loads them

    try:
        archived = archive.archive_events()
    except ServerBusy as busy:  # another archiver is at work: no fault
        return {"busy": str(busy)}
    return {"events": archived.events, "slices": archived.slices}


@sweep_task
def maintain_event_partitions():
    from .history import retention

    return {"created": retention.create_partitions(), **runs.as_outcome(retention.drop_old_partitions())}
