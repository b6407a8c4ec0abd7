"""Local delivery: messages are delivered to consumers of this process in the transaction that stores them, before length
limits are enforced and for messages with a TTL of zero (RMQ-016, RMQ-922)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime import keeping
from broker_core.store.driver import AfterCommit, Steps

from . import local_consumers
from .delivery import Delivery, as_delivery, take_rows
from .local_consumers import Consumer
from .remote_delivery import deliver_remotely, ending_owners, holder_columns
from .routing_transaction import RoutingTransaction

MOST_BEFORE_LIMIT = 100  # maximum messages delivered before a length limit is enforced


def deliver_by_number(
    transaction: RoutingTransaction, name: str, queue: QueueInfo, numbers: Sequence[int]
) -> Steps[Sequence[int]]:
    """Deliver messages to consumers with credit, of this process first, then of others (RMQ-922). Returns the undelivered
    sequence numbers: all while delivery is paused (RMQ-929)."""
    if not queue.may_receive:
        return numbers
    with _reserve(transaction, queue, len(numbers)) as plan:
        ending = yield from ending_owners(plan)
        assignments = [
            (consumer, number) for consumer, number in zip(plan, numbers, strict=False) if consumer.owner_id not in ending
        ]
        for is_no_ack, statement in enumerate(("rabbit_deliver_by_number", "rabbit_deliver_by_number_no_ack")):
            part = [(consumer, number) for consumer, number in assignments if consumer.no_ack == bool(is_no_ack)]
            consumers = [consumer for consumer, _ in part]
            if part:
                which = {"numbers": [number for _, number in part], **holder_columns(consumers)}
                rows = yield (yield from keeping.ending(statement, queue.id, **which))
                yield from _deliver(transaction, name, queue, consumers, rows)
    delivered = {number for _, number in assignments}
    return (yield from deliver_remotely(transaction, queue, [number for number in numbers if number not in delivered]))


def deliver_from_head(transaction: RoutingTransaction, name: str) -> Steps[None]:
    """Deliver the head of a queue with a length limit to consumers of this process: only the remaining messages count towards
    the limit."""
    queue = transaction.topology.queues[name]
    if queue.has_zero_ttl:
        return
    with _reserve(transaction, queue, MOST_BEFORE_LIMIT) as plan:
        ending = yield from ending_owners(plan)
        for no_ack in (False, True):
            part = [consumer for consumer in plan if consumer.no_ack == no_ack and consumer.owner_id not in ending]
            if part:
                which = {"max_count": len(part), "past_expired": True, **holder_columns(part)}
                rows = yield from take_rows(queue, no_ack=no_ack, **which)
                yield from _deliver(transaction, name, queue, part, rows)


def _reserve(transaction: RoutingTransaction, queue: QueueInfo, count: int) -> Any:
    eligible = local_consumers.eligible_consumers(queue.id)
    return local_consumers.reserve([consumer for consumer in eligible if consumer.id not in transaction.without_credit], count)


def _deliver(
    transaction: RoutingTransaction, name: str, queue: QueueInfo, plan: Sequence[Consumer], rows: Sequence[Any]
) -> Steps[None]:
    """Hand messages to consumers after this transaction commits, and reserve their credit until then. rows: of the messages, one
    for each consumer."""
    address = EntityAddress(transaction.vhost, name)
    shares: dict[Consumer, list[Delivery]] = {}
    for consumer, row in zip(plan, (row for row in rows if row.sequence_number is not None), strict=False):
        shares.setdefault(consumer, []).append(as_delivery(row, address, queue))
    for consumer, deliveries in shares.items():
        transaction.promises.enter_context(consumer.promise(len(deliveries)))
        yield AfterCommit(_buffer_or_release(consumer, deliveries), waits_for_callers=True)


def _buffer_or_release(consumer: Consumer, deliveries: Sequence[Delivery]) -> Steps[None]:
    """After the commit: buffer deliveries for the consumer, or release them if its channel was closed meanwhile."""
    if not consumer.buffer(deliveries):
        yield from consumer.channel.release_unclaimed(deliveries)
