"""manage.py demo: runs the demo's programs until stopped. `make up` runs it unless VITRINE_DEMO=0."""

import signal
from random import Random

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from explorer.demo.faults import RunningFaults
from explorer.demo.parts import programs
from explorer.demo.runner import PauseButton, Runner
from explorer.demo.set_up import set_up_once


class Command(BaseCommand):
    help = "Run the demo: programs that send and receive in Python and over HTTP."

    def add_arguments(self, parser: CommandParser) -> None:
        own_site = f"http://127.0.0.1:{settings.PORT}{settings.PATH_PREFIX}"
        parser.add_argument("--site", default=own_site, help="base URL of the HTTP front end (default: %(default)s)")

    def handle(self, site: str, **options) -> None:
        set_up_once()
        runner = Runner(programs(Random(), site), is_paused=PauseButton(), faults=RunningFaults())

        def stop(number: int, frame) -> None:
            runner.stopping = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        runner.run()
