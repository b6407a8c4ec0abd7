"""Runs a history on the broker under the manual clock: messages arrive at given times, and consumers behave as those of a
replay. The same history can thus really be run with other settings, and compared with what an analysis of the first run says."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.types import Actor, EntityAddress, EventKind, Message
from broker_core.history import archive
from broker_core.models import Entity
from broker_core.service_bus import entities
from broker_core.store import connections
from explorer.analysis.reports.forms import ReportForm
from explorer.analysis.reports.scope import Scope
from explorer.analysis.simulation import Result

US = timedelta(microseconds=1)
SECOND = 1_000_000


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


def run(queue: EntityAddress, played: Script, *, consumers: int, prefetch: int = 1, **settings: Any) -> Counter[str]:
    """Create the queue with these settings and run the script. Returns how many events of which kind there were."""
    namespaces.ensure_namespace(queue.namespace)
    namespaces.pause_clock(queue.namespace)
    entities.create_queue(queue, **settings)
    _Run(queue, played, consumers, prefetch).all()
    sweeps.expire_messages()
    rows = connections.current().execute(
        "SELECT e.kind, count(*) AS n FROM vitrine_message_event AS e JOIN vitrine_entity AS q ON q.id = e.entity_id"
        " JOIN vitrine_namespace AS s ON s.id = q.namespace_id WHERE s.name = %s AND q.path = %s GROUP BY 1",
        (queue.namespace, queue.path),
    )
    return Counter({EventKind(row.kind).name: row.n for row in rows.fetchall()})


def scope_of(queue: EntityAddress) -> Scope:
    """A queue's last 30 days, as archived by now."""
    archive.archive_events()
    form = ReportForm({"queue": Entity.objects.get(namespace__name=queue.namespace, path=queue.path).pk, "range": "30d"})
    assert form.is_valid(), form.errors
    return form.scope()


class _Run:
    """waiting: messages that may be received, so that nobody asks in vain."""

    def __init__(self, queue: EntityAddress, played: Script, consumers: int, prefetch: int):
        self.queue, self.played, self.prefetch = queue, played, prefetch
        self.idle = [Actor.local(f"consumer-{i}") for i in range(consumers)]
        self.now = self.order = self.waiting = 0
        self.started = namespaces.get_clock(queue.namespace).now
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
            namespaces.step_clock(self.queue.namespace, (at - self.now) * US)
            self.now = at

    def send(self, number: int) -> None:
        service_bus.send(self.queue, [Message(str(number).encode())])
        self.waiting += 1

    def receive(self) -> None:
        while self.idle and self.waiting > 0 and not any(start <= self.now < until for start, until in self.played.absent):
            consumer = self.idle.pop()
            got = service_bus.receive(self.queue, self.prefetch, actor=consumer)
            self.waiting = self.waiting - len(got) if got else 0
            at = self.now
            for message in got:
                at = self.begin(message, at, consumer)
            self.at(at, lambda consumer=consumer: self.idle.append(consumer))

    def begin(self, message: Any, at: int, consumer: Actor) -> int:
        """Plan how a delivery goes. Returns when its consumer is done with it."""
        number = int(bytes(message.body))
        work, result = self.played.work(number, self.attempts[number])
        self.attempts[number] += 1
        done, locked_until = at + work, (message.locked_until - self.started) // US
        if result is not Result.VANISHED:
            self.at(done, lambda: self.settle(message.lock_token, result, consumer))
        if result is Result.VANISHED or done >= locked_until:
            self.at(locked_until, self.back)
        return done

    def settle(self, token: Any, result: Result, consumer: Actor) -> None:
        settle = service_bus.complete if result is Result.WELL else service_bus.abandon
        settle(self.queue, [token], actor=consumer)
        self.waiting += result is Result.FAILED

    def back(self) -> None:
        self.waiting += 1
