"""How often each sweep runs, as first set up; afterwards the admin decides, and nothing here overrules it.

A migration calls `create_missing`. A sweep that is added later comes with a migration of its own that calls it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

QUEUE = "sweeps"
SHORTEST_EXPIRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """every_seconds None: once a night."""

    task: str
    every_seconds: int | None
    description: str

    @property
    def name(self) -> str:
        return self.task.partition(".")[2].replace("_", " ")

    @property
    def expires_after_seconds(self) -> int:
        """A run still waiting for a worker when its next one is due is dropped, so that none pile up while no worker is there."""
        return max(self.every_seconds or 3600, SHORTEST_EXPIRY_SECONDS)


SCHEDULES = (
    Schedule("broker_core.activate_scheduled", 2, "Enqueues scheduled messages that are due."),
    Schedule("broker_core.expire_messages", 5, "Removes or dead-letters expired messages."),
    Schedule(
        "broker_core.end_locks",
        5,
        "Counts expired locks as failed deliveries and dead-letters messages that reached their maximum.",
    ),
    Schedule(
        "broker_core.end_connections",
        5,
        "Requeues messages and deletes exclusive queues of dead connections; ends overdue deliveries.",
    ),
    Schedule("broker_core.roll_up_counts", 5, "Merges the entries from which counts and rates are computed."),
    Schedule("broker_core.forward_messages", 2, "Forwards messages that could not be forwarded on send."),
    Schedule("broker_core.forget_seen_ids", 30, "Removes message ids that are outside the duplicate detection window."),
    Schedule("broker_core.forget_sessions", 30, "Removes sessions that have no messages and no state."),
    Schedule("broker_core.advance_heads", 30, "Advances queue heads past removed messages, so that receives skip them."),
    Schedule("broker_core.remove_deleted_entities", 30, "Removes the messages of deleted queues."),
    Schedule("broker_core.delete_idle_entities", 5, "Deletes queues that reached their AutoDeleteOnIdle or x-expires time."),
    Schedule("broker_core.archive_events", 600, "Writes the history to Parquet files."),
    Schedule("explorer.end_dead_analyses", 60, "Ends analyses whose worker has died."),
    Schedule("broker_core.forget_sweep_runs", 600, "Removes old records of sweep runs."),
    Schedule(
        "broker_core.maintain_event_partitions", 3600, "Creates history partitions for the next days and drops old archived ones."
    ),
    Schedule("broker_core.check_ledger", None, "Verifies all counts against the stored messages."),
)


def create_missing(apps: Any) -> None:
    """Create the schedules that are not there yet, by name. apps: the registry, as a migration gets it."""
    periodic_task = apps.get_model("django_celery_beat", "PeriodicTask")
    for schedule in SCHEDULES:
        values = {
            "task": schedule.task,
            "queue": QUEUE,
            "expire_seconds": schedule.expires_after_seconds,
            "description": schedule.description,
            # Due at the first start of beat. With no last run it would count from each start, and on a machine that is never on
            # for an hour, or at night, the rarer ones would never have their turn.
            "last_run_at": timezone.now() - timedelta(days=1),
            **_when(apps, schedule),
        }
        periodic_task.objects.get_or_create(name=schedule.name, defaults=values)


def _when(apps: Any, schedule: Schedule) -> dict[str, Any]:
    if schedule.every_seconds is None:
        nightly = apps.get_model("django_celery_beat", "CrontabSchedule")
        return {"crontab": nightly.objects.get_or_create(minute="17", hour="3", timezone="UTC")[0]}
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    return {"interval": interval.objects.get_or_create(every=schedule.every_seconds, period="seconds")[0]}
