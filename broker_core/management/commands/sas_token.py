"""manage.py sas_token URL: prints a token for an address of the Service Bus REST API."""

import time
from urllib.parse import unquote, urlsplit

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas

LONGEST = 86_400  # seconds


class Command(BaseCommand):
    help = "Print the Authorization header's value for an address of the REST API, such as http://localhost:8000/servicebus/demo."

    def add_arguments(self, parser):
        parser.add_argument("url", help="of a namespace, or of a queue or topic in it")
        parser.add_argument(
            "--namespace", help="whose key signs it, for an address without /servicebus/NAMESPACE (http://localhost:5300/orders)"
        )
        parser.add_argument(
            "--policy", default=shared_access.ROOT_POLICY, help="its policy in the namespace (default: %(default)s)"
        )
        parser.add_argument("--seconds", type=int, default=3600, help="for how long it is valid (default: %(default)s)")

    def handle(self, *, url, namespace, policy, seconds, **options):
        namespace = namespace or _namespace_in(url)
        if not urlsplit(url).netloc or not namespace:
            raise CommandError(
                f"{url!r} is not an address of the REST API: it must be http://HOST/servicebus/NAMESPACE/..., "
                "or any other with --namespace NAMESPACE."
            )
        if not 1 <= seconds <= LONGEST:
            raise CommandError(f"--seconds must be between 1 and {LONGEST:,}.")
        try:
            key = shared_access.get_policy(namespace, policy).primary_key
        except BrokerError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(sas.sign(url, policy, key, int(time.time()) + seconds))


def _namespace_in(url: str) -> str:
    """The namespace in an address of the site; empty: there is none."""
    _, _, rest = urlsplit(url).path.partition("/servicebus/")
    return unquote(rest.partition("/")[0])
