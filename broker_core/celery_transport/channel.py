"""kombu's channel over the broker: declaring, publishing, taking and acknowledging."""

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
from broker_core.common.errors import EntityDisabled, EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress, LockedMessage, MessageState, Tier
from broker_core.service_bus import entities

from . import bindings, codec, queues
from .holdings import HOLDINGS, How

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 32  # messages one receive takes when nothing limits the prefetch
GATHERING_SECONDS = 0.05  # at most so long it waits for more room before it takes more
SECONDS_TO_SETTLE_ON_CLOSE = 3
SLOWER_EACH_TIME, SLOWEST = 1.25, 4  # looks at empty queues: the interval grows by this factor, up to so many times
LOOK_IN_PERSON_SECONDS = 60  # a queue that is only asked about in passing would count as idle and be deleted


class QoS(virtual.QoS):
    """Settles by the delivery tag, which is the lock token: from any thread, and after the channel has closed."""

    def ack(self, delivery_tag: str) -> None:
        HOLDINGS.settle(delivery_tag, How.COMPLETE)
        super().ack(delivery_tag)
        self.channel.made_room()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Requeueing is a failed delivery, so a message that is always requeued ends in the dead-letter queue (SB-091)."""
        HOLDINGS.settle(delivery_tag, How.ABANDON if requeue else How.REJECT)
        super().ack(delivery_tag)
        self.channel.made_room()


class Channel(virtual.Channel):
    """Declares queues that are not there yet, takes messages of all its queues by one question, up to its prefetch count."""

    QoS = QoS
    supports_fanout = True
    body_encoding = None  # type: ignore[assignment]  # kombu has a text there and takes None, too: bodies are stored as the serializer wrote them

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._transport = connection
        self._arrived: deque[tuple[dict[str, Any], str]] = deque()
        self._no_ack: set[str] = set()
        self._is_full = False
        self._ask_again_at = 0.0
        self._pause = connection.polling_interval
        self._found_at_last = False
        self._took_at = 0.0
        self._looked_at: dict[str, float] = {}

    # Queues and bindings

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Expiry and message life of kombu's Queue in RabbitMQ's words, which `queues.settings` reads."""
        return to_rabbitmq_queue_arguments(arguments, **options)

    def _new_queue(self, queue: str, **declared: Any) -> None:
        """Create the queue unless it is there. One that is there keeps its settings: they belong to whoever administers it."""
        self._transport.declared[queue] = declared
        namespace = self._call(namespaces.ensure_namespace, self._transport.namespace, tier=Tier.PREMIUM)
        changes = queues.settings(queue, declared, self._transport.client.transport_options, namespace.limits)
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
        """Delete the queue with its dead letters; one that is not there is deleted already. Who uses it cannot be known."""
        if if_empty and self._size(queue):
            return
        self.state.queue_bindings_delete(queue)
        self._transport.declared.pop(queue, None)
        with suppress(EntityNotFound):
            self._call(entities.delete_queue, self._address(queue))

    def _purge(self, queue: str) -> int:
        """Remove what waits in the queue or is scheduled for it; returns how many."""
        return self._call(service_bus.purge, self._address(queue), states=(MessageState.ACTIVE, MessageState.SCHEDULED))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        self._transport.call(bindings.bind, self._address(queue), exchange, routing_key or "")

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", arguments: Any = None, **kwargs: Any) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        self._transport.call(bindings.unbind, self._address(queue), exchange, routing_key or "")

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        """The bindings of an exchange made by any process, as kombu's exchange types want them."""
        kind = self.typeof(exchange)
        found = self._transport.call(bindings.bound, self._transport.namespace, exchange)
        return [kind.prepare_bind(queues.name_of(path), exchange, routing_key, None) for path, routing_key in found]

    # Publishing

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        """Send to one queue. One that was deleted since this process declared it comes back; a task is never dropped."""
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

    # Taking

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        if no_ack:
            self._no_ack.add(queue)
        self._ask_again_at = 0.0
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop taking from the queue; what was taken and not handed on goes back. A worker's own mailbox goes with it."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self._no_ack.discard(queue)
        self._give_back(queue)
        if queues.is_node_mailbox(queue):
            self._transport.quietly(self.queue_delete, queue)

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
        """Hand one message to its consumer, taking more from the broker when none is at hand. Raises Empty if there is none."""
        payload, queue = self._next()
        if queue in self._no_ack:
            HOLDINGS.settle(payload["properties"]["delivery_tag"], How.COMPLETE)
        (callback or self.connection._deliver)(payload, queue)

    def _next(self) -> tuple[dict[str, Any], str]:
        """The next message that is still this process's: one that waited here while its lock was lost belongs to others."""
        while True:
            if not self._arrived:
                self._take()
            payload, queue = self._arrived.popleft()
            if HOLDINGS.holds(payload["properties"]["delivery_tag"]):
                return payload, queue

    def _take(self) -> None:
        """Fill `_arrived`, or raise Empty. Having found nothing it asks again after a pause, which grows while nothing comes."""
        if not self._active_queues or time.monotonic() < self._ask_again_at:
            raise Empty()
        room = self.qos.can_consume_max_estimate()
        self._is_full = room is not None and self._is_little(room)
        if self._is_full:
            raise Empty()
        self._took_at = time.monotonic()
        names = {queues.path_of(name).lower(): name for name in self._active_queues}
        found = self._receive(min(room or MOST_AT_ONCE, MOST_AT_ONCE))
        self._found_at_last = bool(found)
        for message in found:
            for payload in self._payloads([message]):
                self._arrived.append((payload, names[message.address.path.lower()]))
        if not self._arrived:
            self._ask_again_at = time.monotonic() + self._pause
            self._pause = min(self._pause * SLOWER_EACH_TIME, self._transport.polling_interval * SLOWEST)
            raise Empty()
        self._pause = self._transport.polling_interval

    def _is_little(self, room: int) -> bool:
        """Whether to wait for more room, as a question costs the same for one message and for many: half will do, or a moment."""
        just_took = time.monotonic() < self._took_at + GATHERING_SECONDS
        return room == 0 or (just_took and room * 2 < self.qos.prefetch_count)

    def _receive(self, most: int) -> list[LockedMessage]:
        """Messages of all queues by one question; of one alone if it is the only one and just had some, or has to be visited."""
        self._active_queues.append(self._active_queues.pop(0))  # the next one first, so that none starves
        now = time.monotonic()
        unvisited = [q for q in self._active_queues if now - self._looked_at.get(q, -math.inf) > LOOK_IN_PERSON_SECONDS]
        alone = len(self._active_queues) == 1 and self._found_at_last
        try:
            if unvisited or alone:
                queue = unvisited[0] if unvisited else self._active_queues[0]
                self._looked_at[queue] = now
                return self._call(service_bus.receive, self._address(queue), most)
            return self._call(service_bus.receive_from, [self._address(queue) for queue in self._active_queues], most)
        except EntityNotFound:
            self._declare_again(queue)
        except (EntityDisabled, NotAllowed) as refusal:
            logger.warning("Cannot receive: %s", refusal)
        return []

    def _declare_again(self, queue: str) -> None:
        """A queue that is consumed was deleted: make it again, with its bindings."""
        logger.warning("The queue %s was deleted while being consumed; creating it again", self._address(queue))
        self._new_queue(queue, **self._transport.declared.get(queue, {}))
        for exchange, routing_key, _ in self.state.queue_bindings(queue):
            self._queue_bind(exchange, routing_key, None, queue)

    def _payloads(self, messages: list[LockedMessage]) -> Iterator[dict[str, Any]]:
        """Take messages into this process's holdings, as kombu payloads. One that cannot be read is rejected."""
        for message in messages:
            tag = HOLDINGS.take(message, self._transport.database, self._transport.actor)
            try:
                yield codec.from_broker(message, tag)
            except ValueError as problem:
                logger.error("Message %d of %s is not a Celery message: %s", message.sequence_number, message.address, problem)
                HOLDINGS.settle(tag, How.REJECT)

    def made_room(self) -> None:
        """A message was settled: whoever waits because the prefetch is used up can go on."""
        if self._is_full:
            self._transport.look_again()

    # Giving back

    def _restore(self, message: virtual.Message) -> None:
        """Called by kombu for all unacknowledged messages when the channel closes. Running tasks keep their locks."""
        if not _is_running(message.delivery_tag):
            HOLDINGS.settle(message.delivery_tag, How.RELEASE)

    def _give_back(self, queue: str | None = None) -> None:
        """Release what was taken, of one queue or of all, and not handed to its consumer."""
        kept: deque[tuple[dict[str, Any], str]] = deque()
        for payload, origin in self._arrived:
            if queue is None or queue == origin:
                HOLDINGS.settle(payload["properties"]["delivery_tag"], How.RELEASE)
            else:
                kept.append((payload, origin))
        self._arrived = kept

    def close(self) -> None:
        if not self.closed:
            self._give_back()
            super().close()
            HOLDINGS.settle_all(SECONDS_TO_SETTLE_ON_CLOSE)

    # How it is done

    def _address(self, queue: str) -> EntityAddress:
        return EntityAddress(self._transport.namespace, queues.path_of(queue))

    def _call(self, use_case: Any, *args: Any, **kwargs: Any) -> Any:
        return self._transport.call(use_case, *args, actor=self._transport.actor, **kwargs)


def _is_running(delivery_tag: str) -> bool:
    """Whether a process or thread of this worker's pool has begun with the message, or is sure to.

    A prefork pool forgets what it was handed and no process has accepted when the connection is lost.
    """
    state = sys.modules.get("celery.worker.state")
    if state is None:
        return False
    begun = [*state.active_requests, *(r for r in [*state.reserved_requests] if _has_begun(r))]
    return any(request.message.delivery_tag == delivery_tag for request in begun)


def _has_begun(request: Any) -> bool:
    """Whether a pool that has this reserved request will run it: only a prefork pool's results say whether they were accepted."""
    handed_over = request._apply_result  # None, or a weak reference
    return handed_over is not None and getattr(handed_over(), "_accepted", True)
