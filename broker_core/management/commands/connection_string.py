"""manage.py connection_string NAMESPACE: prints the connection string of a namespace."""

from django.core.management.base import BaseCommand, CommandError

from broker_core import namespaces
from broker_core.common.errors import BrokerError, EntityNotFound
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus.connection_strings import connection_string
from broker_core.service_bus.entities import shared_access


class Command(BaseCommand):
    help = "Print the connection string of a namespace, or of a queue or topic that has its own policy."

    def add_arguments(self, parser):
        parser.add_argument("namespace", help="a namespace, or namespace/queue or namespace/topic for an entity policy")
        parser.add_argument("--policy", default=shared_access.ROOT_POLICY, help="the shared-access policy (default: %(default)s)")

    def handle(self, *, namespace, policy, **options):
        try:
            scope = EntityAddress.parse(namespace).main if "/" in namespace else namespace
            access_policy = shared_access.get_policy(scope, policy)
        except BrokerError as exc:
            raise CommandError(_explained(exc, namespace, policy)) from exc
        self.stdout.write(connection_string(access_policy, access_policy.primary_key))
        self.stderr.write(
            "This connection string serves the HTTP API (SharedAccessSignature tokens over http). "
            "The official SDKs use AMQP, which is not supported yet."
        )


def _explained(exc: BrokerError, scope: str, policy: str) -> str:
    if not isinstance(exc, EntityNotFound):
        return str(exc)
    try:
        policies = ", ".join(
            p.name for p in shared_access.list_policies(EntityAddress.parse(scope).main if "/" in scope else scope)
        )
    except BrokerError:
        policies = ""
    if policies:
        return f"'{scope}' has no policy {policy!r}; available: {policies}."
    of_service_bus = [n for n in namespaces.list_namespaces() if n.family is Family.SERVICE_BUS and not n.is_system]
    names = ", ".join(n.name for n in of_service_bus) or "none"
    return f"'{scope}' is not a Service Bus namespace. Only Service Bus namespaces have connection strings. Available: {names}."
