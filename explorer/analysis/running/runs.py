"""The life of a run's row: requested, claimed, updated, ended. Independent of processes and Spark.

Every write of an execution names its claim, so that an execution whose lease ended can no longer change the run.
"""

import os
import socket
import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Now

from broker_core.common.types import Actor, Right
from explorer.models import AnalysisRun

LEASE = timedelta(seconds=30)
RENEW_SECONDS = 5
LOG_TAIL_CHARACTERS = 12_000
OPEN = (AnalysisRun.QUEUED, AnalysisRun.RUNNING)
WORKER_ENDED = "The worker stopped before the analysis finished. What was finished is kept. Start the analysis again."


class ClaimLost(Exception):
    """This execution's lease has ended, and the run was marked as failed: stop, and write nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One execution's claim to a run."""

    run_id: int
    token: str

    def rows(self):
        return AnalysisRun.objects.filter(pk=self.run_id, claimed_by=self.token, state=AnalysisRun.RUNNING)

    def write(self, **values) -> None:
        """Write values to the run. Raises ClaimLost."""
        if not self.rows().update(**values):
            raise ClaimLost(f"run {self.run_id} is no longer claimed by this worker")


def ahead_of(run: AnalysisRun) -> list[AnalysisRun]:
    """The runs that a queued run waits for, since a worker executes one at a time; the running one comes first."""
    if run.state != AnalysisRun.QUEUED:
        return []
    return list(
        AnalysisRun.objects.filter(state__in=OPEN, pk__lt=run.pk)
        .order_by(F("started_at").asc(nulls_last=True), "pk")
        .defer("log_tail")
    )


def claim(run_id: int) -> Claim | None:
    """Claim a queued run. None if it is no longer queued: claimed already, ended, or cancelled before it began."""
    token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    taken = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED).update(
        state=AnalysisRun.RUNNING, claimed_by=token, lease_until=Now() + LEASE, started_at=Now(), step_text="Preparing"
    )
    return Claim(run_id, token) if taken else None


def renew(claim: Claim) -> None:
    """Renew the lease of a running execution. Raises ClaimLost."""
    claim.write(lease_until=Now() + LEASE)


def cancel_requested(claim: Claim) -> bool:
    """Whether a user cancelled the run. Raises ClaimLost."""
    for requested in claim.rows().values_list("cancel_requested_at", flat=True):
        return requested is not None
    raise ClaimLost(f"run {claim.run_id} is no longer claimed by this worker")


def report(claim: Claim, event: dict) -> None:
    """Write one progress event of the job to the run. Raises ClaimLost."""
    if event["event"] == "step":
        text = str(event["text"])[:200]
        claim.write(step=event["step"], steps=event["steps"], step_text=text, tasks_done=0, tasks_total=0)
    elif event["event"] == "session":
        claim.write(warm=event["warm"])
    elif event["event"] == "progress":
        claim.write(tasks_done=event["done"], tasks_total=event["total"])


def request_cancel(run_id: int, *, actor: Actor) -> None:
    """Cancel a run: at once if it is queued, else its worker stops it within seconds. A run that has ended is not changed."""
    actor.require(Right.OPERATE, "the history")
    named = {"cancel_requested_at": Now(), "cancelled_by": str(actor)}
    waiting = AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.QUEUED)
    if not waiting.update(state=AnalysisRun.CANCELLED, finished_at=Now(), message="Cancelled before it started.", **named):
        AnalysisRun.objects.filter(pk=run_id, state=AnalysisRun.RUNNING, cancel_requested_at=None).update(**named)


def succeed(claim: Claim, *, message: str = "", events: int | None = None) -> None:
    """End a run. events: how many were derived. Raises ClaimLost."""
    claim.write(state=AnalysisRun.SUCCEEDED, finished_at=Now(), message=message, events=events)


def end(claim: Claim, state: str, message: str) -> None:
    """End a run without results. state: FAILED or CANCELLED; message: the reason. Raises ClaimLost."""
    claim.write(state=state, finished_at=Now(), message=message)


def end_dead_runs() -> list[int]:
    """Mark runs as failed whose lease has ended: their worker has died. Returns their ids."""
    dead = AnalysisRun.objects.filter(state=AnalysisRun.RUNNING, lease_until__lt=Now())
    ids = []
    for run_id, token in dead.values_list("pk", "claimed_by"):
        still_dead = AnalysisRun.objects.filter(pk=run_id, claimed_by=token, state=AnalysisRun.RUNNING, lease_until__lt=Now())
        if still_dead.update(state=AnalysisRun.FAILED, finished_at=Now(), message=WORKER_ENDED):
            ids.append(run_id)
    return ids
