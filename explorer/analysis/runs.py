"""What happens to a run's row: asked for, claimed, followed, ended. Knows no process and no Spark.

Every write of an execution names its claim, so one that lost its lease, and was declared dead, changes nothing any more.
"""

import os
import socket
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from kombu.exceptions import KombuError

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.models import Entity
from explorer.models import AnalysisReason, AnalysisResult, AnalysisRun

LEASE = timedelta(seconds=30)
RENEW_SECONDS = 5
LOG_TAIL_CHARACTERS = 12_000
MOST_BUCKETS = 400
BUCKET_LENGTH = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
WORKER_ENDED = "The worker stopped before the analysis finished. Nothing was changed. Start the analysis again."


class ClaimLost(Exception):
    """This execution's lease ended and the run was declared dead: stop, and write nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one execution to a run."""

    run_id: int
    token: str

    def rows(self):
        return AnalysisRun.objects.filter(pk=self.run_id, claimed_by=self.token, state=AnalysisRun.RUNNING)

    def write(self, **values) -> None:
        """Write values to the run. Raises ClaimLost."""
        if not self.rows().update(**values):
            raise ClaimLost(f"run {self.run_id} is no longer claimed by this worker")


def check_range(start: datetime, end: datetime, bucket: str) -> None:
    """Raise InvalidArgument for a range that is empty, or too long for its buckets to be drawn and kept."""
    if end <= start:
        raise InvalidArgument("range", "must end after it starts")
    buckets = (end - start) / BUCKET_LENGTH[bucket]
    if buckets > MOST_BUCKETS:
        raise InvalidArgument(
            "bucket", f"one per {bucket} gives {buckets:,.0f} points in this range; at most {MOST_BUCKETS:,} are possible"
        )


def create(entities: list[Entity], start: datetime, end: datetime, bucket: str, *, actor: Actor) -> AnalysisRun:
    """Ask for an analysis of these queues; a worker takes it up. start, end: aware UTC, by when messages were enqueued.

    Raises NotAuthorized without Right.OPERATE, InvalidArgument for a range without sense.
    """
    actor.require(Right.OPERATE, "the history")
    check_range(start, end, bucket)
    if not entities:
        raise InvalidArgument("queues", "must name at least one queue")
    named = [{"id": entity.pk, "namespace": entity.namespace.name, "path": entity.path} for entity in entities]
    with transaction.atomic():
        run = AnalysisRun.objects.create(
            queues=named, start_at=start, end_at=end, bucket=bucket, requested_by=str(actor), requested_at=Now()
        )
        transaction.on_commit(lambda: _hand_over(run.pk))
    return run


def _hand_over(run_id: int) -> None:
    """Tell Celery of a run. One that cannot be told would wait for ever, so it ends at once and says why."""
    from .tasks import run_analysis

    try:
        run_analysis.delay(run_id)
    except (KombuError, OSError, BrokerError) as problem:
        message = f"The analysis could not be sent to Celery ({problem}). Start the Celery broker, then start the analysis again."
        waiting = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED)
        waiting.update(state=AnalysisRun.FAILED, finished_at=Now(), message=message)


def start(chosen: dict, *, actor: Actor) -> AnalysisRun:
    """Ask for the analysis that a valid form describes (explorer.analysis.forms)."""
    return create(list(chosen["queues"]), chosen["start_at"], chosen["end_at"], chosen["bucket"], actor=actor)


def claim(run_id: int) -> Claim | None:
    """Take up a queued run. None if it is not waiting: taken already, over, or cancelled before it began."""
    token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    taken = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED).update(
        state=AnalysisRun.RUNNING, claimed_by=token, lease_until=Now() + LEASE, started_at=Now(), step_text="Preparing"
    )
    return Claim(run_id, token) if taken else None


def renew(held: Claim) -> None:
    """Say that the execution is alive. Raises ClaimLost."""
    held.write(lease_until=Now() + LEASE)


def cancel_requested(held: Claim) -> bool:
    """Whether somebody wants the run to stop. Raises ClaimLost."""
    for requested in held.rows().values_list("cancel_requested_at", flat=True):
        return requested is not None
    raise ClaimLost(f"run {held.run_id} is no longer claimed by this worker")


def report(held: Claim, event: dict) -> None:
    """Write one progress event of the job to the run. Raises ClaimLost."""
    if event["event"] == "step":
        text = str(event["text"])[:200]
        held.write(step=event["step"], steps=event["steps"], step_text=text, tasks_done=0, tasks_total=0)
    elif event["event"] == "progress":
        held.write(tasks_done=event["done"], tasks_total=event["total"])


def request_cancel(run_id: int, *, actor: Actor) -> None:
    """Stop a run: at once if nobody has taken it up, else its worker stops it within seconds. One that is over stays as it is."""
    actor.require(Right.OPERATE, "the history")
    named = {"cancel_requested_at": Now(), "cancelled_by": str(actor)}
    waiting = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED)
    if not waiting.update(state=AnalysisRun.CANCELLED, finished_at=Now(), message="Cancelled before it started.", **named):
        AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.RUNNING, cancel_requested_at=None).update(**named)


def succeed(held: Claim, messages: int, results: list[AnalysisResult], reasons: list[AnalysisReason]) -> None:
    """Store a run's results and end it, both or neither. Raises ClaimLost."""
    with transaction.atomic():
        AnalysisResult.objects.bulk_create(results, batch_size=2_000)
        AnalysisReason.objects.bulk_create(reasons, batch_size=2_000)
        held.write(
            state=AnalysisRun.SUCCEEDED, finished_at=Now(), messages=messages, message="", step=F("steps"), step_text="Done"
        )


def end(held: Claim, state: str, message: str) -> None:
    """End a run without results: FAILED or CANCELLED, with the reason for people. Raises ClaimLost."""
    held.write(state=state, finished_at=Now(), message=message)


def end_dead_runs() -> list[int]:
    """Declare runs failed whose lease ended: their worker is gone. Returns their ids."""
    dead = AnalysisRun.objects.filter(state=AnalysisRun.RUNNING, lease_until__lt=Now())
    ids = []
    for run_id, token in dead.values_list("pk", "claimed_by"):
        still_dead = AnalysisRun.objects.filter(pk=run_id, claimed_by=token, state=AnalysisRun.RUNNING, lease_until__lt=Now())
        if still_dead.update(state=AnalysisRun.FAILED, finished_at=Now(), message=WORKER_ENDED):
            ids.append(run_id)
    return ids
