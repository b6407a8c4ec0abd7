"""The list of the sweeps: tasks, schedules and pages are made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker_core import sweeps
from broker_core.common.errors import ServerBusy

from . import runs


@dataclass(frozen=True, slots=True)
class Sweep:
    """every_seconds: how often it runs unless an administrator decides otherwise; None: once a night."""

    run: Callable[[], Any]
    every_seconds: int | None
    description: str

    @property
    def name(self) -> str:
        return self.run.__name__


def archive_events() -> dict[str, Any]:
    from broker_core.history import archive  # pyarrow and ADBC: only a worker that archives loads them

    try:
        archived = archive.archive_events()
    except ServerBusy as busy:  # another archiver is at work: no fault
        return {"busy": str(busy)}
    return {"events": archived.events, "slices": archived.slices}


def maintain_event_partitions() -> dict[str, Any]:
    from broker_core.history import retention

    return {"created": retention.create_partitions(), **runs.as_outcome(retention.drop_old_partitions())}


SWEEPS = (
    Sweep(sweeps.activate_scheduled, 2, "Moves scheduled messages that are due to the end of their queue."),
    Sweep(sweeps.forward_messages, 2, "Forwards messages that a send could not forward at once."),
    Sweep(sweeps.expire_messages, 5, "Removes expired messages, or moves them to the dead-letter queue."),
    Sweep(sweeps.end_locks, 5, "Counts ended locks as failed deliveries, and dead-letters messages after the last one allowed."),
    Sweep(sweeps.end_connections, 5, "Releases what dead connections held and owned, and deliveries never acknowledged."),
    Sweep(sweeps.roll_up_counts, 5, "Adds up the changes that counts and rates are computed from."),
    Sweep(sweeps.delete_idle_entities, 5, "Deletes queues that were idle for their AutoDeleteOnIdle or x-expires."),
    Sweep(sweeps.forget_seen_ids, 30, "Forgets message ids outside the window of duplicate detection."),
    Sweep(sweeps.forget_sessions, 30, "Forgets sessions without messages and state that nobody closed."),
    Sweep(sweeps.advance_heads, 30, "Lets receives skip removed messages."),
    Sweep(sweeps.remove_deleted_entities, 30, "Removes the messages of deleted queues."),
    Sweep(archive_events, 600, "Writes the history to Parquet files."),
    Sweep(runs.forget_sweep_runs, 600, "Removes old records of sweeps."),
    Sweep(maintain_event_partitions, 3600, "Creates the history's partitions of the next days, and drops archived old ones."),
    Sweep(sweeps.check_ledger, None, "Compares all counts with the messages themselves."),
)
