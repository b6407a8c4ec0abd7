"""manage.py verify_archive [--deep] [--lives] [--repair]: compares files with the manifest, and lives with events."""

from collections.abc import Sequence

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models.functions import Now

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor
from broker_core.history import archive, cleanup, manifest, verification
from broker_core.models import ArchiveFile, ArchiveUnusedFile
from explorer.analysis.running import commands
from explorer.analysis.running.verification import request_verification

LOCK_SECONDS = 60.0
AGAIN = {
    ArchiveFile.SETTINGS: "will be written again, with the settings still in the database, by the next nightly task",
    ArchiveFile.LIVES: "will be derived again from the events of the day by the next analysis",
    **dict.fromkeys(ArchiveFile.ROLLED, "will be counted again by the next nightly task"),
}
NOT_AGAIN = "was removed: the lives of its day were deleted, so that they cannot be counted again"


class Command(BaseCommand):
    help = "Check that each file of the archive exists and has the size, columns and rows that the manifest says."

    def add_arguments(self, parser):
        parser.add_argument("--deep", action="store_true", help="also read each file whole and compare its checksum")
        parser.add_argument(
            "--lives",
            action="store_true",
            help="if all are intact, also compare lives and deliveries with events. Uses Spark",
        )
        parser.add_argument(
            "--repair",
            action="store_true",
            help="write damaged files of events again, from those still in the database; have the others made again from events",
        )

    def handle(self, *, deep, lives, repair, **options):
        damages = list(verification.damages(verification.finished_files(), deep=deep))
        for damage in damages:
            self.stdout.write(str(damage))
        if not damages:
            self.stdout.write("The archive is intact.")
            if lives:
                self._compare_lives(repair)
            return
        if not repair:
            raise CommandError(f"{len(damages):,} damaged files. --repair makes them again where the events still exist.")
        files = [damage.file for damage in damages]
        for file in files:
            if file.content == ArchiveFile.OPEN:
                self.stdout.write(f"{file.path} will be made again from the events of seven days by the next analysis.")
            if file.content in AGAIN:
                self._make_again(file)
        self._repair_events([file for file in files if file.content == ArchiveFile.EVENTS])

    def _compare_lives(self, repair: bool) -> None:
        run = commands.executed(request_verification(repair=repair, actor=Actor.local()))
        self.stdout.write("\n".join([*run.notes, run.message]))
        if run.notes and not repair:
            raise CommandError("Lives differ from their events. --repair has those of these days derived again.")

    def _make_again(self, file: ArchiveFile) -> None:
        """Remove a file from the manifest, and have it made again."""
        outcome = AGAIN[file.content]
        with transaction.atomic():
            if file.content == ArchiveFile.LIVES:
                manifest.rebuild(file.day, file.namespace_id)
            elif file.content in ArchiveFile.ROLLED:
                outcome = outcome if manifest.count_again(file.day, file.namespace_id) else NOT_AGAIN
            ArchiveUnusedFile.objects.update_or_create(path=file.path, defaults={"since": Now()})
            file.delete()
        self.stdout.write(f"{file.path} {outcome}.")

    def _repair_events(self, files: Sequence[ArchiveFile]) -> None:
        slices = sorted({file.slice_id for file in files if file.slice_id is not None})
        merged = {(file.day, file.namespace_id): file for file in files if file.slices}
        problems = [self._repair(slice_id) for slice_id in slices]
        problems += [self._repair_merged(merged[key]) for key in sorted(merged)]
        if any(problems):
            raise CommandError("\n".join(filter(None, problems)))

    def _repair(self, slice_id: int) -> str | None:
        """Write a slice again. Returns why that was not possible, or None."""
        try:
            events = archive.write_again(slice_id, wait_seconds=LOCK_SECONDS)
        except BrokerError as problem:
            return str(problem)
        self.stdout.write(f"Slice {slice_id} was written again with {events:,} events.")
        return None

    def _repair_merged(self, file: ArchiveFile) -> str | None:
        try:
            rows = cleanup.write_again(file)
        except BrokerError as problem:
            return str(problem)
        self.stdout.write(f"{file.path} was written again with {rows:,} rows.")
        return None
