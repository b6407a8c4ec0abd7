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
    Schedule("broker_core.activate_scheduled", 2, "Puts scheduled messages that are due at the end of their queue."),
    Schedule("broker_core.expire_messages", 5, "Takes expired messages away, or to the dead-letter queue."),
    Schedule(
        "broker_core.end_locks", 5, "Counts locks that ended as failed deliveries, and dead-letters after the last one allowed."
    ),
    Schedule("broker_core.end_connections", 5, "Frees what dead connections held and owned, and what was never acknowledged."),
    Schedule("broker_core.roll_up_counts", 5, "Folds the differences that counts and rates are made of."),
    Schedule("broker_core.forward_messages", 2, "Forwards what a send could not forward at once."),
    Schedule("broker_core.forget_seen_ids", 30, "Forgets message ids outside the window of duplicate detection."),
    Schedule("broker_core.forget_sessions", 30, "Forgets sessions without messages and state that nobody closed."),
    Schedule("broker_core.advance_heads", 30, "Lets receives skip what is gone."),
    Schedule("broker_core.remove_deleted_entities", 30, "Removes the messages of deleted queues."),
    Schedule("broker_core.delete_idle_entities", 5, "Deletes queues that were idle for their AutoDeleteOnIdle or x-expires."),
    Schedule("broker_core.archive_events", 600, "Writes the history to Parquet files."),
    Schedule("explorer.end_dead_analyses", 60, "Ends analyses whose worker has died."),
    Schedule("broker_core.forget_sweep_runs", 600, "Forgets old records of sweeps."),
    Schedule(
        "broker_core.maintain_event_partitions", 3600, "Makes the history's partitions of the next days, drops archived old ones."
    ),
    Schedule("broker_core.check_ledger", None, "Compares all counts with the messages themselves."),
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
