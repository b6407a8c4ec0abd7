"""The registry of the sweeps, from which tasks, schedules and pages are generated."""

from __future__ import annotations

import math
from typing import Any

from broker_core import families, sweeps  # noqa: F401 - registers the installed families
from broker_core.common.errors import ServerBusy
from broker_core.common.family import Sweep, installed

from . import runs


def archive_events() -> dict[str, Any]:
    from broker_core.history import archive  # here, so that only a worker that archives loads pyarrow and ADBC

    try:
        archived = archive.archive_events()
    except ServerBusy as busy:  # another archiver is running
        return {"busy": str(busy)}
    return {"events": archived.events, "slices": archived.slices}


def maintain_event_partitions() -> dict[str, Any]:
    from broker_core.history import retention

    done = {"created": retention.create_partitions(), "indexed": retention.index_closed_partitions()}
    done |= runs.as_outcome(retention.drop_old_partitions())
    return done | {"archived_days_deleted": retention.forget_archived_days()}


def clean_up_archive() -> dict[str, Any]:
    from broker_core.history import cleanup

    try:
        return runs.as_outcome(cleanup.clean_up_archive())
    except ServerBusy as busy:
        return {"busy": str(busy)}


_SHARED = (
    Sweep(sweeps.activate_scheduled, "Scheduled messages", 2, "Enqueues scheduled messages that are due."),
    Sweep(sweeps.expire_messages, "Expired messages", 5, "Removes expired messages, or moves them to the dead-letter queue."),
    Sweep(
        sweeps.end_locks,
        "Expired locks",
        5,
        "Counts expired locks as failed deliveries and dead-letters messages that reached their maximum.",
    ),
    Sweep(sweeps.roll_up_counts, "Counts and charts", 5, "Merges the entries from which counts, rates and charts are computed."),
    Sweep(sweeps.delete_idle_entities, "Idle queues", 5, "Deletes queues that reached their AutoDeleteOnIdle or x-expires time."),
    Sweep(sweeps.advance_heads, "Queue positions", 30, "Lets receives skip what was removed at the front of queues."),
    Sweep(sweeps.remove_deleted_entities, "Deleted queues", 30, "Removes the messages of deleted queues."),
    Sweep(
        sweeps.purge_hidden_messages,
        "Undo of operations",
        60,
        "Deletes what operations removed 30 minutes ago, files of exports after a day, and old records of operations.",
    ),
    Sweep(sweeps.drop_kept_messages, "Retention of kept messages", 300, "Deletes messages that ended and were kept long enough."),
    Sweep(archive_events, "Archive of the history", 600, "Writes the history to Parquet files."),
    Sweep(runs.forget_sweep_runs, "Records of background tasks", 600, "Removes old records of sweep runs."),
    Sweep(
        maintain_event_partitions,
        "Retention of the history",
        3600,
        "Deletes history that is archived and older than a week, and archived days that a namespace does not keep.",
    ),
    Sweep(
        clean_up_archive,
        "Archive cleanup",
        None,
        "Deletes archived files that are no longer used, and archives changes of settings.",
    ),
    Sweep(sweeps.check_ledger, "Verification of counts", None, "Verifies all counts against the stored messages."),
)
_OF_FAMILIES = (sweep for family in installed() for sweep in family.sweeps)
SWEEPS = tuple(sorted((*_SHARED, *_OF_FAMILIES), key=lambda sweep: sweep.every_seconds or math.inf))
