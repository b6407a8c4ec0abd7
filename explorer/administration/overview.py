"""The first page of Administration: background tasks, the namespaces' clocks, and the health of the database."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.runtime import room
from explorer import sandbox_names
from explorer.frames import background_tasks
from explorer.frames.shell import page, show
from explorer.live.page import Live, live
from explorer.pages import navigation
from explorer.time_bar.clocks import ClockView

REFRESH_SECONDS = 2.0
EXAMINED, SHOWN = 200, 10  # latest runs: most have nothing to do


@live
@page
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    actor = request.actor
    health, runs = reads.health(actor=actor), reads.last_sweep_runs(actor=actor)
    tasks = background_tasks.sweeps(runs, health.read_at)
    runs_with_work = [run for run in reads.sweep_runs(limit=EXAMINED, actor=actor) if run.error or any(run.outcome.values())]
    namespaces = sandbox_names.without(row for row in reads.namespaces(actor=actor) if not row.is_system)
    clocks = [ClockView(row.name, row.family, row.is_system, row.clock, request.path) for row in namespaces]
    otherwise = [clock for clock in clocks if clock.clock.is_paused or clock.is_otherwise]
    context = {
        "section": "administration", "tab": "overview", "sweeps": tasks,
        "late": [task for task in tasks if task.lateness], "health": health,
        "recent": [(run, run.name.replace("_", " "), background_tasks.did(run.outcome)) for run in runs_with_work[:SHOWN]],
        "disk": room.disk(), "clocks": otherwise, "real_time": len(clocks) - len(otherwise),
    }  # fmt: skip
    return show(
        request,
        "administration/overview",
        context,
        live=Live({"explorer/administration/_overview.html": 0.0, navigation.COUNTS: 0.0}, refresh_seconds=REFRESH_SECONDS),
    )
