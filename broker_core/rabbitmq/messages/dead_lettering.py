"""Dead-lettering: a message leaves its queue and, if that has a dead-letter exchange, is published there, in one transaction
(RMQ-060 to RMQ-080, RMQ-911). Its body stays in the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any

from broker_core.common.types import EventKind
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime.pacing import BATCH, ROUNDS
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .length_limits import drops_head, is_limited
from .local_delivery import deliver_from_head, hand_over
from .placing import MOST_HOPS, Outgoing, Placing, dead_letter_copy
from .routing_transaction import RoutingTransaction, Stale

Arrived = Mapping[str, Sequence[int]]  # by the names of queues, the numbers that dead letters have there
_Visit = tuple[str, Sequence[int], int]  # a queue, what has arrived there, and how many queues that went through
EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"


def dead_letter(work: RoutingTransaction, name: str, rows: Sequence[Any], reason: str, *, goes_on: bool = True) -> Steps[Arrived]:
    """Take messages away that this transaction holds, as `lock_departing` gave them, and publish what they become.

    goes_on: False drops them although there is a dead-letter exchange.
    Returns what the queues got that got something, which is for `process_arrivals`.
    """
    queue = work.queue(name)
    if queue is None or not rows:
        return {}
    placing, fates = Placing(work), []
    for row in rows:
        fates.append((yield from _fate(work, placing, name, queue, row, reason, goes_on)))
    firsts = yield from remove_and_store(work, queue, rows, fates, reason, placing)
    return {placing.names[id]: range(first, first + len(placing.picks[id])) for id, first in firsts.items()}


def remove_and_store(
    work: RoutingTransaction,
    queue: QueueInfo,
    rows: Sequence[Any],
    fates: Sequence[tuple[EventKind, str | None]],
    reason: str,
    placing: Placing,
) -> Steps:
    """Take messages away that this transaction holds, and store what was placed of them elsewhere.

    fates: for each the kind of its last event, and why it goes nowhere. Returns the first number that each queue gave, by its id.
    """
    if any(drops_head(target) for target in map(work.queue, placing.names.values()) if target is not None):
        yield from lock_dead_letter_chain(work, placing.names.values())
    done = yield call(
        "rabbit_bury",
        entity_id=queue.id,
        topology_version=work.topology.version,
        actor=work.actor,
        reason=reason,
        numbers=[row.sequence_number for row in rows],
        kinds=[kind for kind, _ in fates],
        whys=[why for _, why in fates],
        **placing.columns(),
    )
    if not done or done[0].targets < len(placing.picks):  # a queue was deleted while this waited for it
        raise Stale
    work.waiting.update(done[0].waiting)
    return dict(zip(done[0].stored_in, done[0].firsts, strict=True))


def _fate(work: RoutingTransaction, placing: Placing, name: str, queue: QueueInfo, row: Any, reason: str, goes_on: bool) -> Steps:
    """The kind of a message's last event, and why it goes nowhere if it was to go somewhere."""
    gone = EventKind.EXPIRED if reason == EXPIRED else EventKind.DROPPED
    if "dead_letter_exchange" not in queue.effective:
        return gone, None
    if not goes_on:
        return EventKind.DROPPED, f"It would have passed through more than {MOST_HOPS} queues at once."
    dead = dead_letter_copy(work, name, queue, as_outgoing(row), reason, row.now)
    if dead.letter is None:
        return EventKind.DROPPED, dead.why
    placed = yield from placing.put(dead.letter, dead.queues)
    if not placed.taken:
        return EventKind.DROPPED, f"'{placed.refused[0]}' is full (RMQ-093)." if placed.refused else None
    return EventKind.MOVED, None


def as_outgoing(row: Any) -> Outgoing:
    return Outgoing(row.sequence_number, row.size, row.message_id, row.properties, row.application_properties)


def enforce_limits(work: RoutingTransaction, names: Iterable[str]) -> Steps[int]:
    """Take away what these queues have more than they may, from the head (RMQ-091), and go on where that arrives.

    The transaction holds their counters: nobody adds to them meanwhile. Returns how many messages were taken away.
    """
    return (yield from _go_on(work, deque((name, (), 0) for name in names)))


def process_arrivals(work: RoutingTransaction, arrived: Arrived) -> Steps[int]:
    """What follows where messages have arrived: consumers of this process come first, then what may live for no time has expired
    (RMQ-016), and what is too much leaves; and on where that arrives. Returns how many messages were taken away."""
    return (yield from _go_on(work, deque((name, numbers, 0) for name, numbers in arrived.items())))


def _go_on(work: RoutingTransaction, todo: deque[_Visit]) -> Steps[int]:
    """From queue to queue, as long as dead letters arrive."""
    total = 0
    while todo:
        name, numbers, hops = todo.popleft()
        queue = work.queue(name)
        if queue is None:
            continue
        if numbers:
            expired = yield from _serve(work, name, queue, numbers)
            total += yield from _leave(work, todo, name, expired, EXPIRED, hops)
        for _ in range(ROUNDS if drops_head(queue) else 0):
            rows = yield from lock_departing("over", queue, max_count=BATCH)
            expired = list(takewhile(attrgetter("expired"), rows))  # these would have gone before, had anybody looked
            total += yield from _leave(work, todo, name, expired, EXPIRED, hops)
            total += yield from _leave(work, todo, name, rows[len(expired) :], MAXLEN, hops)
            if len(rows) < BATCH:
                break
    return total


def _serve(work: RoutingTransaction, name: str, queue: QueueInfo, numbers: Sequence[int]) -> Steps[Sequence[Any]]:
    """Messages that have arrived are consumers' before they count. Returns those that have expired since nobody has room."""
    if queue.lets_nothing_wait:
        left = yield from hand_over(work, name, queue, numbers)
        return (yield from lock_departing("by_number", queue, numbers=left)) if left else ()
    if is_limited(queue):
        yield from deliver_from_head(work, name)
    return ()


def _leave(work: RoutingTransaction, todo: deque[_Visit], name: str, rows: Sequence[Any], reason: str, hops: int) -> Steps[int]:
    """Dead-letter what leaves a queue; where it arrives is still to be visited. Returns how many messages those were."""
    arrived = yield from dead_letter(work, name, rows, reason, goes_on=hops < MOST_HOPS)
    todo.extend((target, numbers, hops + 1) for target, numbers in arrived.items())
    return len(rows)


def lock_dead_letter_chain(work: RoutingTransaction, names: Iterable[str], keys: Sequence[str] = ()) -> Steps[None]:
    """Hold the counters of these queues, and of those that what is too much in them goes to, on and on: all in one order, so that
    two who come from different ends do not meet crosswise.

    keys: of what may go, where no key is set for dead letters. A guess: who meets crosswise all the same tries again.
    """
    found = dict.fromkeys(names)
    todo = [name for name in found if (queue := work.queue(name)) is not None and drops_head(queue)]
    for name in todo:
        in_force = work.topology.queues[name].effective
        if "dead_letter_exchange" not in in_force:
            continue
        key = in_force.get("dead_letter_routing_key")
        routed = work.topology.router.route(in_force["dead_letter_exchange"], keys if key is None else (key,), {}, by_broker=True)
        for target in routed.queues:
            if target not in found:
                found[target] = None
                todo += [target] if drops_head(work.topology.queues[target]) else []
    ids = [work.topology.queues[name].id for name in found if name in work.topology.queues]
    if ids:
        yield call("rabbit_lock_counters", entity_ids=ids)


def expire_at_head(work: RoutingTransaction, name: str) -> Steps[int]:
    """Take away a batch of what has expired before the first message that lives (RMQ-012). Returns how many those were."""
    queue = work.queue(name)
    if queue is None:
        return 0
    rows = yield from lock_departing("at_head", queue, max_count=BATCH)
    yield from process_arrivals(work, (yield from dead_letter(work, name, rows, EXPIRED)))
    return len(rows)


def lock_departing(how: str, queue: QueueInfo, **params: Any) -> Steps:
    """Hold messages that are to leave a queue: the rows of one of the statements `rabbit_dying_...`."""
    by_priority = "_by_priority" if how in ("at_head", "over") and queue.has_priorities else ""
    dead_letters = "dead_letter_exchange" in queue.effective
    return (yield call(f"rabbit_dying_{how}{by_priority}", entity_id=queue.id, dead_letters=dead_letters, **params))
