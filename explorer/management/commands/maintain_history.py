"""manage.py maintain_history: derives, counts and merges the archived history at once, as the nightly task does."""

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.types import Actor
from explorer.analysis.running import execution, submission
from explorer.models import AnalysisRun


class Command(BaseCommand):
    help = "Derive lives from the archived events, count those of past days, and merge small files. Uses Spark."

    def handle(self, **options):
        run = submission.maintain(actor=Actor.local(), submit=False)
        if run is None:
            self.stdout.write("There is nothing to derive or count, or another run does it.")
            return
        execution.execute(run.pk)
        run.refresh_from_db()
        if run.state != AnalysisRun.SUCCEEDED:
            raise CommandError(run.message)
        self.stdout.write("\n".join([*run.notes, run.message]))
