"""The Service Bus entry of the family registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.connection_strings import HIDDEN, ConnectionString
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.family import FamilyDefinition, WellKnown
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Tier
from broker_core.namespaces import Namespace, create_namespace, delete_namespace
from broker_core.service_bus.entities.kinds import from_row
from broker_core.service_bus.rules.entity_settings import check_namespace_name, check_path, check_tier
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import sweeps, transfer
from .configured_limits import limits
from .connection_strings import connection_strings
from .entities import create_queue, delete_entity, shared_access
from .entities.lifecycle import delete_idle, entities_restored
from .messages import tidying
from .rules import display_state, explaining, sas
from .rules.display_state import DisplayState


class ServiceBus(FamilyDefinition):
    """Service Bus for code that handles entities of any family."""

    family = Family.SERVICE_BUS
    title = "Service Bus"
    container_noun = "namespace"
    queue_noun = "queue"
    well_known = WellKnown(sas.PUBLISHED_NAMESPACE, "For clients of the Service Bus emulator", sas.PUBLISHED_KEY)
    admin = "broker_core.service_bus.admin"
    transfer = transfer
    sweeps = sweeps.SWEEPS

    def check_namespace_name(self, name: str) -> str:
        return check_namespace_name(name)

    def create_namespace(self, name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
        return create_namespace(name, Family.SERVICE_BUS, description, tier=tier, actor=actor)

    def delete_namespace(self, name: str, *, actor: Actor) -> Any:
        return delete_namespace(name, actor=actor)

    def namespace_created(self, namespace_id: int, name: str) -> Steps:
        """Give it the policy RootManageSharedAccessKey with all rights."""
        key = self.well_known.key if name == self.well_known.name else None
        yield from shared_access.insert(namespace_id, None, shared_access.ROOT_POLICY, key, send=True, listen=True, manage=True)

    def connection_strings(
        self, namespace: str, path: str | None = None, policy: str | None = None, *, is_hidden: bool = False, actor: Actor
    ) -> list[ConnectionString]:
        if is_hidden:
            return connection_strings(namespace, path, policy or shared_access.ROOT_POLICY, HIDDEN)
        stored = shared_access.policy_for_clients(EntityAddress(namespace, path) if path else namespace, policy, actor=actor)
        return connection_strings(namespace, path, stored.name, stored.primary_key)

    def check_tier(self, namespace: Namespace, tier: Tier) -> Steps[None]:
        allowed, family = limits(tier), str(Family.SERVICE_BUS)
        for row in (yield call("list_entities", namespace=namespace.name, family=family, kind=None, topic_id=None)):
            entity = from_row(row)
            try:
                if entity.kind is not EntityKind.QUEUE and not allowed.topics:
                    raise InvalidArgument(str(entity.kind), "is not available in this tier")
                check_tier(entity.settings, allowed)
            except InvalidArgument as exc:
                raise NotAllowed(
                    f"The namespace '{namespace.name}' cannot be {tier}: '{entity.address}' does not fit. {exc}"
                ) from exc

    def check_queue_name(self, name: str) -> Any:
        return check_path(name)

    def create_queue(self, address: EntityAddress, *, actor: Actor | None = None) -> Any:
        return create_queue(address, actor=actor)

    def entities_restored(self, namespace: str, rows: Sequence[Any], bindings: Sequence[int], actor: Actor) -> Steps[None]:
        yield from entities_restored(rows, actor)

    def delete_entity(self, address: EntityAddress, *, actor: Actor) -> Any:
        return delete_entity(address, actor=actor)

    def delete_idle(self, row: Any) -> Steps[bool]:
        return (yield from delete_idle(row))

    def display_state(self, row: Any, now: datetime) -> DisplayState:
        return display_state.display_state(row, now)

    def next_change_at(self, row: Any, now: datetime) -> datetime | None:
        return display_state.next_change_at(row, now)

    def why_not(self, row: Any, now: datetime) -> str | None:
        return explaining.why_not(row, now)

    def life_ends_at(self, own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
        """The entity's default applies to messages without a time-to-live of their own (SB-021)."""
        return own if own is not None or default is None else enqueued_at + default

    def expire(self, row: Any, deadline: float, pause: Callable[[float], None]) -> Steps[int]:
        return (yield from tidying.expire(row, deadline, pause))

    def end_locks(self, row: Any, deadline: float) -> Steps[int]:
        return (yield from tidying.end_locks(row, deadline))

    def activate(self, row: Any, deadline: float) -> Steps[int]:
        return (yield from tidying.activate_all(row, deadline))

    def forward(self, namespace: str) -> Steps[dict[str, int]]:
        return (yield from sweeps.forward_messages.steps(namespace=namespace, seconds_at_most=1.0))
