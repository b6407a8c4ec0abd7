"""What RabbitMQ provides to code that handles entities of any family."""

from __future__ import annotations

from datetime import datetime, timedelta

from broker_core.common.family import FamilyDefinition
from broker_core.common.types import Family
from broker_core.rabbitmq.rules.names import check_vhost_name

from . import transfer
from .messages import tidying
from .rules import display_state, explaining
from .topology import queue_expiry
from .vhost_deletion import delete_vhost


def _life_ends_at(own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
    """The expiry of the message or by the queue's TTL, whichever is earlier (RMQ-008, RMQ-902)."""
    by_queue = None if default is None else enqueued_at + default
    return min((at for at in (own, by_queue) if at is not None), default=None)


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
    delete_namespace=delete_vhost,
    transfer=transfer,
    delivery_timeout_ms=display_state.DEFAULT_TIMEOUT,
)
