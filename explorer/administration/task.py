"""A background task: its schedule, its latest runs, and running it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import current_app
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_http_methods
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from kombu.exceptions import OperationalError

from broker_core import reads
from broker_core.common.errors import BrokerUnavailable, InvalidArgument
from broker_core.common.types import Right
from explorer import schedules
from explorer.frames import background_tasks, changes
from explorer.frames.shell import Act, act, page, show
from explorer.live.page import Live, live

from .schedule_forms import ScheduleForm

REFRESH_SECONDS = 2.0
RUNS = 20
_RESTORED = {"interval": IntervalSchedule, "crontab": CrontabSchedule}


@live
@page
@require_http_methods(["GET", "POST"])
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    """GET shows the task. POST `do`: run, on, off, schedule; an Undo button posts restore."""
    stored = get_object_or_404(background_tasks.periodic_tasks(), pk=task_id)
    if request.method != "POST":
        return _show(request, stored)
    request.actor.require(Right.MANAGE, "schedules")
    return changes.make(request, _CHANGES, stored)


def _run(request: HttpRequest, stored: PeriodicTask, data: Any) -> HttpResponse:
    done = act(
        request, "run background task", None, lambda: _send(stored), target=stored.name,
        says=lambda _: f"Queued {stored.name}. Its run is listed below once a worker has taken it.",
    )  # fmt: skip
    return _after(request, stored, done)


def _send(stored: PeriodicTask) -> None:
    try:
        current_app.send_task(stored.task, queue=stored.queue, expires=schedules.LONGEST_WAIT_SECONDS)
    except OperationalError as exc:
        raise BrokerUnavailable("The task could not be queued. Check that the database responds.") from exc


def _switch(enabled: bool) -> Callable[[HttpRequest, PeriodicTask, Any], HttpResponse]:
    word = "on" if enabled else "off"

    def change(request: HttpRequest, stored: PeriodicTask, data: Any) -> HttpResponse:
        return _changed(request, stored, lambda: setattr(stored, "enabled", enabled), lambda: f"{stored.name} is {word}.")

    return change


def _reschedule(request: HttpRequest, stored: PeriodicTask, data: Any) -> HttpResponse:
    form = ScheduleForm(data, task=stored)
    if not form.is_valid():
        return _show(request, stored, form=form)
    return _changed(request, stored, form.apply, lambda: f"{stored.name} runs {schedules.sentence(stored)}.")


def _restore(request: HttpRequest, stored: PeriodicTask, data: Any) -> HttpResponse:
    """Set the schedule to what it was before a change."""

    def call() -> None:
        schedules.set_schedule(stored, **{name: _by_id(model, data.get(name, "")) for name, model in _RESTORED.items()})
        stored.enabled = "enabled" in data

    return _changed(request, stored, call, lambda: f"{stored.name} is {_state(stored)} again.")


def _by_id(model: Any, text: str) -> Any:
    found = model.objects.filter(pk=int(text)).first() if text.isascii() and text.isdigit() and len(text) < 10 else None
    if text and found is None:
        raise InvalidArgument("schedule", "the schedule of before was deleted")
    return found


def _changed(request: HttpRequest, stored: PeriodicTask, call: Callable[[], None], says: Callable[[], str]) -> HttpResponse:
    before = {"do": "restore"} | ({"enabled": "on"} if stored.enabled else {})
    before |= {name: str(pk) for name in _RESTORED if (pk := getattr(stored, f"{name}_id"))}

    @transaction.atomic
    def change() -> None:
        call()
        stored.save()

    undo = changes.undo_with(request, before if len(before) > 1 else {})
    done = act(request, "change schedule", None, change, target=stored.name, says=lambda _: says(), undo=undo)
    return _after(request, stored, done)


_CHANGES = {"run": _run, "on": _switch(True), "off": _switch(False), "schedule": _reschedule, "restore": _restore}


def _state(stored: PeriodicTask) -> str:
    return f"on, {schedules.sentence(stored)}" if stored.enabled else "off"


def _after(request: HttpRequest, stored: PeriodicTask, done: Act) -> HttpResponse:
    return _show(request, stored, done=done) if done.error else HttpResponseRedirect(request.path)


def _show(request: HttpRequest, stored: PeriodicTask, *, form: ScheduleForm | None = None, done: Act = Act()) -> HttpResponse:
    runs, now = reads.sweep_runs(background_tasks.run_name(stored), limit=RUNS, actor=request.actor), timezone.now()
    sweep = background_tasks.sweep(stored, runs[0] if runs else None, now)
    context = {
        "section": "administration", "tab": "tasks", "deeper": stored.name, "task": sweep, "read_at": now,
        "runs": [(run, background_tasks.did(run.outcome)) for run in runs], "form": form or ScheduleForm(task=stored),
        "error": done.error,
    }  # fmt: skip
    status = done.status if done.error else 400 if form and form.errors else 200
    parts = Live({"explorer/administration/_task_runs.html": 0.0}, refresh_seconds=REFRESH_SECONDS)
    return show(request, "administration/task", context, status=status, live=parts)
