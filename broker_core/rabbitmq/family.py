"""What RabbitMQ provides to code that handles entities of any family."""

from __future__ import annotations

from datetime import datetime, timedelta

from broker_core.common.family import FamilyDefinition
from broker_core.common.types import Actor, Family, Tier
from broker_core.namespaces import Namespace
from broker_core.rabbitmq.rules.names import check_new_queue_name, check_vhost_name

from . import transfer
from .connections import channels, connections
from .messages import tidying
from .rules import display_state, explaining
from .topology import queue_expiry
from .topology.queues import declare_queue, delete_queue
from .topology.vhosts import create_vhost
from .vhost_deletion import delete_vhost


def _life_ends_at(own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
    """The expiry of the message or by the queue's TTL, whichever is earlier (RMQ-008, RMQ-902)."""
    by_queue = None if default is None else enqueued_at + default
    return min((at for at in (own, by_queue) if at is not None), default=None)


def _create_vhost(name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
    return create_vhost(name, description, actor=actor)


RABBITMQ = FamilyDefinition(
    family=Family.RABBITMQ,
    title="RabbitMQ",
    container_noun="virtual host",
    check_namespace_name=check_vhost_name,
    display_state=display_state.display_state,
    next_change_at=display_state.next_change_at,
    why_not=explaining.why_not,
    life_ends_at=_life_ends_at,
    has_expired=lambda entity: entity.expired,
    expire=tidying.expire,
    delete_idle=queue_expiry.delete_idle,
    create_namespace=_create_vhost,
    delete_namespace=delete_vhost,
    queue_noun="RabbitMQ queue",
    check_queue_name=check_new_queue_name,
    create_queue=declare_queue,
    delete_entity=delete_queue,
    admin="broker_core.rabbitmq.admin",
    paths_have_case=True,
    transfer=transfer,
    clock_stepped=lambda namespace: channels.end_overdue.steps(),
    sweeps=connections.SWEEPS,
    lock_column="owner_id",
    delivery_timeout_ms=display_state.DEFAULT_TIMEOUT,
)
