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
    files = {content: list(ArchiveFile.objects.filter(content=content)) for content in (ArchiveFile.LIVES, ArchiveFile.OPEN)}
    files[ArchiveFile.EVENTS] = list(pipeline.derived_events())
    if any(len(pipeline.intact(jobs, files_of_content)) < len(files_of_content) for files_of_content in files.values()):
        raise CannotRun("Files are damaged or missing: run `manage.py verify_archive --repair` first, then compare lives again.")
    jobs.expect(sum(file.rows for file in files[ArchiveFile.EVENTS]))
    done = jobs.run(
        "verification", {content: pipeline.addresses(files_of_content) for content, files_of_content in files.items()}
    )
    paths = {
        entity.pk: str(entity) for entity in Entity.objects.filter(pk__in=[mistake["entity_id"] for mistake in done["wrong"]])
    }
    for mistake in done["wrong"]:
        such = f"such as number {mistake['sequence_number']} of {paths.get(mistake['entity_id'], mistake['entity_id'])}"
        messages = "1 message has" if mistake["messages"] == 1 else f"{mistake['messages']:,} messages each have"
        jobs.note(f"{mistake['day']}: {messages} {SAID[mistake['rule']]}, {such}.")
        if run.request["repair"]:
            manifest.rebuild(date.fromisoformat(mistake["day"]), mistake["namespace"])
    message = f"{done['messages']:,} messages were compared with their events."
    runs.succeed(jobs.claim, message=f"{message} {REPAIRED}" if done["wrong"] and run.request["repair"] else message)
