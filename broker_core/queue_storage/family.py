"""The Queue Storage entry of the family registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.connection_strings import HIDDEN, ConnectionString
from broker_core.common.family import FamilyDefinition, WellKnown
from broker_core.common.types import Actor, EntityAddress, Family, Tier
from broker_core.namespaces import Namespace
from broker_core.queue_storage.rules.names import check_account_name, check_queue_name
from broker_core.store.driver import Steps

from . import accounts, tidying, transfer
from .connection_strings import connection_strings
from .queues import create_account, create_queue, delete_account, delete_queue, entities_restored
from .rules import display_state, explaining, shared_key
from .rules.display_state import DisplayState


class QueueStorage(FamilyDefinition):
    """Queue Storage for code that handles entities of any family."""

    family = Family.QUEUE_STORAGE
    title = "Queue Storage"
    container_noun = "storage account"
    queue_noun = "storage queue"
    well_known = WellKnown(shared_key.PUBLISHED_ACCOUNT, "For clients of Azurite", shared_key.PUBLISHED_KEY)
    admin = "broker_core.queue_storage.admin"
    transfer = transfer
    lock_column = "visible_at"

    def check_namespace_name(self, name: str) -> str:
        return check_account_name(name)

    def create_namespace(self, name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
        return create_account(name, description, actor=actor)

    def delete_namespace(self, name: str, *, actor: Actor) -> Any:
        return delete_account(name, actor=actor)

    def namespace_created(self, namespace_id: int, name: str) -> Steps[None]:
        """Give it two keys."""
        key = self.well_known.key if name == self.well_known.name else accounts.new_key()
        yield from accounts.insert(namespace_id, key, accounts.new_key())

    def connection_strings(
        self, namespace: str, path: str | None = None, policy: str | None = None, *, is_hidden: bool = False, actor: Actor
    ) -> list[ConnectionString]:
        return connection_strings(namespace, HIDDEN if is_hidden else accounts.get_keys(namespace, actor=actor).primary_key)

    def check_queue_name(self, name: str) -> Any:
        return check_queue_name(name)

    def create_queue(self, address: EntityAddress, *, actor: Actor | None = None) -> Any:
        return create_queue(address, actor=actor)

    def entities_restored(self, namespace: str, rows: Sequence[Any], bindings: Sequence[int], actor: Actor) -> Steps[None]:
        yield from entities_restored(rows, actor)

    def delete_entity(self, address: EntityAddress, *, actor: Actor) -> Any:
        return delete_queue(address, actor=actor)

    def display_state(self, row: Any, now: datetime) -> DisplayState:
        return display_state.display_state(row, now)

    def next_change_at(self, row: Any, now: datetime) -> datetime | None:
        return display_state.next_change_at(row, now)

    def why_not(self, row: Any, now: datetime) -> str | None:
        return explaining.why_not(row, now)

    def life_ends_at(self, own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
        """A queue has no default time-to-live: a message's own expiry decides (QS-070)."""
        return own

    def has_expired(self, row: Any) -> bool:
        return tidying.is_due(row)

    def expire(self, row: Any, deadline: float, pause: Callable[[float], None]) -> Steps[int]:
        return (yield from tidying.expire(row, deadline, pause))
