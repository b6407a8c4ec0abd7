"""The Service Bus entry of the family registry."""

from __future__ import annotations

from datetime import datetime, timedelta

from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.family import FamilyDefinition
from broker_core.common.types import Actor, EntityKind, Family, Tier
from broker_core.namespaces import Namespace, create_namespace, delete_namespace
from broker_core.service_bus.entities.kinds import from_row
from broker_core.service_bus.rules.entity_settings import check_namespace_name, check_path, check_tier
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import sweeps, transfer
from .configured_limits import limits
from .entities import create_queue, delete_entity, shared_access
from .entities.lifecycle import delete_idle
from .messages import tidying
from .rules import display_state, explaining


def _life_ends_at(own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
    """The entity's default applies to messages without a time-to-live of their own (SB-021)."""
    return own if own is not None or default is None else enqueued_at + default


def _add_root_policy(namespace_id: int) -> Steps:
    """Give a new namespace the policy RootManageSharedAccessKey with all rights."""
    yield from shared_access.insert(namespace_id, None, shared_access.ROOT_POLICY, send=True, listen=True, manage=True)


def _check_tier(namespace: Namespace, tier: Tier) -> Steps[None]:
    allowed = limits(tier)
    for row in (yield call("list_entities", namespace=namespace.name, family=str(Family.SERVICE_BUS), kind=None, topic_id=None)):
        entity = from_row(row)
        try:
            if entity.kind is not EntityKind.QUEUE and not allowed.topics:
                raise InvalidArgument(str(entity.kind), "is not available in this tier")
            check_tier(entity.settings, allowed)
        except InvalidArgument as exc:
            raise NotAllowed(
                f"The namespace '{namespace.name}' cannot be {tier}: '{entity.address}' does not fit. {exc}"
            ) from exc


def _create_namespace(name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
    return create_namespace(name, description, tier=tier, actor=actor)


SERVICE_BUS = FamilyDefinition(
    family=Family.SERVICE_BUS,
    title="Service Bus",
    container_noun="namespace",
    check_namespace_name=check_namespace_name,
    display_state=display_state.display_state,
    next_change_at=display_state.next_change_at,
    why_not=explaining.why_not,
    life_ends_at=_life_ends_at,
    has_expired=lambda entity: entity.expired,
    expire=tidying.expire,
    delete_idle=delete_idle,
    create_namespace=_create_namespace,
    delete_namespace=delete_namespace,
    queue_noun="queue",
    check_queue_name=check_path,
    create_queue=create_queue,
    delete_entity=delete_entity,
    admin="broker_core.service_bus.admin",
    transfer=transfer,
    namespace_created=_add_root_policy,
    check_tier=_check_tier,
    end_locks=tidying.end_locks,
    activate=tidying.activate_all,
    forward=lambda namespace: sweeps.forward_messages.steps(namespace=namespace, seconds_at_most=1.0),
    sweeps=sweeps.SWEEPS,
)
