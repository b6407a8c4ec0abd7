"""manage.py roll_up_history: rolls up the archived history of the days before today, as the nightly task does."""

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.types import Actor
from explorer.analysis.running import execution, submission
from explorer.models import AnalysisRun


class Command(BaseCommand):
    help = "Count the archived history of past days by hour, so that it need not be read again. Uses Spark."

    def handle(self, **options):
        run = submission.roll_up(actor=Actor.local(), submit=False)
        if run is None:
            self.stdout.write("No day has to be rolled up.")
            return
        execution.execute(run.pk)
        run.refresh_from_db()
        if run.state != AnalysisRun.SUCCEEDED:
            raise CommandError(run.message)
        self.stdout.write(run.message)
