"""Deleting a virtual host with its contents, and previewing that (RMQ-396)."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core import namespaces
from broker_core.common.types import Actor, Family, Right
from broker_core.namespaces.namespaces import contents, hold_whole
from broker_core.namespaces.protection import require_unprotected
from broker_core.rabbitmq.topology.queue_removal import remove_queues
from broker_core.rabbitmq.topology.vhosts import STORED, get_vhost
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .connections import ending
from .messages import browsing
from .topology import compiled


@dataclass(frozen=True, slots=True)
class VhostContents:
    """The contents deleted with a virtual host. exchanges: without the predeclared ones. messages: including unacknowledged
    ones. connections: open ones, which are closed."""

    queues: int
    messages: int
    exchanges: int
    bindings: int
    policies: int
    connections: int


@use_case(namespace="name")
def preview_delete_vhost(name: str, *, actor: Actor | None = None) -> Steps[VhostContents]:
    """The contents that would be deleted with a virtual host now. Needs MANAGE."""
    (actor or Actor.local()).require(Right.MANAGE, name)
    host = yield from get_vhost.steps(name, actor=actor)
    return (yield from _contents(host.id, host.name, actor))


@use_case(namespace="name")
def delete_vhost(name: str, *, actor: Actor | None = None) -> Steps:
    """Delete a virtual host with its queues, messages, exchanges, bindings and policies; its connections are closed, and their
    clients notified (RMQ-396). Nothing is dead-lettered. Returns the deleted VhostContents.

    The history of its queues stays readable until its retention ends: see namespaces.delete_namespace. Raises EntityNotFound,
    NotAllowed for a namespace of another family.
    """
    (actor or Actor.local()).require(Right.MANAGE, name)

    def steps() -> Steps:
        host = yield from hold_whole(name, Family.RABBITMQ)  # prevents new connections
        deleted = yield from _contents(host.id, host.name, actor)
        yield from require_unprotected((yield from contents(host.id)).ids)
        ended = yield call("connections_to", namespace_id=host.id)
        for row in ended:
            yield from ending.end_in_transaction(row.id, host.name)
        yield from remove_queues(host.id, (yield from contents(host.id)).ids, actor)
        yield call("empty_vhost", namespace_id=host.id)
        yield from namespaces.delete_namespace.steps(name, actor=actor)
        return deleted, [row.id for row in ended]

    deleted, ended = yield Atomically(steps())
    compiled.forget(name)
    for connection_id in ended:
        yield call("notify_connection", connection_id=connection_id, notice=f"closed vhost '{name}' is deleted")
    return deleted


def _contents(namespace_id: int, name: str, actor: Actor | None) -> Steps[VhostContents]:
    has = yield from contents(namespace_id)
    counts = yield from browsing.vhost_counts.steps(name, actor=actor)
    own = counts.exchanges - len(STORED) - 1  # without the default exchange
    return VhostContents(has.entities, has.messages, own, counts.bindings, counts.policies, counts.connections)
