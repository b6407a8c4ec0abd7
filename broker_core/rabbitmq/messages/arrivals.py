"""Storing messages in queues that have a length limit or a message TTL of zero, for publishing and for moving.

Consumers of this process are served first: a limit applies to the messages they leave, and a message with a TTL of zero
expires only if no consumer takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker_core.store.driver import Steps

from .dead_lettering import enforce_limits, expire_at_head, lock_dead_letter_chain, process_arrivals
from .length_limits import drops_head, is_limited, refuses
from .local_delivery import deliver_by_number, deliver_from_head
from .routing_transaction import RoutingTransaction


def lock_for_arrivals(transaction: RoutingTransaction, names: Iterable[str], keys: Iterable[str]) -> Steps:
    """Prepare queues to receive messages: lock them, and for a queue that rejects publishes, expire and deliver from its head
    first.

    keys: the routing keys of the messages to be stored. Returns the names of the queues that have a length limit.
    """
    names = list(names)
    limited = [name for name in names if is_limited(transaction.topology.queues[name])]
    for name in limited:
        if refuses(transaction.topology.queues[name]):
            yield from expire_at_head(transaction, name)
            yield from deliver_from_head(transaction, name)
    if any("dead_letter_exchange" in transaction.topology.queues[name].effective for name in limited):
        yield from lock_dead_letter_chain(transaction, names, list(keys))
    return limited


def settle_arrivals(
    transaction: RoutingTransaction, limited: Sequence[str], zero_ttl: Mapping[str, Sequence[int]]
) -> Steps[None]:
    """After messages have been stored: deliver or expire those with a TTL of zero, then enforce length limits.

    limited: the result of `lock_for_arrivals`. zero_ttl: sequence numbers of messages with a TTL of zero, by queue name.
    """
    yield from settle_zero_ttl(transaction, zero_ttl)
    for name in limited:
        if drops_head(transaction.topology.queues[name]):
            yield from deliver_from_head(transaction, name)
    yield from enforce_limits(transaction, limited)


def settle_zero_ttl(transaction: RoutingTransaction, zero_ttl: Mapping[str, Sequence[int]]) -> Steps[None]:
    """Deliver messages with a TTL of zero to consumers with available credit, and expire the rest (RMQ-016)."""
    for name, numbers in zero_ttl.items():
        queue = transaction.topology.queues[name]
        if queue.has_zero_ttl:
            yield from process_arrivals(transaction, {name: numbers})
        elif (yield from deliver_by_number(transaction, name, queue, numbers)):
            yield from expire_at_head(transaction, name)
