"""Requests runs, and finds their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from broker_core.common.types import Actor, Right
from explorer.models import AnalysisResult, AnalysisRun

from .. import tasks
from ..reports.forms import CUSTOM, ReportForm
from ..reports.report import Analysis
from ..reports.scope import Range, Scope

OPEN = (AnalysisRun.QUEUED, AnalysisRun.RUNNING)


def key_of(analysis: Analysis, scope: Scope, form: ReportForm) -> str:
    """Of the report, the entities, the range as asked, the comparison, and the values of its own fields."""
    values, fields = form.cleaned_data, analysis.form.base_fields
    asked = {
        "report": analysis.slug,
        "of": [scope.namespace.pk, *([] if scope.is_whole else scope.ids)],
        "range": [scope.range.start, scope.range.end] if values["range"] == CUSTOM else values["range"],
        "compare": values.get("compare") if "compare" in fields else "",
        "own": {name: values.get(name) for name in sorted(fields.keys() - ReportForm.base_fields.keys())},
    }
    return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()


def results_of(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> dict[str, AnalysisResult]:
    """The newest stored results by slug."""
    slugs = {key_of(one, scope, form): one.slug for one in analyses}
    return {slugs[result.key]: result for result in AnalysisResult.objects.filter(pk__in=slugs)}


def refresh(
    analyses: Iterable[Analysis], scope: Scope, form: ReportForm, *, actor: Actor, force: bool = False
) -> AnalysisRun | None:
    """Request a run of the reports that are missing or older than ANALYSIS_FRESH_SECONDS, and not being made. None: there are
    none."""
    actor.require(Right.BROWSE, "the analyses")
    analyses = list(analyses)
    old = datetime.now(UTC) - timedelta(seconds=getattr(settings, "ANALYSIS_FRESH_SECONDS", 600))
    stored = results_of(analyses, scope, form)
    wanted = [one for one in analyses if force or one.slug not in stored or stored[one.slug].made_at < old]
    wanted = [one for one in wanted if open_run([one], scope, form) is None]
    if not wanted or not scope.entities:
        return None
    request = {
        "query": form.query,
        "reports": [one.slug for one in wanted],
        "keys": [key_of(one, scope, form) for one in wanted],
    }
    with transaction.atomic():
        run = AnalysisRun.objects.create(
            namespace=scope.namespace.name, subject=scope.name, request=request, requested_by=str(actor), requested_at=Now()
        )
        transaction.on_commit(lambda: tasks.run_analysis.delay(run.pk))
    return run


def open_run(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> AnalysisRun | None:
    """The queued or running run that makes any of them."""
    return _runs(analyses, scope, form).filter(state__in=OPEN).first()


def newest_run(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> AnalysisRun | None:
    """The last run that made any of them, or failed to."""
    return _runs(analyses, scope, form).first()


def stored_scope(result: AnalysisResult, scope: Scope) -> Scope:
    """The scope, with the range, the time and the comparison that a result answers."""
    asked = result.asked

    def span(one: dict[str, str] | None, like: Range) -> Range | None:
        return replace(like, start=_at(one["start"]), end=_at(one["end"])) if one else None

    found = span(asked["span"], scope.range) or scope.range
    return replace(scope, range=found, now=_at(asked["now"]), compared=span(asked.get("compared"), found))


def _runs(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> QuerySet[AnalysisRun]:
    keys: Sequence[str] = [key_of(one, scope, form) for one in analyses]
    made = Q(pk=None)
    for key in keys:
        made |= Q(request__keys__contains=[key])
    return AnalysisRun.objects.filter(made).defer("log_tail")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
