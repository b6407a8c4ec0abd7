"""manage.py import_vitrine FILE: imports a file written by export_vitrine."""

import sys
from contextlib import nullcontext
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.transfer.importing import import_
from broker_core.transfer.lines import lines_of


class Command(BaseCommand):
    help = (
        "Import the namespaces in a file written by export_vitrine. A namespace that already exists is an error. "
        "Either everything is stored or nothing."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", help="the file, or - for standard input")
        parser.add_argument("--as", dest="rename", metavar="NAME", help="the new name, for a file of one namespace")

    def handle(self, *, file, rename, **options):
        try:
            with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
                done = import_(lines_of(source), name=rename)
        except OSError as exc:
            raise CommandError(f"{file} cannot be read: {exc.strerror}.") from exc
        except BrokerError as exc:
            raise CommandError(f"{str(exc).removesuffix('.')}. Nothing was stored.") from exc
        self.stdout.write(f"imported {', '.join(done['namespaces'])}: {counted(done, 'entities')}, {counted(done, 'messages')}")


def counted(totals: dict, plural: str) -> str:
    singular = {"entities": "entity", "messages": "message"}
    return f"{totals[plural]:,} {singular[plural] if totals[plural] == 1 else plural}"
