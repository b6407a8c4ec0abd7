"""Requests an analysis: creates its row and its task."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.db import transaction
from django.db.models.functions import Now
from kombu.exceptions import KombuError

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.models import Entity
from broker_core.namespaces import get_clock
from explorer.models import AnalysisRun

from .. import rollups, tasks
from ..subject import Subject
from . import runs

ROLL_UP = "roll_up"


def create(
    entities: list[Entity], start: datetime, end: datetime, bucket: str, *, clock_ahead: timedelta | None = None, actor: Actor
) -> AnalysisRun:
    """Request an analysis of these queues, which a worker executes. start, end: range of the enqueue times, aware UTC.
    clock_ahead: see AnalysisRun.

    Raises NotAuthorized without Right.OPERATE, InvalidArgument for an invalid range.
    """
    actor.require(Right.OPERATE, "the history")
    runs.check_range(start, end, bucket)
    if not entities:
        raise InvalidArgument("queues", "must name at least one queue")
    named = [{"id": entity.pk, "namespace": entity.namespace.name, "path": entity.path} for entity in entities]
    with transaction.atomic():
        run = AnalysisRun.objects.create(
            queues=named,
            start_at=start,
            end_at=end,
            clock_ahead=clock_ahead,
            bucket=bucket,
            requested_by=str(actor),
            requested_at=Now(),
        )
        transaction.on_commit(lambda: _submit(run.pk))
    return run


def roll_up(*, actor: Actor, submit: bool = True) -> AnalysisRun | None:
    """Request a roll-up of the days before today. None: no day has to be, or a roll-up is requested already. submit: by a task;
    otherwise the caller executes the run."""
    actor.require(Right.OPERATE, "the history")
    days = [day.day for day in rollups.uncovered(before=datetime.now(UTC).date())]
    if not days or AnalysisRun.objects.filter(kind=ROLL_UP, state__in=runs.OPEN).exists():
        return None
    start, end = (datetime.combine(day, time(), UTC) for day in (min(days), max(days) + timedelta(days=1)))
    with transaction.atomic():
        run = AnalysisRun.objects.create(
            kind=ROLL_UP, queues=[], start_at=start, end_at=end, bucket="day", requested_by=str(actor), requested_at=Now()
        )
        if submit:
            transaction.on_commit(lambda: _submit(run.pk))
    return run


def last_day(subject: Subject, *, actor: Actor) -> AnalysisRun:
    """Request an analysis of the last 24 hours, by the clock of its namespace, of all queues of a subject."""
    real = datetime.now(UTC)
    now = get_clock(subject.namespace.name).now if not subject.namespace.deleted_at else real
    ahead = now - real if abs(now - real) > runs.SAME_CLOCK else None
    return create(list(subject.entities), now - timedelta(days=1), now, "hour", clock_ahead=ahead, actor=actor)


def is_open(subject: Subject, actor: Actor) -> bool:
    """Whether a run of these queues that this actor requested has not ended."""
    named = [{"id": entity.pk} for entity in subject.entities[:1]]
    waiting = AnalysisRun.objects.filter(state__in=runs.OPEN, requested_by=str(actor))
    return waiting.filter(queues__contains=named).exists()


def _submit(run_id: int) -> None:
    """Send the run's task to Celery. If that fails, mark the run as failed with the reason, since no worker would start it."""
    try:
        tasks.run_analysis.delay(run_id)
    except (KombuError, OSError, BrokerError) as problem:
        message = f"The analysis could not be sent to Celery ({problem}). Start the Celery broker, then start the analysis again."
        waiting = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED)
        waiting.update(state=AnalysisRun.FAILED, finished_at=Now(), message=message)


def start(chosen: dict, *, actor: Actor) -> AnalysisRun:
    """Request the analysis that a valid form describes (explorer.analysis.forms)."""
    return create(
        list(chosen["queues"]),
        chosen["start_at"],
        chosen["end_at"],
        chosen["bucket"],
        clock_ahead=chosen["clock_ahead"],
        actor=actor,
    )
