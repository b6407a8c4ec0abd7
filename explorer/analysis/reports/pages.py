"""The page of all reports, and their tables as files."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import slugify
from django.views.decorators.http import require_GET

from broker_core.history import manifest
from explorer.shared import shell

from ..survival import CannotTell
from . import files
from .forms import ReportForm
from .registry import BY_SLUG
from .report import Analysis, Report
from .scope import Scope


@require_GET
@shell.page
def report(request: HttpRequest, slug: str) -> HttpResponse:
    """The report of an analysis; with `table` and `format`, one of its tables as a file."""
    analysis = BY_SLUG.get(slug)
    if analysis is None:
        raise Http404("no such analysis")
    request.actor.require(analysis.right, "the analyses")
    form = analysis.form(request.GET.dict())
    is_valid = form.is_valid()
    scope = form.scope()
    if scope is None or (scope.is_whole and analysis.needs_entity):
        raise Http404("no such queue or namespace")
    found = _make(analysis, form, scope) if is_valid else None
    if found and "table" in request.GET:
        return _file(request, analysis, scope, found)
    context: dict[str, Any] = {
        "section": "insights", "analysis": analysis, "form": form, "scope": scope, "report": found,
        "archived_at": manifest.state().done_at, "formats": files.FORMATS,
    }  # fmt: skip
    return shell.show(request, "analysis/report", context, status=200 if is_valid else 400)


def _make(analysis: Analysis, form: ReportForm, scope: Scope) -> Report:
    try:
        if not scope.entities:
            raise CannotTell(f"The namespace {scope.namespace.name} has no queues.")
        return analysis.make(scope, form.cleaned_data)
    except CannotTell as problem:
        return Report("", refusal=str(problem))


def _file(request: HttpRequest, analysis: Analysis, scope: Scope, found: Report) -> HttpResponse:
    table, file_format = found.tables.get(request.GET["table"]), request.GET.get("format")
    if table is None or file_format not in files.FORMATS:
        raise Http404("the report has no such file")
    return files.download(table, f"vitrine-{analysis.slug}-{table.name}-{slugify(scope.name)}", file_format)
