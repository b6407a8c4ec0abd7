"""manage.py rebuild_lives: repairs the time-to-live in archived lives of schema version 1."""

from django.core.management.base import BaseCommand

from broker_core.history.rebuilding import rebuild_lives


class Command(BaseCommand):
    help = (
        "Write archived lives of schema version 1 again. Their time-to-live is unknown for most messages; it is taken from the "
        "archived event of the message's sending where that states one, and otherwise left out."
    )

    def handle(self, **options):
        done = rebuild_lives()
        if not done.files:
            self.stdout.write("No lives of schema version 1 are archived.")
            return
        self.stdout.write(
            f"{done.lives:,} lives in {done.files:,} files were written again; the time-to-live of {done.known:,} is known."
        )
