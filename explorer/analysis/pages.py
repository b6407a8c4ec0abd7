"""Pages of analyses: the list, the form that starts one, a run with its progress and results, the results as CSV."""

from __future__ import annotations

from datetime import timedelta

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from broker_core import reads
from broker_core.common.types import EntityAddress, Right
from broker_core.history import archive, manifest
from broker_core.models import Entity
from explorer.models import AnalysisRun
from explorer.shared import shell
from explorer.shared.csv_file import csv_file
from explorer.shared.lists import MOST_LISTED

from . import flow, java, messages, presenters, rollups, runs, submission, what_if
from .forms import BETWEEN, RECEIVABLE, AnalysisForm, FlowForm, MessagesForm, WhatIfForm
from .jobs.outcomes import OTHER_REASONS
from .survival import CannotTell

NEWEST = 100
HELD_BACK = timedelta(seconds=30)
MOST_QUEUES = 200  # in the table of the whole range


@require_GET
@shell.page
def analysis_runs(request: HttpRequest) -> HttpResponse:
    """The newest runs, all or those that include one queue, and how far the archive reaches."""
    request.actor.require(Right.BROWSE, "the analyses")
    asked = request.GET.get("queue", "")
    of = Entity.objects.select_related("namespace").filter(pk=asked).first() if asked.isdecimal() and len(asked) < 19 else None
    runs_of = AnalysisRun.objects.filter(queues__contains=[{"id": of.pk}]) if of else AnalysisRun.objects.all()
    newest = runs_of.defer("log_tail")[: NEWEST + 1]
    context = {
        "section": "insights",
        "of": of,
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


@require_GET
@shell.page
def analysis_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """A run: its progress and log while it runs, then its results. The fragment polls until the end."""
    request.actor.require(Right.BROWSE, "the analyses")
    runs.end_dead_runs()
    run = get_object_or_404(AnalysisRun, pk=run_id)
    before = AnalysisRun.objects.filter(state__in=(AnalysisRun.QUEUED, AnalysisRun.RUNNING), pk__lt=run.pk).count()
    context = {
        "section": "insights",
        "run": run,
        "before": before if run.state == AnalysisRun.QUEUED else 0,
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


@require_GET
@shell.page
def analysis_messages(request: HttpRequest, run_id: int) -> HttpResponse:
    """The messages behind a number of a run: of a queue, and optionally of a bucket, an outcome and a reason."""
    request.actor.require(Right.BROWSE, "the analyses")
    run = get_object_or_404(AnalysisRun, pk=run_id)
    chosen = MessagesForm(run, request.GET)
    if not chosen.is_valid():
        raise Http404("the run has no such number")
    queue, start, end = chosen.queue, *chosen.span
    values = chosen.cleaned_data
    try:
        found, problem = messages.find(queue["id"], start, end, **chosen.conditions), ""
    except messages.TooManyLives as too_many:
        found, problem = messages.Found(0, []), str(too_many)
    entity = Entity.objects.filter(pk=queue["id"], deleted_at=None).first()
    context = {
        "section": "insights", "run": run, "queue": queue, "start": start, "end": end, "values": values, "found": found,
        "problem": problem, "orders": messages.ORDERS, "outcome": presenters.OUTCOMES.get(values["outcome"], ""),
        "address": EntityAddress(queue["namespace"], queue["path"]), "deleted": entity is None,
    }  # fmt: skip
    return shell.show(request, "analysis/messages", context, fragment="analysis/_messages")


@require_GET
@shell.page
def flow_and_losses(request: HttpRequest) -> HttpResponse:
    """The flow, backlog and losses of a queue by hour. Answered from roll-ups and the tail of the archive, without Spark."""
    request.actor.require(Right.BROWSE, "the analyses")
    form = FlowForm({"range": "1d"} | request.GET.dict())
    form.is_valid()
    queue = form.cleaned_data.get("queue")
    if queue is None:
        raise Http404("no such queue or subscription")
    now = what_if.clock_now(queue)
    context = {"section": "insights", "form": form, "queue": queue, "problem": ""}
    try:
        rollups.require_short_tail(queue.namespace_id)
        hours = flow.hours_between(now - form.length, now)
        lives, there = flow.read(queue, hours[0], now)
        found, losses = flow.of_hours(hours, lives, there), flow.causes(hours, lives)
        context |= {
            "found": found, "losses": losses, "charts": flow.charts(found), "sentence": flow.flow_sentence(found),
            "loss_sentence": flow.loss_sentence(found, losses), "archived_at": manifest.state().done_at,
        }  # fmt: skip
    except messages.TooManyLives as problem:
        context["problem"] = str(problem)
    return shell.show(request, "analysis/flow", context, fragment="analysis/_flow", status=200 if form.is_valid() else 400)


@require_GET
@shell.page
def what_if_time_to_live(request: HttpRequest) -> HttpResponse:
    """What if the time-to-live of a queue had been X. Answered from roll-ups and the tail of the archive, without Spark."""
    request.actor.require(Right.BROWSE, "the analyses")
    form = WhatIfForm({"range": "7d"} | request.GET.dict())
    form.is_valid()
    queue = form.cleaned_data.get("queue")
    if queue is None:
        raise Http404("no such queue or subscription")
    now, chosen = what_if.clock_now(queue), form.cleaned_data.get("x")
    context = {"section": "insights", "form": form, "queue": queue, "chosen": chosen, "sentence": "", "problem": ""}
    try:
        found = what_if.history(queue, now - form.length, now, now)
        context |= {"found": found, "rows": what_if.table(found), "charts": what_if.charts(found, chosen)}
        if chosen is not None:
            context["sentence"] = what_if.sentence(found, chosen)
    except (CannotTell, messages.TooManyLives) as problem:
        context["problem"] = str(problem)
    return shell.show(request, "analysis/what_if", context, fragment="analysis/_what_if", status=200 if form.is_valid() else 400)


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
    names = reads.names(part, kinds=RECEIVABLE, limit=MOST_LISTED, actor=request.actor)
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


def _held_back():
    """The transaction that has held the archive back for longer than HELD_BACK, or None."""
    holder = archive.horizon_holder()
    return holder if holder and holder.age > HELD_BACK else None


def _names(form: AnalysisForm) -> str:
    return ", ".join(str(queue) for queue in form.cleaned_data["queues"])
