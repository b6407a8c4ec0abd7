"""manage.py verify_archive [--deep] [--repair]: compares the archive's files with the manifest."""

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.history import archive, compaction, verification
from broker_core.models import ArchiveFile, ArchiveRollup

LOCK_SECONDS = 60.0


class Command(BaseCommand):
    help = "Check that each file of the archive exists and has the size, columns and rows that the manifest says."

    def add_arguments(self, parser):
        parser.add_argument("--deep", action="store_true", help="also read each file whole and compare its checksum")
        parser.add_argument(
            "--repair", action="store_true", help="write the slices of damaged files again, from the events still in the database"
        )

    def handle(self, *, deep, repair, **options):
        found = list(verification.damages(verification.finished_files(), deep=deep))
        for damage in found:
            self.stdout.write(str(damage))
        if not found:
            self.stdout.write("The archive is intact.")
            return
        if not repair:
            raise CommandError(f"{len(found):,} damaged files. --repair writes their slices again where the events still exist.")
        files = [damage.file for damage in found]
        for file in files:
            if isinstance(file, ArchiveRollup):
                file.delete()
                self.stdout.write(f"{file.path} will be written again when its day is next rolled up.")
            elif file.content == ArchiveFile.SETTINGS:
                file.delete()
                self.stdout.write(
                    f"{file.path} will be written again, with the settings still in the database, by compact_archive."
                )
        slices = sorted({file.slice_id for file in files if file.slice_id is not None})
        compacted = {
            (file.content != ArchiveFile.EVENTS, file.content, file.day, file.namespace_id): file  # lives are derived from events
            for file in files
            if isinstance(file, ArchiveFile) and file.slices
        }
        problems = [self._repair(slice_id) for slice_id in slices]
        problems += [self._repair_compacted(compacted[key]) for key in sorted(compacted)]
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

    def _repair_compacted(self, file: ArchiveFile) -> str | None:
        try:
            rows = compaction.write_again(file)
        except BrokerError as problem:
            return str(problem)
        self.stdout.write(f"{file.path} was written again with {rows:,} rows.")
        return None
