"""Fetching the deliveries of a channel's consumers.

A call that does not wait takes messages for its own channel. Calls that wait join the dispatchers of their queues
(runtime.dispatcher): one of them then takes messages for the consumers of all channels of this process that wait for the same
queue, in turns and within their credit. A waiting call is woken when messages have arrived for it, when its consumers may take
more, and when consumers, the channel or the queue have ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from broker_core.common.errors import BrokerError, BrokerUnavailable, ServerBusy
from broker_core.rabbitmq.messages import delivering, local_consumers, tidying
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.local_consumers import Consumer, registry
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.runtime.dispatcher import MOST_IN_A_ROUND, Dispatcher, Received, join, leave
from broker_core.runtime.waiting import poll_for_messages
from broker_core.runtime.wake_ups import WatchedList, wake_ups
from broker_core.store import connections
from broker_core.store.driver import Steps, WaitForSignal
from broker_core.store.signals import Signal
from broker_core.store.statements import call

from .state import ChannelState, Tagged

SECONDS_BETWEEN_SCANS = 1.0  # for expired messages of other queues, by the first channel of a virtual host that waits
SECONDS_BETWEEN_LOOKS = 5.0  # of a waiting call, whether its connection is alive
SECONDS_FOR_A_ROUND = 1.0  # that another call runs when the time of this one is up, before it checks again
_log = logging.getLogger(__name__)


def fetch(channel: ChannelState, max_count: int) -> Steps[list[Tagged]]:
    """The deliveries available for a channel now. An error of one queue is raised only if no other queue had deliveries."""
    _require_usable(channel)
    deliveries = _fetch_buffered(channel, max_count)
    if deliveries or not channel.consumers:
        return deliveries
    if channel.needs_refresh():
        yield from _refresh(channel)
    for consumers in channel.in_turn():
        try:
            deliveries += yield from _take(channel, consumers, max_count - len(deliveries))
        except BrokerError:
            if not deliveries:
                raise
        if deliveries and (len(deliveries) == max_count or not channel.is_open):
            break
    channel.last_fetch_was_empty = not deliveries
    return deliveries


def wait(channel: ChannelState, max_count: int, max_wait_seconds: float) -> Steps[list[Tagged]]:
    """As `fetch`, after waiting at most so long for the first delivery. Ends early if a consumer of a deleted queue ended."""
    if connections.in_callers_transaction():  # only this thread sees what the transaction has written
        return (yield from poll_for_messages(lambda: fetch(channel, max_count), (), max_wait_seconds))
    deadline, cancelled, has_waited = time.monotonic() + max_wait_seconds, len(channel.cancelled), False
    waiting = _Waiting(channel, max_count)
    try:
        while True:
            channel.signal.clear()
            _require_usable(channel)
            left = deadline - time.monotonic()
            try:
                yield from waiting.serve()
                deliveries = _fetch_buffered(channel, max_count)
                if deliveries or len(channel.cancelled) > cancelled:
                    return deliveries
                if left > 0 and waiting.is_first:
                    yield from tidying.dead_letter_expired_heads(channel.connection.vhost)
            except (BrokerUnavailable, ServerBusy):
                if not has_waited or left <= 0:
                    raise
            if left <= 0 and waiting.may_end():
                return []
            has_waited = True
            yield WaitForSignal(channel.signal, min(left, waiting.expect()) if left > 0 else SECONDS_FOR_A_ROUND)
    finally:
        waiting.end()


class _Listener:
    """A consumer of a channel whose call waits."""

    __slots__ = ("consumer", "holder", "priority", "served", "signal")

    def __init__(self, consumer: Consumer):
        self.consumer, self.holder, self.priority, self.served = consumer, consumer.holder, consumer.priority, 0
        self.signal: Signal | None = consumer.channel.signal

    def capacity(self) -> int:
        consumer = self.consumer
        if consumer.has_ended or not (consumer.may_take or _may_become_active(consumer)):
            return 0
        return min(consumer.credit, consumer.channel.room)

    def deliver(self, received: Sequence[Delivery]) -> None:
        if back := self.consumer.deliver_sought(received):
            wake_ups().run_soon(lambda: _give_back(self.consumer, back))


class _Waiting:
    """A channel's part in the dispatchers of its queues while one of its calls waits."""

    def __init__(self, channel: ChannelState, max_count: int):
        self._channel, self._joined = channel, dict[Consumer, tuple[Dispatcher, _Listener]]()
        self._group = connections.current_database(), channel.connection.vhost
        channel.asked = max_count
        with _lock:
            _waiting.setdefault(self._group, {})[channel] = None

    def serve(self) -> Steps[None]:
        """Run the rounds that are due. An error of one queue is raised only if no other queue had deliveries."""
        self._update()
        for dispatcher, listener in self._channel.rotated(list(self._joined.values())):
            try:
                yield from dispatcher.serve(listener)
            except BrokerError:
                if not self._channel.buffered:
                    raise
            if not self._channel.room:
                break
        self._update()

    def expect(self) -> float:
        """Have other processes wake this call. Returns how many seconds it may wait for that."""
        for dispatcher in self._channel.dispatchers:
            wake_ups().expect(dispatcher.watched.entity_id)
        return SECONDS_BETWEEN_SCANS if self.is_first else SECONDS_BETWEEN_LOOKS

    def may_end(self) -> bool:
        """Whether each queue was checked and no delivery is under way. Otherwise it is checked again."""
        busy = [dispatcher for dispatcher, listener in self._joined.values() if not dispatcher.may_leave(listener)]
        for dispatcher in busy:
            dispatcher.poke()
        return not busy

    @property
    def is_first(self) -> bool:
        """Whether this channel scans for expired messages for all that wait in its virtual host."""
        with _lock:
            return next(iter(_waiting[self._group])) is self._channel

    def end(self) -> None:
        self._channel.asked, self._channel.dispatchers = 0, ()
        for dispatcher, listener in self._joined.values():
            leave(dispatcher, listener)
        with _lock:
            group = _waiting[self._group]
            was_first = next(iter(group)) is self._channel
            del group[self._channel]
            if not group:
                del _waiting[self._group]
            elif was_first:
                next(iter(group)).signal.set()

    def _update(self) -> None:
        """Join for the consumers that began, and leave for those that ended."""
        consumers = set(self._channel.consumers.values())
        if consumers == self._joined.keys():
            return
        for consumer in self._joined.keys() - consumers:
            leave(*self._joined.pop(consumer))
        for consumer in sorted(consumers - self._joined.keys(), key=lambda consumer: consumer.id):
            listener = _Listener(consumer)
            watched = WatchedList(consumer.entity_id)
            self._joined[consumer] = join(listener, watched, "rabbitmq", _receive, _release), listener
        self._channel.dispatchers = tuple(dict.fromkeys(dispatcher for dispatcher, _ in self._joined.values()))


_waiting: dict[tuple[connections.Database, str], dict[ChannelState, None]] = {}  # channels by virtual host, in order
_lock = threading.Lock()


def _receive(_: _Listener, hungry: Sequence[_Listener]) -> Steps[Received]:
    """Take messages of a queue for these consumers, which may be of several channels."""
    listeners = {listener.consumer: listener for listener in hungry}
    entity_id = hungry[0].consumer.entity_id
    if not all(consumer.may_take for consumer in listeners):
        yield from _find_active(entity_id, listeners)
    may_take = [consumer for consumer in listeners if consumer.may_take]
    assignments, requested = yield from _take_in_turns(may_take, MOST_IN_A_ROUND, lambda channel: channel.room)
    return Received(
        [(listeners[consumer], delivery) for consumer, delivery in assignments], 0 < requested == len(assignments), entity_id
    )


def _release(missed: Sequence[tuple[_Listener, Delivery]]) -> Steps[None]:
    """Give back what was taken for consumers whose call ended in that instant."""
    local_consumers.stop_seeking(listener.consumer for listener, _ in missed)
    for listener, delivery in missed:
        yield from _give_back(listener.consumer, [delivery])


def _give_back(consumer: Consumer, deliveries: Sequence[Delivery]) -> Steps[None]:
    """Requeue messages that were taken for a consumer and not delivered: neither counted nor marked as redelivered (RMQ-119).
    Those that it does not acknowledge were removed: its channel returns them with its next call (RMQ-114)."""
    if not consumer.no_ack:
        yield from consumer.channel.release_undelivered(deliveries)
    elif not consumer.buffer(deliveries):
        _log.warning("%s: %d messages were removed for a consumer that had ended (RMQ-114)", consumer.address, len(deliveries))


def _may_become_active(consumer: Consumer) -> bool:
    """Whether a consumer of a queue with a single active one may have become that: it is none of this process."""
    return not any(other.may_take and other.channel.is_open for other in registry.of(consumer.entity_id))


def _find_active(entity_id: int, consumers: Any) -> Steps[None]:
    """Update which of these consumers of a queue is the single active one (RMQ-148)."""
    rows = yield call("active_consumer", entity_id=entity_id)
    for consumer in consumers:
        consumer.may_take = bool(rows) and consumer.id == rows[0].id


def _require_usable(channel: ChannelState) -> None:
    channel.require_open()
    channel.require_in_time()
    channel.forget_released()


def _fetch_buffered(channel: ChannelState, count: int) -> list[Tagged]:
    """Deliveries buffered in memory. Deliveries kept for a cancelled call may have been settled since."""
    fetched: list[Tagged] = []
    while channel.carried_over and len(fetched) < count:
        carried = channel.carried_over.popleft()
        if carried.token is None or carried.delivery_tag in channel.unacked:
            fetched.append(carried)
    while channel.buffered and len(fetched) < count:
        consumer, delivery = channel.buffered.popleft()
        fetched.append(channel.tag(delivery, consumer.entity_id, consumer, consumer.no_ack))
    return fetched


def _refresh(channel: ChannelState) -> Steps:
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
            _end_consumer_of_deleted_queue(consumer)


def _end_consumer_of_deleted_queue(consumer: Consumer) -> None:
    channel: Any = consumer.channel
    registry.drop(consumer)
    if channel.consumers.pop(consumer.tag, None) is not None:
        channel.cancelled.append(consumer.tag)
        channel.signal.set()


def _take(channel: ChannelState, consumers: Sequence[Consumer], count: int) -> Steps[list[Tagged]]:
    """Deliveries of one queue to a channel's consumers, in turns."""
    assignments, _ = yield from _take_in_turns(consumers, count)
    if channel.connection.is_lost:
        local_consumers.stop_seeking(consumer for consumer, _ in assignments)
    yield from require_still_open(channel, [delivery for consumer, delivery in assignments if not consumer.no_ack])
    for consumer, delivery in assignments:
        if consumer.deliver_sought([delivery]):
            yield from _give_back(consumer, [delivery])
    return _fetch_buffered(channel, count)


def _take_in_turns(
    consumers: Sequence[Consumer], count: int, room: Callable[[Any], int] = local_consumers.unlimited
) -> Steps[tuple[list[tuple[Consumer, Delivery]], int]]:
    """Take messages of one queue for these consumers, in turns. Returns them, with their credit still reserved, and how many were
    wanted."""
    plan = local_consumers.seek(consumers, count, room)
    taken: Sequence[Delivery] = ()
    try:
        taken = (yield from delivering.take_for(plan)) if plan else ()
    except AmqpError as refusal:
        if refusal.reply_name not in ("NOT_FOUND", "RESOURCE_LOCKED"):  # redeclared as exclusive by another connection
            raise
        for consumer in consumers:
            _end_consumer_of_deleted_queue(consumer)
    finally:
        local_consumers.stop_seeking(plan[len(taken) :])
    return list(zip(plan, taken, strict=False)), len(plan)


def require_still_open(channel: ChannelState, taken: Sequence[Delivery]) -> Steps[None]:
    """Requeue deliveries made to a connection that was ended while its process was suspended, and raise why it ended."""
    if channel.connection.is_lost and taken:
        with suppress(BrokerError):
            yield from channel.release_undelivered(taken)
    channel.connection.require_open()
