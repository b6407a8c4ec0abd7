"""kombu's channel: declares queues, publishes, receives and acknowledges."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import BrokerError, EntityDisabled, EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress, MessageState, Tier
from broker_core.service_bus import entities
from broker_core.service_bus.configured_limits import limits_of
from broker_core.service_bus.messages.shared import entity_id_of
from broker_core.service_bus.rules.values import LockedMessage
from broker_core.store.driver import run

from . import FAMILY, bindings, codec, queues
from .holdings import HOLDINGS, How, report_lost
from .watches import Watches

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 32  # messages per receive if the prefetch count is unlimited
GATHERING_SECONDS = 0.05  # the longest wait for more prefetch capacity before the next receive
SECONDS_TO_SETTLE_ON_CLOSE = 3
SECONDS_BETWEEN_WARNINGS = 1.0


class QoS(virtual.QoS):
    """Settles by the delivery tag, which is the lock token, from any thread and even after the channel has closed."""

    def ack(self, delivery_tag: str) -> None:
        HOLDINGS.settle(delivery_tag, How.COMPLETE)
        super().ack(delivery_tag)
        self.channel.on_settled()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject or requeue. Requeueing is a failed delivery, so repeated requeueing dead-letters the message (SB-091)."""
        HOLDINGS.settle(delivery_tag, How.ABANDON if requeue else How.REJECT)
        super().ack(delivery_tag)
        self.channel.on_settled()


class Channel(virtual.Channel):
    """Creates missing queues when they are declared, and receives from all consumed queues at once, up to its prefetch count."""

    QoS = QoS
    supports_fanout = True
    body_encoding = None  # type: ignore[assignment]  # None is allowed: bodies are stored as the serializer wrote them

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._transport = connection
        self._received: deque[tuple[dict[str, Any], str]] = deque()  # payloads with their queue, not delivered to consumers yet
        self._no_ack: set[str] = set()
        self._is_full = False
        self._watches = Watches(connection.wake)
        self._warned_at = -math.inf
        self._last_receive_at = 0.0

    # Queues and bindings

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The expiry and message TTL of kombu's Queue as RabbitMQ arguments, which `queues.settings` reads."""
        return to_rabbitmq_queue_arguments(arguments, **options)

    def _new_queue(self, queue: str, **declared: Any) -> None:
        """Create the queue if it does not exist. An existing one keeps its settings, which an administrator may have changed."""
        self._transport.declared[queue] = declared
        namespace = self._call(namespaces.ensure_namespace, self._transport.namespace, FAMILY, tier=Tier.PREMIUM)
        changes = queues.settings(queue, declared, self._transport.client.transport_options, limits_of(namespace))
        self._call(entities.ensure_queue, self._address(queue), **changes)

    def _has_queue(self, queue: str, **declared: Any) -> bool:
        try:
            self._call(entities.get_queue, self._address(queue))
        except EntityNotFound:
            return False
        return True

    def _size(self, queue: str) -> int:
        try:
            counts = self._call(reads.counts, self._address(queue))
        except EntityNotFound:
            return 0
        return counts.active - counts.locked

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        """Delete the queue, if it exists, with its dead letters. `if_unused` is ignored: consumers are not known."""
        if if_empty and self._size(queue):
            return
        self.state.queue_bindings_delete(queue)
        self._transport.declared.pop(queue, None)
        with suppress(EntityNotFound):
            self._call(entities.delete_queue, self._address(queue))

    def _purge(self, queue: str) -> int:
        """Remove active and scheduled messages; returns their number."""
        return self._call(service_bus.purge, self._address(queue), states=(MessageState.ACTIVE, MessageState.SCHEDULED))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        self._transport.call(bindings.bind, self._address(queue), exchange, routing_key or "")

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", arguments: Any = None, **kwargs: Any) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        self._transport.call(bindings.unbind, self._address(queue), exchange, routing_key or "")

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        """The bindings of an exchange, made by any process, in the form of kombu's exchange types."""
        kind = self.typeof(exchange)
        bound = self._transport.call(bindings.bound, self._transport.namespace, exchange)
        return [kind.prepare_bind(queues.name_of(path), exchange, routing_key, None) for path, routing_key in bound]

    # Publishing

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        """Send to one queue. Creates it again if it was deleted since this process declared it: tasks are never dropped."""
        sent, address = codec.to_broker(message, self.decode_body), self._address(queue)
        try:
            self._call(service_bus.send, address, [sent])
        except EntityNotFound:
            declared = self._transport.declared.get(queue)
            if declared is None and sent.subject is None:
                logger.warning("Nothing was sent: the queue %s does not exist and was not declared here", address)
                return
            self._new_queue(queue, **(declared or {}))
            self._call(service_bus.send, address, [sent])

    def _put_fanout(self, exchange: str, payload: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        for _, _, queue in self.get_table(exchange):
            self._put(queue, payload)

    # Receiving

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        if no_ack:
            self._no_ack.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming the queue and release its undelivered messages. A worker's own mailbox is deleted."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self._no_ack.discard(queue)
        self._watches.end(queue)
        self._release_undelivered(queue)
        if queues.is_node_mailbox(queue):
            self._transport.call_ignoring_errors(self.queue_delete, queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            HOLDINGS.settle(message.delivery_tag, How.COMPLETE)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        for payload in self._payloads(self._call(service_bus.receive, self._address(queue), 1)):
            return payload
        raise Empty()

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """Deliver one message to its consumer, receiving more if needed. Raises Empty if there is none."""
        payload, queue = self._next()
        if queue in self._no_ack:
            HOLDINGS.settle(payload["properties"]["delivery_tag"], How.COMPLETE)
        (callback or self.connection._deliver)(payload, queue)

    def _next(self) -> tuple[dict[str, Any], str]:
        """The next received message, without those whose lock has been lost since."""
        while True:
            if not self._received:
                self._fill()
            payload, queue = self._received.popleft()
            if HOLDINGS.holds(payload["properties"]["delivery_tag"]):
                return payload, queue

    def _fill(self) -> None:
        """Receive messages into `_received`. Raises Empty if there are none, or no prefetch capacity is left."""
        while not self._received:
            capacity = self.qos.can_consume_max_estimate()
            self._is_full = capacity is not None and self._must_wait_for(capacity)
            if self._is_full and capacity:
                self._transport.wake_when_gathered()
            if self._is_full or not (chosen := self._queues_to_receive_from()):
                raise Empty()
            self._last_receive_at = time.monotonic()
            names = {queues.path_of(name).lower(): name for name in chosen}
            for message in self._receive(chosen, min(capacity or MOST_AT_ONCE, MOST_AT_ONCE)):
                for payload in self._payloads([message]):
                    self._received.append((payload, names[message.address.path.lower()]))

    def _queues_to_receive_from(self) -> list[str]:
        """The queues that may have messages, rotated, so that none starves."""
        if not self._active_queues:
            return []
        self._active_queues.append(self._active_queues.pop(0))
        return [queue for queue in self._active_queues if not self._watches.is_empty(queue)]

    def _must_wait_for(self, capacity: int) -> bool:
        """Whether to wait for more prefetch capacity: a receive costs the same for one message as for many, so for a moment it
        waits until half of the prefetch count is free."""
        just_received = time.monotonic() < self._last_receive_at + GATHERING_SECONDS
        return capacity == 0 or (just_received and capacity * 2 < self.qos.prefetch_count)

    def _receive(self, chosen: list[str], max_count: int) -> list[LockedMessage]:
        """Receive from queues by one call. If they had less than wanted, they are not asked again until they may have more."""
        watched = [queue for queue in chosen if self._watch(queue)]
        if not watched:
            raise Empty()
        messages: list[LockedMessage] = []
        try:
            if len(watched) == 1:
                messages = self._complete_and_receive(self._address(watched[0]), max_count)
            else:
                messages = self._call(service_bus.receive_from, [self._address(queue) for queue in watched], max_count)
        except EntityNotFound:
            self._declare_again(watched[0])
            return []
        except (EntityDisabled, NotAllowed) as refusal:  # the regular check of watched entities has them asked again
            self._warn(refusal)
        if len(messages) < max_count:
            for queue in watched:
                self._watches.note_empty(queue)
        return messages

    def _watch(self, queue: str) -> bool:
        """Watch a queue, and create it again if it was deleted. False: its namespace is of another family."""
        try:
            self._transport.call(self._begin_watch, queue)
        except EntityNotFound:
            self._declare_again(queue)
            return self._watch(queue)
        except NotAllowed as refusal:
            self._warn(refusal)
            return False
        return True

    def _begin_watch(self, queue: str) -> None:
        self._watches.begin(queue, run(entity_id_of(self._address(queue))))

    def _warn(self, refusal: BrokerError) -> None:
        if time.monotonic() > self._warned_at + SECONDS_BETWEEN_WARNINGS:
            self._warned_at = time.monotonic()
            logger.warning("Cannot receive: %s", refusal)

    def _complete_and_receive(self, address: EntityAddress, max_count: int) -> list[LockedMessage]:
        """Receive from a queue, and complete what was acknowledged of it."""
        with HOLDINGS.completions(self._transport.database, address, self._transport.actor) as tokens:
            messages = self._call(service_bus.receive, address, max_count, completing=tokens)
        report_lost(How.COMPLETE, address, messages.completed.lost)
        return messages

    def _declare_again(self, queue: str) -> None:
        """Create a consumed queue that was deleted again, with its bindings."""
        logger.warning("The queue %s was deleted while being consumed; creating it again", self._address(queue))
        self._new_queue(queue, **self._transport.declared.get(queue, {}))
        for exchange, routing_key, _ in self.state.queue_bindings(queue):
            self._queue_bind(exchange, routing_key, None, queue)

    def _payloads(self, messages: list[LockedMessage]) -> Iterator[dict[str, Any]]:
        """Add messages to this process's holdings and convert them to kombu payloads. Unreadable ones are rejected."""
        for message in messages:
            tag = HOLDINGS.add(message, self._transport.database, self._transport.actor)
            try:
                yield codec.from_broker(message, tag)
            except ValueError as problem:
                logger.error("Message %d of %s is not a Celery message: %s", message.sequence_number, message.address, problem)
                HOLDINGS.settle(tag, How.REJECT)

    def on_settled(self) -> None:
        """Called when a message was settled, which frees prefetch capacity."""
        if self._is_full:
            self._transport.wake()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self._transport.wake()  # there may be more capacity

    # Releasing

    def _restore(self, message: virtual.Message) -> None:
        """Called by kombu for all unacknowledged messages when the channel closes. Running tasks keep their locks."""
        if not _is_running(message.delivery_tag):
            HOLDINGS.settle(message.delivery_tag, How.RELEASE)

    def _release_undelivered(self, queue: str | None = None) -> None:
        """Release the messages of one queue, or of all, that were received but not delivered to a consumer."""
        remaining: deque[tuple[dict[str, Any], str]] = deque()
        for payload, origin in self._received:
            if queue is None or queue == origin:
                HOLDINGS.settle(payload["properties"]["delivery_tag"], How.RELEASE)
            else:
                remaining.append((payload, origin))
        self._received = remaining

    def close(self) -> None:
        if not self.closed:
            self._watches.end_all()
            self._release_undelivered()
            super().close()
            HOLDINGS.settle_all(SECONDS_TO_SETTLE_ON_CLOSE)

    def _address(self, queue: str) -> EntityAddress:
        return EntityAddress(self._transport.namespace, queues.path_of(queue))

    def _call(self, use_case: Any, *args: Any, **kwargs: Any) -> Any:
        return self._transport.call(use_case, *args, actor=self._transport.actor, **kwargs)


def _is_running(delivery_tag: str) -> bool:
    """Whether a process or thread of this worker's pool has started the message's task, or certainly will.

    When the connection is lost, a prefork pool drops tasks that no process has accepted.
    """
    state = sys.modules.get("celery.worker.state")
    if state is None:
        return False
    running = [*state.active_requests, *(r for r in [*state.reserved_requests] if _will_run(r))]
    return any(request.message.delivery_tag == delivery_tag for request in running)


def _will_run(request: Any) -> bool:
    """Whether the pool will run this reserved request. Only results of a prefork pool say whether they were accepted."""
    result = request._apply_result  # None, or a weak reference
    return result is not None and getattr(result(), "_accepted", True)
