"""manage.py demo: the demonstration's programs, until stopped. `make up` runs it unless VITRINE_DEMO=0."""

import signal
from random import Random

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from broker_core import namespaces
from explorer.demo import pictures, rabbitmq, stage
from explorer.demo.runner import PauseButton, Runner
from explorer.demo.traffic import Program, Traffic


def of_other_families(dice: Random) -> dict[str, Program]:
    """The programs of the storage account and the virtual host, where these are: people may have deleted them."""
    there = {namespace.name for namespace in namespaces.list_namespaces()}
    return {
        name: program
        for place, programs in ((pictures.ACCOUNT, pictures.programs), (rabbitmq.NAME, rabbitmq.programs))
        if place in there
        for name, program in programs(place, dice).items()
    }


class Command(BaseCommand):
    help = "Run the demo: programs of a web shop that send and receive messages in Python and over HTTP."

    def add_arguments(self, parser: CommandParser) -> None:
        here = f"http://127.0.0.1:{settings.PORT}{settings.PATH_PREFIX}"
        parser.add_argument("--site", default=here, help="base URL of the HTTP front end (default: %(default)s)")

    def handle(self, site: str, **options) -> None:
        stage.set_up_once()
        programs = Traffic(stage.NAMESPACE, site, Random()).programs() | of_other_families(Random())
        runner = Runner(programs, is_paused=PauseButton())

        def stop(number: int, frame) -> None:
            runner.stopping = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        runner.run()
