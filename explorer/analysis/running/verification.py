"""A run that compares lives and attempts with the events that they were derived from (jobs/verification.py)."""

from __future__ import annotations

from datetime import date

from django.db.models.functions import Now

from broker_core.common.types import Actor, Right
from broker_core.history import manifest
from broker_core.models import ArchiveFile, Entity
from explorer.models import AnalysisRun

from . import pipeline, runs
from .execution import CannotRun, Jobs

# By rule (jobs.verification.RULES): what a message that does not keep it has.
SAID = {
    "twice": "an event twice",
    "receipts": "receives without a delivery, or deliveries without a receive",
    "losses": "another number of lost locks than its deliveries",
    "ends": "another number of ends than lives",
}
REPAIRED = "Lives of days with differences are derived again from events by the next analysis."


def request_verification(*, repair: bool, actor: Actor) -> AnalysisRun:
    """A run that compares all lives with events; to `repair`, it has those of days with differences derived again. The caller
    executes it."""
    actor.require(Right.OPERATE, "the history")
    return AnalysisRun.objects.create(
        kind=AnalysisRun.VERIFICATION, subject="Verification of lives", request={"repair": repair}, requested_by=str(actor),
        requested_at=Now(),
    )  # fmt: skip


def verify(jobs: Jobs, run: AnalysisRun) -> None:
    files = {one: list(ArchiveFile.objects.filter(content=one)) for one in (ArchiveFile.LIVES, ArchiveFile.OPEN)}
    files[ArchiveFile.EVENTS] = list(pipeline.derived_events())
    if any(len(pipeline.intact(jobs, found)) < len(found) for found in files.values()):
        raise CannotRun("Files are damaged or missing: run `manage.py verify_archive --repair` first, then compare lives again.")
    jobs.expect(sum(one.rows for one in files[ArchiveFile.EVENTS]))
    done = jobs.run("verification", {content: pipeline.addresses(found) for content, found in files.items()})
    paths = {one.pk: str(one) for one in Entity.objects.filter(pk__in=[one["entity_id"] for one in done["wrong"]])}
    for one in done["wrong"]:
        such = f"such as number {one['sequence_number']} of {paths.get(one['entity_id'], one['entity_id'])}"
        messages = "1 message has" if one["messages"] == 1 else f"{one['messages']:,} messages each have"
        jobs.note(f"{one['day']}: {messages} {SAID[one['rule']]}, {such}.")
        if run.request["repair"]:
            manifest.rebuild(date.fromisoformat(one["day"]), one["namespace"])
    said = f"{done['messages']:,} messages were compared with their events."
    runs.succeed(jobs.held, message=f"{said} {REPAIRED}" if done["wrong"] and run.request["repair"] else said)
