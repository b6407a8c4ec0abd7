"""Delivery: a message as consumers and gets receive it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules import wire_table
from broker_core.rabbitmq.rules.arguments import QUORUM
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime.caches import BoundedCache
from broker_core.runtime.keeping import ending
from broker_core.store import connections
from broker_core.store.driver import Steps

from .properties import Properties, read

DELIVERY_COUNT = "x-delivery-count"


@dataclass(frozen=True)
class Delivery:
    """A delivered message. token: used to settle it; None if it needs no acknowledgement (RMQ-114).

    redelivered: whether it was delivered before (RMQ-119). delivery_count: how often it was requeued. message_count: of a get,
    the number of ready messages remaining (RMQ-128).
    """

    address: EntityAddress
    number: int
    token: UUID | None
    body: bytes
    redelivered: bool
    delivery_count: int
    is_quorum: bool
    raw_properties: dict[str, Any]
    raw_headers: dict[str, list] | None
    encoded: bytes | None
    message_id: str | None
    enqueued_at: Any
    message_count: int | None = None

    @property
    def exchange(self) -> str:
        return self.raw_properties["exchange"]

    @property
    def routing_key(self) -> str:
        return self.raw_properties["routing_key"]

    @cached_property
    def properties(self) -> Properties:
        """Properties as published (RMQ-009, RMQ-360). In a quorum queue with the header x-delivery-count: for gets always, for
        consumers once it is above zero (RMQ-120)."""
        return read(self.raw_properties, self.message_id, self._headers)

    @property
    def header_table(self) -> bytes | None:
        """The headers as AMQP 0-9-1 encodes them, unchanged ones as they were published; None: no table, not even an empty
        one."""
        return wire_table.merged(self.encoded, self._headers)

    @property
    def _headers(self) -> dict[str, list] | None:
        if self.is_quorum and (self.delivery_count or self.message_count is not None):
            return (self.raw_headers or {}) | {DELIVERY_COUNT: ["signedint", str(self.delivery_count)]}
        return self.raw_headers


def as_delivery(row: Any, address: EntityAddress, queue: QueueInfo, *, message_count: int | None = None) -> Delivery:
    return Delivery(
        address,
        row.sequence_number,
        row.lock_token,
        row.body,
        row.redelivered,
        row.delivery_count,
        queue.type == QUORUM,
        row.properties,
        row.application_properties,
        row.encoded,
        row.message_id,
        row.enqueued_at,
        message_count,
    )


def take_rows(queue: QueueInfo, *, no_ack: bool, **params: Any) -> Steps[list[Any]]:
    """Deliver messages from the head of a queue. Returns the rows; none if the queue no longer exists.

    While the deliveries of a queue pass its unacknowledged messages (docs/design.md D17), that is another statement; each process
    remembers these queues.
    """
    name = "rabbit_take_no_ack" if no_ack else "rabbit_take"
    if queue.has_priorities:
        return (yield (yield from ending(f"{name}_by_priority", queue.id, **params)))
    key = connections.current_database(), queue.id
    if key not in _passing_locked:
        rows = yield (yield from ending(name, queue.id, **params))
        if not rows or not rows[0].passes_locked:
            return rows
        _passing_locked.keep(key, True)
    rows = yield (yield from ending(f"{name}_past_locked", queue.id, **params))
    if rows and not rows[0].passes_locked:
        _passing_locked.pop(key, None)
    return rows


_passing_locked = BoundedCache(10_000)  # (database, queue id) of the queues whose deliveries pass unacknowledged messages
