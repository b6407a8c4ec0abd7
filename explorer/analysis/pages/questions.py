"""The pages of questions and of single reports: answered from stored results, and refreshed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods

from broker_core.common.types import Right
from explorer.frames import last_namespace, shell
from explorer.frames.questions import RANGES
from explorer.models import AnalysisRun

from ..reports import files
from ..reports.forms import ReportForm
from ..reports.registry import BY_SLUG, QUESTION_BY_SLUG, QUESTIONS
from ..reports.report import Analysis
from ..reports.scope import Scope
from ..reports.tables import Tables
from ..running import submission
from . import cards, focus
from .asking import Asked, asked_of, is_left, problem, progress_of

PART = "part"  # the parameter that asks for a part of a page
PROGRESS, DETAILS = "progress", "details"
MADE = "made"  # the parameter of PROGRESS that says how many answers of its run the page shows
MOST_QUEUES = 100  # to choose from


@dataclass(frozen=True, slots=True)
class Page:
    """slug: of the question; empty: a single report. url: without parameters."""

    title: str
    lead: str
    analyses: Sequence[Analysis]
    url: str
    slug: str = ""
    target: ClassVar[str] = "#report"  # what a refresh replaces


@shell.page
@require_http_methods(["GET", "POST"])
def question(request: HttpRequest, slug: str) -> HttpResponse:
    """One of the five questions. POST makes its reports anew."""
    request.actor.require(Right.BROWSE, "the analyses")
    asked_question = QUESTION_BY_SLUG.get(slug)
    if asked_question is None:
        raise Http404("no such question")
    analyses = [analysis for analysis in asked_question.analyses(of_entity=True) if analysis.right in request.actor.rights]
    return _answer(request, Page(asked_question.title, "", analyses, reverse("explorer:analysis_question", args=(slug,)), slug))


@shell.page
@require_http_methods(["GET", "POST"])
def report(request: HttpRequest, slug: str) -> HttpResponse:
    """A single report; with `file`, one of its tables as a file ("name.csv"). POST makes it anew."""
    analysis = BY_SLUG.get(slug)
    if analysis is None:
        raise Http404("no such analysis")
    request.actor.require(Right.BROWSE, "the analyses")
    request.actor.require(analysis.right, "the analyses")
    url = reverse("explorer:analysis_report", args=(slug,))
    return _answer(request, Page(analysis.title, analysis.question, [analysis], url))


def state_of(run: AnalysisRun | None) -> dict[str, Any]:
    """The context of a run's progress. Loads no run."""
    if run is None:
        return {"run": None}
    return {
        "run": run,
        "is_left": is_left(run),
        "made_count": run.results.count(),
        "progress": progress_of(run, datetime.now(UTC)),
    }


def is_unchanged(run: AnalysisRun | None, answers_shown: str) -> bool:
    """Whether a run goes on and has made no answer since a page showed so many of them."""
    return run is not None and not run.is_over and str(run.results.count()) == answers_shown


def parameters(request: HttpRequest) -> tuple[dict[str, str], str, str]:
    """The parameters of a page, and apart from them PART and MADE, which the request's parameters lack afterwards."""
    data = request.GET.dict()
    part, answers_shown = data.pop(PART, ""), data.pop(MADE, "")
    request.GET = QueryDict(mutable=True)
    request.GET.update(data)
    return data, part, answers_shown


def _answer(request: HttpRequest, page: Page) -> HttpResponse:
    data, part, answers_shown = parameters(request)
    form, scope = asked_of(page.analyses, data)
    if scope is None:
        raise Http404("no such queue or namespace")
    last_namespace.remember(request, scope.namespace.name)
    analyses = (
        [analysis for analysis in page.analyses if not scope.is_whole or not analysis.needs_entity] if scope.entities else []
    )
    asked = Asked(analyses, form, scope)
    if not form.is_valid():
        return _show(request, page, asked, status=400)
    if request.method == "POST":
        return _made_anew(request, page, asked)
    if "file" in data:
        return _file(asked, data["file"])
    if part == PROGRESS:
        return _progress(request, page, asked, answers_shown)
    if part == DETAILS:
        return _details(request, asked, data.get("report", ""))
    run = asked.opened(request.actor) if analyses else None
    return _show(request, page, asked, run=run, answers=cards.answers(analyses, scope, form), about=focus.chosen(data))


def _made_anew(request: HttpRequest, page: Page, asked: Asked) -> HttpResponse:
    act = shell.act(
        request, "start analysis", None, lambda: asked.refreshed(request.actor), target=f"{page.title} {asked.scope.name}"
    )
    if act.error is not None:
        shell.notify_error(request, act.error)
    return HttpResponseRedirect(f"{page.url}?{request.GET.urlencode()}")


def _progress(request: HttpRequest, page: Page, asked: Asked, answers_shown: str) -> HttpResponse:
    """How far the run is. With a new answer, and once the run is over: the answers, which replace those of before."""
    run = asked.last_run()
    if is_unchanged(run, answers_shown):
        return shell.show(request, "analysis/question", _context(page, asked, run=run), fragment="analysis/_progress")
    about = focus.chosen(request.GET)
    context = _context(page, asked, run=run, answers=cards.answers(asked.analyses, asked.scope, asked.form), about=about)
    response = shell.show(request, "analysis/question", context, fragment="analysis/_answers")
    response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#answers", "outerMorph"
    return response


def _details(request: HttpRequest, asked: Asked, slug: str) -> HttpResponse:
    """The details of a report, which a page of several reports loads when they are opened."""
    chosen = [analysis for analysis in asked.analyses if analysis.slug == slug]
    answers = cards.answers(chosen, asked.scope, asked.form)
    if not answers or not answers[0].card:
        raise Http404("no such result")
    return shown_details(answers[0].card)


def shown_details(card: cards.Card) -> HttpResponse:
    return HttpResponse(f'<div class="details-body">{card.details}</div>')


def _file(asked: Asked, name: str) -> HttpResponse:
    """A table of the report as a file. name: that of the table, a dot, and one of files.FORMATS."""
    analysis = next(iter(asked.analyses), None)
    result = submission.results_of(asked.analyses, asked.scope, asked.form).get(analysis.slug) if analysis else None
    if analysis is None or result is None:
        raise Http404("no such result")
    table_name, _, file_format = name.rpartition(".")
    table = cards.report_of(analysis, result, asked.scope, asked.form.cleaned_data).tables.get(table_name)
    if table is None or file_format not in files.FORMATS:
        raise Http404("the report has no such file")
    return files.download(table, f"vitrine-{analysis.slug}-{table.name}-{slugify(asked.scope.name)}", file_format)


def _show(request: HttpRequest, page: Page, asked: Asked, *, status: int = 200, **more_context: Any) -> HttpResponse:
    return shell.show(request, "analysis/question", _context(page, asked, **more_context), status=status)


def _context(
    page: Page,
    asked: Asked,
    *,
    run: AnalysisRun | None = None,
    answers: Sequence[cards.Answer] = (),
    about: Mapping[str, str] = {},
) -> dict[str, Any]:
    """about: the receiver or the reason that the page is about (focus.py)."""
    query = asked.form.query
    shared = {name: value for name, value in query.items() if name in ReportForm.base_fields}
    of_one_queue = [analysis for analysis in page.analyses if analysis not in asked.analyses and asked.scope.entities]
    results = [answer.result for answer in answers if answer.result]
    notes = dict.fromkeys(note for result in results for note in result.notes)
    return {
        "section": "insights", "page": page, "form": asked.form, "scope": asked.scope, "query": urlencode(query),
        "shared_query": urlencode({**shared, **about}), "answers": answers,
        "about": about, "focuses": _focuses(about, asked.scope, answers),
        "is_single": not page.slug, "questions": QUESTIONS if page.slug else (), "ranges": RANGES,
        "own_fields": own_fields(asked.form), "of_one_queue": of_one_queue,
        "queues": _queues(asked.scope) if of_one_queue else (),
        "updated_at": min((result.made_at for result in results), default=None), "warnings": list(notes),
        "generated": max((answer.card.generated for answer in answers if answer.card), default=0),
        "problem": "" if run and not run.is_over else problem(),
        **state_of(run),
    }  # fmt: skip


def _focuses(about: Mapping[str, str], scope: Scope, answers: Sequence[cards.Answer]) -> list[focus.Focus]:
    """What the stored answers say of the receiver or the reason that the page is about."""
    if not about:
        return []
    stored = {answer.analysis.slug: answer.result for answer in answers if answer.result}
    tables: dict[str, tuple[Scope, Tables]] = {
        slug: (submission.stored_scope(stored[slug], scope), Tables.unpacked(bytes(stored[slug].tables)))
        for slug in ("receivers", "losses")
        if slug in stored
    }
    return focus.focuses(about, tables)


def own_fields(form: ReportForm) -> list[Any]:
    """The fields that its reports add."""
    return [form[name] for name in form.fields if name not in ReportForm.base_fields]


def _queues(scope: Scope) -> Sequence[Any]:
    return [entity for entity in scope.entities if not entity.deleted_at][:MOST_QUEUES]
