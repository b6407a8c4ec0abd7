"""The in-memory state of a connection and its channels. Nothing here queries the database."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.messages import local_consumers
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.local_consumers import Consumer, registry
from broker_core.rabbitmq.messages.remote_delivery import DeliveryNotice
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.errors import AmqpError, ConnectionLost
from broker_core.runtime import processes
from broker_core.runtime.dispatcher import Dispatcher
from broker_core.store.driver import Steps
from broker_core.store.signals import Signal

from . import incoming_deliveries

T = TypeVar("T")
KIND = "connection"  # in processes.Process.owned, and in notify_connection
REFRESH_SECONDS = 1.0  # maximum age of the cached consumer state
MOST_RELEASED = 1_000  # tags of a channel that are remembered, to say what became of their deliveries


@dataclass(frozen=True, slots=True)
class Tagged:
    """A delivery with its delivery tag. consumer_tag: empty for a get."""

    delivery_tag: int
    consumer_tag: str
    delivery: Delivery

    def __getattr__(self, name: str) -> Any:
        if name == "delivery":  # not set yet while a copy is being made
            raise AttributeError(name)
        return getattr(self.delivery, name)


@dataclass(frozen=True, slots=True)
class Unacked:
    """An unacknowledged delivery. consumer: None for a get."""

    delivery: Delivery
    entity_id: int
    consumer: Consumer | None


class ConnectionState:
    """The state of a connection. closed: why it was closed; None while it is open."""

    def __init__(self, process: processes.Process, row: Any, name: str, actor: Actor):
        self.id: int = row.id
        self.vhost: str = row.name
        self.name, self.actor, self.opened_at = name, actor, row.opened_at
        self.channels: dict[int, Any] = {}
        self.closed: Exception | None = None
        self._process = process
        process.owned[f"{KIND} {self.id}"] = self

    @property
    def namespace(self) -> str:
        return self.vhost

    def require_open(self) -> None:
        """Raise the reason if the connection is closed."""
        if self.closed is None and (why := self._process.why_lost):
            self.lost(why)
        if self.closed is not None:
            raise self.closed.with_traceback(None)

    @property
    def is_lost(self) -> bool:
        return self.closed is not None or self._process.why_lost is not None

    def lost(self, why: str) -> Exception:
        """Mark the connection as ended by another process. Returns the error."""
        return self.end(ConnectionLost(self.name, why))

    def end(self, because: Exception) -> Exception:
        """Mark the connection and its channels as closed. Its state in the database is ended by others. Returns the first
        reason."""
        self.closed = ended_by = self.closed or because
        for channel in list(self.channels.values()):
            channel.end(ended_by)
        self.channels.clear()
        self._process.owned.pop(f"{KIND} {self.id}", None)
        return ended_by

    def wake(self) -> None:
        """Wake the calls that wait for deliveries."""
        for channel in list(self.channels.values()):
            channel.signal.set()

    def receive_notice(self, notice: str) -> None:
        """Process a notice from another process: connection closed, delivery overdue or released, or new deliveries."""
        kind, _, rest = notice.partition(" ")
        if kind == "closed":
            self.end(errors.connection_forced(rest))
        elif kind == "overdue":
            for channel in list(self.channels.values()):
                channel.receive_overdue_notice(rest)
        elif kind == "released":
            for channel in list(self.channels.values()):
                channel.receive_released_notice(rest)
        elif kind == "delivered":
            incoming_deliveries.take_soon(self, self._process.database, DeliveryNotice.parsed(rest))


class ChannelState:
    """The state of a channel.

    prefetch: of each consumer started from now on (RMQ-140); prefetch_of_all: of the channel (RMQ-141); 0: no limit.
    cancelled: tags of consumers that ended because their queue was deleted (RMQ-146), until the caller removes them.
    closed: why it was closed. asked: how many deliveries the call that is waiting can return; 0 while none waits. signal: wakes
    that call. dispatchers: those that it has joined.
    """

    def __init__(self, connection: ConnectionState, number: int):
        self.connection, self.number = connection, number
        self.prefetch = self.prefetch_of_all = 0
        self.outstanding = 0  # unacknowledged deliveries of consumers, including cancelled ones
        self.promised = 0  # deliveries that running transactions are about to make
        self.sought = 0  # messages that are being sought for its consumers
        self.consumers: dict[str, Consumer] = {}
        self.unacked: dict[int, Unacked] = {}
        self.cancelled: list[str] = []
        self.closed: Exception | None = None
        self.asked = 0
        self.signal = Signal()
        self.dispatchers: tuple[Dispatcher, ...] = ()
        self.last_queue = ""
        self.refreshed_at, self.last_fetch_was_empty = 0.0, True
        self._overdue: AmqpError | None = None
        self._released: deque[str] = deque()  # tokens of deliveries that an operator has requeued
        self.released_tags: deque[int] = deque(maxlen=MOST_RELEASED)  # that were theirs
        self.buffered: deque[tuple[Consumer, Delivery]] = deque()  # delivered by publishers, not fetched yet
        self.carried_over: deque[Tagged] = deque()  # deliveries of a cancelled call, for the next one
        self._tags = count(1)
        self._turn = 0

    @property
    def namespace(self) -> str:
        return self.connection.vhost

    @property
    def is_open(self) -> bool:
        return self.closed is None and self.connection.closed is None

    @property
    def waits(self) -> bool:
        """Whether a call is waiting for deliveries."""
        return self.asked > 0

    @property
    def room(self) -> int:
        return max(0, self.asked - len(self.buffered))

    def credit_changed(self) -> None:
        """Its consumers may be able to take more: the queues that a call waits for are looked at again."""
        for dispatcher in self.dispatchers:
            dispatcher.poke()

    @property
    def credit(self) -> int:
        """How many more messages may be sought for its consumers together."""
        return max(0, self.firm_credit - self.sought) if self.prefetch_of_all else local_consumers.UNLIMITED

    @property
    def firm_credit(self) -> int:
        """How many more deliveries its consumers may receive together, whatever is being sought for them."""
        taken = self.outstanding + self.promised
        return max(0, self.prefetch_of_all - taken) if self.prefetch_of_all else local_consumers.UNLIMITED

    def require_open(self) -> None:
        """Raise the reason if the channel is closed."""
        self.connection.require_open()
        if self.closed is not None:
            raise self.closed.with_traceback(None)

    def require_in_time(self) -> None:
        """Raise the timeout error if a delivery was not acknowledged in time."""
        if self._overdue is not None:
            raise self._overdue

    def end(self, because: Exception) -> None:
        """Mark the channel as closed. Its deliveries are requeued by others. Thread-safe."""
        with local_consumers.counter_lock:
            self.closed = self.closed or because
        for consumer in list(self.consumers.values()):
            registry.drop(consumer)
        self.connection.channels.pop(self.number, None)
        self.signal.set()

    def release_unclaimed(self, deliveries: Iterable[Delivery]) -> Steps[None]:
        """Requeue deliveries that its client does not get."""
        raise NotImplementedError

    def release_undelivered(self, deliveries: Iterable[Delivery]) -> Steps[None]:
        """Requeue deliveries that never reached its client: neither counted nor marked as redelivered (RMQ-119)."""
        raise NotImplementedError

    def receive_overdue_notice(self, notice: str) -> None:
        """A sweep has requeued an overdue delivery: if it was one of this channel's, the channel closes (RMQ-126)."""
        token, _, milliseconds = notice.partition(" ")
        if self._holds(token):
            self._lose(errors.acknowledgement_timed_out(self.number, int(milliseconds)))

    def receive_released_notice(self, token: str) -> None:
        """An operator has requeued a delivery: if it was one of this channel's, its tag is unknown from now on (RMQ-928)."""
        if self._holds(token):
            self._released.append(token)
            self.signal.set()

    def forget_released(self) -> None:
        """Forget the deliveries that an operator has requeued (RMQ-928), in the thread that uses the channel. One that is not
        fetched yet is forgotten later."""
        if not self._released:
            return
        tags = {str(unacked.delivery.token): tag for tag, unacked in self.unacked.items()}
        for token in [token for token in list(self._released) if token in tags]:
            self._released.remove(token)
            self.released_tags.append(tags[token])
            unacked = self.unacked.pop(tags[token])
            if unacked.consumer is not None:
                unacked.consumer.count(-1)
        self.credit_changed()

    def _holds(self, token: str) -> bool:
        deliveries = [unacked.delivery for unacked in list(self.unacked.values())] + [
            delivery for _, delivery in list(self.buffered)
        ]
        return any(str(delivery.token) == token for delivery in deliveries)

    def _lose(self, because: AmqpError) -> None:
        """The broker has taken a delivery back: the next use of the channel raises this."""
        self._overdue = because
        self.signal.set()

    def address(self, queue: str) -> EntityAddress:
        """A queue of this virtual host; the empty name is the queue last declared on this channel (RMQ-321)."""
        if not (queue or self.last_queue):
            raise errors.no_previously_declared_queue()
        return EntityAddress(self.connection.vhost, queue or self.last_queue)

    def tag(self, delivery: Delivery, entity_id: int, consumer: Consumer | None, no_ack: bool) -> Tagged:
        """Assign a delivery tag (RMQ-111), and record the delivery as unacknowledged unless no_ack."""
        tag = next(self._tags)
        if not no_ack:
            self.unacked[tag] = Unacked(delivery, entity_id, consumer)
        return Tagged(tag, consumer.tag if consumer else "", delivery)

    def needs_refresh(self) -> bool:
        """Whether to refresh which consumers exist and are active: not on every fetch while there are deliveries."""
        is_old = time.monotonic() - self.refreshed_at > REFRESH_SECONDS
        waits_for_turn = not all(consumer.may_take for consumer in self.consumers.values())
        return is_old or self.last_fetch_was_empty or waits_for_turn

    def in_turn(self) -> list[list[Consumer]]:
        """The consumers that may take deliveries now, grouped by queue, starting with a different queue each time."""
        by_queue: dict[int, list[Consumer]] = {}
        for consumer in sorted(self.consumers.values(), key=lambda c: (-c.priority, c.served)):
            if consumer.may_take and consumer.credit and not local_consumers.outranked(consumer):
                by_queue.setdefault(consumer.entity_id, []).append(consumer)
        return self.rotated(list(by_queue.values()))

    def rotated(self, queues: Sequence[T]) -> list[T]:
        """Start with a different queue each time."""
        self._turn += 1
        at = self._turn % len(queues) if queues else 0
        return [*queues[at:], *queues[:at]]
