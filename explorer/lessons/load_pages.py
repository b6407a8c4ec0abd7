"""The part of a lesson's screen that shows its load: its settings, what it did, its charts, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from broker_core import reads
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress
from explorer.charts import traffic
from explorer.charts.traffic import Panel
from explorer.frames.shell import Act, act
from explorer.models import Sandbox

from . import load, saved_scenarios
from .lesson import Lesson

CHARTS = "explorer/lessons/_load_charts.html"  # live
SHOWN = ("rates", "backlog", "waiting")  # and "dead", where dead letters stay in the queue
RANGES = (2, 5, 10)  # minutes: the charts begin at most so long before now


@dataclass(frozen=True, slots=True)
class Field:
    """A setting as a field of the form. error: what is wrong with its value."""

    name: str
    limit: load.settings.Limit
    value: Any
    error: str = ""

    @property
    def text(self) -> str:
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)

    @property
    def step(self) -> str:
        return "1" if self.limit.is_whole else "any"


def context(request: HttpRequest, sandbox: Sandbox, lesson: Lesson, done: Act) -> dict[str, Any]:
    """The context of the load's part of the screen."""
    progress = load.progress(sandbox)
    settings = progress.settings if progress else load.LoadSettings()
    is_bad = isinstance(done.error, InvalidArgument) and done.error.name in load.LIMITS
    typed: Mapping[str, Any] = request.POST if is_bad else settings.as_values
    problem = {done.error.name: done.error.problem} if isinstance(done.error, InvalidArgument) else {}
    address, client = EntityAddress(sandbox.namespace, lesson.load), load.client_of(sandbox.family)
    return {
        "load": progress,
        "load_counts": _counts(progress, client.words) if progress else [],
        "load_fields": [Field(name, limit, typed.get(name, ""), problem.get(name, "")) for name, limit in load.LIMITS.items()],
        "load_queue": address,
        "load_minutes": int(load.DURATION.total_seconds() // 60),
        "forecast": settings.forecast,
        "lock_warning": settings.holds_too_long(_lock(client, address, request), client.words.late),
        "panels": _panels(address, client, progress, request) if progress else [],
    }


def _counts(progress: load.Progress, words: load.Words) -> list[tuple[int, str]]:
    """What the programs did: how often, and the family's word for it."""
    named = {"sent": "sent", "completed": "completed", "failed": words.failed, "lost": words.lost, load.DEAD: words.dead}
    return [(progress.count.get(name, 0), word) for name, word in named.items()]


def _lock(client: load.Client, address: EntityAddress, request: HttpRequest) -> timedelta | None:
    try:
        return client.lock(address, request.actor)
    except EntityNotFound:
        return None


def _panels(address: EntityAddress, client: load.Client, progress: load.Progress, request: HttpRequest) -> list[Panel]:
    """The charts, as on Insights, from shortly before the start."""
    minutes = (timezone.now() - progress.started_at) / timedelta(minutes=1)
    span = next((each for each in RANGES if minutes < each), RANGES[-1])
    try:
        points = reads.traffic(address, span, actor=request.actor)
    except EntityNotFound:
        return []
    shown = (*SHOWN, "dead") if client.has_dead_letters else SHOWN
    return [panel for panel in traffic.panels(points) if panel.name in shown]


def perform(request: HttpRequest, sandbox: Sandbox, lesson: Lesson, action: str) -> Act:
    """Start or change, stop, or save the load."""
    posted = request.POST
    if action == "load":
        return _start(request, sandbox, lesson)
    if action == "stop_load":
        return act(
            request, "stop load", None, lambda: load.stop(sandbox), target=sandbox.namespace, says=lambda _: "Load stopped."
        )  # fmt: skip
    progress = load.progress(sandbox)
    settings = progress.settings if progress else load.LoadSettings()
    name = posted.get("name", "")

    def save() -> Any:
        return saved_scenarios.save(request.user, name, saved_scenarios.text_of(sandbox, settings, name.strip(), request.actor))

    return act(
        request,
        "save scenario",
        None,
        save,
        target=name[:80],
        says=lambda saved: f"Saved {saved.name}. It is listed under Learn.",
    )


def _start(request: HttpRequest, sandbox: Sandbox, lesson: Lesson) -> Act:
    try:
        settings = load.LoadSettings.read({name: request.POST[name] for name in load.LIMITS if name in request.POST})
    except BrokerError as problem:
        return Act(error=problem)
    progress = load.progress(sandbox)
    runs = progress is not None and progress.is_running
    return act(
        request, "change load" if runs else "start load", None, lambda: load.start(sandbox, lesson.load, settings),
        target=sandbox.namespace, says=lambda _: "Load changed." if runs else "Load started.",
    )  # fmt: skip
