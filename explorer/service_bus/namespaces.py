"""Creating and deleting Service Bus namespaces on the pages that all families share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core import namespaces
from broker_core.common.types import Actor, Behaviour, Family
from explorer.frames.family import NamespacePages


class ServiceBusNamespaces(NamespacePages):
    """Service Bus namespaces on the shared pages."""

    def create(self, values: Mapping[str, Any], actor: Actor) -> namespaces.Namespace:
        options = {"tier": values["tier"], "behaviour": values["behaviour"] or Behaviour.CONVENIENT}
        return namespaces.create_namespace(values["name"], Family.SERVICE_BUS, values["description"], **options, actor=actor)

    def delete(self, namespace: namespaces.Namespace, actor: Actor) -> str:
        namespaces.delete_namespace(namespace.name, actor=actor)
        return f"Deleted the namespace {namespace.name}."
