"""Channels: delivery tags, acknowledgements, prefetch, and the consumers whose deliveries are fetched here.

Each function is a use case that a front end can await; Channel offers them as methods for synchronous code. An error that
closes a channel closes it here too: its deliveries are requeued and its consumers end (RMQ-123).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import groupby, islice
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from broker_core.common.arguments import require_count, require_kind, require_reason, whole_numbers
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.rabbitmq.messages import delivering, publishing
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.local_consumers import registry
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.display_state import DEFAULT_TIMEOUT
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.names import TAG_PREFIX, generated
from broker_core.rabbitmq.topology import compiled, queues
from broker_core.rabbitmq.topology.vhosts import lock_vhost
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.pacing import BATCH
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, UseCase, complete_only, use_case

from . import consumers, ending, fetching
from .state import ChannelState, Tagged, Unacked

P = ParamSpec("P")
T = TypeVar("T")
MOST_PREFETCH = 65_535


def _keep_result(result: Any, asked: Mapping[str, Any]) -> Steps[None]:
    """Keep the result of a cancelled call: consumer deliveries are returned by the next call, the result of a get is requeued.
    The stored state and the channel's state thus stay consistent."""
    channel = asked["channel"]
    if isinstance(result, list):
        channel.carried_over += [delivery for delivery in result if isinstance(delivery, Tagged)]
    elif isinstance(result, Tagged) and result.delivery_tag in channel.unacked:
        yield from nack.steps(channel, result.delivery_tag)


def _on_channel(steps: Callable[Concatenate[Channel, P], Steps[T]]) -> UseCase[Concatenate[Channel, P], T]:
    """A use case on an open channel. An AmqpError closes the channel, or the whole connection, before it is raised."""

    @wraps(steps)
    def guarded(channel: Channel, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        channel.require_open()
        try:
            channel.require_in_time()
            channel.forget_released()
            return (yield from steps(channel, *args, **kwargs))
        except AmqpError as refusal:
            if refusal is channel.closed or refusal is channel.connection.closed:  # meanwhile, by another call
                raise
            with suppress(BrokerError):  # unreleased messages are requeued when the connection ends
                if refusal.is_connection_error:
                    yield from ending.close_because(channel.connection, refusal)
                else:
                    yield from _close(channel, refusal)
            raise

    return UseCase(guarded, on_cancel=_keep_result)


@_on_channel
def publish(channel: Channel, publications: Sequence[Any]) -> Steps:
    """Publish (see publishing.publish). Messages with a TTL of zero are delivered to consumers at once (RMQ-016). The messages of
    concurrent calls are stored in the order of the calls (RMQ-110)."""
    return (yield from _publications.call(channel, list(publications)))


def _publish_in_order(channel: Channel, batches: Sequence[Sequence[Any]]) -> Steps[list[Any]]:
    """Publish the messages of several calls of a channel. After a refusal that closes the channel, no more is published."""
    try:
        published = iter((yield from _publish(channel, [publication for batch in batches for publication in batch])))
        return [list(islice(published, len(batch))) for batch in batches]
    except BrokerError:
        if len(batches) == 1:
            raise
    outcomes: list[Any] = []
    for batch in batches:
        try:
            outcomes.append((yield from _publish(channel, batch)))
        except InvalidArgument as refusal:
            outcomes.append(refusal)
        except BrokerError as refusal:
            return [*outcomes, *[refusal] * (len(batches) - len(outcomes))]
    return outcomes


def _publish(channel: Channel, publications: Sequence[Any]) -> Steps:
    connection = channel.connection
    return (yield from publishing.publish.steps(connection.vhost, publications, owner_id=connection.id, actor=connection.actor))


_publications: Gathering[Sequence[Any], Any] = Gathering(_publish_in_order)


@_on_channel
def get(channel: Channel, queue: str = "", *, no_ack: bool = False) -> Steps:
    """The next message of a queue, or None; prefetch does not apply (RMQ-128, RMQ-144). An empty result also counts as use
    (RMQ-041)."""
    connection, address = channel.connection, channel.address(queue)
    delivery = yield from delivering.get.steps(
        address, no_ack=no_ack, owner_id=connection.id, holder=str(connection.actor), actor=connection.actor
    )
    if delivery is None:
        return None
    yield from fetching.require_still_open(channel, () if no_ack else [delivery])
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
    opened = yield from consumers.open_queue(address, channel.connection.id)
    registering = consumers.register(
        channel, address, opened.id, tag=tag, no_ack=no_ack, exclusive=exclusive, priority=priority, arguments=arguments
    )
    consumer = yield Atomically(registering)
    channel.consumers[tag] = consumer
    registry.add(consumer)
    channel.signal.set()  # a call that waits also waits for its queue now
    return tag


@_on_channel
def cancel(channel: Channel, tag: str) -> Steps:
    """Cancel a consumer; its deliveries remain to be acknowledged (RMQ-124). An unknown tag is ignored (RMQ-147)."""
    if (consumer := channel.consumers.get(tag)) is not None:
        yield Atomically(consumers.unregister(consumer))
        registry.drop(consumer)
        channel.consumers.pop(tag, None)
        channel.signal.set()


@_on_channel
def deliveries(channel: Channel, max_count: int = 1, *, max_wait_seconds: float = 0) -> Steps:
    """Up to max_count deliveries to the channel's consumers within their credit; waits up to max_wait_seconds for the first
    one.

    Consumers of equal priority are served round-robin, higher priorities first (RMQ-145). Consumers of a deleted queue end, and
    their tags are in `cancelled` (RMQ-146), which also ends the waiting. While waiting, expired messages of other queues are
    dead-lettered about once a second (RMQ-920).
    """
    require_count("max_count", max_count)

    if max_wait_seconds > 0:
        return (yield from fetching.wait(channel, max_count, max_wait_seconds))
    return (yield from fetching.fetch(channel, max_count))


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
    channel.credit_changed()
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
    yield from _settle(channel, _selected_tags(channel, delivery_tag, multiple), how, requeues=requeue)


@_on_channel
def reject(channel: Channel, delivery_tag: int, *, requeue: bool = True) -> Steps:
    """Reject one delivery."""
    how = delivering.requeue.steps if requeue else delivering.reject.steps
    yield from _settle(channel, _selected_tags(channel, delivery_tag, multiple=False), how, requeues=requeue)


@_on_channel
def recover(channel: Channel, *, requeue: bool = True) -> Steps:
    """Requeue all deliveries that the channel holds (RMQ-125)."""
    if not requeue:
        raise errors.not_implemented("requeue=false")
    yield from _settle(channel, list(channel.unacked), delivering.requeue.steps, requeues=True)


@_on_channel
def declare_queue(channel: Channel, queue: str = "", *, exclusive: bool = False, **options: Any) -> Steps:
    """Declare a queue (see queues.declare_queue) and make it the channel's last declared queue. The connection owns an
    exclusive one."""
    connection, address = channel.connection, EntityAddress(channel.connection.vhost, queue)
    options |= {"exclusive": exclusive, "owner_id": connection.id, "actor": connection.actor}

    def steps() -> Steps:
        yield from lock_vhost(connection.vhost)
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


@use_case(namespace=WHOLE_DATABASE)
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
            actor = Actor.local("broker")
            yield from delivering.requeue.steps(EntityAddress(vhost, path), tokens, kind=EventKind.LOCK_LOST, actor=actor)
            for row in overdue:
                notice = f"overdue {row.lock_token} {row.milliseconds}"
                yield call("notify_connection", connection_id=row.owner_id, notice=notice)
        total += len(rows)
        if len(rows) < BATCH:
            return {"overdue": total} if total else {}


@use_case
def release(
    address: EntityAddress, sequence_numbers: Iterable[int], *, reason: str | None = None, actor: Actor | None = None
) -> Steps[list[int]]:
    """Requeue unacknowledged messages, for an operator (RMQ-928). Each counts as a return, and its delivery tag is unknown from
    then on: a channel that settles it is closed (RMQ-112). Returns the numbers of those that were unacknowledged. reason: for
    the messages' history."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    require_reason(reason)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return []
    entity_id = (yield from queues.find_queue(address.namespace, address.path)).id
    rows = yield call("rabbit_deliveries", entity_id=entity_id, numbers=numbers)
    tokens = [row.lock_token for row in rows]
    report = yield from delivering.requeue.steps(address, tokens, reason=reason, actor=actor)
    lost = set(report.lost)
    released = [row for row in rows if row.lock_token not in lost]
    for row in released:
        yield call("notify_connection", connection_id=row.owner_id, notice=f"released {row.lock_token}")
    return [row.sequence_number for row in released]


def _close(channel: Channel, because: Exception) -> Steps:
    """Requeue all deliveries of the channel, in order, then end its consumers (RMQ-123)."""
    if channel.closed is not None:
        return
    channel.end(because)
    if channel.connection.closed is not None:
        return
    deliveries = [unacked.delivery for unacked in channel.unacked.values()]
    deliveries += [delivery for _, delivery in channel.buffered]
    had_consumers = bool(channel.consumers)
    channel.unacked.clear()
    channel.buffered.clear()
    channel.carried_over.clear()
    channel.consumers.clear()
    yield from channel.release_unclaimed(deliveries)
    if had_consumers:
        yield Atomically(_remove_consumers(channel))


def _remove_consumers(channel: Channel) -> Steps:
    host = yield from lock_vhost(channel.connection.vhost)
    yield from consumers.remove_consumers(channel.connection.id, channel.number, host)


def _selected_tags(channel: Channel, delivery_tag: int, multiple: bool) -> list[int]:
    """The delivery tags that a settlement refers to. Raises AmqpError (406) if the given tag is not outstanding."""
    require_kind("delivery_tag", delivery_tag, int)  # any other unknown value would close the channel
    if multiple and delivery_tag == 0:
        return list(channel.unacked)
    if delivery_tag not in channel.unacked:
        if delivery_tag in channel.released_tags:
            raise errors.delivery_released(delivery_tag)
        raise errors.unknown_delivery_tag(delivery_tag)
    return [tag for tag in channel.unacked if tag <= delivery_tag] if multiple else [delivery_tag]


def _settle(channel: Channel, tags: Sequence[int], how: Callable[..., Steps], *, requeues: bool = False) -> Steps:
    """Settle deliveries queue by queue. A deleted queue is ignored (RMQ-044); if a delivery is no longer held by this
    connection, the reason is raised.

    Consumers may take more at once, while the settlement is being stored (RMQ-151); after a requeue only when the messages are
    back in the queue, so that they are the next ones (RMQ-116).
    """
    chosen = {tag: channel.unacked.pop(tag) for tag in sorted(tags)}
    if not requeues:
        _free(channel, chosen)
    lost: set[UUID] = set()
    try:
        for address, tokens in _by_queue(unacked.delivery for unacked in chosen.values()):
            report = yield from how(address, tokens, actor=channel.connection.actor)
            lost.update(report.lost)
    except BrokerError:
        channel.unacked = dict(sorted((chosen | channel.unacked).items()))
        if not requeues:
            _free(channel, chosen, -1)
        raise
    if requeues:
        _free(channel, chosen)
    if lost:
        yield from _raise_settlement_failure(
            channel, {unacked.entity_id for unacked in chosen.values() if unacked.delivery.token in lost}
        )


def _free(channel: Channel, chosen: Mapping[int, Unacked], each: int = 1) -> None:
    """Return the credit of these deliveries to their consumers; each = -1: use it again."""
    for unacked in chosen.values():
        if unacked.consumer is not None:
            unacked.consumer.count(-each)
    channel.credit_changed()


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
    tokens_by_address: dict[EntityAddress, list[UUID]] = {}
    for delivery in deliveries:
        if delivery.token is not None:
            tokens_by_address.setdefault(delivery.address, []).append(delivery.token)
    return list(tokens_by_address.items())


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

    def release_unclaimed(self, deliveries: Iterable[Delivery]) -> Steps[None]:
        for address, tokens in _by_queue(deliveries):
            yield from delivering.requeue.steps(address, tokens, actor=self.connection.actor)

    def release_undelivered(self, deliveries: Iterable[Delivery]) -> Steps[None]:
        for address, tokens in _by_queue(deliveries):
            actor = self.connection.actor
            yield from delivering.requeue.steps(address, tokens, counts=False, delivered=False, actor=actor)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
