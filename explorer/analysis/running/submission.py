"""Requests runs, and finds their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from kombu.exceptions import KombuError

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, Right
from broker_core.history import manifest, verification
from broker_core.models import ArchiveFile, ArchiveRebuild
from explorer.models import AnalysisResult, AnalysisRun

from ..reports.forms import ReportForm
from ..reports.report import Analysis
from ..reports.scope import Range, Scope
from .requests import key_of
from .task import run_analysis

OPEN = (AnalysisRun.QUEUED, AnalysisRun.RUNNING)


def results_of(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> dict[str, AnalysisResult]:
    """The newest stored results by slug."""
    slugs = {key_of(analysis, scope, form): analysis.slug for analysis in analyses}
    return {slugs[result.key]: result for result in AnalysisResult.objects.filter(pk__in=slugs)}


def note_opened(results: Iterable[AnalysisResult]) -> None:
    """Note that results were opened, which keeps them; once a day is enough."""
    before = datetime.now(UTC) - timedelta(days=1)
    if old := [result.pk for result in results if result.opened_at < before]:
        AnalysisResult.objects.filter(pk__in=old).update(opened_at=Now())


def refresh(
    analyses: Iterable[Analysis], scope: Scope, form: ReportForm, *, actor: Actor, force: bool = False
) -> AnalysisRun | None:
    """Request a run of the reports that are missing or older than ANALYSIS_FRESH_SECONDS, and not being made. None: there are
    none."""
    actor.require(Right.BROWSE, "the analyses")
    analyses = list(analyses)
    old = datetime.now(UTC) - timedelta(seconds=settings.ANALYSIS_FRESH_SECONDS)
    stored = results_of(analyses, scope, form)
    due = [analysis for analysis in analyses if force or analysis.slug not in stored or stored[analysis.slug].made_at < old]
    due = [analysis for analysis in due if open_run([analysis], scope, form) is None]
    if not due or not scope.entities:
        return None
    request = {
        "query": form.query,
        "reports": [analysis.slug for analysis in due],
        "keys": [key_of(analysis, scope, form) for analysis in due],
    }
    about = {"namespace": scope.namespace.name, "subject": scope.name}
    with transaction.atomic():
        run = AnalysisRun.objects.create(
            **about, request=request, requested_by=str(actor), requested_at=Now(),
            expected_seconds=expected_seconds([analysis.slug for analysis in due], **about),
        )  # fmt: skip
        transaction.on_commit(lambda: submit_run(run.pk))
    return run


def expected_seconds(reports: Iterable[str], **about: str) -> float | None:
    """How long the last run took that made these reports, of the same if there was one, else of something else; None: there was
    none."""
    earlier = AnalysisRun.objects.filter(state=AnalysisRun.SUCCEEDED, request__reports=list(reports)).exclude(started_at=None)
    last = earlier.filter(**about).defer("log_tail").first() or earlier.defer("log_tail").first()
    return last.duration.total_seconds() if last and last.duration else None


def submit_run(run_id: int) -> None:
    """Send the run's task to Celery. If that fails, mark the run as failed with the reason, since no worker would start it."""
    try:
        run_analysis.delay(run_id)
    except (KombuError, OSError, BrokerError) as problem:
        message = f"The analysis could not be sent to Celery ({problem}). Start the Celery broker, then start the analysis again."
        waiting = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED)
        waiting.update(state=AnalysisRun.FAILED, finished_at=Now(), message=message)


def open_run(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> AnalysisRun | None:
    """The queued or running run that makes any of them."""
    return _runs(analyses, scope, form).filter(state__in=OPEN).first()


def newest_run(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> AnalysisRun | None:
    """The last run that made any of them, or failed to."""
    return _runs(analyses, scope, form).first()


def stored_scope(result: AnalysisResult, scope: Scope) -> Scope:
    """The scope, with the range, the time and the comparison that a result answers."""
    asked = result.asked

    def span(instants: dict[str, str] | None, like: Range) -> Range | None:
        return replace(like, start=_at(instants["start"]), end=_at(instants["end"])) if instants else None

    answered_range = span(asked["span"], scope.range) or scope.range
    return replace(scope, range=answered_range, now=_at(asked["now"]), compared=span(asked.get("compared"), answered_range))


def maintain(*, actor: Actor, submit: bool = True) -> AnalysisRun | None:
    """Request the nightly jobs. None: there is nothing to do, or they are requested already. submit: by a task; otherwise the
    caller executes the run."""
    actor.require(Right.OPERATE, "the history")
    if not pipeline_is_due() or AnalysisRun.objects.filter(kind=AnalysisRun.MAINTENANCE, state__in=OPEN).exists():
        return None
    with transaction.atomic():
        run = AnalysisRun.objects.create(kind=AnalysisRun.MAINTENANCE, requested_by=str(actor), requested_at=Now())
        if submit:
            transaction.on_commit(lambda: submit_run(run.pk))
    return run


def pipeline_is_due() -> bool:
    """Whether events are to be derived, days to be counted, or files to be merged or made again."""
    if manifest.underived().exists() or ArchiveRebuild.objects.exists():
        return True
    if any(verification.damages(ArchiveFile.objects.filter(content=ArchiveFile.OPEN))):
        return True
    today = datetime.now(UTC).date()
    return bool(manifest.days_to_roll_up(today) or manifest.groups_to_merge(today))


def _runs(analyses: Iterable[Analysis], scope: Scope, form: ReportForm) -> QuerySet[AnalysisRun]:
    keys: Sequence[str] = [key_of(analysis, scope, form) for analysis in analyses]
    matches_key = Q(pk=None)
    for key in keys:
        matches_key |= Q(request__keys__contains=[key])
    return AnalysisRun.objects.filter(matches_key).defer("log_tail")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
