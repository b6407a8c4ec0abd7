"""What a page asks, and of which state it is: the reports with their form, the run that makes them, and why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

from broker_core.common.types import Actor
from explorer.models import AnalysisRun

from ..reports.forms import ReportForm
from ..reports.report import Analysis
from ..reports.scope import Scope
from ..running import java, submission

RETRIED_AFTER = timedelta(minutes=10)  # a failed run, by opening the page again
TAKEN_WITHIN = timedelta(seconds=20)  # by a worker that is idle


@dataclass(frozen=True)
class Asked:
    """Reports, and of what. form: with the fields of all of them."""

    analyses: Sequence[Analysis]
    form: ReportForm
    scope: Scope

    def opened(self, actor: Actor) -> AnalysisRun | None:
        """The run that makes what the page shows, which opening it starts if a result is missing or old; else the last one, if it
        failed or was cancelled. A failed one is not repeated for RETRIED_AFTER."""
        last = self.last_run()
        if last and (not last.is_over or last.finished_at and datetime.now(UTC) - last.finished_at < RETRIED_AFTER):
            return last
        if problem() or not self.scope.entities:
            return last
        if submission.refresh(self.analyses, self.scope, self.form, actor=actor):
            return self.last_run()
        return last

    def last_run(self) -> AnalysisRun | None:
        """The open run, or the last one, if it failed or was cancelled."""
        open_run = submission.open_run(self.analyses, self.scope, self.form)
        last = open_run or submission.newest_run(self.analyses, self.scope, self.form)
        return last if last and last.state != AnalysisRun.SUCCEEDED else None

    def refreshed(self, actor: Actor) -> AnalysisRun | None:
        """The run that makes all of them anew; None: there is nothing to analyse."""
        run = submission.refresh(self.analyses, self.scope, self.form, actor=actor, force=True)
        return run or submission.open_run(self.analyses, self.scope, self.form)


def form_for(analyses: Sequence[Analysis], data: Mapping[str, Any]) -> ReportForm:
    """The form with the fields of all of these reports."""
    kinds = list(dict.fromkeys(analysis.form for analysis in analyses if analysis.form is not ReportForm))
    kinds = [kind for kind in kinds if not any(other is not kind and issubclass(other, kind) for other in kinds)]
    return _joined(kinds, analyses)(data)


def asked_of(analyses: Sequence[Analysis], data: Mapping[str, Any]) -> tuple[ReportForm, Scope | None]:
    """The form, and what it is about, as far as it is valid; None: there is no such queue or namespace."""
    form = form_for(analyses, data)
    form.is_valid()
    return form, form.scope()


def problem() -> str:
    """Why no analysis can run on this machine, and what to do; empty: one can."""
    if not find_spec("pyspark"):
        return "PySpark is not installed. Install it with: pip install -r requirements-spark.txt"
    return java.problem()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. percent: None if that is not known. left: until its end, as expected; None: not known. usual: how long an
    earlier run took; None: there was none."""

    percent: int | None = None
    left: timedelta | None = None
    usual: timedelta | None = None


def progress_of(run: AnalysisRun, now: datetime) -> Progress:
    """By its steps and tasks; by the expected time if that says more. Pure."""
    usual = timedelta(seconds=max(1, round(run.expected_seconds))) if run.expected_seconds else None
    if run.state != AnalysisRun.RUNNING:
        return Progress(usual=usual)
    done = run.tasks_done / run.tasks_total if run.tasks_total else 0.0
    share = (max(0, run.step - 1) + done) / run.steps if run.steps else 0.0
    if not run.expected_seconds or not run.started_at:
        return Progress(round(100 * share) if run.steps else None)
    since = (now - run.started_at).total_seconds()
    share = max(share, min(0.95, since / run.expected_seconds))
    left = run.expected_seconds - since
    return Progress(round(100 * share), timedelta(seconds=round(left)) if left >= 1 else None, usual)


def is_left(run: AnalysisRun) -> bool:
    """Whether no worker has taken a run that one should have taken. One that executes another run may be the only one."""
    if run.state != AnalysisRun.QUEUED or datetime.now(UTC) - run.requested_at <= TAKEN_WITHIN:
        return False
    return not AnalysisRun.objects.filter(state=AnalysisRun.RUNNING).exists()


def _joined(kinds: Sequence[type[ReportForm]], analyses: Sequence[Analysis]) -> type[ReportForm]:
    """A form of all these kinds. It compares if one of the reports does."""
    own = {name: value for kind in reversed(kinds) for name, value in kind.DEFAULTS.items()}
    defaults = own if own and len(analyses) == 1 else own | dict(ReportForm.DEFAULTS)  # several have a range in common
    joined: type[ReportForm] = type("JoinedForm", tuple(kinds) or (ReportForm,), {"DEFAULTS": defaults})
    if any("compare" in analysis.form.base_fields for analysis in analyses):
        joined.base_fields["compare"] = ReportForm.base_fields["compare"]
    return joined
