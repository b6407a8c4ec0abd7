"""The initial schedule of each sweep. Later changes by an administrator are not overwritten.

A migration calls `create_missing`. A new sweep needs a migration that calls it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time, timedelta
from typing import Any

from django.utils import timezone

from broker_core.common.durations import human
from broker_core.sweeps.registry import SWEEPS

QUEUE = "sweeps"
SHORTEST_EXPIRY_SECONDS = 5
LONGEST_WAIT_SECONDS = 3600  # in the queue, of a task that does not run in an interval


@dataclass(frozen=True, slots=True)
class Schedule:
    """A background task's schedule. name: what it is about, as a noun. every_seconds None: once a night."""

    task: str
    name: str
    every_seconds: int | None
    description: str

    @property
    def expires_after_seconds(self) -> int:
        """A run that is still queued when the next one is due is dropped, so that runs do not pile up without a worker."""
        return expires_after(self.every_seconds)


SCHEDULES = (
    *(Schedule(f"broker_core.{sweep.name}", sweep.title, sweep.every_seconds, sweep.description) for sweep in SWEEPS),
    Schedule("explorer.end_dead_analyses", "Interrupted analyses", 60, "Ends analyses whose worker has died."),
    Schedule(
        "explorer.maintain_history",
        "Preparation of analyses",
        None,
        "Prepares the archived history with Spark, so that analyses answer sooner.",
    ),
    Schedule("explorer.resume_operations", "Interrupted operations", 10, "Continues operations whose worker has died."),
    Schedule("explorer.remove_old_sandboxes", "Old sandboxes", 600, "Removes sandboxes a day after they were started."),
)


def expires_after(every_seconds: float | None) -> int:
    """For an interval; None: a task that runs at a time of day."""
    return max(int(every_seconds or LONGEST_WAIT_SECONDS), SHORTEST_EXPIRY_SECONDS)


def set_schedule(task: Any, *, interval: Any = None, crontab: Any = None) -> None:
    """Give a periodic task one of the schedules, without saving the task."""
    task.interval, task.crontab, task.solar, task.clocked, task.one_off = interval, crontab, None, None, False
    task.expire_seconds = expires_after(interval.schedule.run_every.total_seconds() if interval else None)


WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ANY = "*"


def sentence(task: Any) -> str:
    """When a periodic task runs, in words: "every 5 s", "every day at 03:17 UTC", "every Monday at 02:00 UTC"."""
    if task.interval:
        return f"every {human(task.interval.schedule.run_every)}".replace("every 1 day", "every day")
    if not task.crontab:
        return str(task.schedule)
    crontab = task.crontab
    at = time_of(crontab)
    if at is None:
        text = crontab.human_readable
        return text[:1].lower() + text[1:]
    day = "day" if crontab.day_of_week == _ANY else WEEKDAYS[int(crontab.day_of_week)]
    return f"every {day} at {at:%H:%M} {crontab.timezone}"


def time_of(crontab: Any) -> time | None:
    """The time of day of a crontab that runs once a day or once a week; None: it is another one."""
    if (crontab.day_of_month, crontab.month_of_year) != (_ANY, _ANY) or crontab.day_of_week not in (_ANY, *"0123456"):
        return None
    if not (crontab.hour.isdecimal() and crontab.minute.isdecimal()):
        return None
    return time(int(crontab.hour), int(crontab.minute))


def period(task: Any) -> timedelta:
    """The longest time between two runs of a periodic task, as far as its schedule says."""
    if task.interval:
        return task.interval.schedule.run_every
    if not task.crontab or (task.crontab.day_of_month, task.crontab.month_of_year) != (_ANY, _ANY):
        return timedelta(days=366)
    return timedelta(days=1 if task.crontab.day_of_week == _ANY else 7)


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
