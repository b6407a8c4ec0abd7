"""The page of a run: its progress and log while it runs, then its facts and the reports that it made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from broker_core.common.types import Right
from explorer.frames import shell
from explorer.models import AnalysisRun
from explorer.operations.presenters import local

from ..reports.registry import BY_SLUG
from ..running import runs
from .asking import is_left, progress_of


@shell.page
@require_GET
def analysis_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """A run. The fragment polls until the end."""
    request.actor.require(Right.BROWSE, "the analyses")
    runs.end_dead_runs()
    run = get_object_or_404(AnalysisRun, pk=run_id)
    context = {
        "section": "insights",
        "run": run,
        "ahead": runs.ahead_of(run),
        "is_left": is_left(run),
        "progress": progress_of(run, datetime.now(UTC)),
        "reports": list(_reports(run)),
    }
    return shell.show(request, "analysis/run", context, fragment="analysis/_run")


@shell.page
@require_POST
def analysis_cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """Request that a run stops. `back`: the page to return to; without it, that of the run."""
    run = get_object_or_404(AnalysisRun, pk=run_id)
    act = shell.act(request, "cancel analysis", None, lambda: runs.request_cancel(run.pk, actor=request.actor), target=str(run))
    if act.error is not None:
        shell.notify_error(request, act.error)
    back = local(request.POST.get("back", ""))
    return HttpResponseRedirect(back or reverse("explorer:analysis_run", args=(run.pk,)))


def _reports(run: AnalysisRun) -> Any:
    """The reports that a run makes, each with the URL of its page; none of a run without them."""
    query = urlencode(run.request.get("query", {}))
    for slug in run.request.get("reports", ()):
        if analysis := BY_SLUG.get(slug):
            yield analysis, f"{reverse('explorer:analysis_report', args=(slug,))}?{query}"
