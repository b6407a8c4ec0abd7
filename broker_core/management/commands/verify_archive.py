"""manage.py verify_archive [--deep] [--repair]: compares the archive's files with the manifest."""

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.history import archive, verification

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
        for damage in found:
            if damage.file.slice_id is None:
                damage.file.delete()
                self.stdout.write(f"{damage.file.path} will be written again when its day is next rolled up.")
        slices = sorted({damage.file.slice_id for damage in found if damage.file.slice_id is not None})
        problems = [problem for slice_id in slices if (problem := self._repair(slice_id))]
        if problems:
            raise CommandError("\n".join(problems))

    def _repair(self, slice_id: int) -> str | None:
        """Write a slice again. Returns why that was not possible, or None."""
        try:
            events = archive.write_again(slice_id, wait_seconds=LOCK_SECONDS)
        except BrokerError as problem:
            return str(problem)
        self.stdout.write(f"Slice {slice_id} was written again with {events:,} events.")
        return None
