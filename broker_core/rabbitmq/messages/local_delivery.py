"""Local delivery: messages are delivered to consumers of this process in the transaction that stores them, before length
limits are enforced and for messages with a TTL of zero (RMQ-016, RMQ-922)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call

from . import local_consumers
from .delivery import Delivery, as_delivery
from .remote_delivery import deliver_remotely
from .routing_transaction import RoutingTransaction

MOST_BEFORE_LIMIT = 100  # maximum messages delivered before a length limit is enforced
NO_ACK_STATEMENTS = {
    "rabbit_deliver_by_number": "rabbit_deliver_by_number_no_ack",
    "rabbit_take": "rabbit_take_no_ack",
    "rabbit_take_by_priority": "rabbit_take_no_ack_by_priority",
}


def deliver_by_number(transaction: RoutingTransaction, name: str, queue: QueueInfo, numbers: Sequence[int]) -> Steps[list[int]]:
    """Deliver messages to consumers with credit, of this process first, then of others (RMQ-922). Returns the undelivered
    sequence numbers."""
    with local_consumers.reserve(local_consumers.eligible_consumers(queue.id), len(numbers)) as plan:
        left = list(numbers[len(plan) :])
        for consumer in dict.fromkeys(plan):
            given = [number for number, taker in zip(numbers, plan, strict=False) if taker is consumer]
            if not (yield from _deliver(transaction, name, queue, consumer, "rabbit_deliver_by_number", numbers=given)):
                left += given
    return (yield from deliver_remotely(transaction, queue, sorted(left)))


def deliver_from_head(transaction: RoutingTransaction, name: str) -> Steps[None]:
    """Deliver the head of a queue with a length limit to consumers of this process: only the remaining messages count towards
    the limit."""
    queue = transaction.topology.queues[name]
    if queue.has_zero_ttl:
        return
    statement = "rabbit_take_by_priority" if queue.has_priorities else "rabbit_take"
    with local_consumers.reserve(local_consumers.eligible_consumers(queue.id), MOST_BEFORE_LIMIT) as plan:
        for consumer, count in Counter(plan).items():
            yield from _deliver(transaction, name, queue, consumer, statement, max_count=count, past_expired=True)


def _deliver(
    transaction: RoutingTransaction, name: str, queue: QueueInfo, consumer: local_consumers.Consumer, statement: str, **which: Any
) -> Steps[bool]:
    """Deliver messages to a consumer after this transaction commits, and reserve its credit until then. Returns whether its
    connection still exists."""
    if not (yield call("hold_connection_unless_ending", connection_id=consumer.owner_id)):
        return False
    if consumer.no_ack:
        statement = NO_ACK_STATEMENTS[statement]
    rows = yield call(statement, entity_id=queue.id, owner_ids=[consumer.owner_id], holders=[consumer.holder], **which)
    address = EntityAddress(transaction.vhost, name)
    deliveries = [as_delivery(row, address, queue) for row in rows if row.sequence_number is not None]
    if deliveries:
        transaction.promises.enter_context(consumer.promise(len(deliveries)))
        yield AfterCommit(_buffer_or_release(consumer, deliveries), waits_for_callers=True)
    return True


def _buffer_or_release(consumer: local_consumers.Consumer, deliveries: Sequence[Delivery]) -> Steps[None]:
    """After the commit: buffer deliveries for the consumer, or release them if its channel was closed meanwhile."""
    if not consumer.buffer(deliveries):
        yield from consumer.channel.release_unclaimed(deliveries)
