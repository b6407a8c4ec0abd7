"""manage.py export_vitrine [NAMESPACE ...]: writes configuration and messages as JSON Lines to standard output."""

import sys

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.transfer.exporting import export

from .import_vitrine import counted


class Command(BaseCommand):
    help = (
        "Write namespaces with their entities, rules, policies and messages to standard output, one JSON object per line, "
        "for import_vitrine. Each entity is a consistent snapshot. Locks and history are not included."
    )

    def add_arguments(self, parser):
        parser.add_argument("namespaces", nargs="*", help="namespaces to export (default: all except Vitrine's own)")
        parser.add_argument(
            "--without-messages", action="store_true", help="only the configuration, as import_vitrine --update needs it"
        )
        parser.add_argument("--with-keys", action="store_true", help="include the keys of policies; keep the file secret")

    def handle(self, *, namespaces, without_messages, with_keys, **options):
        out = sys.stdout.buffer
        try:
            totals = export(
                namespaces or None,
                lambda line: out.write(line.encode()),
                with_keys=with_keys,
                with_messages=not without_messages,
            )
            out.flush()
        except BrokerError as exc:
            raise CommandError(str(exc)) from exc
        except OSError as exc:
            raise CommandError(f"The export could not be written: {exc.strerror}.") from exc
        self.stderr.write(f"exported {counted(totals, 'entities')}, {counted(totals, 'messages')}")
