"""manage.py mark_deploy: marks that something was deployed now."""

from django.core.management.base import BaseCommand, CommandError, CommandParser

from broker_core import namespaces
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from explorer import sandbox_names
from explorer.charts import changes


class Command(BaseCommand):
    help = (
        "Mark that something was deployed now: charts mark the instant, and the report "
        '"Which change or deploy began this?" considers it.'
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help='what was deployed, such as "checkout 1.4.2"')
        parser.add_argument("--namespace", action="append", help="that it uses; can be repeated (default: all but sandboxes)")

    def handle(self, name: str, namespace: list[str] | None, **options) -> None:
        rows = [row for row in namespaces.list_namespaces() if not row.is_system]
        known = {row.name.lower(): row.name for row in rows}
        missing = [requested for requested in namespace or () if requested.lower() not in known]
        if missing:
            raise CommandError(f"There is no namespace {missing[0]}. There are: {', '.join(sorted(known.values()))}.")
        chosen = (
            [known[requested.lower()] for requested in namespace]
            if namespace
            else sorted(row.name for row in sandbox_names.without(rows))
        )
        try:
            changes.mark_deploy(name, chosen, actor=Actor("process", "mark_deploy", Right.ALL))
        except InvalidArgument as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(f"Marked the deploy of {name.strip()} in {', '.join(chosen)}.")
