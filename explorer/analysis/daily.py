"""Daily runs of a namespace: schedules of Celery beat, which the admin also shows and changes as periodic tasks."""

from __future__ import annotations

import json

from django.db.models import QuerySet
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from broker_core.common.types import Actor, Right
from explorer.schedules import QUEUE

TASK = "explorer.analyse_namespace"
HOUR, MINUTE = "3", "47"  # after the roll-up of the day
EXPIRES_SECONDS = 12 * 3600  # of a task that no worker takes


def of(namespace: str) -> QuerySet[PeriodicTask]:
    """The daily runs of a namespace that are switched on."""
    return PeriodicTask.objects.filter(task=TASK, kwargs=_arguments(namespace), enabled=True)


def switch_on(namespace: str, *, actor: Actor) -> None:
    """Analyse this namespace once a day. Raises NotAuthorized without Right.OPERATE."""
    actor.require(Right.OPERATE, "the history")
    nightly, _ = CrontabSchedule.objects.get_or_create(minute=MINUTE, hour=HOUR, timezone="UTC")
    values = {
        "task": TASK,
        "kwargs": _arguments(namespace),
        "crontab": nightly,
        "queue": QUEUE,
        "expire_seconds": EXPIRES_SECONDS,
        "enabled": True,
        "description": f"Analyses the last 24 hours of all queues of {namespace}.",
    }
    PeriodicTask.objects.update_or_create(name=f"analysis of {namespace}, daily", defaults=values)


def switch_off(namespace: str, *, actor: Actor) -> None:
    """Raises NotAuthorized without Right.OPERATE."""
    actor.require(Right.OPERATE, "the history")
    for task in of(namespace):
        task.delete()  # one by one, so that beat is told


def _arguments(namespace: str) -> str:
    return json.dumps({"namespace": namespace})
