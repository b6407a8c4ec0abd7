"""manage.py maintain_history: derives, counts and merges the archived history at once, as the nightly task does."""

from django.core.management.base import BaseCommand

from broker_core.common.types import Actor
from explorer.analysis.running import commands, submission


class Command(BaseCommand):
    help = "Derive lives from the archived events, count those of past days, and merge small files. Uses Spark."

    def handle(self, **options):
        run = submission.maintain(actor=Actor.local(), submit=False)
        if run is None:
            self.stdout.write("There is nothing to derive or count, or another run does it.")
            return
        commands.executed(run)
        self.stdout.write("\n".join([*run.notes, run.message]))
