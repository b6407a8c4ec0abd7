"""manage.py up: runs all parts of Vitrine until Ctrl-C. `make up` installs the requirements first."""

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from explorer.site.supervisor import folder, port
from explorer.site.supervisor.up import CannotRun, Up


class Command(BaseCommand):
    help = "Run the database, web server, listener, workers, beat and the demo until Ctrl-C."

    def handle(self, **options) -> None:
        try:
            Up(settings.PORT).run()
        except (folder.Taken, port.PortTaken, CannotRun) as problem:
            raise CommandError(str(problem)) from problem
