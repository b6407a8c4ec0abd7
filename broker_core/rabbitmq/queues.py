"""Queues: declared, declared again, deleted (RMQ 1.3 to 1.5)."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_core.broker import shared
from broker_core.entities.kinds import as_parameters
from broker_core.semantics.types import Actor, EntityAddress, EntityKind, Family, QueueSettings, Right
from broker_core.store.driver import Atomically, Steps, use_case
from broker_core.store.statements import call

from .exchanges import delete_idle
from .vhosts import HeldVhost, changing, hold_vhost, topology_changed

CLASSIC = "classic"


class DeclaredQueue(NamedTuple):
    """messages: those that are ready, unacknowledged ones are not counted (RMQ 1.3). created: whether it was not there before."""

    address: EntityAddress
    messages: int
    consumers: int
    created: bool


@use_case
def declare_queue(
    address: EntityAddress,
    *,
    type: str | None = None,
    passive: bool = False,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: Mapping[str, Any] | None = None,
    owner_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Declare a queue; one that is there must be equivalent (RMQ 1.5). Returns DeclaredQueue.

    address:  an empty path asks for a name, `amq.gen-` and 22 characters.
    owner_id: the connection that declares, which an exclusive queue belongs to.
    """
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)
    options = {
        "durable": durable,
        "auto_delete": auto_delete,
        "exclusive": exclusive,
        "type": type or CLASSIC,
        "arguments": {},
        "had_consumer": False,
        "retroactive_ttl": True,
        "exact_expiry": False,
    }
    name = address.path or _new_name()
    address = EntityAddress(address.namespace, name)

    def steps():
        held = yield from hold_vhost(address.namespace)
        settings = as_parameters(QueueSettings()) | {
            "family": str(Family.RABBITMQ),
            "options": json.dumps(options),
            "effective": "{}",
            "owner_id": owner_id if exclusive else None,
        }
        rows = yield call("create_entity", namespace_id=held.id, path=name, kind=str(EntityKind.QUEUE), topic_id=None, **settings)
        if rows:
            yield from topology_changed(held.id)
        return bool(rows)

    created = yield Atomically(steps())
    (row,) = yield call("find_rabbitmq_queue", vhost=address.namespace, name=name)
    return DeclaredQueue(EntityAddress(row.vhost, name), row.ready, row.consumers, created)


@use_case
def delete_queue(
    address: EntityAddress,
    *,
    if_unused: bool = False,
    if_empty: bool = False,
    owner_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete a queue with its messages and bindings; nothing is dead-lettered (RMQ-028). Returns how many were ready.

    Deleting one that is not there succeeds, with 0 (RMQ 1.3).
    """

    def change(held: HeldVhost) -> Steps:
        (row,) = yield call("find_rabbitmq_queue", vhost=held.name, name=address.path)
        if row.id is None:
            return 0
        yield call("lock_rabbitmq_queue", entity_id=row.id)
        (row,) = yield call("find_rabbitmq_queue", vhost=held.name, name=address.path)
        yield from remove(held.id, [row.id])
        shared.forget(address)
        return row.ready

    return (yield from changing(address.namespace, actor, change))


def remove(namespace_id: int, entity_ids: Sequence[int]) -> Steps:
    """Delete queues of a virtual host that the transaction holds; their bindings go, and the exchanges that live by these."""
    sources = yield call("unbind_queues", entity_ids=list(entity_ids))
    yield call("delete_entities", entity_ids=list(entity_ids))
    yield from delete_idle([row.source_id for row in sources])
    yield from topology_changed(namespace_id)


def _new_name() -> str:
    return "amq.gen-" + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
