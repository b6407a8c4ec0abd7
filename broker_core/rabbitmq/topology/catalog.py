"""What a virtual host has, for pages and for export. Looking needs the right BROWSE, and renews nothing (RMQ-906)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.types import Actor, EntityAddress, HistoryLevel, Right
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.errors import not_found_exchange, not_found_queue
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange. arguments: as given, with table.Typed where Python has no type. effective: what is in force, with the names of
    the policies. bindings: how many there are from it; of the default exchange None, it is bound to every queue. created_at: the
    database's time, None for the default exchange."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]
    effective: Mapping[str, Any]
    bindings: int | None
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredBinding:
    """A binding. destination_type: "queue" or "exchange". arguments_hash: empty without arguments."""

    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: Mapping[str, Any]
    arguments_hash: str


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue. arguments: as given. effective: what is in force, arguments and policies together (RMQ-205). owner_id: the
    connection that an exclusive one belongs to. messages: ready ones. created_at: the database's time."""

    id: int
    address: EntityAddress
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: Mapping[str, Any]
    effective: Mapping[str, Any]
    options: Mapping[str, Any]
    owner_id: int | None
    history_level: HistoryLevel
    messages: int
    consumers: int
    created_at: datetime

    @property
    def name(self) -> str:
        return self.address.path


DEFAULT_EXCHANGE = StoredExchange("", "direct", True, False, False, {}, {}, None, None)


@use_case
def list_exchanges(vhost: str, *, actor: Actor | None = None) -> Steps:
    """The exchanges of a virtual host by name, the default one first."""
    _require(actor, vhost)
    rows = yield call("list_exchanges", vhost=vhost, name=None)
    return [DEFAULT_EXCHANGE] + [_exchange(row) for row in rows]


@use_case
def get_exchange(vhost: str, name: str, *, actor: Actor | None = None) -> Steps:
    """One exchange; its name is compared exactly. Raises AmqpError (404)."""
    _require(actor, vhost)
    rows = yield call("list_exchanges", vhost=vhost, name=name)
    if not rows and name:
        raise not_found_exchange(vhost, name)
    return _exchange(rows[0]) if rows else DEFAULT_EXCHANGE


@use_case
def list_bindings(
    vhost: str,
    *,
    source: str | None = None,
    queue: str | None = None,
    exchange: str | None = None,
    actor: Actor | None = None,
) -> Steps[list[StoredBinding]]:
    """The bindings of a virtual host, or those from an exchange, to a queue, to an exchange. Those that every queue has from the
    default exchange are not among them."""
    _require(actor, vhost)
    rows = yield call("list_bindings", vhost=vhost, source=source, queue=queue, exchange=exchange)
    return [_binding(row) for row in rows]


@use_case
def list_queues(vhost: str, *, actor: Actor | None = None) -> Steps[list[StoredQueue]]:
    """The queues of a virtual host by name, with their counts."""
    _require(actor, vhost)
    rows = yield call("list_rabbitmq_queues", vhost=vhost, name=None)
    return [_queue(row) for row in rows]


@use_case
def get_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps[StoredQueue]:
    """One queue; its name is compared exactly. Raises AmqpError (404)."""
    _require(actor, address)
    rows = yield call("list_rabbitmq_queues", vhost=address.namespace, name=address.path)
    if not rows:
        raise not_found_queue(address.namespace, address.path)
    return _queue(rows[0])


def _require(actor: Actor | None, what: EntityAddress | str) -> None:
    (actor or Actor.local()).require(Right.BROWSE, what)


def _exchange(row: Any) -> StoredExchange:
    return StoredExchange(
        row.name,
        row.type,
        row.durable,
        row.auto_delete,
        row.internal,
        table.decode(row.arguments),
        row.effective,
        row.bindings,
        row.created_at,
    )


def _binding(row: Any) -> StoredBinding:
    to_queue = row.queue is not None
    destination, kind = (row.queue, "queue") if to_queue else (row.exchange, "exchange")
    return StoredBinding(row.source, destination, kind, row.routing_key, table.decode(row.arguments), row.arguments_hash)


def _queue(row: Any) -> StoredQueue:
    options = row.options
    return StoredQueue(
        row.id,
        EntityAddress(row.vhost, row.name),
        options["type"],
        options["durable"],
        options["auto_delete"],
        options["exclusive"],
        table.decode(options["arguments"]),
        row.effective,
        options,
        row.owner_id,
        HistoryLevel(row.history_level),
        row.ready,
        row.consumers,
        row.created_at,
    )
