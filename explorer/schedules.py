"""The initial schedule of each sweep. Later changes in the admin are not overwritten.

A migration calls `create_missing`. A new sweep needs a migration that calls it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from broker_core.sweeps.registry import SWEEPS

QUEUE = "sweeps"
SHORTEST_EXPIRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """A sweep's schedule. every_seconds None: once a night."""

    task: str
    every_seconds: int | None
    description: str

    @property
    def name(self) -> str:
        return self.task.partition(".")[2].replace("_", " ")

    @property
    def expires_after_seconds(self) -> int:
        """A run that is still queued when the next one is due is dropped, so that runs do not pile up without a worker."""
        return max(self.every_seconds or 3600, SHORTEST_EXPIRY_SECONDS)


SCHEDULES = (
    *(Schedule(f"broker_core.{sweep.name}", sweep.every_seconds, sweep.description) for sweep in SWEEPS),
    Schedule("explorer.end_dead_analyses", 60, "Ends analyses whose worker has died."),
    Schedule(
        "explorer.maintain_history",
        None,
        "Derives lives from the archived history, counts past days, and merges their files, by Spark.",
    ),
    Schedule("explorer.resume_operations", 10, "Continues operations whose worker has died."),
    Schedule("explorer.remove_old_sandboxes", 600, "Removes sandboxes a day after they were started."),
)


def create_missing(apps: Any) -> None:
    """Create the missing schedules, by name. apps: the app registry that a migration gets."""
    periodic_task = apps.get_model("django_celery_beat", "PeriodicTask")
    for schedule in SCHEDULES:
        values = {
            "task": schedule.task,
            "queue": QUEUE,
            "expire_seconds": schedule.expires_after_seconds,
            "description": schedule.description,
            # Due at the first start of beat. Without a last run, beat would count from each of its starts, and on a machine that
            # is never on for an hour, or at night, the rarer sweeps would never run.
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
