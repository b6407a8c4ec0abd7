"""What RabbitMQ provides to code that handles entities of any family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.connection_strings import ConnectionString
from broker_core.common.family import FamilyDefinition, WellKnown
from broker_core.common.types import Actor, EntityAddress, Family, Tier
from broker_core.namespaces import Namespace
from broker_core.rabbitmq.rules.names import check_new_queue_name, check_vhost_name
from broker_core.store.driver import Steps

from . import transfer
from .connection_strings import connection_strings
from .connections import channels, connections
from .messages import tidying
from .messages.delivering import requeue_held
from .policies import apply_policies
from .rules import display_state, explaining
from .rules.display_state import DisplayState
from .topology import queue_expiry
from .topology.queues import declare_queue, delete_queue
from .topology.vhosts import create_vhost, lock_vhost, topology_changed
from .vhost_deletion import delete_vhost


class RabbitMQ(FamilyDefinition):
    """RabbitMQ for code that handles entities of any family."""

    family = Family.RABBITMQ
    title = "RabbitMQ"
    container_noun = "virtual host"
    queue_noun = "RabbitMQ queue"
    well_known = WellKnown("/", "For clients that name no virtual host")
    admin = "broker_core.rabbitmq.admin"
    transfer = transfer
    sweeps = connections.SWEEPS
    delivery_timeout_ms = display_state.DEFAULT_TIMEOUT
    lock_column = "owner_id"
    paths_have_case = True

    def check_namespace_name(self, name: str) -> str:
        return check_vhost_name(name)

    def create_namespace(self, name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
        return create_vhost(name, description, actor=actor)

    def delete_namespace(self, name: str, *, actor: Actor) -> Any:
        return delete_vhost(name, actor=actor)

    def connection_strings(
        self, namespace: str, path: str | None = None, policy: str | None = None, *, is_hidden: bool = False, actor: Actor
    ) -> list[ConnectionString]:
        return connection_strings(namespace)

    def clock_stepped(self, namespace: str) -> Steps:
        return (yield from channels.end_overdue.steps())

    def check_queue_name(self, name: str) -> Any:
        return check_new_queue_name(name)

    def create_queue(self, address: EntityAddress, *, actor: Actor | None = None) -> Any:
        return declare_queue(address, actor=actor)

    def entities_restored(self, namespace: str, rows: Sequence[Any], bindings: Sequence[int], actor: Actor) -> Steps[None]:
        """Held messages are ready again, each as a failed delivery."""
        for row in rows:
            yield from requeue_held(row.entity_id, actor)
        host = yield from lock_vhost(namespace)
        yield from topology_changed(host.id, queues=[row.entity_id for row in rows], bindings=bindings)
        yield from apply_policies(host, actor)  # those of now

    def delete_entity(self, address: EntityAddress, *, actor: Actor) -> Any:
        return delete_queue(address, actor=actor)

    def delete_idle(self, row: Any) -> Steps[bool]:
        return (yield from queue_expiry.delete_idle(row))

    def display_state(self, row: Any, now: datetime) -> DisplayState:
        return display_state.display_state(row, now)

    def next_change_at(self, row: Any, now: datetime) -> datetime | None:
        return display_state.next_change_at(row, now)

    def why_not(self, row: Any, now: datetime) -> str | None:
        return explaining.why_not(row, now)

    def life_ends_at(self, own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
        """The expiry of the message or by the queue's TTL, whichever is earlier (RMQ-008, RMQ-902)."""
        by_queue = None if default is None else enqueued_at + default
        return min((at for at in (own, by_queue) if at is not None), default=None)

    def expire(self, row: Any, deadline: float, pause: Callable[[float], None]) -> Steps[int]:
        return (yield from tidying.expire(row, deadline, pause))
