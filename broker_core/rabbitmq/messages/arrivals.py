"""Arriving: what goes on around storing messages in queues that have a limit, or in which nothing may wait.

The same for what is published and for what is moved. Consumers of this process come first: only what they leave is too much, and
what may live for no time is theirs or has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker_core.store.driver import Steps

from .dead_lettering import enforce_limits, expire_at_head, lock_dead_letter_chain, process_arrivals
from .length_limits import drops_head, is_limited, refuses
from .local_delivery import deliver_from_head, hand_over
from .routing_transaction import RoutingTransaction


def lock_for_arrivals(work: RoutingTransaction, names: Iterable[str], keys: Iterable[str]) -> Steps:
    """Before messages are stored in these queues: what has expired at the head of one that refuses leaves, and what consumers
    have room for is theirs. keys: those that the messages have. Returns the names of the queues that have a limit."""
    names = list(names)
    limited = [name for name in names if is_limited(work.topology.queues[name])]
    for name in limited:
        if refuses(work.topology.queues[name]):
            yield from expire_at_head(work, name)
            yield from deliver_from_head(work, name)
    if any("dead_letter_exchange" in work.topology.queues[name].effective for name in limited):
        yield from lock_dead_letter_chain(work, names, list(keys))
    return limited


def settle_arrivals(work: RoutingTransaction, limited: Sequence[str], zero_ttl: Mapping[str, Sequence[int]]) -> Steps[None]:
    """Afterwards: what may live for no time goes to consumers or has expired, and what is too much leaves again.

    limited: as `lock_for_arrivals` gave it. brief: the numbers of what may live for no time, by queue.
    """
    yield from _at_once(work, zero_ttl)
    for name in limited:
        if drops_head(work.topology.queues[name]):
            yield from deliver_from_head(work, name)
    yield from enforce_limits(work, limited)


def _at_once(work: RoutingTransaction, zero_ttl: Mapping[str, Sequence[int]]) -> Steps[None]:
    """RMQ-016: what may live for no time goes to a consumer that has room for it now, or has expired."""
    for name, numbers in zero_ttl.items():
        queue = work.topology.queues[name]
        if queue.lets_nothing_wait:
            yield from process_arrivals(work, {name: numbers})
        elif (yield from hand_over(work, name, queue, numbers)):
            yield from expire_at_head(work, name)
