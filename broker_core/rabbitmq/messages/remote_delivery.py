"""Remote delivery: messages that cannot wait are given to consumers of other processes (RMQ-922).

The room of those consumers is known exactly only in their process. The database knows their prefetch and what their connections
hold, and by that they are chosen. Their process is told with the commit (see connections.handed_over); should it find that there
is no room after all, the messages come back and expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import local_consumers
from .routing_transaction import RoutingTransaction

MOST_TOLD = 200  # numbers in one notification, which PostgreSQL limits to 8,000 bytes


def hand_to_others(work: RoutingTransaction, queue: QueueInfo, numbers: Sequence[int]) -> Steps[list[int]]:
    """Deliver messages, just stored, to connections of other processes. Returns the numbers nobody seems to have room for."""
    left = list(numbers)
    here = [consumer.id for consumer in local_consumers.registry.of(queue.id)]
    one_only = bool(queue.effective.get("single_active_consumer"))
    for row in (yield call("consumers_elsewhere", entity_id=queue.id, here=here, one_only=one_only)) if left else ():
        wanted = left if row.room is None else left[: row.room]
        if not wanted or not (yield call("rabbit_give_to", connection_id=row.connection_id)):
            continue
        given = yield call("rabbit_hand_over", entity_id=queue.id, owner_id=row.connection_id, holder=row.holder, numbers=wanted)
        handed = [one.sequence_number for one in given if one.sequence_number is not None]
        for at in range(0, len(handed), MOST_TOLD):
            told = " ".join(map(str, [queue.id, *handed[at : at + MOST_TOLD]]))
            yield call("tell_connection", connection_id=row.connection_id, what=f"handed {told}")
        left = [number for number in left if number not in handed]
    return left
