"""Executes runs within management commands."""

from django.core.management.base import CommandError

from explorer.models import AnalysisRun

from . import execution


def executed(run: AnalysisRun) -> AnalysisRun:
    """The run after its execution. Raises CommandError with its message if it did not succeed."""
    execution.execute(run.pk)
    run.refresh_from_db()
    if run.state != AnalysisRun.SUCCEEDED:
        raise CommandError(run.message)
    return run
