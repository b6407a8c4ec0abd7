"""Declaring and deleting queues."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import NotAllowed
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Family, HistoryLevel, Right
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.namespaces.protection import record_revisions, require_unprotected
from broker_core.rabbitmq.rules import arguments as checks
from broker_core.rabbitmq.rules import errors, names, table
from broker_core.rabbitmq.rules.arguments import QueueDef
from broker_core.runtime.entity_cache import forget
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import effective, queue_expiry
from .queue_removal import remove_queues
from .vhosts import HeldVhost, changing, hold_vhost, require_vhost, topology_changed


class DeclaredQueue(NamedTuple):
    """messages: ready ones, without unacknowledged ones (RMQ-327). created: whether it did not exist before."""

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
    history_level: HistoryLevel = HistoryLevel.FULL,
    actor: Actor | None = None,
) -> Steps[DeclaredQueue]:
    """Declare a queue; an existing one must be equivalent (RMQ-344 to RMQ-348).

    address:  with an empty path, a name is generated (RMQ-320).
    passive:  only check that it exists and is accessible; other arguments are ignored (RMQ-328).
    owner_id: the declaring connection, which owns the queue if it is exclusive (RMQ-330).
    history_level: of a new queue; not part of RabbitMQ's declaration.
    """
    actor = actor or Actor.local()
    actor.require(Right.BROWSE if passive else Right.MANAGE, address)
    vhost, name = address.namespace, names.clean(address.path)
    if type is not None:
        require_kind("type", type, str)
    if passive:
        found = yield from _find_row(vhost, name)
        if found.id is None or not (yield from _use_by_declaring(found)):
            raise errors.not_found_queue(found.vhost, name)
        return _answer(found, owner_id)
    if exclusive and owner_id is None:
        raise NotAllowed("An exclusive queue belongs to a connection; declare it on a channel.")
    given = _Declaration(name, type, durable, auto_delete, owner_id if exclusive else None, dict(arguments or {}), history_level)
    return (yield from _declare(vhost, given, owner_id, actor))


@use_case
def delete_queue(
    address: EntityAddress,
    *,
    if_unused: bool = False,
    if_empty: bool = False,
    owner_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete a queue with its messages and bindings; nothing is dead-lettered (RMQ-028). Returns how many messages were ready.

    A missing queue is not an error, and returns 0 (RMQ-325). if_unused, if_empty: refuse if it has consumers or ready messages
    (RMQ-326). owner_id: the deleting connection, which may delete its exclusive queues; for connections, quorum queues do not
    support these conditions (RMQ-385).
    """

    def change(held: HeldVhost) -> Steps:
        found = yield from _find_row(held.name, address.path)
        if found.id is None:
            return 0
        require_access(held.name, found, owner_id)
        if owner_id is not None:
            checks.check_queue_deletion(held.name, found.name, found.options["type"], if_unused=if_unused, if_empty=if_empty)
        yield from require_unprotected([found.id])
        yield call("lock_rabbitmq_queue", entity_id=found.id)  # blocks publishers and new consumers
        found = yield from _find_row(held.name, address.path)
        if if_unused and found.consumers:
            raise errors.queue_in_use(held.name, found.name)
        if if_empty and found.ready > 0:
            raise errors.queue_not_empty(held.name, found.name)
        yield from remove_queues(held.id, [found.id], actor)
        forget(address)
        return found.ready

    return (yield from changing(address.namespace, actor, change))


@use_case
def set_status(address: EntityAddress, status: EntityStatus, *, actor: Actor | None = None) -> Steps[None]:
    """Pause or resume publishing to a queue, and deliveries from it (RMQ-929). Consumers stay connected; messages that they hold
    can still be acknowledged. Requires OPERATE. Raises AmqpError (404)."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    require_kind("status", status, EntityStatus)

    def steps() -> Steps[None]:
        held = yield from hold_vhost(address.namespace)
        found = yield from find_queue(held.name, address.path)
        yield call("set_status", entity_id=found.id, status=str(status))
        yield from record_revisions([found.id], actor)
        yield from topology_changed(held.id, queues=[found.id])
        yield from wake([found.id])

    yield Atomically(steps())


def find_queue(vhost: str, name: str) -> Steps:
    """The row of a queue with its counts. Raises AmqpError (404; 530 for the virtual host)."""
    found = yield from _find_row(vhost, name)
    if found.id is None:
        raise errors.not_found_queue(vhost, name)
    return found


def require_access(vhost: str, found: Any, owner_id: int | None) -> None:
    """Check that an exclusive queue belongs to this connection (RMQ-330)."""
    if found.owner_id is not None and found.owner_id != owner_id:
        raise errors.locked_queue(vhost, found.name)


class _Declaration(NamedTuple):
    """A declaration as received. owner_id: of an exclusive queue."""

    name: str
    type: str | None
    durable: bool
    auto_delete: bool
    owner_id: int | None
    arguments: dict[str, Any]
    history_level: HistoryLevel


def _declare(vhost: str, given: _Declaration, connection_id: int | None, actor: Actor) -> Steps[DeclaredQueue]:
    """connection_id: the declaring connection."""
    names.check_new_queue_name(given.name)  # also for an existing queue (RMQ-324), unless the declaration is passive
    while True:
        found = (yield from _find_row(vhost, given.name)) if given.name else None
        if found is not None and found.id is not None and (yield from _use_by_declaring(found)):
            checks.check_equivalent_queue(found.vhost, _stored(found), _redeclared(given))
            return _answer(found, connection_id)
        wanted = _new(vhost, given)
        created = yield from changing(
            vhost, actor, partial(_create, queue=wanted, history_level=given.history_level, actor=actor)
        )
        if created is not None:  # otherwise created concurrently
            return DeclaredQueue(created, 0, 0, True)


def _new(vhost: str, given: _Declaration) -> QueueDef:
    """The validated definition of a new queue."""
    name = given.name or names.generated(names.QUEUE_PREFIX, os.urandom(16))
    type = checks.check_queue(
        vhost,
        name,
        type=given.type,
        durable=given.durable,
        exclusive=given.owner_id is not None,
        auto_delete=given.auto_delete,
        arguments=given.arguments,
    )
    return QueueDef(name, type, given.durable, given.auto_delete, given.owner_id, given.arguments)


def _redeclared(given: _Declaration) -> QueueDef:
    type = checks.queue_type(given.type, given.arguments)
    return QueueDef(given.name, type, given.durable, given.auto_delete, given.owner_id, given.arguments)


def _stored(row: Any) -> QueueDef:
    options = row.options
    arguments = table.decode(options["arguments"])
    return QueueDef(row.name, options["type"], options["durable"], options["auto_delete"], row.owner_id, arguments)


def _create(held: HeldVhost, queue: QueueDef, history_level: HistoryLevel, actor: Actor) -> Steps[EntityAddress | None]:
    """The address of the new queue; None if the name already exists."""
    if queue.owner_id is not None and not (yield call("hold_connection", connection_id=queue.owner_id)):
        raise errors.connection_forced("the connection is closed and owns nothing")
    options = {
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner_id is not None,
        "type": queue.type,
        "arguments": table.encode(queue.arguments, "argument"),
        "had_consumer": False,
        "retroactive_ttl": True,
        "exact_expiry": False,
    }
    found = effective.of_queue(queue.name, options, (yield from effective.policies_of(held.id)))
    columns = effective.queue_columns(options, found)
    as_text = {name: json.dumps(columns[name]) for name in ("options", "effective")}
    settings = entity_columns(Family.RABBITMQ, {"history_level": history_level}) | columns | as_text
    rows = yield call(
        "create_entity",
        **settings | {"owner_id": queue.owner_id},
        namespace_id=held.id,
        path=queue.name,
        kind=str(EntityKind.QUEUE),
        topic_id=None,
    )
    if not rows:
        return None
    yield from record_revisions([rows[0].id], actor)
    yield from topology_changed(held.id, queues=[rows[0].id])
    return EntityAddress(held.name, queue.name)


def _use_by_declaring(found: Any) -> Steps[bool]:
    """Record a declaration, even a passive one, as use of a queue (RMQ-041). Returns False if the queue has expired."""
    if "expires" not in found.effective:
        return True
    return (yield from queue_expiry.use(EntityAddress(found.vhost, found.name))) is not None


def _answer(found: Any, connection_id: int | None) -> DeclaredQueue:
    require_access(found.vhost, found, connection_id)
    return DeclaredQueue(EntityAddress(found.vhost, found.name), found.ready, found.consumers, False)


def _find_row(vhost: str, name: str) -> Steps:
    return require_vhost(vhost, (yield call("find_rabbitmq_queue", vhost=vhost, name=name)))
