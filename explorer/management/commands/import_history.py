"""manage.py import_history FILE NAMESPACE/QUEUE [--create]: imports the history of another system into the archive."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor
from explorer.analysis.jobs.message_files import COLUMNS
from explorer.analysis.running import commands
from explorer.analysis.running.additions import request_import


class Command(BaseCommand):
    help = "Import ended messages from a CSV or Parquet file into the archive of a queue, for analyses. Uses Spark."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, help=f"its columns: {', '.join(COLUMNS)} (docs/history.md)")
        parser.add_argument("queue", help="the namespace and queue, as in shop/orders")
        parser.add_argument("--create", action="store_true", help="create a missing queue, and its namespace (of Service Bus)")

    def handle(self, *, file, queue, create, **options):
        namespace, _, path = queue.partition("/")
        if not file.is_file():
            raise CommandError(f"Nothing was imported. There is no file {file}.")
        try:
            entity = commands.queue_of(namespace, path, create=create)
            run = commands.executed(request_import(file, entity, actor=Actor.local()))
        except (BrokerError, CommandError) as problem:
            raise CommandError(f"Nothing was imported. {problem}") from None
        self.stdout.write(run.message)
