"""Creating and deleting storage accounts on the pages that all families share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core import namespaces, queue_storage
from broker_core.common.types import Actor
from explorer.frames.family import NamespacePages


class StorageAccounts(NamespacePages):
    """Storage accounts on the shared pages."""

    def create(self, values: Mapping[str, Any], actor: Actor) -> Any:
        return queue_storage.create_account(values["name"], values["description"], actor=actor)

    def delete(self, namespace: namespaces.Namespace, actor: Actor) -> str:
        """Delete an account with its queues. Returns the result in words."""
        deleted = queue_storage.delete_account(namespace.name, actor=actor)
        return f"Deleted the storage account {namespace.name}: {deleted.queues:,} queues, {deleted.messages:,} messages."

    def contents(self, namespace: namespaces.Namespace, actor: Actor) -> Any:
        return queue_storage.preview_delete_account(namespace.name, actor=actor)
