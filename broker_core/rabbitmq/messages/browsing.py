"""Read-only queries on a virtual host for the explorer: messages with their metadata, consumers, connections, unacknowledged
counts.

Browsing does not reset a queue's expiry and does not mark messages as redelivered (RMQ-906).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from broker_core import reads
from broker_core.common.arguments import whole_numbers
from broker_core.common.errors import EntityNotFound
from broker_core.common.explanations import QueuePosition
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.rules import explaining, table
from broker_core.rabbitmq.rules.display_state import DEFAULT_TIMEOUT
from broker_core.rabbitmq.topology import catalog, compiled
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

HEAD_CAP = 10_000  # messages read per queue, from its head
MOST_CONSUMERS = 1_000
MOST_CONNECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Metadata of a message: the exchange it was published to, its expiration as published, its deaths as stored, newest
    first.

    redelivered: whether it was delivered before. connection: the name of the connection that holds it; None if it is ready.
    """

    exchange: str
    routing_key: str
    expiration: str | None
    deaths: Any
    redelivered: bool
    connection_id: int | None
    connection: str | None


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The head of a queue. scanned: number of messages read; capped: there are more.

    behind_the_head: expired messages behind a message that has not expired (RMQ-013); at_the_head: expired messages ahead of
    it.
    head: the first deliverable message; None if there is none among those read.
    expires_at: when the queue is deleted unless it is used before; None: never, or not while it has a consumer (RMQ-041).
    owner: the name of the connection that owns an exclusive queue.
    died: those of the messages read that were dead-lettered before they arrived here.
    """

    scanned: int
    capped: bool
    behind_the_head: int
    at_the_head: int
    head: int | None
    expires_at: datetime | None
    owner: str | None
    died: int


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A consumer. order: its position among the consumers of its queue, from 1. actor: whose connection it is."""

    id: int
    tag: str
    queue: EntityAddress
    connection_id: int
    connection: str
    channel: int
    no_ack: bool
    exclusive: bool
    priority: int
    prefetch: int
    arguments: Mapping[str, Any]
    began_at: datetime
    order: int
    actor: str


@dataclass(frozen=True, slots=True)
class UnackedInQueue:
    """The unacknowledged messages of a connection in one queue. at_least: not all messages of the queue were read."""

    queue: EntityAddress
    connection_id: int
    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A connection. opened_at, now: by the virtual host's clock; lease_until: real time. actor: whose it is.

    lease_left: how long its process is considered alive without renewing its lease; negative once the lease has ended.
    owned: the exclusive queues that are deleted with it, the first twenty by name.
    """

    id: int
    name: str
    opened_at: datetime
    epoch: int
    process: str
    started_at: datetime
    lease_until: datetime
    lease_left: timedelta
    consumers: int
    owned: tuple[str, ...]
    actor: str
    vhost: str
    now: datetime


@dataclass(frozen=True, slots=True)
class VhostCounts:
    """The number of objects in a virtual host. exchanges: including the default exchange, which is not stored."""

    exchanges: int
    bindings: int
    policies: int
    connections: int
    consumers: int


@use_case(namespace=WHOLE_DATABASE)
def message_facts(entity_id: int, numbers: Iterable[int], *, actor: Actor | None = None) -> Steps:
    """MessageFacts of these messages by sequence number, without messages that are no longer in the queue."""
    _require(actor, f"entity {entity_id}")
    rows = yield call("browse_message_facts", entity_id=entity_id, numbers=whole_numbers(numbers))
    return {
        row.sequence_number: MessageFacts(
            row.exchange or "", row.routing_key or "", row.expiration, row.deaths, row.redelivered, row.owner_id, row.connection
        )
        for row in rows
    }


@use_case(namespace=WHOLE_DATABASE)
def queue_head(entity_id: int, *, actor: Actor | None = None) -> Steps[QueueHead]:
    """The QueueHead of a queue: the first deliverable message and the expired messages around it."""
    _require(actor, f"entity {entity_id}")
    (row,) = yield call("browse_queue_head", entity_id=entity_id, cap=HEAD_CAP)
    return QueueHead(
        row.scanned, row.scanned >= HEAD_CAP, row.behind_the_head, row.at_the_head, row.head, row.expires_at, row.owner,
        row.died,
    )  # fmt: skip


@use_case
def consumers(vhost: str, queue: str | None = None, *, connection_id: int | None = None, actor: Actor | None = None) -> Steps:
    """ConsumerRow of each consumer, by queue and registration order; at most MOST_CONSUMERS."""
    _require(actor, vhost)
    rows = yield call("browse_consumers", vhost=vhost, queue=queue, connection_id=connection_id, max_count=MOST_CONSUMERS)
    consumer_rows: list[ConsumerRow] = []
    orders: dict[int, int] = {}
    for row in rows:
        orders[row.entity_id] = order = orders.get(row.entity_id, 0) + 1
        consumer_rows.append(
            ConsumerRow(
                row.id, row.tag, EntityAddress(vhost, row.queue), row.connection_id, row.connection, row.channel, row.no_ack,
                row.exclusive, row.priority, row.prefetch, table.decode(row.arguments), row.began_at, order, row.actor,
            )
        )  # fmt: skip
    return consumer_rows


@use_case
def connections(vhost: str, *, actor: Actor | None = None) -> Steps[list[ConnectionRow]]:
    """ConnectionRow of each connection, oldest first; at most MOST_CONNECTIONS."""
    _require(actor, vhost)
    rows = yield call("browse_connections", vhost=vhost, actor=None, max_count=MOST_CONNECTIONS)
    return [_connection(row) for row in rows]


@use_case(namespace=WHOLE_DATABASE, combine=lambda results: list(chain.from_iterable(results)))
def connections_of(name: str | None, *, actor: Actor | None = None) -> Steps[list[ConnectionRow]]:
    """ConnectionRow of each connection of an actor ("process:web-1"), None: of any, to any virtual host, oldest first."""
    _require(actor, "all virtual hosts")
    rows = yield call("browse_connections", vhost=None, actor=name, max_count=MOST_CONNECTIONS)
    return [_connection(row) for row in rows]


def _connection(row: Any) -> ConnectionRow:
    return ConnectionRow(
        row.id, row.name, row.opened_at, row.epoch, row.process, row.started_at, row.lease_until, row.lease_left,
        row.consumers, tuple(row.owned), row.actor, row.vhost, row.now,
    )  # fmt: skip


@use_case
def unacked_by_queue(vhost: str, entity_ids: Sequence[int], *, actor: Actor | None = None) -> Steps[list[UnackedInQueue]]:
    """Unacknowledged messages of these queues by connection, as UnackedInQueue; reads at most HEAD_CAP messages of each queue."""
    _require(actor, vhost)
    ids = whole_numbers(entity_ids, "entity_ids")
    rows = (yield call("browse_unacked", entity_ids=ids, cap=HEAD_CAP)) if ids else ()
    return [UnackedInQueue(EntityAddress(vhost, row.queue), row.owner_id, row.unacked, row.capped) for row in rows]


@use_case
def vhost_counts(vhost: str, *, actor: Actor | None = None) -> Steps[VhostCounts]:
    """VhostCounts. Raises EntityNotFound."""
    _require(actor, vhost)
    rows = yield call("browse_vhost_counts", vhost=vhost)
    if not rows:
        raise EntityNotFound(vhost, "virtual host")
    (row,) = rows
    return VhostCounts(row.exchanges + 1, row.bindings, row.policies, row.connections, row.consumers)


@use_case
def explain(address: EntityAddress, number: int, *, actor: Actor | None = None) -> Steps:
    """Why a message is still in the queue, with every reason, as reads.Explanation; None if it is not there. Raises
    EntityNotFound."""
    _require(actor, address)
    detail = yield from reads.message.steps(address, number, actor=actor)
    if detail is None:
        return None
    queue = yield from catalog.get_queue.steps(address, actor=actor)
    row = replace(detail.row, held_since=detail.row.last_received_at if detail.row.owner_id else None)
    (place,) = yield call("browse_place", entity_id=queue.id, sequence_number=number, cap=HEAD_CAP)
    facts = yield from _facts(queue, row, actor)
    reasons = explaining.explain(row, facts, row.read_at, place=QueuePosition(place.before, place.capped))
    return reads.Explanation(row, tuple(reasons), not any(reason.is_obstacle for reason in reasons), row.read_at)


def _facts(queue: catalog.StoredQueue, row: reads.MessageRow, actor: Actor | None) -> Steps:
    """The facts about a queue that affect delivery of one of its messages."""
    vhost, effective = queue.address.namespace, queue.effective
    head = yield from queue_head.steps(queue.id, actor=actor)
    consumer_rows = yield from consumers.steps(vhost, queue.name, actor=actor)
    counts = yield call("browse_unacked_of_consumers", entity_id=queue.id, cap=HEAD_CAP)
    outstanding = {count.consumer_id: count.unacked for count in counts}
    exchange = effective.get("dead_letter_exchange")
    lost = exchange is not None and exchange not in (yield from compiled.current(vhost)).router
    timeout = timedelta(milliseconds=effective.get("consumer_timeout", DEFAULT_TIMEOUT))
    return explaining.QueueFacts(
        consumers=[
            explaining.ConsumerFacts(consumer.tag, consumer.connection, consumer.prefetch, outstanding.get(consumer.id, 0))
            for consumer in consumer_rows
        ],
        single_active=bool(effective.get("single_active_consumer")),
        head=(yield from _head_before(queue.id, row, head.head, actor)),
        exact_expiry=bool(queue.options.get("exact_expiry")),
        delivery_limit=effective.get("delivery_limit"),
        dead_letter_exchange=exchange,
        dead_letters_lost=lost,
        acknowledgement_timeout_at=row.held_since + timeout if row.held_since and timeout else None,
        unused_until=head.expires_at,
    )


def _head_before(entity_id: int, row: reads.MessageRow, number: int | None, actor: Actor | None) -> Steps:
    """The first message that has not expired, if it is ahead of this one."""
    if number is None or number >= row.sequence_number:
        return None
    rows = yield from reads.messages_by_number.steps(entity_id, [number], actor=actor)
    return explaining.HeadFacts(number, rows[0].expires_at) if rows else None


def _require(actor: Actor | None, what: EntityAddress | str) -> None:
    (actor or Actor.local()).require(Right.BROWSE, what)
