"""manage.py import_vitrine FILE: imports a file written by export_vitrine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError, EntityExists
from broker_core.export_format.lines import lines_of
from broker_core.transfer.importing import import_
from broker_core.transfer.updating import Result, apply_import, preview_import


class Command(BaseCommand):
    help = (
        "Import the namespaces in a file written by export_vitrine. A namespace that already exists is an error, or gets the "
        "configuration of the file with --update. Either everything is stored or nothing."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", help="the file, or - for standard input")
        parser.add_argument("--as", dest="rename", metavar="NAME", help="the new name, for a file of one namespace")
        parser.add_argument(
            "--update",
            action="store_true",
            help="create what is missing in namespaces that exist, and change what differs; nothing is deleted "
            "(the file must be without their messages: export_vitrine --without-messages)",
        )
        parser.add_argument("--dry-run", action="store_true", help="with --update: print the changes, and store nothing")

    def handle(self, *, file, rename, update, dry_run, **options):
        if dry_run and not update:
            raise CommandError("--dry-run needs --update.")
        with _opened(file) as source:
            if dry_run:
                self.stdout.write(f"{preview_import(lines_of(source), name=rename)}\nNothing was stored.")
            elif update:
                done = apply_import(lines_of(source), name=rename)
                counts = ", ".join(
                    f"{sum(namespace.count(r) for namespace in done.namespaces):,} {r}" for r in (Result.CREATED, Result.CHANGED)
                )
                self.stdout.write(f"{done}\nimported {', '.join(namespace.name for namespace in done.namespaces)}: {counts}")
            else:
                done = import_(lines_of(source), name=rename)
                names = ", ".join(done["namespaces"])
                self.stdout.write(f"imported {names}: {counted(done, 'entities')}, {counted(done, 'messages')}")


@contextmanager
def _opened(file: str) -> Iterator:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
            yield source
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}.") from exc
    except EntityExists as exc:
        raise CommandError(
            f"The {exc.what} '{exc.entity}' already exists. Import it with another name (--as NAME), or change it to what the "
            "file says (--update). Nothing was stored."
        ) from exc
    except BrokerError as exc:
        raise CommandError(f"{str(exc).removesuffix('.')}. Nothing was stored.") from exc


def counted(totals: dict, plural: str) -> str:
    singular = {"entities": "entity", "messages": "message"}
    return f"{totals[plural]:,} {singular[plural] if totals[plural] == 1 else plural}"
