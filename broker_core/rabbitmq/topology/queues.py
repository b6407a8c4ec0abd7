"""Declaring and deleting queues."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_core import operations
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
from .queue_removal import Restorable, remove_queues
from .vhosts import LockedVhost, changing, lock_vhost, require_vhost, topology_changed


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
        row = yield from _find_row(vhost, name)
        if row.id is None or not (yield from _use_by_declaring(row)):
            raise errors.not_found_queue(row.vhost, name)
        return _answer(row, owner_id)
    if exclusive and owner_id is None:
        raise NotAllowed("An exclusive queue belongs to a connection; declare it on a channel.")
    declaration = _Declaration(
        name, type, durable, auto_delete, owner_id if exclusive else None, dict(arguments or {}), history_level
    )
    return (yield from _declare(vhost, declaration, owner_id, actor))


@use_case
def delete_queue(
    address: EntityAddress,
    *,
    if_unused: bool = False,
    if_empty: bool = False,
    owner_id: int | None = None,
    operation_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete a queue with its messages and bindings; nothing is dead-lettered (RMQ-028). Returns how many messages were ready.

    A missing queue is not an error, and returns 0 (RMQ-325). if_unused, if_empty: refuse if it has consumers or ready messages
    (RMQ-326). owner_id: the deleting connection, which may delete its exclusive queues; for connections, quorum queues do not
    support these conditions (RMQ-385). operation_id: a new number, under which it can be restored for 30 minutes
    (operations.restore), unless it is exclusive.
    """
    operations.require_operation_id(operation_id)

    def change(host: LockedVhost) -> Steps:
        row = yield from _find_row(host.name, address.path)
        if row.id is None:
            return 0
        require_access(host.name, row, owner_id)
        if owner_id is not None:
            checks.check_queue_deletion(host.name, row.name, row.options["type"], if_unused=if_unused, if_empty=if_empty)
        yield from require_unprotected([row.id])
        yield call("lock_rabbitmq_queue", entity_id=row.id)  # blocks publishers and new consumers
        row = yield from _find_row(host.name, address.path)
        if if_unused and row.consumers:
            raise errors.queue_in_use(host.name, row.name)
        if if_empty and row.ready > 0:
            raise errors.queue_not_empty(host.name, row.name)
        restorable = None
        if operation_id is not None and row.owner_id is None:
            restorable = Restorable(EntityAddress(host.name, row.name), operation_id)
        yield from remove_queues(host.id, [row.id], actor, restorable=restorable)
        forget(address)
        return row.ready

    return (yield from changing(address.namespace, actor, change))


@use_case
def set_status(address: EntityAddress, status: EntityStatus, *, actor: Actor | None = None) -> Steps[None]:
    """Pause or resume publishing to a queue, and deliveries from it (RMQ-929). Consumers stay connected; messages that they hold
    can still be acknowledged. Requires OPERATE. Raises AmqpError (404)."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    require_kind("status", status, EntityStatus)

    def steps() -> Steps[None]:
        host = yield from lock_vhost(address.namespace)
        row = yield from find_queue(host.name, address.path)
        yield call("set_status", entity_id=row.id, status=str(status))
        yield from record_revisions([row.id], actor)
        yield from topology_changed(host.id, queues=[row.id])
        yield from wake([row.id])

    yield Atomically(steps())


def find_queue(vhost: str, name: str) -> Steps:
    """The row of a queue with its counts. Raises AmqpError (404; 530 for the virtual host)."""
    row = yield from _find_row(vhost, name)
    if row.id is None:
        raise errors.not_found_queue(vhost, name)
    return row


def require_access(vhost: str, row: Any, owner_id: int | None) -> None:
    """Check that an exclusive queue belongs to this connection (RMQ-330)."""
    if row.owner_id is not None and row.owner_id != owner_id:
        raise errors.locked_queue(vhost, row.name)


class _Declaration(NamedTuple):
    """A declaration as received. owner_id: of an exclusive queue."""

    name: str
    type: str | None
    durable: bool
    auto_delete: bool
    owner_id: int | None
    arguments: dict[str, Any]
    history_level: HistoryLevel


def _declare(vhost: str, declaration: _Declaration, connection_id: int | None, actor: Actor) -> Steps[DeclaredQueue]:
    """connection_id: the declaring connection."""
    names.check_new_queue_name(declaration.name)  # also for an existing queue (RMQ-324), unless the declaration is passive
    while True:
        row = (yield from _find_row(vhost, declaration.name)) if declaration.name else None
        if row is not None and row.id is not None and (yield from _use_by_declaring(row)):
            checks.check_equivalent_queue(row.vhost, _stored(row), _redeclared(declaration))
            return _answer(row, connection_id)
        queue = _new(vhost, declaration)
        created = yield from changing(
            vhost, actor, partial(_create, queue=queue, history_level=declaration.history_level, actor=actor)
        )
        if created is not None:  # otherwise created concurrently
            return DeclaredQueue(created, 0, 0, True)


def _new(vhost: str, declaration: _Declaration) -> QueueDef:
    """The validated definition of a new queue."""
    name = declaration.name or names.generated(names.QUEUE_PREFIX, os.urandom(16))
    type = checks.check_queue(
        vhost,
        name,
        type=declaration.type,
        durable=declaration.durable,
        exclusive=declaration.owner_id is not None,
        auto_delete=declaration.auto_delete,
        arguments=declaration.arguments,
    )
    return QueueDef(name, type, declaration.durable, declaration.auto_delete, declaration.owner_id, declaration.arguments)


def _redeclared(declaration: _Declaration) -> QueueDef:
    type = checks.queue_type(declaration.type, declaration.arguments)
    return QueueDef(
        declaration.name, type, declaration.durable, declaration.auto_delete, declaration.owner_id, declaration.arguments
    )


def _stored(row: Any) -> QueueDef:
    options = row.options
    arguments = table.decode(options["arguments"])
    return QueueDef(row.name, options["type"], options["durable"], options["auto_delete"], row.owner_id, arguments)


def _create(host: LockedVhost, queue: QueueDef, history_level: HistoryLevel, actor: Actor) -> Steps[EntityAddress | None]:
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
    effective_arguments = effective.of_queue(queue.name, options, (yield from effective.policies_of(host.id)))
    columns = effective.queue_columns(options, effective_arguments)
    as_text = {name: json.dumps(columns[name]) for name in ("options", "effective")}
    settings = entity_columns(Family.RABBITMQ, {"history_level": history_level}) | columns | as_text
    rows = yield call(
        "create_entity",
        **settings | {"owner_id": queue.owner_id},
        namespace_id=host.id,
        path=queue.name,
        kind=str(EntityKind.QUEUE),
        topic_id=None,
    )
    if not rows:
        return None
    yield from record_revisions([rows[0].id], actor)
    yield from topology_changed(host.id, queues=[rows[0].id])
    return EntityAddress(host.name, queue.name)


def _use_by_declaring(row: Any) -> Steps[bool]:
    """Record a declaration, even a passive one, as use of a queue (RMQ-041). Returns False if the queue has expired."""
    if "expires" not in row.effective:
        return True
    return (yield from queue_expiry.use(EntityAddress(row.vhost, row.name))) is not None


def _answer(row: Any, connection_id: int | None) -> DeclaredQueue:
    require_access(row.vhost, row, connection_id)
    return DeclaredQueue(EntityAddress(row.vhost, row.name), row.ready, row.consumers, False)


def _find_row(vhost: str, name: str) -> Steps:
    return require_vhost(vhost, (yield call("find_rabbitmq_queue", vhost=vhost, name=name)))
