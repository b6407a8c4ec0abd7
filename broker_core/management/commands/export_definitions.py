"""manage.py export_definitions: writes virtual hosts as RabbitMQ's definitions.json to standard output."""

import json

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.rabbitmq.definitions import export_definitions


class Command(BaseCommand):
    help = (
        "Write exchanges, queues, bindings, policies and operator policies of all virtual hosts, or of one, as RabbitMQ's "
        "definitions.json. Messages are not included; use export_vitrine for those."
    )

    def add_arguments(self, parser):
        parser.add_argument("--vhost", help="export only this virtual host, in the single-virtual-host format")

    def handle(self, *, vhost, **options):
        try:
            document = export_definitions(vhost)
        except BrokerError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(json.dumps(document, indent=1, ensure_ascii=False))
