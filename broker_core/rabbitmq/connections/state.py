"""What a connection and its channels are in the memory of their process. Nothing here asks the database."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.messages import local_consumers
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.local_consumers import Consumer, registry
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store.driver import Steps

from . import handed_over, processes
from .processes import ConnectionLost

REFRESH_SECONDS = 1.0  # how old may be what is known of the line of consumers


@dataclass(frozen=True, slots=True)
class Tagged:
    """A delivery as a channel's client gets it. consumer_tag: empty for one that was got."""

    delivery_tag: int
    consumer_tag: str
    delivery: Delivery

    def __getattr__(self, name: str) -> Any:
        if name == "delivery":  # not there yet, in a copy that is being made
            raise AttributeError(name)
        return getattr(self.delivery, name)


@dataclass(frozen=True, slots=True)
class Unacked:
    """A delivery that is to be acknowledged. consumer: None for one that was got."""

    delivery: Delivery
    entity_id: int
    consumer: Consumer | None


class ConnectionState:
    """A connection as its process knows it. closed: why it is not open any more; None while it is."""

    def __init__(self, process: processes.Process, row: Any, name: str, actor: Actor):
        self.id: int = row.id
        self.vhost: str = row.name
        self.name, self.actor, self.opened_at = name, actor, row.opened_at
        self.channels: dict[int, Any] = {}
        self.closed: Exception | None = None
        self._process = process
        process.owned[self.id] = self

    def require_open(self) -> None:
        """Raise what ended it."""
        if self.closed is None and (why := self._process.why_lost):
            self.lost(why)
        if self.closed is not None:
            raise self.closed.with_traceback(None)

    @property
    def is_lost(self) -> bool:
        return self.closed is not None or self._process.why_lost is not None

    def lost(self, why: str) -> Exception:
        """It was ended by others. Returns what says so."""
        return self.end(ConnectionLost(self.name, why))

    def end(self, because: Exception) -> Exception:
        """It is over here, with its channels; what the database has of it is somebody's to end, or ended already. Returns what
        ended it first."""
        self.closed = ended_by = self.closed or because
        for channel in list(self.channels.values()):
            channel.end(ended_by)
        self.channels.clear()
        self._process.owned.pop(self.id, None)
        return ended_by

    def hear(self, what: str) -> None:
        """What another process says: that it ended this connection, that a message was held for too long, or that it has handed
        messages over."""
        kind, _, rest = what.partition(" ")
        if kind == "closed":
            self.end(errors.connection_forced(rest))
        elif kind == "overdue":
            for channel in list(self.channels.values()):
                channel.hear_overdue(rest)
        elif kind == "handed":
            entity_id, *numbers = map(int, rest.split())
            handed_over.take_soon(self, self._process.database, entity_id, numbers)


class ChannelState:
    """A channel as its process knows it.

    prefetch: for each consumer that begins from now on (RMQ-140); prefetch_of_all: for all together (RMQ-141); 0: no limit.
    cancelled: tags of consumers that ended because their queue is gone (RMQ-146), until the caller takes them out.
    closed: why it is not open any more.
    """

    def __init__(self, connection: ConnectionState, number: int):
        self.connection, self.number = connection, number
        self.prefetch = self.prefetch_of_all = 0
        self.outstanding = 0  # deliveries of consumers, of those too that were cancelled since
        self.promised = 0  # what transactions under way are about to give them
        self.consumers: dict[str, Consumer] = {}
        self.unacked: dict[int, Unacked] = {}
        self.cancelled: list[str] = []
        self.closed: Exception | None = None
        self.waits = False  # somebody waits for deliveries at this moment
        self.last_queue = ""
        self.refreshed_at, self.came_up_short = 0.0, True
        self._overdue: AmqpError | None = None
        self.handed: deque[tuple[Consumer, Delivery]] = deque()  # by publishers of this process, not fetched yet
        self.kept: deque[Tagged] = deque()  # taken by a call that was cancelled, for the next one
        self._tags = count(1)
        self._turn = 0

    @property
    def is_open(self) -> bool:
        return self.closed is None and self.connection.closed is None

    @property
    def room(self) -> int:
        """How many more deliveries its consumers may get together."""
        taken = self.outstanding + self.promised
        return max(0, self.prefetch_of_all - taken) if self.prefetch_of_all else local_consumers.UNLIMITED

    def require_open(self) -> None:
        """Raise what ended it."""
        self.connection.require_open()
        if self.closed is not None:
            raise self.closed.with_traceback(None)

    def require_in_time(self) -> None:
        """Raise what is to end it, once somebody has seen that a delivery was not acknowledged in time."""
        if self._overdue is not None:
            raise self._overdue

    def end(self, because: Exception) -> None:
        """It is over here. What it holds is somebody's to give back. From any thread."""
        with local_consumers.counting:
            self.closed = self.closed or because
        for consumer in list(self.consumers.values()):
            registry.drop(consumer)
        self.connection.channels.pop(self.number, None)

    def release_unclaimed(self, found: Iterable[Delivery]) -> Steps[None]:
        """Deliveries that its client does not get, each to its place."""
        raise NotImplementedError

    def hear_overdue(self, what: str) -> None:
        """A sweep has given a delivery back that was held for too long: if it was one of these, the channel ends (RMQ-126)."""
        token, _, milliseconds = what.partition(" ")
        held = [unacked.delivery for unacked in list(self.unacked.values())] + [delivery for _, delivery in list(self.handed)]
        if any(str(delivery.token) == token for delivery in held):
            self._overdue = errors.acknowledgement_timed_out(self.number, int(milliseconds))

    def address(self, queue: str) -> EntityAddress:
        """A queue of this virtual host; the empty name is the one declared last on this channel (RMQ-321)."""
        if not (queue or self.last_queue):
            raise errors.no_previously_declared_queue()
        return EntityAddress(self.connection.vhost, queue or self.last_queue)

    def tag(self, delivery: Delivery, entity_id: int, consumer: Consumer | None, no_ack: bool) -> Tagged:
        """Give a delivery its tag (RMQ-111); unless it needs none, it is to be acknowledged."""
        tag = next(self._tags)
        if not no_ack:
            self.unacked[tag] = Unacked(delivery, entity_id, consumer)
        return Tagged(tag, consumer.tag if consumer else "", delivery)

    def knows_too_little(self) -> bool:
        """Whether to ask which consumers are still there, and whose turn it is: not each time while there is enough to do."""
        is_old = time.monotonic() - self.refreshed_at > REFRESH_SECONDS
        waits_for_turn = not all(consumer.may_take for consumer in self.consumers.values())
        return is_old or self.came_up_short or waits_for_turn

    def in_turn(self) -> list[list[Consumer]]:
        """The consumers that may take something now, queue by queue, another queue first each time; those of a queue that
        acknowledge apart from those that do not, the higher priority first, then who was served longest ago."""
        by_queue: dict[int, dict[bool, list[Consumer]]] = {}
        for consumer in sorted(self.consumers.values(), key=lambda c: (-c.priority, c.served)):
            if consumer.may_take and consumer.room and not local_consumers.outranked(consumer):
                by_queue.setdefault(consumer.entity_id, {}).setdefault(consumer.no_ack, []).append(consumer)
        in_order = list(by_queue.values())
        self._turn += 1
        at = self._turn % len(in_order) if in_order else 0
        return [group for groups in in_order[at:] + in_order[:at] for group in groups.values()]
