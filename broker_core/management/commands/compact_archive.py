"""manage.py compact_archive: merges the archive's small files of past days, as the nightly task does."""

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import ServerBusy
from broker_core.history import compaction


class Command(BaseCommand):
    help = "Merge the archive's files of past days to one a day, namespace and content. Nothing else has to stop for it."

    def handle(self, **options):
        try:
            done = compaction.compact_archive()
        except ServerBusy as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(f"{done.files:,} files with {done.rows:,} rows became {done.into:,}.")
        if done.changed:
            self.stdout.write(f"{done.changed:,} days were changed meanwhile; run the command again.")
        if done.damaged:
            raise CommandError("\n".join([*done.damaged, "Run `manage.py verify_archive --repair`, then this command again."]))
