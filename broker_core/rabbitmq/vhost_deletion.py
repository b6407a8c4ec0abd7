"""Deleting a virtual host with all in it, and what that would be (RMQ-396)."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core import namespaces
from broker_core.common.types import Actor, Family, Right
from broker_core.namespaces.namespaces import contents, hold_whole
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
    """What goes with a virtual host. exchanges: those that were declared in it, beside its own seven. messages: also those that
    are unacknowledged. connections: open ones, which are closed."""

    queues: int
    messages: int
    exchanges: int
    bindings: int
    policies: int
    connections: int


@use_case
def preview_delete_vhost(name: str, *, actor: Actor | None = None) -> Steps[VhostContents]:
    """What would go with a virtual host now, as VhostContents. Needs MANAGE, as deleting it does."""
    (actor or Actor.local()).require(Right.MANAGE, name)
    host = yield from get_vhost.steps(name, actor=actor)
    return (yield from _contents(host.id, host.name, actor))


@use_case
def delete_vhost(name: str, *, actor: Actor | None = None) -> Steps:
    """Delete a virtual host with its queues, their messages, its exchanges, bindings and policies; its connections are closed,
    and their clients told why (RMQ-396). Nothing is dead-lettered. Returns what went, as VhostContents.

    The history of its queues stays readable until its retention is over: see namespaces.delete_namespace. Raises EntityNotFound,
    NotAllowed for a namespace of another family.
    """
    (actor or Actor.local()).require(Right.MANAGE, name)

    def steps() -> Steps:
        host = yield from hold_whole(name, Family.RABBITMQ)  # from here on nobody connects to it
        found = yield from _contents(host.id, host.name, actor)
        ended = yield call("connections_to", namespace_id=host.id)
        for row in ended:
            yield from ending.end_held(row.id, host.name)
        yield from remove_queues(host.id, (yield from contents(host.id)).ids)
        yield call("empty_vhost", namespace_id=host.id)
        yield from namespaces.delete_namespace.steps(name, actor=actor)
        return found, [row.id for row in ended]

    found, ended = yield Atomically(steps())
    compiled.forget(name)
    for connection_id in ended:
        yield call("tell_connection", connection_id=connection_id, what=f"closed vhost '{name}' is deleted")
    return found


def _contents(namespace_id: int, name: str, actor: Actor | None) -> Steps[VhostContents]:
    has = yield from contents(namespace_id)
    counts = yield from browsing.vhost_counts.steps(name, actor=actor)
    own = counts.exchanges - len(STORED) - 1  # and the default one
    return VhostContents(has.entities, has.messages, own, counts.bindings, counts.policies, counts.connections)
