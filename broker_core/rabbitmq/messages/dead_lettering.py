"""Dead-lettering: a message is removed from its queue and, if the queue has a dead-letter exchange, republished to it in the
same transaction (RMQ-060 to RMQ-080, RMQ-911). The body is copied inside the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any

from broker_core.common.types import EventKind
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, ROUNDS
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .length_limits import drops_head, is_limited
from .local_delivery import deliver_by_number, deliver_from_head
from .placing import MOST_HOPS, Outgoing, Placing, dead_letter_copy
from .routing_transaction import RoutingTransaction, Stale

Arrived = Mapping[str, Sequence[int]]  # sequence numbers of dead letters by queue name
_Visit = tuple[str, Sequence[int], int]  # queue name, sequence numbers that arrived, queues passed before
EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"


def dead_letter(
    transaction: RoutingTransaction, name: str, rows: Sequence[Any], reason: str, *, is_routed: bool = True
) -> Steps[Arrived]:
    """Remove messages locked by `lock_departing` in this transaction, and publish them to the dead-letter exchange.

    is_routed: False drops them although there is a dead-letter exchange.
    Returns the messages stored in other queues, as input for `process_arrivals`.
    """
    queue = transaction.queue(name)
    if queue is None or not rows:
        return {}
    placing, fates = Placing(transaction), []
    for row in rows:
        fates.append((yield from _place_dead_letter(transaction, placing, name, queue, row, reason, is_routed)))
    firsts = yield from remove_and_store(transaction, queue, rows, fates, reason, placing)
    return {placing.names[id]: range(first, first + len(placing.picks[id])) for id, first in firsts.items()}


def remove_and_store(
    transaction: RoutingTransaction,
    queue: QueueInfo,
    rows: Sequence[Any],
    fates: Sequence[tuple[EventKind, str | None]],
    reason: str,
    placing: Placing,
) -> Steps:
    """Remove messages that this transaction has locked, and store the placed copies in other queues.

    fates: for each message the kind of its final event, and why it was dropped. Returns the first sequence number assigned in
    each queue, by queue id.
    """
    if any(drops_head(target) for target in map(transaction.queue, placing.names.values()) if target is not None):
        yield from lock_dead_letter_chain(transaction, placing.names.values())
    statement = yield from ending(
        "rabbit_remove_and_store",
        queue.id,
        topology_version=transaction.topology.version,
        actor=transaction.actor,
        reason=reason,
        numbers=[row.sequence_number for row in rows],
        kinds=[kind for kind, _ in fates],
        whys=[why for _, why in fates],
        **placing.columns(),
    )
    done = yield statement
    if not done or done[0].targets < len(placing.picks):  # a queue was deleted while the statement waited for its lock
        raise Stale
    transaction.stored_in.update(done[0].stored_in)
    transaction.waiting.update(done[0].waiting)
    return dict(zip(done[0].stored_in, done[0].firsts, strict=True))


def _place_dead_letter(
    transaction: RoutingTransaction, placing: Placing, name: str, queue: QueueInfo, row: Any, reason: str, is_routed: bool
) -> Steps:
    """The kind of a message's final event, and why it is dropped although the queue has a dead-letter exchange."""
    kind = EventKind.EXPIRED if reason == EXPIRED else EventKind.DROPPED
    if "dead_letter_exchange" not in queue.effective:
        return kind, None
    if not is_routed:
        return EventKind.DROPPED, f"It would have passed through more than {MOST_HOPS} queues at once."
    dead = dead_letter_copy(transaction, name, queue, as_outgoing(row), reason, row.now)
    if dead.letter is None:
        return EventKind.DROPPED, dead.why
    placed = yield from placing.put(dead.letter, dead.queues)
    if not placed.taken:
        return EventKind.DROPPED, f"'{placed.refused[0]}' is full (RMQ-093)." if placed.refused else None
    return EventKind.MOVED, None


def as_outgoing(row: Any) -> Outgoing:
    return Outgoing(row.sequence_number, row.size, row.message_id, row.properties, row.application_properties, row.encoded)


def enforce_limits(transaction: RoutingTransaction, names: Iterable[str]) -> Steps[int]:
    """Remove messages over the length limit from the head of these queues (RMQ-091), and process dead letters where they
    arrive.

    The transaction must hold the queues' counters, so that nothing is published meanwhile. Returns how many messages were
    removed.
    """
    return (yield from _process_visits(transaction, deque((name, (), 0) for name in names)))


def process_arrivals(transaction: RoutingTransaction, arrived: Arrived) -> Steps[int]:
    """Process queues in which messages have arrived: deliver to consumers of this process, expire messages with a TTL of zero
    (RMQ-016), enforce length limits; then the queues that get the dead letters. Returns how many messages were removed."""
    return (yield from _process_visits(transaction, deque((name, numbers, 0) for name, numbers in arrived.items())))


def _process_visits(transaction: RoutingTransaction, todo: deque[_Visit]) -> Steps[int]:
    """Process queues until no more dead letters arrive."""
    total = 0
    while todo:
        name, numbers, hops = todo.popleft()
        queue = transaction.queue(name)
        if queue is None:
            continue
        if numbers:
            expired = yield from _deliver_arrivals(transaction, name, queue, numbers)
            total += yield from _dead_letter_and_visit(transaction, todo, name, expired, EXPIRED, hops)
        for _ in range(ROUNDS if drops_head(queue) else 0):
            rows = yield from lock_departing("excess", queue, max_count=BATCH)
            expired = list(takewhile(attrgetter("expired"), rows))  # not yet removed, although expired
            total += yield from _dead_letter_and_visit(transaction, todo, name, expired, EXPIRED, hops)
            total += yield from _dead_letter_and_visit(transaction, todo, name, rows[len(expired) :], MAXLEN, hops)
            if len(rows) < BATCH:
                break
    return total


def _deliver_arrivals(
    transaction: RoutingTransaction, name: str, queue: QueueInfo, numbers: Sequence[int]
) -> Steps[Sequence[Any]]:
    """Deliver messages that have arrived before they count towards a limit. Returns those that expired because no consumer has
    credit."""
    if queue.has_zero_ttl:
        left = yield from deliver_by_number(transaction, name, queue, numbers)
        return (yield from lock_departing("by_number", queue, numbers=left)) if left else ()
    if is_limited(queue):
        yield from deliver_from_head(transaction, name)
    return ()


def _dead_letter_and_visit(
    transaction: RoutingTransaction, todo: deque[_Visit], name: str, rows: Sequence[Any], reason: str, hops: int
) -> Steps[int]:
    """Dead-letter messages of a queue, and schedule the queues they arrive in. Returns how many messages were removed."""
    arrived = yield from dead_letter(transaction, name, rows, reason, is_routed=hops < MOST_HOPS)
    todo.extend((target, numbers, hops + 1) for target, numbers in arrived.items())
    return len(rows)


def lock_dead_letter_chain(transaction: RoutingTransaction, names: Iterable[str], keys: Sequence[str] = ()) -> Steps[None]:
    """Lock the counters of these queues and of all queues their dead letters can reach, in one order, which prevents most
    deadlocks.

    keys: the routing keys of messages that may be dead-lettered, for queues without a dead-letter routing key. This is an
    estimate: if a deadlock occurs all the same, the transaction is retried.
    """
    chain = dict.fromkeys(names)
    todo = [name for name in chain if (queue := transaction.queue(name)) is not None and drops_head(queue)]
    for name in todo:
        effective = transaction.topology.queues[name].effective
        if "dead_letter_exchange" not in effective:
            continue
        key = effective.get("dead_letter_routing_key")
        routed = transaction.topology.router.route(
            effective["dead_letter_exchange"], keys if key is None else (key,), {}, by_broker=True
        )
        for target in routed.queues:
            if target not in chain:
                chain[target] = None
                todo += [target] if drops_head(transaction.topology.queues[target]) else []
    ids = [transaction.topology.queues[name].id for name in chain if name in transaction.topology.queues]
    if ids:
        yield call("rabbit_lock_counters", entity_ids=ids)


def expire_at_head(transaction: RoutingTransaction, name: str) -> Steps[int]:
    """Remove a batch of expired messages ahead of the first message that has not expired (RMQ-012). Returns how many."""
    queue = transaction.queue(name)
    if queue is None:
        return 0
    rows = yield from lock_departing("at_head", queue, max_count=BATCH)
    yield from process_arrivals(transaction, (yield from dead_letter(transaction, name, rows, EXPIRED)))
    return len(rows)


def lock_departing(how: str, queue: QueueInfo, **params: Any) -> Steps:
    """Lock messages that are to be removed from a queue: the rows of one of the statements `rabbit_lock_departing_...`."""
    by_priority = "_by_priority" if how in ("at_head", "excess") and queue.has_priorities else ""
    dead_letters = "dead_letter_exchange" in queue.effective
    return (yield call(f"rabbit_lock_departing_{how}{by_priority}", entity_id=queue.id, dead_letters=dead_letters, **params))
