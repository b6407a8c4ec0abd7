"""Channels: delivery tags, acknowledgements, prefetch, and the consumers whose deliveries are fetched here.

Each function is a use case that a front end can await; Channel offers them as methods for synchronous code. An error that
closes a channel closes it here too: its deliveries are requeued and its consumers end (RMQ-123).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import groupby
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from broker_core.common.arguments import require_count, require_kind
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import EntityAddress, EventKind, Right
from broker_core.rabbitmq.messages import delivering, local_consumers, publishing, tidying
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.local_consumers import Consumer, registry
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.display_state import DEFAULT_TIMEOUT
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.names import TAG_PREFIX, generated
from broker_core.rabbitmq.topology import compiled, queues
from broker_core.rabbitmq.topology.vhosts import hold_vhost
from broker_core.runtime.pacing import BATCH
from broker_core.runtime.waiting import poll_for_messages
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import UseCase, complete_only, use_case

from . import consumers, ending
from .state import ChannelState, Tagged

P = ParamSpec("P")
T = TypeVar("T")
MOST_PREFETCH = 65_535


def _keep_result(result: Any, asked: Mapping[str, Any]) -> Steps[None]:
    """Keep the result of a cancelled call: consumer deliveries are returned by the next call, the result of a get is requeued.
    The stored state and the channel's state thus stay consistent."""
    channel = asked["channel"]
    if isinstance(result, list):
        channel.kept += [found for found in result if isinstance(found, Tagged)]
    elif isinstance(result, Tagged) and result.delivery_tag in channel.unacked:
        yield from nack.steps(channel, result.delivery_tag)


def _on_channel(steps: Callable[Concatenate[Channel, P], Steps[T]]) -> UseCase[Concatenate[Channel, P], T]:
    """A use case on an open channel. An AmqpError closes the channel, or the whole connection, before it is raised."""

    @wraps(steps)
    def guarded(channel: Channel, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        channel.require_open()
        try:
            channel.require_in_time()
            return (yield from steps(channel, *args, **kwargs))
        except AmqpError as refusal:
            with suppress(BrokerError):  # unreleased messages are requeued when the connection ends
                if refusal.is_connection_error:
                    yield from ending.close_because(channel.connection, refusal)
                else:
                    yield from _close(channel, refusal)
            raise

    return UseCase(guarded, on_cancel=_keep_result)


@_on_channel
def publish(channel: Channel, publications: Sequence[Any]) -> Steps:
    """Publish (see publishing.publish). Messages with a TTL of zero are delivered to consumers at once (RMQ-016)."""
    connection = channel.connection
    return (yield from publishing.publish.steps(connection.vhost, publications, owner_id=connection.id, actor=connection.actor))


@_on_channel
def get(channel: Channel, queue: str = "", *, no_ack: bool = False) -> Steps:
    """The next message of a queue, or None; prefetch does not apply (RMQ-128, RMQ-144). An empty result also counts as use
    (RMQ-041)."""
    connection, address = channel.connection, channel.address(queue)
    delivery = yield from delivering.get.steps(
        address, no_ack=no_ack, owner_id=connection.id, holder=connection.name, actor=connection.actor
    )
    if delivery is None:
        return None
    yield from _require_still_open(channel, () if no_ack else [delivery])
    info = (yield from compiled.cached(connection.vhost)).queues.get(address.path)
    return channel.tag(delivery, info.id if info else 0, None, no_ack)


@_on_channel
def consume(
    channel: Channel,
    queue: str = "",
    *,
    tag: str = "",
    no_ack: bool = False,
    exclusive: bool = False,
    priority: int | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Steps:
    """Start a consumer. Returns its tag, `amq.ctag-` and 22 characters if none is given.

    exclusive: no other consumer is allowed (RMQ-149). priority: instead of the argument x-priority.
    """
    address = channel.address(queue)
    channel.connection.actor.require(Right.LISTEN, address)
    if not isinstance(tag, str) or len(tag.encode()) > 255:
        raise InvalidArgument("tag", f"{tag!r} must be a string of at most 255 bytes")
    if tag in channel.consumers:
        raise errors.consumer_tag_reused(tag)
    tag = tag or generated(TAG_PREFIX, os.urandom(16))
    arguments = arguments or {}
    found = yield from consumers.open_queue(address, channel.connection.id)
    registering = consumers.register(
        channel, address, found.id, tag=tag, no_ack=no_ack, exclusive=exclusive, priority=priority, arguments=arguments
    )
    consumer = yield Atomically(registering)
    channel.consumers[tag] = consumer
    registry.add(consumer)
    return tag


@_on_channel
def cancel(channel: Channel, tag: str) -> Steps:
    """Cancel a consumer; its deliveries remain to be acknowledged (RMQ-124). An unknown tag is ignored (RMQ-147)."""
    if (consumer := channel.consumers.get(tag)) is not None:
        yield Atomically(consumers.unregister(consumer))
        registry.drop(consumer)
        channel.consumers.pop(tag, None)


@_on_channel
def deliveries(channel: Channel, max_count: int = 1, *, max_wait_seconds: float = 0) -> Steps:
    """Up to max_count deliveries to the channel's consumers within their credit; waits up to max_wait_seconds for the first
    one.

    Consumers of equal priority are served round-robin, higher priorities first (RMQ-145). Consumers of a deleted queue end,
    and their tags are in `cancelled` (RMQ-146). While waiting, expired messages of other queues are dead-lettered about once a
    second (RMQ-920).
    """
    require_count("max_count", max_count)

    def take() -> Steps:
        channel.require_open()
        channel.require_in_time()
        found = _fetch_buffered(channel, max_count)
        if not found and channel.consumers:
            found = yield from _take_from_all(channel, max_count)
            if not found and channel.waits and (yield from tidying.dead_letter_expired_heads(channel.connection.vhost)):
                found = _fetch_buffered(channel, max_count) or (yield from _take_from_all(channel, max_count))
            channel.last_fetch_was_empty = not found
        return found

    found = yield from take()
    if found or max_wait_seconds <= 0:
        return found
    channel.waits = True
    try:
        entity_ids = tuple({consumer.entity_id for consumer in channel.consumers.values()})
        return (yield from poll_for_messages(take, entity_ids, max_wait_seconds))
    finally:
        channel.waits = False


@_on_channel
def qos(channel: Channel, prefetch: int = 0, *, global_: bool = False, prefetch_size: int = 0) -> Steps:
    """Set the maximum number of unacknowledged deliveries: of each consumer started later, or of the whole channel."""
    if prefetch_size:
        raise errors.not_implemented(f"prefetch_size!=0 ({prefetch_size})")
    if not isinstance(prefetch, int) or isinstance(prefetch, bool) or not 0 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument("prefetch", f"{prefetch!r} must be a whole number from 0 to {MOST_PREFETCH}")
    if not global_:
        channel.prefetch = prefetch
        return
    channel.prefetch_of_all = prefetch
    if channel.consumers:
        yield call("set_channel_prefetch", connection_id=channel.connection.id, channel=channel.number, prefetch=prefetch)


@_on_channel
def ack(channel: Channel, delivery_tag: int = 0, *, multiple: bool = False) -> Steps:
    """Acknowledge one delivery, or all up to it; tag 0 with multiple: all outstanding ones (RMQ-112, RMQ-113)."""
    yield from _settle(channel, _selected_tags(channel, delivery_tag, multiple), delivering.acknowledge.steps)


@_on_channel
def nack(channel: Channel, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> Steps:
    """Reject deliveries: requeue, or dead-letter or drop them (RMQ-115, RMQ-116)."""
    how = delivering.requeue.steps if requeue else delivering.reject.steps
    yield from _settle(channel, _selected_tags(channel, delivery_tag, multiple), how)


@_on_channel
def reject(channel: Channel, delivery_tag: int, *, requeue: bool = True) -> Steps:
    """Reject one delivery."""
    how = delivering.requeue.steps if requeue else delivering.reject.steps
    yield from _settle(channel, _selected_tags(channel, delivery_tag, multiple=False), how)


@_on_channel
def recover(channel: Channel, *, requeue: bool = True) -> Steps:
    """Requeue all deliveries that the channel holds (RMQ-125)."""
    if not requeue:
        raise errors.not_implemented("requeue=false")
    yield from _settle(channel, list(channel.unacked), delivering.requeue.steps)


@_on_channel
def declare_queue(channel: Channel, queue: str = "", *, exclusive: bool = False, **options: Any) -> Steps:
    """Declare a queue (see queues.declare_queue) and make it the channel's last declared queue. The connection owns an
    exclusive one."""
    connection, address = channel.connection, EntityAddress(channel.connection.vhost, queue)
    options |= {"exclusive": exclusive, "owner_id": connection.id, "actor": connection.actor}

    def steps() -> Steps:
        yield from hold_vhost(connection.vhost)
        if not (yield call("hold_connection", connection_id=connection.id)):
            raise connection.lost("its process was declared dead")
        return (yield from queues.declare_queue.steps(address, **options))

    if exclusive:
        declared = yield Atomically(steps())
    else:
        declared = yield from queues.declare_queue.steps(address, **options)
    channel.last_queue = declared.address.path
    return declared


@_on_channel
def delete_queue(channel: Channel, queue: str = "", *, if_unused: bool = False, if_empty: bool = False) -> Steps:
    """Delete a queue (see queues.delete_queue). Returns how many messages were ready."""
    connection, address = channel.connection, channel.address(queue)
    who: dict[str, Any] = {"owner_id": connection.id, "actor": connection.actor}
    return (yield from queues.delete_queue.steps(address, if_unused=if_unused, if_empty=if_empty, **who))


@use_case(on_cancel=complete_only)
def close(channel: Channel) -> Steps:
    """Close a channel; has no effect if it is closed or lost."""
    yield from _close(channel, AmqpError("CHANNEL_ERROR", "expected 'channel.open'"))


@use_case
def end_overdue(*, default_timeout: int = DEFAULT_TIMEOUT) -> Steps:
    """Requeue deliveries that were not acknowledged in time and notify their channels, which close at their next use
    (RMQ-126); also requeue deliveries made to a connection while it was being ended. For a sweep.

    default_timeout: milliseconds, for queues without a timeout of their own (RMQ-127).
    """
    total = 0
    while True:
        rows = yield call("overdue_deliveries", default_timeout=default_timeout, max_count=BATCH)
        for (vhost, path), group in groupby(rows, key=lambda row: (row.vhost, row.path)):
            overdue = list(group)
            tokens = [row.lock_token for row in overdue]
            yield from delivering.requeue.steps(EntityAddress(vhost, path), tokens, kind=EventKind.LOCK_LOST)
            for row in overdue:
                notice = f"overdue {row.lock_token} {row.milliseconds}"
                yield call("notify_connection", connection_id=row.owner_id, notice=notice)
        total += len(rows)
        if len(rows) < BATCH:
            return {"overdue": total} if total else {}


def _close(channel: Channel, because: Exception) -> Steps:
    """Requeue all deliveries of the channel, in order, then end its consumers (RMQ-123)."""
    if channel.closed is not None:
        return
    channel.end(because)
    if channel.connection.closed is not None:
        return
    held = [unacked.delivery for unacked in channel.unacked.values()]
    held += [delivery for _, delivery in channel.buffered]
    had_consumers = bool(channel.consumers)
    channel.unacked.clear()
    channel.buffered.clear()
    channel.kept.clear()
    channel.consumers.clear()
    yield from channel.release_unclaimed(held)
    if had_consumers:
        yield Atomically(_remove_consumers(channel))


def _remove_consumers(channel: Channel) -> Steps:
    held = yield from hold_vhost(channel.connection.vhost)
    yield from consumers.remove_consumers(channel.connection.id, channel.number, held)


def _fetch_buffered(channel: Channel, count: int) -> list[Tagged]:
    """Deliveries buffered in memory. Deliveries kept for a cancelled call may have been settled since."""
    found: list[Tagged] = []
    while channel.kept and len(found) < count:
        kept = channel.kept.popleft()
        if kept.token is None or kept.delivery_tag in channel.unacked:
            found.append(kept)
    while channel.buffered and len(found) < count:
        consumer, delivery = channel.buffered.popleft()
        found.append(channel.tag(delivery, consumer.entity_id, consumer, consumer.no_ack))
    return found


def _take_from_all(channel: Channel, count: int) -> Steps:
    """Deliveries of the queues the channel consumes from, in turn. An error of one queue is raised only if no other queue had
    deliveries."""
    if channel.needs_refresh():
        yield from _refresh(channel)
    found: list[Tagged] = []
    for group in channel.in_turn():
        try:
            found += yield from _take(channel, group, count - len(found))
        except BrokerError:
            if not found:
                raise
        if found and (len(found) == count or not channel.is_open):
            break
    return found


def _refresh(channel: Channel) -> Steps:
    """Update which consumers still exist, and which are active."""
    rows = yield call("channel_consumers", connection_id=channel.connection.id, channel=channel.number)
    if not rows:
        raise channel.connection.lost("another process closed it")
    channel.refreshed_at = time.monotonic()
    may_take = {row.consumer_id: row.may_take for row in rows}
    for consumer in list(channel.consumers.values()):
        if consumer.id in may_take:
            consumer.may_take = may_take[consumer.id]
        else:
            _end_consumer_of_deleted_queue(channel, consumer)


def _end_consumer_of_deleted_queue(channel: Channel, consumer: Consumer) -> None:
    registry.drop(consumer)
    channel.consumers.pop(consumer.tag, None)
    channel.cancelled.append(consumer.tag)


def _take(channel: Channel, group: Sequence[Consumer], count: int) -> Steps:
    """Deliveries of one queue to these consumers, in turns."""
    with local_consumers.reserve(group, count) as plan:
        taken = (yield from _take_for(channel, plan)) if plan else []
        for consumer, _ in zip(plan, taken, strict=False):
            consumer.count(1)
    return [channel.tag(d, c.entity_id, c, c.no_ack) for c, d in zip(plan, taken, strict=False)]


def _take_for(channel: Channel, plan: Sequence[Consumer]) -> Steps:
    first = plan[0]
    try:
        taken = yield from delivering.take_for(plan)
    except AmqpError as refusal:
        if refusal.reply_name not in ("NOT_FOUND", "RESOURCE_LOCKED"):  # redeclared as exclusive by another connection
            raise
        for consumer in dict.fromkeys(plan):
            _end_consumer_of_deleted_queue(channel, consumer)
        return []
    yield from _require_still_open(channel, () if first.no_ack else taken)
    return taken


def _require_still_open(channel: Channel, taken: Sequence[Delivery]) -> Steps:
    """Requeue deliveries made to a connection that was ended while its process was suspended, and raise why it ended."""
    if channel.connection.is_lost and taken:
        with suppress(BrokerError):
            yield from channel.release_unclaimed(taken)
    channel.connection.require_open()


def _selected_tags(channel: Channel, delivery_tag: int, multiple: bool) -> list[int]:
    """The delivery tags that a settlement refers to. Raises AmqpError (406) if the given tag is not outstanding."""
    require_kind("delivery_tag", delivery_tag, int)  # any other unknown value would close the channel
    if multiple and delivery_tag == 0:
        return list(channel.unacked)
    if delivery_tag not in channel.unacked:
        raise errors.unknown_delivery_tag(delivery_tag)
    return [tag for tag in channel.unacked if tag <= delivery_tag] if multiple else [delivery_tag]


def _settle(channel: Channel, tags: Sequence[int], how: Callable[..., Steps]) -> Steps:
    """Settle deliveries queue by queue. A deleted queue is ignored (RMQ-044); if a delivery is no longer held by this
    connection, the reason is raised."""
    chosen = {tag: channel.unacked.pop(tag) for tag in sorted(tags)}
    lost: set[UUID] = set()
    try:
        for address, tokens in _by_queue(unacked.delivery for unacked in chosen.values()):
            report = yield from how(address, tokens, actor=channel.connection.actor)
            lost.update(report.lost)
    except BrokerError:
        channel.unacked = dict(sorted((chosen | channel.unacked).items()))
        raise
    for unacked in chosen.values():
        if unacked.consumer is not None:
            unacked.consumer.count(-1)
    if lost:
        yield from _raise_settlement_failure(
            channel, {unacked.entity_id for unacked in chosen.values() if unacked.delivery.token in lost}
        )


def _raise_settlement_failure(channel: Channel, entity_ids: Iterable[int]) -> Steps:
    """Raise why deliveries of these queues are no longer held by the channel, unless the queues were deleted (RMQ-044)."""
    (row,) = yield call(
        "settlement_failure", connection_id=channel.connection.id, entity_ids=list(entity_ids), default_timeout=DEFAULT_TIMEOUT
    )
    if not row.is_connected:
        raise channel.connection.lost("another process closed it")
    if row.milliseconds is not None:
        raise errors.acknowledgement_timed_out(channel.number, row.milliseconds)


def _by_queue(deliveries: Iterable[Delivery]) -> list[tuple[EntityAddress, list[UUID]]]:
    """The tokens of each queue, in delivery order."""
    found: dict[EntityAddress, list[UUID]] = {}
    for delivery in deliveries:
        if delivery.token is not None:
            found.setdefault(delivery.address, []).append(delivery.token)
    return list(found.items())


class Channel(ChannelState):
    """A channel of a connection. Its methods are the use cases above, called from one thread at a time."""

    publish = publish
    get = get
    consume = consume
    cancel = cancel
    deliveries = deliveries
    qos = qos
    ack = ack
    nack = nack
    reject = reject
    recover = recover
    declare_queue = declare_queue
    delete_queue = delete_queue
    close = close

    def release_unclaimed(self, found: Iterable[Delivery]) -> Steps[None]:
        for address, tokens in _by_queue(found):
            yield from delivering.requeue.steps(address, tokens, actor=self.connection.actor)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
