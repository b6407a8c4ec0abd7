"""manage.py connection_string NAMESPACE: prints the connection string of a namespace."""

from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from broker_core import namespaces
from broker_core.common.errors import BrokerError, EntityNotFound
from broker_core.common.types import EntityAddress, Family
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
            namespace_name = namespaces.get_namespace(access_policy.namespace).name
        except BrokerError as exc:
            raise CommandError(_explained(exc, namespace, policy)) from exc
        entity_path = f";EntityPath={access_policy.path}" if access_policy.path else ""
        self.stdout.write(
            f"Endpoint={_endpoint(namespace_name)};SharedAccessKeyName={access_policy.name};SharedAccessKey={access_policy.primary_key}{entity_path}"
        )
        self.stderr.write(
            "This connection string serves the HTTP API (SharedAccessSignature tokens over http). "
            "The official SDKs use AMQP, which is not supported yet."
        )


def _endpoint(namespace: str) -> str:
    """The HTTP front end's address for a namespace, below the Django setting VITRINE_PUBLIC_URL or, without it, localhost."""
    local = f"http://localhost:{getattr(settings, 'PORT', 8000)}{getattr(settings, 'PATH_PREFIX', '')}"
    parts = urlsplit(getattr(settings, "VITRINE_PUBLIC_URL", "") or local)
    return f"sb://{parts.netloc}{parts.path.rstrip('/')}/servicebus/{namespace}/"


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
