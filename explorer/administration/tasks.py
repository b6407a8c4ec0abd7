"""The background tasks: state, last run and what it did, and the latest runs that found something to do."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from explorer.frames import background_tasks
from explorer.frames.shell import page, show
from explorer.live.page import Live, live
from explorer.pages import navigation

REFRESH_SECONDS = 2.0
EXAMINED, SHOWN = 200, 10  # latest runs: most have nothing to do


@live
@page
@require_GET
def tasks(request: HttpRequest) -> HttpResponse:
    actor = request.actor
    runs, read_at = reads.last_sweep_runs(actor=actor), reads.health(actor=actor).read_at
    sweeps = background_tasks.sweeps(runs, read_at)
    titles = {sweep.run_name: sweep.name for sweep in sweeps}
    with_work = [run for run in reads.sweep_runs(limit=EXAMINED, actor=actor) if run.error or any(run.outcome.values())]
    context = {
        "section": "administration", "tab": "tasks", "sweeps": sweeps, "read_at": read_at,
        "recent": [(run, titles.get(run.name, run.name), background_tasks.did(run.outcome)) for run in with_work[:SHOWN]],
    }  # fmt: skip
    return show(
        request,
        "administration/tasks",
        context,
        live=Live({"explorer/administration/_tasks.html": 0.0, navigation.COUNTS: 0.0}, refresh_seconds=REFRESH_SECONDS),
    )
