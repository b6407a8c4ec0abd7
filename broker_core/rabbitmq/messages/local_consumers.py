"""The consumers of this process: their credit, the order in which they are served, and credit reserved by running
transactions.

Credit is known only in the consumer's process: prefetch belongs to the channel and can change (RMQ-140, RMQ-141). Consumer
priorities and round-robin therefore apply among the consumers of one process; see remote_delivery for messages with a TTL of
zero.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from broker_core.common.types import EntityAddress
from broker_core.store import connections as database
from broker_core.store.driver import Steps
from broker_core.store.signals import Signal

from .delivery import Delivery


class ConsumerChannel(Protocol):
    """The channel interface used by consumers (see connections.state)."""

    connection: Any
    outstanding: int
    promised: int
    sought: int
    buffered: deque
    signal: Signal

    @property
    def waits(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def credit(self) -> int: ...

    @property
    def firm_credit(self) -> int: ...

    @property
    def room(self) -> int:
        """How many more messages the call that is waiting can return, whatever the credit of consumers."""

    def release_unclaimed(self, deliveries: Iterable[Delivery]) -> Steps[None]: ...

    def release_undelivered(self, deliveries: Iterable[Delivery]) -> Steps[None]: ...


class Candidate(Protocol):
    """What decides whose turn it is: of a consumer of this process, or of another one (see remote_delivery)."""

    priority: int
    served: int
    no_ack: bool

    @property
    def credit(self) -> int: ...

    @property
    def channel(self) -> Any: ...


C = TypeVar("C", bound=Candidate)
UNLIMITED = 2**31 - 1
counter_lock = threading.Lock()
_serve_order = itertools.count(1)


@dataclass(eq=False, slots=True)
class Consumer:
    """A consumer of this process. prefetch: maximum unacknowledged deliveries, 0 for no limit (RMQ-142).

    may_take: whether it is the active consumer of a single-active-consumer queue (RMQ-148). has_ended: it was cancelled, or ended
    with its channel or queue. outstanding: its unacknowledged deliveries, including those not fetched yet. promised: deliveries
    that a running transaction is about to make. served: position of its last delivery in the order of all deliveries; a new
    consumer is last.
    """

    id: int
    channel: ConsumerChannel
    address: EntityAddress
    entity_id: int
    tag: str
    no_ack: bool
    priority: int
    prefetch: int
    may_take: bool
    has_ended: bool = False
    outstanding: int = 0
    promised: int = 0
    sought: int = 0
    served: int = field(default_factory=lambda: next(_serve_order))

    @property
    def owner_id(self) -> int:
        return self.channel.connection.id

    @property
    def holder(self) -> str:
        return str(self.channel.connection.actor)

    @property
    def credit(self) -> int:
        """How many more messages may be sought for it now; unlimited with no_ack (RMQ-114)."""
        return self._left(self.sought, self.channel.credit)

    @property
    def firm_credit(self) -> int:
        """How many more deliveries it may receive now, whatever is being sought for it."""
        return self._left(0, self.channel.firm_credit)

    def _left(self, sought: int, of_channel: int) -> int:
        if self.no_ack:
            return UNLIMITED
        own = self.prefetch - self.outstanding - self.promised - sought if self.prefetch else UNLIMITED
        return max(0, min(own, of_channel))

    def buffer(self, deliveries: Sequence[Any]) -> bool:
        """Buffer committed deliveries until its channel fetches them, and wake the call that waits. Thread-safe.

        Returns False if the consumer has ended meanwhile; the caller must then requeue the deliveries. What it does not
        acknowledge was removed already, and reaches its channel while that is open (RMQ-114).
        """
        with counter_lock:
            if not self.channel.is_open or self.has_ended and not self.no_ack:
                return False
            self.channel.buffered.extend((self, delivery) for delivery in deliveries)
        self.count(len(deliveries))
        self.channel.signal.set()
        return True

    def count(self, more: int) -> None:
        """Add deliveries, or subtract settled ones (negative), to its unacknowledged count."""
        if more > 0:
            self.served = next(_serve_order)
        if not self.no_ack:
            with counter_lock:
                self.outstanding += more
                self.channel.outstanding += more

    @contextmanager
    def promise(self, count: int) -> Iterator[None]:
        """Reserve credit for deliveries that are about to be made."""
        self.add_promised(count)
        try:
            yield
        finally:
            self.add_promised(-count)

    def add_promised(self, more: int) -> None:
        """Reserve credit, or release what was reserved (negative). Thread-safe."""
        with counter_lock:
            self._promise(more)

    def deliver_sought(self, deliveries: Sequence[Any]) -> Sequence[Any]:
        """Buffer deliveries that were sought for it, as far as it has not used its credit otherwise since. Returns the others,
        which the caller must requeue. Thread-safe."""
        with counter_lock:
            self.seek(-len(deliveries))
            most = len(deliveries) if self.no_ack else self.firm_credit
        accepted = deliveries[:most]
        return deliveries[most:] if self.buffer(accepted) else deliveries

    def seek(self, more: int) -> None:
        """Reserve credit for messages that may be there; deliveries that cannot wait may use it all the same (RMQ-016)."""
        if not self.no_ack:
            self.sought += more
            self.channel.sought += more

    def _promise(self, more: int) -> None:
        if not self.no_ack:
            self.promised += more
            self.channel.promised += more


class Registry:
    """The consumers of this process by queue. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[database.Database, int], list[Consumer]] = {}

    def add(self, consumer: Consumer) -> None:
        with self._lock:
            self._of.setdefault((database.current_database(), consumer.entity_id), []).append(consumer)

    def drop(self, consumer: Consumer) -> None:
        consumer.has_ended = True
        with self._lock:
            for key in [key for key, consumers in self._of.items() if consumer in consumers]:
                self._of[key].remove(consumer)
                if not self._of[key]:
                    del self._of[key]

    def of(self, entity_id: int) -> list[Consumer]:
        with self._lock:
            return list(self._of.get((database.current_database(), entity_id), ()))


registry = Registry()


def eligible_consumers(entity_id: int) -> list[Consumer]:
    """The consumers of this process that may receive messages of a queue (RMQ-016, RMQ-922).

    Messages stored as held by a consumer's `owner_id` and `holder` are passed to its `buffer` after the commit; for a consumer
    with `no_ack` they are deleted.
    """
    return [c for c in registry.of(entity_id) if c.may_take and c.channel.is_open]


def unlimited(channel: Any) -> int:
    return UNLIMITED


@contextmanager
def reserve(consumers: Sequence[Consumer], count: int) -> Iterator[list[Consumer]]:
    """Assign `count` messages of a queue to consumers as `in_turns` does, and reserve their credit until the block ends."""
    with counter_lock:
        plan = in_turns(consumers, count, credit=attrgetter("firm_credit"))
        for consumer in plan:
            consumer._promise(1)
    try:
        yield plan
    finally:
        with counter_lock:
            for consumer in plan:
                consumer._promise(-1)


def seek(consumers: Sequence[Consumer], count: int, room: Callable[[Any], int]) -> list[Consumer]:
    """The consumer of each of the next messages of a queue, if there are any. `Consumer.deliver_sought` or `stop_seeking`
    must follow."""
    with counter_lock:
        plan = in_turns(consumers, count, room)
        for consumer in plan:
            consumer.seek(1)
    return plan


def stop_seeking(plan: Iterable[Consumer]) -> None:
    with counter_lock:
        for consumer in plan:
            consumer.seek(-1)


def outranked(consumer: Consumer) -> bool:
    """Whether a consumer of higher priority in this process is waiting for messages of the same queue and has credit."""
    return any(
        other.priority > consumer.priority and other.channel.waits and other.may_take and other.credit
        for other in registry.of(consumer.entity_id)
    )


def in_turns(
    consumers: Sequence[C],
    count: int,
    room: Callable[[Any], int] = unlimited,
    credit: Callable[[Any], int] = attrgetter("credit"),
) -> list[C]:
    """The consumer of each of the next `count` messages of a queue: highest priority with credit first, equal priorities
    round-robin, least recently served first (RMQ-145). Shorter if there is not enough credit.

    room: how many messages each channel can take, whatever its credit. credit: of a consumer, or of a channel.
    """
    plan: list[C] = []
    shared_credit = {c.channel: credit(c.channel) for c in consumers}
    left = {c.channel: room(c.channel) for c in consumers}
    counts = dict.fromkeys(consumers, 0)

    def has_credit(consumer: C) -> bool:
        has_shared = consumer.no_ack or shared_credit[consumer.channel] > 0
        return counts[consumer] < credit(consumer) and has_shared and left[consumer.channel] > 0

    for level in sorted({c.priority for c in consumers}, reverse=True):
        turn = deque(sorted((c for c in consumers if c.priority == level), key=lambda c: c.served))
        while turn and len(plan) < count:
            consumer = turn.popleft()
            if not has_credit(consumer):
                continue
            plan.append(consumer)
            counts[consumer] += 1
            shared_credit[consumer.channel] -= not consumer.no_ack
            left[consumer.channel] -= 1
            turn.append(consumer)
    return plan
