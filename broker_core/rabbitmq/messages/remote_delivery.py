"""Remote delivery: messages with a TTL of zero are delivered to consumers of other processes (RMQ-922).

The exact credit of those consumers is known only in their process. They are chosen by their prefetch and the unacknowledged
messages of their connections, as stored in the database. Their process is notified on commit (see
connections.incoming_deliveries); if the consumers have no credit after all, the messages are requeued and expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import local_consumers
from .routing_transaction import RoutingTransaction

MOST_NUMBERS = 200  # sequence numbers per notification, which PostgreSQL limits to 8,000 bytes


def deliver_remotely(transaction: RoutingTransaction, queue: QueueInfo, numbers: Sequence[int]) -> Steps[list[int]]:
    """Deliver messages that were just stored to connections of other processes. Returns the numbers for which no credit was
    found."""
    left = list(numbers)
    here = [consumer.id for consumer in local_consumers.registry.of(queue.id)]
    one_only = bool(queue.effective.get("single_active_consumer"))
    for row in (yield call("remote_consumers", entity_id=queue.id, here=here, one_only=one_only)) if left else ():
        wanted = left if row.credit is None else left[: row.credit]
        if not wanted or not (yield call("hold_connection_unless_ending", connection_id=row.connection_id)):
            continue
        given = yield call(
            "rabbit_deliver_by_number", entity_id=queue.id, owner_ids=[row.connection_id], holders=[row.holder], numbers=wanted
        )
        delivered = [one.sequence_number for one in given if one.sequence_number is not None]
        for at in range(0, len(delivered), MOST_NUMBERS):
            numbers_text = " ".join(map(str, [queue.id, *delivered[at : at + MOST_NUMBERS]]))
            yield call("notify_connection", connection_id=row.connection_id, notice=f"delivered {numbers_text}")
        left = [number for number in left if number not in delivered]
    return left
