"""Arriving: what goes on around storing messages in queues that have a limit, or in which nothing may wait.

The same for what is published and for what is moved. Consumers of this process come first: only what they leave is too much, and
what may live for no time is theirs or has expired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker_core.semantics.types import EntityAddress
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call

from . import consumers
from .dead_lettering import EXPIRED, dead_letter, dying, expire_at_head, has_priorities, hold_chain, keep_limits
from .delivering import Delivery, as_delivery, requeue
from .limits import drops_head, is_limited, refuses
from .topology import QueueInfo
from .work import Work

RELIEF = 100  # messages that consumers are given at most before it is counted what is too much
FOR_GOOD = {
    "rabbit_hand_over": "rabbit_hand_over_for_good",
    "rabbit_take": "rabbit_take_for_good",
    "rabbit_take_by_priority": "rabbit_take_for_good_by_priority",
}


def lets_nothing_wait(queue: QueueInfo) -> bool:
    return queue.effective.get("message_ttl") == 0


def make_room(work: Work, names: Iterable[str], keys: Iterable[str]) -> Steps:
    """Before messages are stored in these queues: what has expired at the head of one that refuses leaves, and what consumers
    have room for is theirs. keys: those that the messages have. Returns the names of the queues that have a limit."""
    names = list(names)
    limited = [name for name in names if is_limited(work.topology.queues[name])]
    for name in limited:
        if refuses(work.topology.queues[name]):
            yield from expire_at_head(work, name)
            yield from _relieve(work, name)
    if any("dead_letter_exchange" in work.topology.queues[name].effective for name in limited):
        yield from hold_chain(work, names, list(keys))
    return limited


def settle_in(work: Work, limited: Sequence[str], brief: Mapping[str, Sequence[int]]) -> Steps[None]:
    """Afterwards: what may live for no time goes to consumers or has expired, and what is too much leaves again.

    limited: as `make_room` gave it. brief: the numbers of what may live for no time, by queue.
    """
    yield from _at_once(work, brief)
    for name in limited:
        if drops_head(work.topology.queues[name]):
            yield from _relieve(work, name)
    yield from keep_limits(work, limited)


def _at_once(work: Work, brief: Mapping[str, Sequence[int]]) -> Steps[None]:
    """RMQ-016: what may live for no time goes to a consumer that has room for it now, or has expired."""
    for name, numbers in brief.items():
        queue = work.topology.queues[name]
        left = yield from _hand_over(work, name, queue, list(numbers))
        if not left:
            continue
        if lets_nothing_wait(queue):
            rows = yield from dying("by_number", queue, numbers=left)
            yield from keep_limits(work, (yield from dead_letter(work, name, rows, EXPIRED)))
        else:
            yield from expire_at_head(work, name)


def _hand_over(work: Work, name: str, queue: QueueInfo, numbers: list[int]) -> Steps:
    """Give messages to consumers of this process (RMQ-922). Returns the numbers that nobody has room for."""
    plan = consumers.takers(queue.id, len(numbers))
    left = numbers[len(plan) :]
    for consumer in dict.fromkeys(plan):
        given = [number for number, taker in zip(numbers, plan, strict=False) if taker is consumer]
        if not (yield from _give(work, name, queue, consumer, "rabbit_hand_over", numbers=given)):
            left += given
    return sorted(left)


def _relieve(work: Work, name: str) -> Steps[None]:
    """A queue with a limit: the head goes to consumers of this process that have room, since only what they leave is too much."""
    queue = work.topology.queues[name]
    if lets_nothing_wait(queue):
        return
    for consumer, count in Counter(consumers.takers(queue.id, RELIEF)).items():
        statement = "rabbit_take" if not has_priorities(queue) else "rabbit_take_by_priority"
        yield from _give(work, name, queue, consumer, statement, max_count=count, past_expired=True)


def _give(work: Work, name: str, queue: QueueInfo, consumer: consumers.Consumer, statement: str, **which: Any) -> Steps[bool]:
    """Deliver messages to a consumer, once this transaction is committed. Returns whether its connection is still there."""
    if not (yield call("rabbit_give_to", connection_id=consumer.owner_id)):
        return False
    if consumer.no_ack:
        statement = FOR_GOOD[statement]
    rows = yield call(statement, entity_id=queue.id, owner_id=consumer.owner_id, holder=consumer.holder, **which)
    address = EntityAddress(work.vhost, name)
    deliveries = [as_delivery(row, address, queue) for row in rows if row.sequence_number is not None]
    if deliveries:
        yield AfterCommit(_handed(consumer, deliveries))
    return True


def _handed(consumer: consumers.Consumer, deliveries: Sequence[Delivery]) -> Steps[None]:
    """Once it is stored that they are its: the consumer gets them, unless its channel was closed in between."""
    held = [delivery.token for delivery in deliveries if delivery.token is not None]
    if not consumer.hand_over(deliveries) and held:
        yield from requeue.steps(deliveries[0].address, held, actor=consumer.channel.connection.actor)
