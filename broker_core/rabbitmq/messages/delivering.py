"""Delivering: what consumers and gets are given, and what they do with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from broker_core.common.arguments import require_count
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import (
    Actor,
    EntityAddress,
    EventKind,
    Right,
    SettleReport,
    SubQueue,
    sequence_number_of,
    unique_tokens,
)
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.arguments import QUORUM
from broker_core.rabbitmq.topology import compiled, queue_expiry
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.runtime.entity_cache import BoundedCache
from broker_core.runtime.pacing import BATCH, HEAD_LAG, advance_head
from broker_core.runtime.waiting import wake
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.rows import settle_report
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .dead_lettering import DELIVERY_LIMIT, REJECTED, dead_letter, lock_departing, process_arrivals
from .delivery import Delivery, as_delivery
from .length_limits import is_limited, ready
from .routing_transaction import RoutingTransaction, on_queue, transact
from .tidying import clear_head, enforce_limit

_looked_from = BoundedCache(10_000)  # database and queue -> the number at which its head bound was last looked after


@use_case
def get(
    address: EntityAddress,
    *,
    no_ack: bool = False,
    owner_id: int | None = None,
    holder: str | None = None,
    actor: Actor | None = None,
) -> Steps[Delivery | None]:
    """The message at the head of a queue, or None (RMQ-002, RMQ-128). It is use of the queue (RMQ-041).

    owner_id: the connection that is to hold it until it acknowledges it; needed unless no_ack.
    Raises AmqpError: no such queue (404), another connection's (405), or a quorum queue with a single active consumer (405,
    RMQ-387).
    """
    found = yield from _take(address, 1, no_ack, owner_id, holder, actor, is_use=True)
    if not found:
        return None
    queue, row = found[0]
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
    queue_id: int | None = None,
    actor: Actor | None = None,
) -> Steps[list[Delivery]]:
    """Up to max_count messages for a consumer, the head first, as Delivery. What has expired at the head is taken away on the way
    (RMQ-012), and none of it is ever delivered (RMQ-002).

    queue_id: only from this queue, not from one that was declared anew under its name (RMQ-150).
    Raises AmqpError: no such queue (404), or another connection's (405).
    """
    require_count("max_count", max_count)
    taken = yield from _take(address, max_count, no_ack, owner_id, holder, actor, queue_id=queue_id)
    return [as_delivery(row, address, queue) for queue, row in taken]


def _take(
    address: EntityAddress,
    max_count: int,
    no_ack: bool,
    owner_id: int | None,
    holder: str | None,
    actor: Actor | None,
    *,
    is_use: bool = False,
    queue_id: int | None = None,
) -> Steps:
    """Pairs of the queue and a row. is_use: the queue's x-expires begins anew. queue_id: see `take`."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    if owner_id is None and not no_ack:
        raise InvalidArgument(
            "owner_id", "a delivery that is to be acknowledged belongs to a connection: pass owner_id or no_ack"
        )
    who = {"owner_id": owner_id, "holder": holder or actor.holder_label}

    def attempt(queue: QueueInfo) -> Steps:
        if queue_id not in (None, queue.id):
            return None
        if is_use:
            yield from _use(address, queue)
        rows = yield from _take_from(address, queue, max_count, no_ack, who)
        return None if rows is None else [(queue, row) for row in rows]

    return (yield from on_queue(address, attempt, owner_id=owner_id))


def _use(address: EntityAddress, queue: QueueInfo) -> Steps:
    """A get: refused by a quorum queue with a single active consumer, and use of a queue that can expire (RMQ-041)."""
    if queue.type == QUORUM and queue.effective.get("single_active_consumer"):
        raise errors.no_get(address.namespace, address.path)
    if "expires" in queue.effective and (yield from queue_expiry.use(address)) is None:
        raise errors.not_found_queue(address.namespace, address.path)


def _take_from(address: EntityAddress, queue: QueueInfo, max_count: int, no_ack: bool, who: Mapping[str, Any]) -> Steps:
    """Rows of what is delivered; None: the queue is gone. What has expired at the head is taken away on the way (RMQ-012)."""
    statement = "rabbit_take_for_good" if no_ack else "rabbit_take"
    if queue.has_priorities:
        statement += "_by_priority"

    def some(count: int, *, past_expired: bool) -> Steps:
        return (yield call(statement, entity_id=queue.id, max_count=count, past_expired=past_expired, **who))

    rows = yield from some(max_count, past_expired=False)
    if not rows:
        return None
    found, expired, is_clear = _delivered(rows), rows[0].expired, True
    if expired:
        is_clear = yield from clear_head(address.namespace, address.path)
    if expired and (not found or is_clear and len(found) < max_count):
        found += _delivered((yield from some(max_count - len(found), past_expired=not is_clear)))
    yield from _look_after_head(queue, found, rows[0].head, force=expired)
    return found


def _delivered(rows: Sequence[Any]) -> list[Any]:
    return [row for row in rows if row.sequence_number is not None]


def _look_after_head(queue: QueueInfo, found: Sequence[Any], head: int, force: bool) -> Steps:
    """Raise the head bound where much is gone behind it. Where something old keeps it low, do not try at every delivery."""
    key = connections.current_database(), queue.id
    number = 0 if queue.has_priorities or not found else found[0].sequence_number
    if force or number - max(head, _looked_from.get(key, 0)) > HEAD_LAG:
        _looked_from.keep(key, number)
        yield from advance_head(queue.id, SubQueue.MAIN)


@use_case
def acknowledge(address: EntityAddress, tokens: Iterable[UUID], *, actor: Actor | None = None) -> Steps:
    """Remove what these tokens hold, also after the end of its life (RMQ-019). Returns a SettleReport; where the queue has gone,
    all are lost, and that is no error (RMQ-044)."""
    by, tokens = _settler(address, tokens, actor)
    queue = yield from _known(address)
    if not tokens or queue is None:
        return SettleReport((), tuple(tokens))
    return settle_report(tokens, (yield call("rabbit_acknowledge", entity_id=queue.id, actor=by, **_held_by(tokens))))


@use_case
def requeue(
    address: EntityAddress,
    tokens: Iterable[UUID],
    *,
    counts: bool = True,
    kind: EventKind = EventKind.ABANDONED,
    actor: Actor | None = None,
) -> Steps:
    """Give deliveries back to their place, with the instant their life ends at (RMQ-020, RMQ-116). Returns a SettleReport.

    counts: whether each was a failed delivery; one too many, and the message is dead-lettered (RMQ-121). kind: of the event.
    """
    by, tokens = _settler(address, tokens, actor)
    queue = yield from _known(address)
    if not tokens or queue is None:
        return SettleReport((), tuple(tokens))

    def steps(_: RoutingTransaction | None = None) -> Steps:
        how = {"actor": by, "counts": counts, "kind": int(kind)}
        rows = yield call("rabbit_requeue", entity_id=queue.id, **_held_by(tokens), **how)
        if rows:
            yield from _after_requeue(address, queue, rows, by)
        return settle_report(tokens, rows)

    if is_limited(queue) or "delivery_limit" in queue.effective:
        return (yield from transact(address.namespace, by, steps))
    return (yield from steps())


def _after_requeue(address: EntityAddress, queue: QueueInfo, rows: Sequence[Any], actor: str) -> Steps:
    """What came back once too often leaves (RMQ-121); what is too much leaves (RMQ-096); what has expired leaves, at the head
    (RMQ-020). Whoever waits is woken for the rest."""
    spent = [row.lock_token for row in rows if row.spent]
    if spent:
        yield from _dead_letter_held(address, spent, DELIVERY_LIMIT, actor)
    if rows[0].limited:
        yield from enforce_limit(address.namespace, address.path)
    if any(row.expired for row in rows):
        yield AfterCommit(clear_head(address.namespace, address.path))
    if rows[0].waiting:
        yield from wake([queue.id])


@use_case
def reject(address: EntityAddress, tokens: Iterable[UUID], *, actor: Actor | None = None) -> Steps:
    """Dead-letter what these tokens hold, or drop it where there is no dead-letter exchange (RMQ-060, RMQ-061). Returns a
    SettleReport."""
    by, tokens = _settler(address, tokens, actor)
    if not tokens:
        return SettleReport((), ())
    return settle_report(tokens, (yield from _dead_letter_held(address, tokens, REJECTED, by)))


def _dead_letter_held(address: EntityAddress, tokens: Sequence[UUID], reason: str, actor: str) -> Steps:
    """Take away what tokens hold. Returns the rows; none where the queue has gone."""

    def steps(work: RoutingTransaction) -> Steps:
        queue = work.queue(address.path)
        if queue is None:
            return []
        rows = yield from lock_departing("by_token", queue, **_held_by(tokens))
        yield from process_arrivals(work, (yield from dead_letter(work, address.path, rows, reason)))
        return rows

    return (yield from transact(address.namespace, actor, steps))


def _known(address: EntityAddress) -> Steps:
    """The queue behind an address, or None. Who holds a token may use it, whoever the queue belongs to."""
    queue = (yield from compiled.of(address.namespace)).queues.get(address.path)
    return queue or (yield from compiled.current(address.namespace)).queues.get(address.path)


def _settler(address: EntityAddress, tokens: Iterable[UUID], actor: Actor | None) -> tuple[str, list[UUID]]:
    """Who settles, if that is allowed, and the tokens, each once."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    return str(actor), unique_tokens(list(tokens))


def _held_by(tokens: Sequence[UUID]) -> dict[str, list]:
    """Tokens, and the numbers they carry, as statements take them."""
    return {"numbers": [sequence_number_of(token) for token in tokens], "tokens": list(tokens)}


def release_owner(vhost: str, owner_id: int) -> Steps:
    """Give back all that a connection holds, each message to its place: its delivery has failed (RMQ-123). Returns how many."""
    held: dict[EntityAddress, list[UUID]] = {}
    for row in (yield call("rabbit_held", vhost=vhost, owner_id=owner_id)):
        held.setdefault(EntityAddress(vhost, row.path), []).append(row.lock_token)
    total = 0
    for address, tokens in held.items():
        for at in range(0, len(tokens), BATCH):
            part = tokens[at : at + BATCH]
            report = yield from requeue.steps(address, part, kind=EventKind.LOCK_LOST, actor=Actor.local("broker"))
            total += len(report.settled)
    return total


@use_case
def purge_queue(address: EntityAddress, *, owner_id: int | None = None, actor: Actor | None = None) -> Steps:
    """Remove what is ready now; unacknowledged messages stay, and nothing is dead-lettered (RMQ-028, RMQ-329). Returns how many
    there were. Raises AmqpError: no such queue (404), or another connection's (405)."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)

    def attempt(queue: QueueInfo) -> Steps:
        rows = yield call("rabbit_last_number", entity_id=queue.id)
        total, walked = 0, BATCH
        while rows and walked == BATCH:
            params = {"last_number": rows[0].last_number, "max_count": BATCH, "actor": str(actor)}
            done = yield call("rabbit_purge", entity_id=queue.id, **params)
            if not done:
                return None
            total, walked = total + done[0].done, done[0].walked
        if total >= BATCH:
            yield from advance_head(queue.id, SubQueue.MAIN)
        return total if rows else None

    return (yield from on_queue(address, attempt, owner_id=owner_id))
