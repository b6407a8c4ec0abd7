"""Who consumes from a queue: the registry in the database, in line, and what this process's own consumers have room for.

The database knows who is there, so that exclusive use, single active consumers and the end of auto-delete queues hold across
processes. Room (credit) is known only here: prefetch is of the channel, and changes while it runs (RMQ-140, RMQ-141). So
priorities among consumers, taking turns, and the hand-off of messages that live for no time hold among those of one process.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules import errors, table
from broker_core.rabbitmq.rules.arguments import QUORUM, consumer_priority
from broker_core.rabbitmq.topology import queue_expiry
from broker_core.rabbitmq.topology.queues import remove
from broker_core.rabbitmq.topology.vhosts import HeldVhost, hold_vhost
from broker_core.runtime.entity_cache import forget
from broker_core.runtime.waiting import wake
from broker_core.store import connections as database
from broker_core.store.driver import Steps
from broker_core.store.statements import call

if TYPE_CHECKING:
    from .channel_state import ChannelState

UNLIMITED = 2**31 - 1
counting = threading.Lock()
_servings = itertools.count(1)
SMALLEST, LARGEST = -(2**31), 2**31 - 1  # priorities that are told apart


@dataclass(eq=False, slots=True)
class Consumer:
    """A consumer of this process. prefetch: how many deliveries it may have unacknowledged, 0 for any number (RMQ-142).

    may_take: whether it is its turn, where only one consumer of the queue is active (RMQ-148). outstanding: its unacknowledged
    deliveries, those included that wait to be fetched. promised: what a transaction under way is about to give it. served: when
    it last got its turn, in the order of all turns; it begins at the end of the line.
    """

    id: int
    channel: ChannelState
    address: EntityAddress
    entity_id: int
    tag: str
    no_ack: bool
    priority: int
    prefetch: int
    may_take: bool
    outstanding: int = 0
    promised: int = 0
    served: int = field(default_factory=lambda: next(_servings))

    @property
    def owner_id(self) -> int:
        return self.channel.connection.id

    @property
    def holder(self) -> str:
        return self.channel.connection.name

    @property
    def room(self) -> int:
        """How many more deliveries it may get now: all there are, where none is to be acknowledged (RMQ-114)."""
        if self.no_ack:
            return UNLIMITED
        own = self.prefetch - self.outstanding - self.promised if self.prefetch else UNLIMITED
        return max(0, min(own, self.channel.room))

    def hand_over(self, deliveries: Sequence[Any]) -> bool:
        """Deliveries for its connection that are committed: its channel fetches them next. From any thread.

        False: the channel has been closed meanwhile, and the deliveries are to be given back.
        """
        with counting:
            if not self.channel.is_open:
                return False
            self.channel.handed.extend((self, delivery) for delivery in deliveries)
        self.count(len(deliveries))
        return True

    def count(self, more: int) -> None:
        """Reckon with so many more deliveries, or with fewer that are to be acknowledged."""
        if more > 0:
            self.served = next(_servings)
        if not self.no_ack:
            with counting:
                self.outstanding += more
                self.channel.outstanding += more

    @contextmanager
    def promise(self, count: int) -> Iterator[None]:
        """It has less room meanwhile: nobody else plans with what it is about to get."""
        with counting:
            self._promise(count)
        try:
            yield
        finally:
            with counting:
                self._promise(-count)

    def _promise(self, more: int) -> None:
        if not self.no_ack:
            self.promised += more
            self.channel.promised += more


class Registry:
    """The consumers of this process by queue. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[database.Database, int], list[Consumer]] = {}

    def add(self, consumer: Consumer) -> None:
        with self._lock:
            self._of.setdefault((database.current_database(), consumer.entity_id), []).append(consumer)

    def drop(self, consumer: Consumer) -> None:
        with self._lock:
            for key in [key for key, found in self._of.items() if consumer in found]:
                self._of[key].remove(consumer)
                if not self._of[key]:
                    del self._of[key]

    def of(self, entity_id: int) -> list[Consumer]:
        with self._lock:
            return list(self._of.get((database.current_database(), entity_id), ()))


registry = Registry()


def takers(entity_id: int) -> list[Consumer]:
    """Who, in this process, may be handed messages of a queue (RMQ-016, RMQ-922).

    What was stored as delivered to a consumer's `owner_id`, held by its `holder`, is given to its `hand_over` after the commit;
    for one with `no_ack` nothing stays stored.
    """
    return [c for c in registry.of(entity_id) if c.may_take and c.channel.is_open]


@contextmanager
def planned(consumers: Sequence[Consumer], count: int) -> Iterator[list[Consumer]]:
    """Who gets each of the next `count` messages of a queue, as `in_turns` says; fewer where there is no room for all. It is
    promised to them meanwhile."""
    with counting:
        plan = in_turns(consumers, count)
        for consumer in plan:
            consumer._promise(1)
    try:
        yield plan
    finally:
        with counting:
            for consumer in plan:
                consumer._promise(-1)


def outranked(consumer: Consumer) -> bool:
    """Whether one of higher priority, in this process, waits for messages of the same queue and has room (RMQ 1.7)."""
    return any(
        other.priority > consumer.priority and other.channel.waits and other.may_take and other.room
        for other in registry.of(consumer.entity_id)
    )


def in_turns(consumers: Sequence[Consumer], count: int) -> list[Consumer]:
    """Who gets each of the next `count` messages of a queue: the highest priority with room, equal ones in turns, first who was
    served longest ago (RMQ-145)."""
    plan: list[Consumer] = []
    shared_room = {c.channel: c.channel.room for c in consumers}
    given = dict.fromkeys(consumers, 0)

    def has_room(consumer: Consumer) -> bool:
        return given[consumer] < consumer.room and (consumer.no_ack or shared_room[consumer.channel] > 0)

    for level in sorted({c.priority for c in consumers}, reverse=True):
        turn = deque(sorted((c for c in consumers if c.priority == level), key=lambda c: c.served))
        while turn and len(plan) < count:
            consumer = turn.popleft()
            if not has_room(consumer):
                continue
            plan.append(consumer)
            given[consumer] += 1
            shared_room[consumer.channel] -= not consumer.no_ack
            turn.append(consumer)
    return plan


def register(
    channel: ChannelState,
    address: EntityAddress,
    entity_id: int,
    *,
    tag: str,
    no_ack: bool,
    exclusive: bool,
    priority: int | None,
    arguments: Mapping[str, Any],
) -> Steps[Consumer]:
    """Begin to consume from a queue, in a transaction that the caller opens. Returns the Consumer. Raises AmqpError."""
    if priority is not None:
        arguments = {**arguments, "x-priority": priority}
    stored = table.encode(arguments, "argument")
    level = min(max(consumer_priority(address.namespace, address.path, arguments), SMALLEST), LARGEST)
    yield from hold_vhost(address.namespace)
    rows = yield call("lock_queue_to_consume", entity_id=entity_id)
    if not rows:
        raise errors.not_found_queue(address.namespace, address.path)
    is_quorum = rows[0].options.get("type") == QUORUM
    exclusive = exclusive and not is_quorum  # where nobody is alone (RMQ-386)
    _check_may_consume(channel, address, rows[0], exclusive, is_quorum)
    if not (yield call("hold_connection", connection_id=channel.connection.id)):
        raise channel.connection.lost("its process was declared dead")
    added = yield call(
        "add_consumer",
        queue_id=entity_id,
        connection_id=channel.connection.id,
        channel=channel.number,
        tag=tag,
        no_ack=no_ack,
        exclusive=exclusive,
        priority=level,
        prefetch=channel.prefetch,
        arguments=json.dumps(stored),
    )
    if not added:
        raise errors.exclusive_use(address.namespace, address.path)
    may_take = added[0].is_first or not rows[0].effective.get("single_active_consumer")
    return Consumer(added[0].id, channel, address, entity_id, tag, no_ack, level, channel.prefetch, may_take)


def unregister(consumer: Consumer) -> Steps[None]:
    """End a consumer, in a transaction that the caller opens; with the last one an auto-delete queue goes (RMQ 1.3)."""
    held = yield from hold_vhost(consumer.address.namespace)
    yield call("lock_queues_left", entity_ids=[consumer.entity_id])
    yield call("remove_consumer", consumer_id=consumer.id)
    yield from after_leaving(held, [consumer.entity_id])


def forget_all(connection_id: int, channel: int | None, held: HeldVhost) -> Steps[None]:
    """End the consumers of a connection, or of one channel of it, in a transaction that holds the virtual host."""
    queues = [row.queue_id for row in (yield call("queues_consumed", connection_id=connection_id, channel=channel))]
    if queues:
        yield call("lock_queues_left", entity_ids=queues)
        yield call("forget_consumers_of", connection_id=connection_id, channel=channel)
        yield from after_leaving(held, queues)


def after_leaving(held: HeldVhost, entity_ids: Sequence[int]) -> Steps[None]:
    """What follows for queues that have lost consumers: some go, the others' time of being unused begins, the next in line is
    told (RMQ-043, RMQ-050, RMQ-148)."""
    left = yield call("queues_left", entity_ids=list(entity_ids))
    gone = [row for row in left if row.is_auto_delete]
    yield from delete_queues(held, gone)
    yield from queue_expiry.restart([row.id for row in left if not row.is_auto_delete])
    yield from wake(sorted(set(entity_ids) - {row.id for row in gone}))


def delete_queues(held: HeldVhost, rows: Sequence[Any]) -> Steps[None]:
    """Delete these queues (id, path) with all that is in them."""
    if rows:
        yield from remove(held.id, [row.id for row in rows])
        for row in rows:
            forget(EntityAddress(held.name, row.path))


def open_queue(address: EntityAddress, connection_id: int) -> Steps:
    """The queue that a connection is about to use, which counts as use (RMQ-041). Raises AmqpError: 404, 405."""
    queue = yield from queue_expiry.use(address)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)
    if queue.owner_id not in (None, connection_id):
        raise errors.locked_queue(address.namespace, address.path)
    return queue


def _check_may_consume(channel: ChannelState, address: EntityAddress, queue: Any, exclusive: bool, is_quorum: bool) -> None:
    if exclusive and queue.effective.get("single_active_consumer"):
        raise errors.exclusive_use(address.namespace, address.path)
    if channel.prefetch_of_all and is_quorum:
        raise errors.not_implemented(f"{errors.queue(address.namespace, address.path)} does not support global qos")
