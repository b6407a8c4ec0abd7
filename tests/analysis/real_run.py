"""Runs a history on the broker under the manual clock: messages arrive at given times, and consumers behave as those of a
replay. The same history can thus really be run with other settings, and compared with what an analysis of the first run says.

What happened is read from the event table, by rules of its own: neither the pipeline nor Spark is part of it.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from broker_core import namespaces, queue_storage, rabbitmq, service_bus, sweeps
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, EventKind, Family
from broker_core.rabbitmq import Publication
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.replaying import Delivery, End, Life, Refusal, Replayable, Traits, replayable
from explorer.analysis.jobs.simulation import Result

US = timedelta(microseconds=1)
SECOND = 1_000_000
OWNER = 1_000_001  # of RabbitMQ's deliveries
LIMIT_REASONS = ("MaxDeliveryCountExceeded", "MaxDequeueCountExceeded", "delivery_limit")
TRAITS = {  # by family, what a replay has to know; without the maximum of deliveries
    "service_bus": {}, "queue_storage": {"by_visibility": True}, "rabbitmq": {"notices_crashes": True},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """Times are microseconds since the start. work: (message, attempt from 0) -> (time, result). absent: (from, until)."""

    arrivals: Sequence[int]
    work: Callable[[int, int], tuple[int, Result]]
    until: int
    absent: Sequence[tuple[int, int]] = ()


def script(
    seed: int, many: int, *, every: float, mean: float, failing: float = 0.0, crashing: float = 0.0, poison: float = 0.0,
    until: float, absent: Sequence[tuple[int, int]] = (),
) -> Script:  # fmt: skip
    """Exponential gaps and work, in seconds. Work and result of each delivery follow from its message and its place alone, so
    that consumers behave the same in every run. poison: share of messages that always fail."""
    draw, at, arrivals = random.Random(seed), 0.0, []
    for _ in range(many):
        at += draw.expovariate(1 / every)
        arrivals.append(round(at * SECOND))

    def work(number: int, attempt: int) -> tuple[int, Result]:
        own = random.Random(f"{seed} {number} {attempt}")
        is_poison = random.Random(f"{seed} {number}").random() < poison
        chance, duration = own.random(), round(own.expovariate(1 / mean) * SECOND) + 1
        if chance < crashing:
            return duration, Result.VANISHED
        return duration, Result.FAILED if is_poison or chance < crashing + failing else Result.WELL

    return Script(arrivals, work, round(until * SECOND), [(start * SECOND, end * SECOND) for start, end in absent])


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a run. None: unlimited. deliveries: as a replay counts them, the N-th failed one is the last."""

    lock: int | None = None
    deliveries: int | None = None
    time_to_live: int | None = None


class Queue(Protocol):
    """A queue that a script can be run on. A received message is (its place among those sent, token, end of its lock)."""

    def move_clock(self, by: int) -> None: ...
    def send(self, number: int) -> None: ...
    def receive(self, count: int, consumer: str) -> list[tuple[int, Any, int | None]]: ...
    def complete(self, token: Any, consumer: str) -> None: ...
    def abandon(self, token: Any, consumer: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Happened:
    """The rows of a run, and the same to replay it with."""

    lives: list[Life]
    deliveries: list[Delivery]
    refusals: list[Refusal]
    until: int
    traits: Traits

    def replayable(self, within: int = 60 * SECOND) -> Replayable:
        return replayable(self.lives, self.deliveries, self.refusals, self.until, self.traits, within)

    def ended(self, end: End) -> int:
        return sum(life.end is end for life in self.lives)

    @property
    def unreceived(self) -> int:
        """Messages that expired before their first delivery."""
        return sum(life.end is End.EXPIRED and life.received is None for life in self.lives)

    @property
    def lost_locks(self) -> int:
        return sum(delivery.result is Result.VANISHED for delivery in self.deliveries)


def run(family: str, address: EntityAddress, played: Script, limits: Limits, *, consumers: int, prefetch: int = 1) -> Happened:
    """Create the queue with these limits, run the script, and return what happened."""
    queue = FAMILIES[family](address, limits)
    start = namespaces.get_clock(address.namespace).now
    play(queue, played, consumers=consumers, prefetch=prefetch)
    sweeps.expire_messages()
    return happened(address, start, played.until, Traits(limits.deliveries, **TRAITS[family]))


def play(queue: Queue, played: Script, *, consumers: int, prefetch: int = 1) -> None:
    _Run(queue, played, consumers, prefetch).all()


class _Run:
    """waiting: messages that may be received, so that nobody asks in vain."""

    def __init__(self, queue: Queue, played: Script, consumers: int, prefetch: int):
        self.queue, self.played, self.prefetch = queue, played, prefetch
        self.idle = [f"consumer-{i}" for i in range(consumers)]
        self.now = self.order = self.waiting = 0
        self.attempts: Counter[int] = Counter()
        self.events: list[tuple[int, int, Callable[[], None]]] = []

    def all(self) -> None:
        for number, at in enumerate(self.played.arrivals):
            self.at(at, lambda number=number: self.send(number))
        for _, until in self.played.absent:
            self.at(until, lambda: None)
        while self.events and self.events[0][0] < self.played.until:
            at, _, do = heapq.heappop(self.events)
            self.move_clock(at)
            do()
            self.receive()
        self.move_clock(self.played.until)

    def at(self, at: int, do: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (at, self.order, do))

    def move_clock(self, at: int) -> None:
        if at > self.now:
            self.queue.move_clock(at - self.now)
            self.now = at

    def send(self, number: int) -> None:
        self.queue.send(number)
        self.waiting += 1

    def receive(self) -> None:
        while self.idle and self.waiting > 0 and not any(start <= self.now < until for start, until in self.played.absent):
            consumer = self.idle.pop()
            got = self.queue.receive(self.prefetch, consumer)
            self.waiting = self.waiting - len(got) if got else 0
            at = self.now
            for number, token, locked_until in got:
                at = self.begin(number, token, locked_until, at, consumer)
            self.at(at, lambda consumer=consumer: self.idle.append(consumer))

    def begin(self, number: int, token: Any, locked_until: int | None, at: int, consumer: str) -> int:
        """Plan how a delivery goes. Returns when its consumer is done with it."""
        work, result = self.played.work(number, self.attempts[number])
        self.attempts[number] += 1
        done = at + work
        if result is not Result.VANISHED:
            self.at(done, lambda: self.settle(token, result, consumer))
        if locked_until is not None and (result is Result.VANISHED or done >= locked_until):
            self.at(locked_until, self.back)
        return done

    def settle(self, token: Any, result: Result, consumer: str) -> None:
        (self.queue.complete if result is Result.WELL else self.queue.abandon)(token, consumer)
        self.waiting += result is Result.FAILED

    def back(self) -> None:
        self.waiting += 1


class _OnTheBroker:
    """What the queues of all families share."""

    def __init__(self, address: EntityAddress, limits: Limits):
        self.address, self.limits = address, limits
        self.make()
        namespaces.pause_clock(address.namespace)
        self.start = namespaces.get_clock(address.namespace).now

    def make(self) -> None:
        raise NotImplementedError

    def move_clock(self, by: int) -> None:
        namespaces.step_clock(self.address.namespace, by * US)

    @property
    def now(self) -> int:
        return (namespaces.get_clock(self.address.namespace).now - self.start) // US

    @property
    def life(self) -> timedelta | None:
        return None if self.limits.time_to_live is None else self.limits.time_to_live * US


class ServiceBus(_OnTheBroker):
    def make(self) -> None:
        namespaces.ensure_namespace(self.address.namespace, Family.SERVICE_BUS)
        life: dict[str, Any] = {} if self.life is None else {"default_message_time_to_live": self.life}
        lock, deliveries = self.limits.lock or 60 * SECOND, self.limits.deliveries or 2000
        entities.create_queue(self.address, lock_duration=lock * US, max_delivery_count=deliveries, **life)

    def send(self, number: int) -> None:
        service_bus.send(self.address, [Message(str(number).encode())])

    def receive(self, count: int, consumer: str) -> list[tuple[int, Any, int | None]]:
        got = service_bus.receive(self.address, count, actor=Actor.local(consumer))
        return [(int(bytes(message.body)), message.lock_token, (message.locked_until - self.start) // US) for message in got]

    def complete(self, token: Any, consumer: str) -> None:
        service_bus.complete(self.address, [token], actor=Actor.local(consumer))

    def abandon(self, token: Any, consumer: str) -> None:
        service_bus.abandon(self.address, [token], actor=Actor.local(consumer))


class QueueStorage(_OnTheBroker):
    def make(self) -> None:
        queue_storage.ensure_account(self.address.namespace)
        queue_storage.create_queue(self.address, max_dequeue_count=self.limits.deliveries)

    def send(self, number: int) -> None:
        queue_storage.put(self.address, str(number), time_to_live=self.life)

    def receive(self, count: int, consumer: str) -> list[tuple[int, Any, int | None]]:
        lock = self.limits.lock or 60 * SECOND
        got = queue_storage.get(self.address, count, visibility_timeout=lock * US, actor=Actor.local(consumer))
        return [(int(message.text), (message.message_id, message.pop_receipt), self.now + lock) for message in got]

    def complete(self, token: Any, consumer: str) -> None:
        with suppress(BrokerError):  # a late one
            queue_storage.delete(self.address, *token, actor=Actor.local(consumer))

    def abandon(self, token: Any, consumer: str) -> None:
        with suppress(BrokerError):
            queue_storage.update(self.address, *token, visibility_timeout=timedelta(0), actor=Actor.local(consumer))


class RabbitMQ(_OnTheBroker):
    def make(self) -> None:
        rabbitmq.ensure_vhost(self.address.namespace)
        arguments: dict[str, Any] = {"x-queue-type": "quorum"}
        if self.limits.deliveries is not None:
            arguments["x-delivery-limit"] = self.limits.deliveries - 1
        if self.limits.time_to_live is not None:
            arguments["x-message-ttl"] = self.limits.time_to_live // 1000
        rabbitmq.declare_queue(self.address, arguments=arguments)

    def send(self, number: int) -> None:
        rabbitmq.publish(self.address.namespace, [Publication(str(number).encode(), "", self.address.path)])

    def receive(self, count: int, consumer: str) -> list[tuple[int, Any, int | None]]:
        got = rabbitmq.take(self.address, count, owner_id=OWNER, actor=Actor.local(consumer))
        return [(int(bytes(delivery.body)), delivery.token, None) for delivery in got]

    def complete(self, token: Any, consumer: str) -> None:
        rabbitmq.acknowledge(self.address, [token], actor=Actor.local(consumer))

    def abandon(self, token: Any, consumer: str) -> None:
        rabbitmq.requeue(self.address, [token], actor=Actor.local(consumer))


FAMILIES: dict[str, Callable[[EntityAddress, Limits], Any]] = {
    "service_bus": ServiceBus, "queue_storage": QueueStorage, "rabbitmq": RabbitMQ,
}  # fmt: skip


def happened(address: EntityAddress, start: Any, until: int, traits: Traits) -> Happened:
    """What the events of a queue's main list say."""
    rows = connections.current().execute(
        "SELECT e.sequence_number AS number, e.kind, e.at, e.actor, e.reason, e.locked_until"
        " FROM vitrine_message_event AS e JOIN vitrine_entity AS q ON q.id = e.entity_id"
        " JOIN vitrine_namespace AS s ON s.id = q.namespace_id"
        " WHERE s.name = %s AND q.path = %s AND e.subqueue = 0 ORDER BY e.sequence_number, e.at,"
        " (e.kind = %s AND e.locked_until <= e.at) DESC, e.event_id",
        (address.namespace, address.path, int(EventKind.LOCK_LOST)),
    )
    by_message: dict[int, _Story] = {}
    refusals = []
    for row in rows.fetchall():
        kind, at = EventKind(row.kind), (row.at - start) // US
        if kind is EventKind.SETTLE_REFUSED:
            result = Result.WELL if row.reason in ("complete", "delete") else Result.FAILED
            refusals.append(Refusal(row.number, at, row.actor, result))
        elif kind is EventKind.SENT:
            by_message[row.number] = _Story(row.number, at)
        else:
            locked = None if row.locked_until is None else (row.locked_until - start) // US
            by_message[row.number].goes_on(kind, at, row.actor, row.reason, locked)
    stories = by_message.values()
    return Happened([story.life for story in stories], [d for story in stories for d in story.made], refusals, until, traits)


class _Story:
    """What became of a message."""

    def __init__(self, number: int, arrived: int):
        self.number, self.made = number, []
        self.life = Life(number, arrived, None, None, End.THERE)
        self.begun: tuple[int, str, int | None] | None = None  # of the delivery that goes on

    def goes_on(self, kind: EventKind, at: int, actor: str, reason: str | None, locked: int | None) -> None:
        is_limit = reason in LIMIT_REASONS
        if kind is EventKind.RECEIVED:
            self.begun = (at, actor, locked)
            if self.life.received is None:
                self.life = Life(self.number, self.life.arrived, at, None, End.THERE)
            return
        if self.begun:
            self.made.append(self._delivery(kind, at, is_limit))
            self.begun = None
        end = End.THERE
        if kind is EventKind.COMPLETED:
            end = End.PROCESSED
        elif kind is EventKind.EXPIRED or reason in outcomes.EXPIRY_REASONS:
            end = End.EXPIRED
        elif is_limit:
            end = End.LIMIT
        if end is not End.THERE:
            self.life = Life(self.number, self.life.arrived, self.life.received, at, end)

    def _delivery(self, kind: EventKind, at: int, is_limit: bool) -> Delivery:
        received, holder, locked = self.begun
        is_late = locked is not None and at >= locked
        if kind is EventKind.LOCK_LOST or (is_late and kind not in (EventKind.COMPLETED, EventKind.ABANDONED)):
            result, at = Result.VANISHED, at if locked is None else min(at, locked)
        else:
            result = Result.WELL if kind is EventKind.COMPLETED else Result.FAILED
        lock = None if locked is None else locked - received
        return Delivery(self.number, len(self.made) + 1, received, at, holder, result, lock)
