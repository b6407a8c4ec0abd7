"""manage.py import_history FILE NAMESPACE/QUEUE [--create]: imports the history of another system into the archive."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core import namespaces
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.history import importing
from broker_core.models import Entity
from broker_core.service_bus import entities


class Command(BaseCommand):
    help = "Import ended messages from a CSV or Parquet file into the archive of a queue, so that analyses include them."

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, help=f"its columns: {', '.join(importing.COLUMNS)} (docs/history.md)")
        parser.add_argument("queue", help="the namespace and queue, as in shop/orders")
        parser.add_argument("--create", action="store_true", help="create a missing namespace and queue, of Service Bus")

    def handle(self, *, file, queue, create, **options):
        namespace, _, path = queue.partition("/")
        try:
            if create:
                namespaces.ensure_namespace(namespace)
                if not self._found(namespace, path):
                    entities.create_queue(EntityAddress(namespace, path))
            entity = self._found(namespace, path)
            if entity is None:
                raise CommandError(f"There is no {queue}. Check its name, or add --create.")
            done = importing.import_history(file, entity)
        except (BrokerError, importing.ImportRefused, OSError) as problem:
            raise CommandError(f"Nothing was imported. {problem}") from None
        self.stdout.write(f"{done.messages:,} messages were added to the history of {entity}, in {done.added.files:,} files.")

    @staticmethod
    def _found(namespace: str, path: str) -> Entity | None:
        return Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path, deleted_at=None).first()
