"""Local delivery: consumers of this process that have room are given messages in the transaction that stores them: before the
queue's limits are enforced, and where a message cannot wait (RMQ-016, RMQ-922)."""

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
from .remote_delivery import hand_to_others
from .routing_transaction import RoutingTransaction

RELIEF = 100  # messages that consumers are given at most before it is counted what is too much
FOR_GOOD = {
    "rabbit_hand_over": "rabbit_hand_over_for_good",
    "rabbit_take": "rabbit_take_for_good",
    "rabbit_take_by_priority": "rabbit_take_for_good_by_priority",
}


def hand_over(work: RoutingTransaction, name: str, queue: QueueInfo, numbers: Sequence[int]) -> Steps[list[int]]:
    """Give messages to consumers that have room: of this process first, then of others (RMQ-922). Returns the numbers that nobody
    has room for."""
    with local_consumers.planned(local_consumers.takers(queue.id), len(numbers)) as plan:
        left = list(numbers[len(plan) :])
        for consumer in dict.fromkeys(plan):
            given = [number for number, taker in zip(numbers, plan, strict=False) if taker is consumer]
            if not (yield from _give(work, name, queue, consumer, "rabbit_hand_over", numbers=given)):
                left += given
    return (yield from hand_to_others(work, queue, sorted(left)))


def deliver_from_head(work: RoutingTransaction, name: str) -> Steps[None]:
    """A queue with a limit: the head goes to consumers of this process that have room, since only what they leave is too much."""
    queue = work.topology.queues[name]
    if queue.lets_nothing_wait:
        return
    statement = "rabbit_take_by_priority" if queue.has_priorities else "rabbit_take"
    with local_consumers.planned(local_consumers.takers(queue.id), RELIEF) as plan:
        for consumer, count in Counter(plan).items():
            yield from _give(work, name, queue, consumer, statement, max_count=count, past_expired=True)


def _give(
    work: RoutingTransaction, name: str, queue: QueueInfo, consumer: local_consumers.Consumer, statement: str, **which: Any
) -> Steps[bool]:
    """Deliver messages to a consumer, once this transaction is committed; until then they take its room. Returns whether its
    connection is still there."""
    if not (yield call("rabbit_give_to", connection_id=consumer.owner_id)):
        return False
    if consumer.no_ack:
        statement = FOR_GOOD[statement]
    rows = yield call(statement, entity_id=queue.id, owner_id=consumer.owner_id, holder=consumer.holder, **which)
    address = EntityAddress(work.vhost, name)
    deliveries = [as_delivery(row, address, queue) for row in rows if row.sequence_number is not None]
    if deliveries:
        work.promises.enter_context(consumer.promise(len(deliveries)))
        yield AfterCommit(_handed(consumer, deliveries), waits_for_callers=True)
    return True


def _handed(consumer: local_consumers.Consumer, deliveries: Sequence[Delivery]) -> Steps[None]:
    """Once it is stored that they are its: the consumer gets them, unless its channel was closed in between."""
    if not consumer.hand_over(deliveries):
        yield from consumer.channel.release_unclaimed(deliveries)
