"""Where analyses begin: the choice of a queue or namespace, its findings, the questions, all reports, and the runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, Right
from broker_core.history import archive, manifest
from broker_core.models import Entity
from explorer import sandbox_names
from explorer.frames import last_namespace, shell
from explorer.frames.well_known import used_first
from explorer.models import AnalysisRun

from ..forms import analysable
from ..reports.registry import ANALYSES, BY_SLUG, QUESTIONS, Question
from ..reports.report import Analysis
from ..reports.scope import Scope
from ..subject import Subject
from . import cards
from .asking import Asked, asked_of, problem
from .questions import DETAILS, PROGRESS, is_unchanged, parameters, shown_details, state_of

OVERVIEW = "overview"  # the report whose findings come first
NEWEST = 20  # runs
MOST_SUGGESTED = 200  # queues
HELD_BACK = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Choice:
    """A question, with the answer of its first report, if one is stored."""

    question: Question
    answer: cards.Answer | None


def first_reports(*, of_entity: bool, actor: Actor) -> list[Analysis]:
    """The overview, and the first report of each question."""
    firsts = (next(question.analyses(of_entity=of_entity), None) for question in QUESTIONS)
    candidates = [BY_SLUG[OVERVIEW], *firsts]
    return [
        analysis
        for analysis in candidates
        if analysis and analysis.right in actor.rights and (of_entity or not analysis.needs_entity)
    ]


@shell.page
@require_http_methods(["GET", "POST"])
def analyses(request: HttpRequest) -> HttpResponse:
    """GET: `path` in a namespace leads to the queue of that name; without a namespace, that of the last page is shown, and
    nothing is run. POST answers all questions anew."""
    request.actor.require(Right.BROWSE, "the analyses")
    data, part, answers_shown = parameters(request)
    is_chosen = bool(data.get("namespace") or data.get("queue"))
    if not is_chosen:
        data["namespace"] = _preselected(request)
    if data.get("path") and data.get("namespace"):
        return HttpResponseRedirect(f"{reverse('explorer:analyses')}?queue={_queue_named(data['namespace'], data['path'])}")
    scope = asked_of((), data)[1]
    if scope is None:
        return shell.show(request, "analysis/landing", _context(request, None))
    last_namespace.remember(request, scope.namespace.name)
    firsts = first_reports(of_entity=not scope.is_whole, actor=request.actor)
    asked = Asked(firsts, asked_of(firsts, {**scope.query})[0], scope)
    if request.method == "POST":
        done = shell.act(request, "start analysis", None, lambda: asked.refreshed(request.actor), target=scope.name)
        if done.error is not None:
            shell.notify_error(request, done.error)
        return HttpResponseRedirect(f"{reverse('explorer:analyses')}?{scope.url_query}")
    if part == DETAILS:
        return _details(asked)
    return _show(request, asked, part, answers_shown, opens=is_chosen)


def _preselected(request: HttpRequest) -> str:
    """The namespace that was looked at last, or the first one; empty: there is none."""
    names = list(_namespaces(request))
    return last_namespace.last_of(request, names) or next(iter(names), "")


def _show(request: HttpRequest, asked: Asked, part: str, answers_shown: str, *, opens: bool) -> HttpResponse:
    """The page; or how far the run is, and with a new answer and once it is over, all that can be new. opens: whether showing it
    starts the run of an answer that is missing or old."""
    overview = [analysis for analysis in asked.analyses if analysis.slug == OVERVIEW]
    run = asked.last_run()
    if opens and not part and not (run and not run.is_over) and overview:
        run = Asked(overview, asked.form, asked.scope).opened(request.actor) or run
    if part == PROGRESS and is_unchanged(run, answers_shown):
        return shell.show(request, "analysis/landing", _progress(asked.scope, run), fragment="analysis/_progress")
    context = _context(request, asked.scope, all_runs=not opens) | _answers_context(asked) | _progress(asked.scope, run)
    context["problem"] = "" if run and not run.is_over else context["no_spark"]
    response = shell.show(request, "analysis/landing", context, fragment="analysis/_landing")
    if part == PROGRESS:
        response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#answers", "outerMorph"
    return response


def _answers_context(asked: Asked) -> dict[str, Any]:
    answers = {answer.analysis.slug: answer for answer in cards.answers(asked.analyses, asked.scope, asked.form)}
    of_entity = not asked.scope.is_whole
    firsts = ((question, next(question.analyses(of_entity=of_entity), None)) for question in QUESTIONS)
    overview = answers.get(OVERVIEW)
    results = [overview.result] if overview and overview.result else []
    return {
        "choices": [Choice(question, answers.get(first.slug) if first else None) for question, first in firsts],
        "answers": [overview] if overview else [],
        "updated_at": overview.result.made_at if overview and overview.result else None,
        "warnings": list(dict.fromkeys(note for result in results for note in result.notes)),
    }


def _details(asked: Asked) -> HttpResponse:
    for answer in cards.answers([analysis for analysis in asked.analyses if analysis.slug == OVERVIEW], asked.scope, asked.form):
        if answer.card:
            return shown_details(answer.card)
    raise Http404("no such result")


def _progress(scope: Scope, run: AnalysisRun | None) -> dict[str, Any]:
    return {
        "page": {"url": reverse("explorer:analyses"), "target": "#answers"},
        "query": scope.url_query,
        "scope": scope,
        **state_of(run),
    }


def _context(request: HttpRequest, of: Subject | None, *, all_runs: bool = True) -> dict[str, Any]:
    """all_runs: also those that are not about `of`."""
    newest = _runs(None if all_runs else of)
    return {
        "section": "insights",
        "of": of,
        "namespaces": list(_namespaces(request)),
        "queues": _suggested(of),
        "questions": QUESTIONS,
        "reports": [
            analysis for analysis in ANALYSES if analysis.right in request.actor.rights and (not of or _is_about(analysis, of))
        ],
        "runs": newest[:NEWEST],
        "all_runs": all_runs,
        "more": len(newest) > NEWEST,
        "archive": manifest.state(),
        "held_back": _held_back(),
        "no_spark": problem(),
    }


def _runs(of: Subject | None) -> list[AnalysisRun]:
    """The newest runs: all of them; or those of the namespace, of its queue only if `of` is one."""
    newest_first = AnalysisRun.objects.defer("log_tail")
    if of:
        newest_first = newest_first.filter(namespace=of.namespace.name, **({} if of.is_whole else {"subject": of.name}))
    return list(newest_first[: NEWEST + 1])


def _is_about(analysis: Analysis, of: Subject) -> bool:
    return not (of.is_whole and analysis.needs_entity)


def _namespaces(request: HttpRequest) -> Iterator[str]:
    visible = sandbox_names.without_of_others(request.user, reads.namespaces(actor=request.actor))
    return (row.name for row in used_first(visible) if not row.is_system)


def _suggested(of: Subject | None) -> list[str]:
    """The names of the queues of the namespace, the first MOST_SUGGESTED of them."""
    if of is None:
        return []
    queues = analysable(Entity.objects.filter(namespace=of.namespace, deleted_at=None))
    return list(queues.values_list("path", flat=True)[:MOST_SUGGESTED])


def _queue_named(namespace: str, path: str) -> int:
    """Raises EntityNotFound."""
    named = analysable(Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path.strip()))
    matches = named.order_by("-deleted_at").values_list("pk", "deleted_at")
    present = [pk for pk, deleted_at in matches if deleted_at is None] or [pk for pk, _ in matches]
    if not present:
        raise EntityNotFound(f"{namespace}/{path}")
    return present[0]


def _held_back() -> Any:
    """The transaction that has held the archive back for longer than HELD_BACK, or None."""
    holder = archive.horizon_holder()
    return holder if holder and holder.age > HELD_BACK else None
