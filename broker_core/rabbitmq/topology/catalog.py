"""Read-only queries on the objects of a virtual host, for the explorer and exports. They need BROWSE and do not count as use
(RMQ-906)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.types import Actor, EntityAddress, HistoryLevel, Right
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.errors import not_found_exchange, not_found_queue
from broker_core.rabbitmq.rules.exchanges import BindingDef, ExchangeDef
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange. arguments: as declared, with table.Typed for types that Python lacks. effective: effective settings, with
    the names of the policies. bindings: number of bindings from it; None for the default exchange. created_at: the
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

    def definition(self, alternate_exchange: str | None = None) -> ExchangeDef:
        return ExchangeDef(
            self.name, self.type, self.durable, self.auto_delete, self.internal, self.arguments, alternate_exchange
        )


@dataclass(frozen=True, slots=True)
class StoredBinding:
    """A binding. destination_type: "queue" or "exchange". arguments_hash: empty without arguments."""

    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: Mapping[str, Any]
    arguments_hash: str

    @property
    def definition(self) -> BindingDef:
        to_queue = self.destination_type == "queue"
        return BindingDef(self.source, self.destination, to_queue, self.routing_key, self.arguments)


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue. arguments: as declared. effective: effective settings from arguments and policies (RMQ-205). owner_id: the
    connection that owns an exclusive queue. messages: ready ones. created_at: the database's time."""

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
    """The exchanges of a virtual host by name, the default exchange first."""
    _require(actor, vhost)
    rows = yield call("list_exchanges", vhost=vhost, name=None)
    return [DEFAULT_EXCHANGE] + [_exchange(row) for row in rows]


@use_case
def get_exchange(vhost: str, name: str, *, actor: Actor | None = None) -> Steps:
    """An exchange by its exact name. Raises AmqpError (404)."""
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
    """The bindings of a virtual host, or those from an exchange, to a queue, to an exchange. Implicit bindings to the default
    exchange are not included."""
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
    """A queue by its exact name. Raises AmqpError (404)."""
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
