"""Consuming: delivering messages to consumers and gets, and settling deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from broker_core.common.arguments import require_count
from broker_core.common.errors import InvalidArgument
from broker_core.common.lock_tokens import SettleReport, sequence_number_of, settle_report, unique_tokens
from broker_core.common.types import Actor, EntityAddress, EventKind, Right, SubQueue
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.arguments import QUORUM
from broker_core.rabbitmq.topology import compiled, queue_expiry
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime.caches import BoundedCache
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, HEAD_LAG, advance_head
from broker_core.runtime.waiting import wake
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .dead_lettering import DELIVERY_LIMIT, REJECTED, dead_letter, lock_departing, process_arrivals
from .delivery import Delivery, as_delivery, take_rows
from .length_limits import is_limited, ready
from .local_consumers import Consumer
from .remote_delivery import holder_columns
from .routing_transaction import RoutingTransaction, on_queue, transact
from .tidying import clear_head, enforce_limit

_bounds_raised_at = BoundedCache(10_000)  # database and queue -> the sequence number at which its bounds were last raised


@use_case
def get(
    address: EntityAddress,
    *,
    no_ack: bool = False,
    owner_id: int | None = None,
    holder: str | None = None,
    actor: Actor | None = None,
) -> Steps[Delivery | None]:
    """Get the message at the head of a queue, or None (RMQ-002, RMQ-128). Counts as use of the queue (RMQ-041).

    owner_id: the connection that holds the message until it is acknowledged; required unless no_ack.
    Raises AmqpError: no such queue (404), exclusive to another connection (405), or a quorum queue with a single active
    consumer (405, RMQ-387).
    """
    taken = yield from _take(address, 1, no_ack, owner_id, holder, actor, is_use=True)
    if not taken:
        return None
    queue, row = taken[0]
    left = (yield from ready([queue.id]))[queue.id][0]
    return as_delivery(row, address, queue, message_count=left)


@use_case
def take(
    address: EntityAddress,
    max_count: int = 1,
    *,
    owner_id: int | None = None,
    holder: str | None = None,
    no_ack: bool = False,
    actor: Actor | None = None,
) -> Steps[list[Delivery]]:
    """Deliver up to max_count messages to a consumer, from the head, as Delivery. Expired messages at the head are removed
    first (RMQ-012) and never delivered (RMQ-002).

    Raises AmqpError: no such queue (404), or exclusive to another connection (405).
    """
    require_count("max_count", max_count)
    taken = yield from _take(address, max_count, no_ack, owner_id, holder, actor)
    return [as_delivery(row, address, queue) for queue, row in taken]


def take_for(plan: Sequence[Consumer]) -> Steps[list[Delivery]]:
    """Deliver the next messages of a queue to these consumers, one each, in order.

    Raises AmqpError: the queue no longer exists (404), or belongs to another connection (405).
    """
    first, no_ack = plan[0], all(consumer.no_ack for consumer in plan)

    def attempt(queue: QueueInfo) -> Steps:
        if queue.id != first.entity_id:
            return None
        rows = yield from _take_rows(first.address, queue, len(plan), no_ack, holder_columns(plan))
        return None if rows is None else [as_delivery(row, first.address, queue) for row in rows]

    taken = yield from on_queue(first.address, attempt, owner_id=first.owner_id)
    return taken if no_ack else (yield from acknowledged(plan, taken))


def acknowledged(plan: Sequence[Consumer], taken: Sequence[Delivery]) -> Steps[list[Delivery]]:
    """The deliveries that these consumers, one each, now get: for consumers without acknowledgements, which get a message at most
    once, the messages are removed first (RMQ-114)."""
    tokens: dict[Actor, list[UUID]] = {}
    for consumer, delivery in zip(plan, taken, strict=False):
        if consumer.no_ack and delivery.token:
            tokens.setdefault(consumer.channel.connection.actor, []).append(delivery.token)
    for actor, own in tokens.items():
        yield from acknowledge.steps(plan[0].address, own, actor=actor)
    return [
        replace(delivery, token=None) if consumer.no_ack else delivery for consumer, delivery in zip(plan, taken, strict=False)
    ]


def _take(
    address: EntityAddress,
    max_count: int,
    no_ack: bool,
    owner_id: int | None,
    holder: str | None,
    actor: Actor | None,
    *,
    is_use: bool = False,
) -> Steps:
    """Deliver messages, as pairs of QueueInfo and row. is_use: resets the queue's x-expires."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    if owner_id is None and not no_ack:
        raise InvalidArgument(
            "owner_id", "a delivery that is to be acknowledged belongs to a connection: pass owner_id or no_ack"
        )
    holders: dict[str, list] = {"owner_ids": [owner_id], "holders": [holder or actor.holder_label], "consumer_ids": [None]}

    def attempt(queue: QueueInfo) -> Steps:
        if is_use:
            yield from _check_get(address, queue)
        rows = yield from _take_rows(address, queue, max_count, no_ack, holders)
        return None if rows is None else [(queue, row) for row in rows]

    return (yield from on_queue(address, attempt, owner_id=owner_id))


def _check_get(address: EntityAddress, queue: QueueInfo) -> Steps:
    """Check a get and record the use of a queue that can expire (RMQ-041); a quorum queue with a single active consumer
    refuses it."""
    if queue.type == QUORUM and queue.effective.get("single_active_consumer"):
        raise errors.no_get(address.namespace, address.path)
    if "expires" in queue.effective and (yield from queue_expiry.use(address)) is None:
        raise errors.not_found_queue(address.namespace, address.path)


def _take_rows(address: EntityAddress, queue: QueueInfo, max_count: int, no_ack: bool, holders: Mapping[str, list]) -> Steps:
    """Rows of the deliveries; None: the queue no longer exists. Expired messages at the head are removed first (RMQ-012).

    holders: as `holder_columns`, for each of max_count messages, or one for all.
    """

    def take_after(count: int, *, past_expired: bool) -> Steps:
        columns = {name: values[count:] if len(values) == max_count else values for name, values in holders.items()}
        return (yield from take_rows(queue, no_ack=no_ack, max_count=max_count - count, past_expired=past_expired, **columns))

    rows = yield from take_after(0, past_expired=False)
    if not rows:
        return None
    delivered, expired, is_clear = _delivered(rows), rows[0].expired, True
    if expired:
        is_clear = yield from clear_head(address.namespace, address.path)
    if expired and (not delivered or is_clear and len(delivered) < max_count):
        delivered += _delivered((yield from take_after(len(delivered), past_expired=not is_clear)))
    yield from _raise_bounds(queue, delivered, rows[0].start, force=expired)
    return delivered


def _delivered(rows: Sequence[Any]) -> list[Any]:
    return [row for row in rows if row.sequence_number is not None]


def _raise_bounds(queue: QueueInfo, delivered: Sequence[Any], start: int, force: bool) -> Steps:
    """Raise the bounds after many messages were removed, or while many are unacknowledged. Does not retry on every delivery while
    an old message keeps them low. start: where the delivery began to walk."""
    key = connections.current_database(), queue.id
    number = 0 if queue.has_priorities else next((row.sequence_number for row in delivered if row.sequence_number >= start), 0)
    if force or number - max(start, _bounds_raised_at.get(key, 0)) > HEAD_LAG:
        _bounds_raised_at.keep(key, number)
        yield from advance_head(queue.id, SubQueue.MAIN)


@use_case
def acknowledge(address: EntityAddress, tokens: Iterable[UUID], *, actor: Actor | None = None) -> Steps:
    """Remove the messages held by these tokens, even if they have expired (RMQ-019). Returns a SettleReport; if the queue was
    deleted, all tokens are lost, which is not an error (RMQ-044)."""
    by, tokens = _authorized(address, tokens, actor)
    queue = yield from _find_queue(address)
    if not tokens or queue is None:
        return SettleReport((), tuple(tokens))
    return (yield from _acknowledgements.call((queue.id, by), tokens))


def _acknowledge(key: tuple[int, str], tokens: Sequence[UUID]) -> Steps:
    entity_id, by = key
    return (yield (yield from ending("rabbit_acknowledge", entity_id, actor=by, **_token_columns(tokens))))


@use_case
def requeue(
    address: EntityAddress,
    tokens: Iterable[UUID],
    *,
    counts: bool = True,
    delivered: bool = True,
    kind: EventKind = EventKind.ABANDONED,
    reason: str | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Return deliveries to their original positions with their expiry unchanged (RMQ-020, RMQ-116). Returns a SettleReport.

    counts: whether this counts as a failed delivery; at the delivery limit the message is dead-lettered (RMQ-121). delivered:
    False if the messages never reached their client, which then sees them without the redelivered flag (RMQ-119). kind: of the
    event; reason: of an operator, for the event.
    """
    by, tokens = _authorized(address, tokens, actor)
    if not tokens:
        return SettleReport((), ())
    return (yield from _requeues.call((address, _Requeue(by, counts, delivered, int(kind), reason)), tokens))


class _Requeue(NamedTuple):
    """How messages are requeued, as statement parameters."""

    actor: str
    counts: bool
    delivered: bool
    kind: int
    reason: str | None = None


def _requeue(key: tuple[EntityAddress, _Requeue], tokens: Sequence[UUID]) -> Steps:
    address, how = key
    queue = yield from _find_queue(address)
    if queue is None:
        return []

    def steps(_: RoutingTransaction | None = None) -> Steps:
        rows = yield call("rabbit_requeue", entity_id=queue.id, **_token_columns(tokens), **how._asdict())
        if rows:
            yield from _after_requeue(address, queue, rows, how.actor)
        return rows

    if is_limited(queue) or "delivery_limit" in queue.effective:
        return (yield from transact(address.namespace, how.actor, steps))
    return (yield from steps())


def requeue_held(queue_id: int, actor: Actor) -> Steps[None]:
    """Requeue all messages that connections hold of a queue which was restored, in the transaction that does so, as failed
    deliveries. One at its delivery limit stays, and is dead-lettered after its next failure."""
    held = yield call("rabbit_held_of", entity_id=queue_id)
    for counts in (True, False):
        how = _Requeue(str(actor), counts=counts, delivered=True, kind=int(EventKind.LOCK_LOST), reason="restored")
        for at in range(0, len(held), BATCH):
            tokens = [row.lock_token for row in held[at : at + BATCH]]
            yield call("rabbit_requeue", entity_id=queue_id, **_token_columns(tokens), **how._asdict())


def requeue_undelivered(transaction: RoutingTransaction, queue: QueueInfo, tokens: Sequence[UUID]) -> Steps[list[int]]:
    """Requeue messages that never reached their client, in the caller's transaction, which delivers or removes them. Returns
    their sequence numbers."""
    how = _Requeue(transaction.actor, counts=False, delivered=False, kind=int(EventKind.ABANDONED))
    rows = yield call("rabbit_requeue", entity_id=queue.id, **_token_columns(tokens), **how._asdict())
    return sorted(row.sequence_number for row in rows)


def _after_requeue(address: EntityAddress, queue: QueueInfo, rows: Sequence[Any], actor: str) -> Steps:
    """Dead-letter messages over the delivery limit (RMQ-121), enforce the length limit (RMQ-096), expire at the head
    (RMQ-020), and wake waiting receivers."""
    spent = [row.lock_token for row in rows if row.spent]
    if spent:
        yield from _dead_letter_unacked(address, spent, DELIVERY_LIMIT, actor)
    if rows[0].limited:
        yield from enforce_limit(address.namespace, address.path)
    if any(row.expired for row in rows):
        yield AfterCommit(clear_head(address.namespace, address.path))
    yield from wake([queue.id], rows[0].waiting)


@use_case
def reject(address: EntityAddress, tokens: Iterable[UUID], *, actor: Actor | None = None) -> Steps:
    """Dead-letter the messages held by these tokens, or drop them without a dead-letter exchange (RMQ-060, RMQ-061). Returns a
    SettleReport."""
    by, tokens = _authorized(address, tokens, actor)
    if not tokens:
        return SettleReport((), ())
    return (yield from _rejections.call((address, by), tokens))


def _reject(key: tuple[EntityAddress, str], tokens: Sequence[UUID]) -> Steps:
    address, by = key
    return (yield from _dead_letter_unacked(address, tokens, REJECTED, by))


def _gathering(settle: Callable[[Any, Sequence[UUID]], Steps]) -> Gathering[Sequence[UUID], SettleReport]:
    """Concurrent settlements of a queue's deliveries are made together. settle: returns rows of the tokens that were valid."""

    def together(key: Any, groups: Sequence[Sequence[UUID]]) -> Steps[list[SettleReport]]:
        rows = yield from settle(key, list(dict.fromkeys(token for tokens in groups for token in tokens)))
        settled = {row.lock_token: row for row in rows}
        return [settle_report(list(tokens), [settled.pop(t) for t in tokens if t in settled]) for tokens in groups]

    return Gathering(together)


_acknowledgements, _requeues, _rejections = _gathering(_acknowledge), _gathering(_requeue), _gathering(_reject)


def _dead_letter_unacked(address: EntityAddress, tokens: Sequence[UUID], reason: str, actor: str) -> Steps:
    """Dead-letter the messages held by these tokens. Returns their rows; none if the queue was deleted."""

    def steps(transaction: RoutingTransaction) -> Steps:
        queue = transaction.queue(address.path)
        if queue is None:
            return []
        rows = yield from lock_departing("by_token", queue, **_token_columns(tokens))
        yield from process_arrivals(transaction, (yield from dead_letter(transaction, address.path, rows, reason)))
        return rows

    return (yield from transact(address.namespace, actor, steps))


def _find_queue(address: EntityAddress) -> Steps:
    """The queue at an address, or None. Exclusive ownership is not checked: the token is sufficient."""
    queue = (yield from compiled.cached(address.namespace)).queues.get(address.path)
    return queue or (yield from compiled.current(address.namespace)).queues.get(address.path)


def _authorized(address: EntityAddress, tokens: Iterable[UUID], actor: Actor | None) -> tuple[str, list[UUID]]:
    """Check that the actor may settle. Returns its name and the distinct tokens."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    return str(actor), unique_tokens(list(tokens))


def _token_columns(tokens: Sequence[UUID]) -> dict[str, list]:
    """Tokens and the sequence numbers they contain, as statement parameters."""
    return {"numbers": [sequence_number_of(token) for token in tokens], "tokens": list(tokens)}


def release_owner(vhost: str, owner_id: int) -> Steps:
    """Requeue all messages that a connection holds, each as a failed delivery (RMQ-123). Returns how many."""
    tokens_by_address: dict[EntityAddress, list[UUID]] = {}
    for row in (yield call("rabbit_held", vhost=vhost, owner_id=owner_id)):
        tokens_by_address.setdefault(EntityAddress(vhost, row.path), []).append(row.lock_token)
    total = 0
    for address, tokens in tokens_by_address.items():
        for at in range(0, len(tokens), BATCH):
            part = tokens[at : at + BATCH]
            report = yield from requeue.steps(address, part, kind=EventKind.LOCK_LOST, actor=Actor.local("broker"))
            total += len(report.settled)
    return total


@use_case
def purge_queue(address: EntityAddress, *, owner_id: int | None = None, actor: Actor | None = None) -> Steps:
    """Remove all ready messages; unacknowledged messages stay, and nothing is dead-lettered (RMQ-028, RMQ-329). Returns how
    many were removed. Raises AmqpError: no such queue (404), or exclusive to another connection (405)."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)

    def attempt(queue: QueueInfo) -> Steps:
        rows = yield call("rabbit_last_number", entity_id=queue.id)
        total, walked = 0, BATCH
        while rows and walked == BATCH:
            params = {"last_number": rows[0].last_number, "max_count": BATCH, "actor": str(actor)}
            done = yield (yield from ending("rabbit_purge", queue.id, **params))
            if not done:
                return None
            total, walked = total + done[0].done, done[0].walked
        if total >= BATCH:
            yield from advance_head(queue.id, SubQueue.MAIN)
        return total if rows else None

    return (yield from on_queue(address, attempt, owner_id=owner_id))
