"""manage.py connection_string NAME: prints what the clients of a namespace, storage account or virtual host need to connect."""

from django.core.management.base import BaseCommand, CommandError

from broker_core import namespaces
from broker_core.common.connection_strings import ConnectionString
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress
from broker_core.namespaces import Namespace


class Command(BaseCommand):
    help = "Print the connection strings of a namespace, a storage account or a virtual host, one for each kind of client."

    def add_arguments(self, parser):
        parser.add_argument("name", help="its name; namespace/queue or namespace/topic for a Service Bus entity's own policy")
        parser.add_argument("--policy", help="the shared access policy of Service Bus (default: RootManageSharedAccessKey)")
        parser.add_argument("--client", help="print only the one for this client, such as sdk or site, and nothing else")

    def handle(self, *, name: str, policy: str | None, client: str | None, **options):
        try:
            namespace, path = _found(name)
            strings = definition_of(namespace.family).connection_strings(namespace.name, path, policy, actor=Actor.local())
        except BrokerError as exc:
            raise CommandError(_explained(exc, name)) from exc
        if client is None:
            for string in strings:
                self.stdout.write(f"{string.client} (--client {string.name}){_state(string)}:")
                self.stdout.write(f"  {string.text}")
            return
        chosen = next((string for string in strings if string.name == client), None)
        if chosen is None:
            raise CommandError(f"--client must be one of {', '.join(string.name for string in strings)}, not {client!r}.")
        self.stdout.write(chosen.text)
        if chosen.why_not:
            self.stderr.write(f"This connection string cannot be used now: {chosen.why_not}.")


def _state(string: ConnectionString) -> str:
    return f", {string.why_not}" if string.why_not else ""


def _found(name: str) -> tuple[Namespace, str | None]:
    """The namespace of this name, or of the entity that it names, with the path of that."""
    try:
        return namespaces.get_namespace(name), None
    except (EntityNotFound, InvalidArgument):
        if "/" not in name:
            raise
    address = EntityAddress.parse(name).main
    return namespaces.get_namespace(address.namespace), address.path


def _explained(exc: BrokerError, name: str) -> str:
    if not isinstance(exc, EntityNotFound):
        return str(exc)
    known = ", ".join(namespace.name for namespace in namespaces.list_namespaces() if not namespace.is_system) or "none"
    return f"{exc} Namespaces, storage accounts and virtual hosts: {known}."
