"""The background tasks: schedule, last run, duration and results, and why one is late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from broker_core import reads
from broker_core.common.durations import human
from broker_core.reads import SweepRun
from explorer import schedules

from .presenters import age

GRACE = timedelta(seconds=15)  # delays of beat and the worker


@dataclass(frozen=True, slots=True)
class Task:
    """A background task. lateness: in words; empty: it is on time."""

    name: str
    lateness: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep. id: of its schedule. run_name: under which its runs are recorded. lateness: why it is late, in words; empty:
    it is not. is_refused: whether its last run was refused something."""

    id: int
    run_name: str
    name: str
    description: str
    every: str
    enabled: bool
    last: SweepRun | None
    did: str
    is_refused: bool
    lateness: str


def tasks() -> list[Task]:
    """All background tasks with their lateness, for the rules of what needs a person."""
    return [Task(task.name, task.lateness) for task in sweeps(reads.last_sweep_runs(), timezone.now())]


def sweeps(runs: Mapping[str, SweepRun], now: datetime) -> list[Sweep]:
    """All background tasks by name."""
    return [sweep(task, runs.get(run_name(task)), now) for task in periodic_tasks()]


def periodic_tasks() -> QuerySet[PeriodicTask]:
    """The schedules of all background tasks by name."""
    return PeriodicTask.objects.select_related("interval", "crontab").exclude(task="celery.backend_cleanup").order_by("name")


_RESULTS = {  # by name of a count, the text for one and for several
    "expired": ("message expired", "messages expired"),
    "locks_ended": ("lock expired", "locks expired"),
    "activated": ("message enqueued", "messages enqueued"),
    "forwarded": ("message forwarded", "messages forwarded"),
    "forgotten": ("old entry removed", "old entries removed"),
    "sessions": ("session removed", "sessions removed"),
    "heads": ("queue head advanced", "queue heads advanced"),
    "folded": ("count merged", "counts merged"),
    "messages": ("message removed", "messages removed"),
    "entities": ("entity removed", "entities removed"),
    "events": ("event archived", "events archived"),
    "slices": ("slice written", "slices written"),
    "ended": ("analysis ended", "analyses ended"),
    "refused": ("refusal", "refusals"),
}


def sweep(task: PeriodicTask, last: SweepRun | None, now: datetime) -> Sweep:
    return Sweep(
        task.pk, run_name(task), task.name, task.description, schedules.sentence(task), task.enabled, last,
        did(last.outcome) if last else "", bool(last and last.outcome.get("refused")),
        lateness(last, schedules.period(task), now, task.enabled, task.date_changed),
    )  # fmt: skip


def lateness(last: SweepRun | None, period: timedelta, now: datetime, enabled: bool, known_since: datetime) -> str:
    """Why a sweep is late; empty: it is not. One that never ran is late only after its first period."""
    if not enabled:
        return ""
    if last is None:
        return f"never run; due every {human(period)}" if now - known_since > period + GRACE else ""
    if last.error:
        return "last run failed"
    silent = now - last.started_at
    if silent > 2 * period + GRACE:
        return f"last run {age(silent)} ago; due every {human(period)}"
    return ""


def did(outcome: Mapping) -> str:
    """The results of a run in words: its counts above zero, and what it was refused, with the first reasons."""
    counts = [_did(name, value) for name, value in outcome.items() if value and name not in ("refused", "reasons")]
    if outcome.get("refused"):
        counts.append(f"{_did('refused', outcome['refused'])} ({'; '.join(outcome['reasons'])})")
    return ", ".join(counts) or "idle"


def _did(name: str, value: object) -> str:
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if not isinstance(value, int):
        return f"{name.replace('_', ' ')}: {value}"
    singular, several = _RESULTS.get(name, ("", ""))
    return f"{value:,} {singular if value == 1 else several}" if singular else f"{name.replace('_', ' ')}: {value:,}"


def run_name(task: PeriodicTask) -> str:
    """The name under which its runs are recorded."""
    return task.task.rpartition(".")[2]
