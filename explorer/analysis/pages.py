"""Pages of analyses: the list, the form that starts one, a run with its progress and results, the results as CSV."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from broker_core import reads
from broker_core.common.types import Right
from broker_core.history import archive, manifest
from explorer import sandbox_names
from explorer.models import AnalysisRun
from explorer.shared import shell
from explorer.shared.csv_file import csv_file
from explorer.shared.lists import MOST_LISTED

from . import daily, presenters
from .forms import BETWEEN, RECEIVABLE, AnalysisForm, ScopeForm
from .jobs.outcomes import OTHER_REASONS
from .reports import registry
from .running import java, runs, submission
from .subject import Subject

NEWEST = 100
HELD_BACK = timedelta(seconds=30)
TAKEN_WITHIN = timedelta(seconds=20)  # by a worker that is idle
MOST_QUEUES = 200  # in the table of the whole range
DAILY = {  # by the button: what it does, as the audit names it and as the notice says it
    "daily": (daily.switch_on, "switch on daily analysis", f"A run starts each day at {daily.HOUR}:{daily.MINUTE} UTC."),
    "not-daily": (daily.switch_off, "switch off daily analysis", "Daily runs are switched off."),
}


@require_GET
@shell.page
def analysis_runs(request: HttpRequest) -> HttpResponse:
    """The analyses that are answered at once, of a queue or namespace; the newest runs, all or those that include it; and how far
    the archive reaches."""
    request.actor.require(Right.BROWSE, "the analyses")
    chosen = ScopeForm(request.GET)
    of = chosen.subject if chosen.is_valid() else None
    runs_of = AnalysisRun.objects.filter(queues__contains=[_named(of)]) if of else AnalysisRun.objects.all()
    newest = runs_of.defer("log_tail")[: NEWEST + 1]
    context = {
        "section": "insights",
        "of": of,
        "is_daily": of is not None and of.is_whole and daily.of(of.namespace.name).exists(),
        "reports": list(registry.grouped(of_entity=of is not None and not of.is_whole)),
        "namespaces": [
            one.name
            for one in sandbox_names.without_of_others(request.user, reads.namespaces(actor=request.actor))
            if not one.is_system
        ],
        "runs": newest[:NEWEST],
        "more": len(newest) > NEWEST,
        "archive": manifest.state(),
        "held_back": _held_back(),
        "no_java": java.problem(),
    }
    return shell.show(request, "analysis/runs", context, fragment="analysis/_runs")


@require_http_methods(["GET", "POST"])
@shell.page
def analysis_new(request: HttpRequest) -> HttpResponse:
    """GET shows the form with the queues of the query selected. POST starts a run; with `look` it searches for queues."""
    request.actor.require(Right.BROWSE, "the analyses")
    if "look" in request.POST:
        return _form_page(request, AnalysisForm(initial={**request.POST.dict(), "queues": request.POST.getlist("queues")}), 200)
    form = AnalysisForm(request.POST or None, initial=_initial(request))
    if request.method == "POST" and form.is_valid():
        act = shell.act(
            request, "start analysis", None, lambda: submission.start(form.cleaned_data, actor=request.actor), target=_names(form)
        )
        if act.error is None:
            return redirect("explorer:analysis_run", act.result.pk)
        return _form_page(request, form, act.status, error=act.error)
    return _form_page(request, form, 400 if form.is_bound else 200)


@require_POST
@shell.page
def analysis_last_day(request: HttpRequest) -> HttpResponse:
    """Start a run over the last 24 hours of a queue or namespace; with `do`, switch daily runs of a namespace on or off."""
    chosen, do = ScopeForm(request.POST), request.POST.get("do", "")
    of = chosen.subject if chosen.is_valid() else None
    if of is None or (do and not (of.is_whole and do in DAILY)):
        raise Http404("no such queue or namespace")
    if do:
        call, action, says = DAILY[do]
        name = of.namespace.name
        act = shell.act(request, action, None, lambda: call(name, actor=request.actor), target=name, says=lambda _: says)
    else:
        act = shell.act(request, "start analysis", None, lambda: submission.last_day(of, actor=request.actor), target=of.name)
    if act.error is not None:
        shell.notify_error(request, act.error)
    elif not do:
        return redirect("explorer:analysis_run", act.result.pk)
    return HttpResponseRedirect(f"{reverse('explorer:analysis_runs')}?{of.url_query}")


@require_GET
@shell.page
def analysis_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """A run: its progress and log while it runs, then its results. The fragment polls until the end."""
    request.actor.require(Right.BROWSE, "the analyses")
    runs.end_dead_runs()
    run = get_object_or_404(AnalysisRun, pk=run_id)
    context = {
        "section": "insights",
        "run": run,
        "ahead": runs.ahead_of(run),
        "is_left": datetime.now(UTC) - run.requested_at > TAKEN_WITHIN,
        "percent": presenters.progress_percent(run),
        **_result(request, run),
    }
    return shell.show(request, "analysis/run", context, fragment="analysis/_run")


@require_POST
@shell.page
def analysis_cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """Request that a run stops."""
    run = get_object_or_404(AnalysisRun, pk=run_id)
    act = shell.act(
        request,
        "cancel analysis",
        None,
        lambda: runs.request_cancel(run.pk, actor=request.actor),
        target=str(run),
    )
    if act.error is not None:
        shell.notify_error(request, act.error)
    return redirect("explorer:analysis_run", run.pk)


@require_GET
@shell.page
def analysis_csv(request: HttpRequest, run_id: int) -> HttpResponse:
    """The results of a run as a CSV file; with part=reasons, the reasons by queue and bucket."""
    request.actor.require(Right.BROWSE, "the analyses")
    run = get_object_or_404(AnalysisRun, pk=run_id)
    if request.GET.get("part") == "reasons":
        return csv_file(f"vitrine-analysis-{run.pk}-reasons.csv", presenters.reason_rows(run, run.reasons.all()))
    rows = presenters.csv_rows(run, run.results.order_by("entity_id", "bucket_at"))
    return csv_file(f"vitrine-analysis-{run.pk}.csv", rows)


def _initial(request: HttpRequest) -> dict:
    """What the form starts with: the queues of the query, or all that an earlier run was requested with (`again`)."""
    again = request.GET.get("again", "")
    run = AnalysisRun.objects.filter(pk=again).first() if again.isdecimal() and len(again) < 19 else None
    if run is None:
        return {"queues": request.GET.getlist("queue")}
    queues = [queue["id"] for queue in run.queues]
    return {"queues": queues, "stretch": BETWEEN, "start": run.start_at, "end": run.end_at, "bucket": run.bucket}


def _form_page(request: HttpRequest, form: AnalysisForm, status: int, **context) -> HttpResponse:
    context |= {"section": "insights", "form": form, "no_java": java.problem(), **_offer(request, form)}
    fragment = "analysis/_queues" if "look" in request.POST else "analysis/new"
    return shell.show(request, "analysis/new", context, fragment=fragment, status=status)


def _offer(request: HttpRequest, form: AnalysisForm) -> dict:
    """List the queues: all of them, or if there are too many, the selected ones and those that match the search."""
    part = request.POST.get("part", "").strip()
    hidden = sandbox_names.of_others(request.user)
    names = reads.names(part, kinds=RECEIVABLE, limit=MOST_LISTED, except_namespaces=hidden, actor=request.actor)
    looks = bool(part) or names.more
    listed = names.found[: reads.MOST_NAMES] if looks else names.found
    form.offer(name.id for name in listed)
    return {"looks": looks, "part": part, "matching": len(names.found), "more": names.more, "all_listed": listed == names.found}


def _result(request: HttpRequest, run: AnalysisRun) -> dict:
    """The results per queue, and the charts of one queue: the requested one, else the one with most messages."""
    if run.state != AnalysisRun.SUCCEEDED:
        return {}
    names = {queue["id"]: queue for queue in run.queues}
    whole = list(run.results.filter(bucket_at=None).order_by("-messages"))
    requested = request.GET.get("queue", "")
    shown = next((row for row in whole if str(row.entity_id) == requested), whole[0] if whole else None)
    listed = whole[:MOST_QUEUES]
    view = None
    if shown is not None:
        results = list(run.results.filter(entity_id=shown.entity_id))
        view = presenters.queue_view(run, names[shown.entity_id], results, run.reasons.filter(entity_id=shown.entity_id))
    entered = {row.entity_id for row in whole}
    return {
        "queues": [{"row": row, "queue": names[row.entity_id], "shown": row is shown} for row in listed],
        "more_queues": len(whole) - len(listed),
        "outcomes": presenters.outcomes_among(whole),
        "empty_queues": [queue for queue in run.queues if queue["id"] not in entered],
        "generated": sum(row.generated for row in whole),
        "view": view,
        "other_reasons": OTHER_REASONS,
    }


def _named(of: Subject) -> dict[str, Any]:
    """What a run's queues have in common with this subject."""
    return {"namespace": of.namespace.name} if of.is_whole else {"id": of.entities[0].pk}


def _held_back():
    """The transaction that has held the archive back for longer than HELD_BACK, or None."""
    holder = archive.horizon_holder()
    return holder if holder and holder.age > HELD_BACK else None


def _names(form: AnalysisForm) -> str:
    return ", ".join(str(queue) for queue in form.cleaned_data["queues"])
