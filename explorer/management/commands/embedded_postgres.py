"""manage.py embedded_postgres: starts or stops the database server in the data folder, or prints its URL."""

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from explorer.site.embedded_postgres import server


class Command(BaseCommand):
    help = "Start or stop the PostgreSQL server in the data folder, or print its DATABASE_URL. `make up` does both."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["start", "stop", "url"])

    def handle(self, action: str, **options) -> None:
        if settings.DATABASE_URL:
            raise CommandError("DATABASE_URL names a different server; the embedded server is not used.")
        folder = settings.EMBEDDED_POSTGRES
        try:
            if action == "stop":
                self.stderr.write("stopped" if server.stop(folder) else "was not running")
                return
            if action == "start":
                server.ensure_running(folder)
        except server.CannotStart as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(server.url(folder))
