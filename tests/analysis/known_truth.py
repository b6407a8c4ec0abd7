"""Histories of a process whose truth is known, from a queue in plain Python, and how often the bands of a replay cover it.

The truth is the mean over many histories of the process that really ran with the other setting. A history is replayed from its
rows as the pipeline makes them, so that all which is unknown to the replay (the work of lost deliveries, absences, the number of
consumers) is inferred.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from explorer.analysis.jobs.measures import bin_of, lower_bound
from explorer.analysis.jobs.replaying import (
    RESAMPLES,
    Delivery,
    End,
    Life,
    Refusal,
    Replayable,
    Traits,
    resampled,
    share_band,
)
from explorer.analysis.jobs.simulation import Outcome, Result, Setting, replay
from explorer.analysis.survival import Curve

from .real_run import SECOND, Happened, Limits, Script, play, script

MANY = 300  # messages of a history
FOREVER = 2**60
MEAN_WAIT = 10  # seconds
US = timedelta(microseconds=1)


@dataclass
class _Stay:
    arrived: int
    received: int | None = None
    ended: int | None = None
    end: End = End.THERE
    failures: int = 0
    deliveries: int = 0


class PlainQueue:
    """A queue of Service Bus in plain Python: locks, a limit of deliveries, a time-to-live, and the rows of its history."""

    def __init__(self, limits: Limits):
        self.limits, self.now = limits, 0
        self.stays: list[_Stay] = []
        self.available: list[int] = []
        self.held: dict[tuple[int, int], tuple[int, str, int]] = {}  # (number, delivery) -> (received, consumer, end of lock)
        self.ends: list[tuple[int, int, int]] = []  # of locks
        self.made: list[Delivery] = []
        self.refusals: list[Refusal] = []

    def move_clock(self, by: int) -> None:
        self.now += by
        while self.ends and self.ends[0][0] <= self.now:
            _, number, delivery = heapq.heappop(self.ends)
            if (number, delivery) in self.held:
                self._ends(number, delivery, Result.VANISHED)

    def send(self, number: int) -> None:
        self.stays.append(_Stay(self.now))
        heapq.heappush(self.available, number)

    def receive(self, count: int, consumer: str) -> list[tuple[int, Any, int | None]]:
        got: list[tuple[int, Any, int | None]] = []
        while self.available and len(got) < count:
            number = heapq.heappop(self.available)
            stay = self.stays[number]
            if self._expires(stay):
                continue
            stay.deliveries += 1
            stay.received = self.now if stay.received is None else stay.received
            until = FOREVER if self.limits.lock is None else self.now + self.limits.lock
            self.held[number, stay.deliveries] = (self.now, consumer, until)
            heapq.heappush(self.ends, (until, number, stay.deliveries))
            got.append((number, (number, stay.deliveries), None if until == FOREVER else until))
        return got

    def complete(self, token: tuple[int, int], consumer: str) -> None:
        self._settle(token, consumer, Result.WELL)

    def abandon(self, token: tuple[int, int], consumer: str) -> None:
        self._settle(token, consumer, Result.FAILED)

    def happened(self, until: int) -> Happened:
        for stay in self.stays:
            if stay.end is End.THERE and not any(self.stays[number] is stay for number, _ in self.held):
                self._expires(stay)
        lives = [Life(i, one.arrived, one.received, one.ended, one.end) for i, one in enumerate(self.stays)]
        return Happened(lives, self.made, self.refusals, until, Traits(self.limits.deliveries))

    def _settle(self, token: tuple[int, int], consumer: str, result: Result) -> None:
        if token in self.held:
            self._ends(*token, result)
        else:
            self.refusals.append(Refusal(token[0], self.now, consumer, result))

    def _ends(self, number: int, delivery: int, result: Result) -> None:
        received, consumer, until = self.held.pop((number, delivery))
        lock = None if until == FOREVER else until - received
        self.made.append(Delivery(number, delivery, received, min(self.now, until), consumer, result, lock))
        stay = self.stays[number]
        if result is Result.WELL:
            stay.ended, stay.end = self.now, End.PROCESSED
            return
        stay.failures += 1
        if stay.failures == self.limits.deliveries:
            stay.ended, stay.end = self.now, End.LIMIT
        else:
            heapq.heappush(self.available, number)

    def _expires(self, stay: _Stay) -> bool:
        life = self.limits.time_to_live
        if life is not None and stay.end is End.THERE and stay.arrived + life <= self.now:
            stay.ended, stay.end = stay.arrived + life, End.EXPIRED
        return stay.end is not End.THERE


@dataclass(frozen=True)
class Process:
    """Random histories. consumers: of a run. load: work that arrives, as a share of what they can do. outages: on the average,
    of `outage` seconds. The others: of script."""

    consumers: int
    load: float
    outages: float = 3.0
    outage: float = 40.0
    mean: float = 5.0
    shares: Mapping[str, float] = field(default_factory=lambda: {"failing": 0.1, "crashing": 0.02})

    def script(self, seed: int) -> Script:
        draw = random.Random(f"{seed} outages")
        every = self.mean / self.consumers / self.load * (1 + self.shares.get("failing", 0))
        length = MANY * every
        rest = self.outages + 1
        starts, at = [], 0.0
        while (at := at + draw.expovariate(rest / length)) < length:
            starts.append((round(at), round(at + draw.expovariate(1 / self.outage)) + 1))
        return script(seed, MANY, every=every, mean=self.mean, until=2 * length + 600, absent=starts, **self.shares)

    def run(self, seed: int, limits: Limits) -> Happened:
        queue, played = PlainQueue(limits), self.script(seed)
        play(queue, played, consumers=self.consumers)
        return queue.happened(played.until)


@dataclass(frozen=True)
class Case:
    """A question: a share of a history's outcome, under other limits than those with which it ran."""

    name: str
    process: Process
    now: Limits
    then: Limits
    share: Callable[[Outcome], float]


def lost_locks(one: Outcome) -> float:
    return one.locks_lost / max(1, one.deliveries)


def expired(one: Outcome) -> float:
    return one.unreceived / one.messages


def dead(one: Outcome) -> float:
    return one.dead_lettered / one.messages


def prompt(one: Outcome) -> float:
    return one.prompt / max(1, one.due)


BUSY = Process(consumers=3, load=0.85)
FREE = Process(consumers=40, load=0.06)
USUAL = Limits(lock=20 * SECOND, deliveries=4)
CASES = (
    Case("time-to-live, loaded", BUSY, USUAL, replace(USUAL, time_to_live=20 * SECOND), expired),
    Case("time-to-live, overloaded", Process(3, 1.03), USUAL, replace(USUAL, time_to_live=30 * SECOND), expired),
    Case("longer lock, loaded", BUSY, replace(USUAL, lock=5 * SECOND), replace(USUAL, lock=10 * SECOND), lost_locks),
    Case("shorter lock, loaded", BUSY, USUAL, replace(USUAL, lock=10 * SECOND), lost_locks),
    Case("shorter lock, enough consumers", FREE, USUAL, replace(USUAL, lock=10 * SECOND), lost_locks),
    Case("deliveries, loaded", BUSY, USUAL, replace(USUAL, deliveries=1), dead),
    Case("deliveries, enough consumers", FREE, USUAL, replace(USUAL, deliveries=2), dead),
)


def waits(seed: int, many: int = 400) -> Curve:
    """Without a queue: waiting is exponential, and so are the times-to-live."""
    draw = random.Random(seed)
    drawn = [(draw.expovariate(1 / MEAN_WAIT) * SECOND, draw.expovariate(1 / 15) * SECOND) for _ in range(many)]
    received = Counter(bin_of(int(wait)) for wait, limit in drawn if wait < limit)
    return Curve(received, Counter(bin_of(int(limit)) for wait, limit in drawn if wait >= limit))


def wait_truth(seconds: float) -> float:
    return math.exp(-seconds / MEAN_WAIT)


def at_end_of_bin(seconds: float) -> timedelta:
    """The end of the bin with this time: estimates count a bin only if all of it is below."""
    return timedelta(microseconds=lower_bound(bin_of(round(seconds * SECOND)) + 1))


def survival_coverage(histories: int = 100) -> float:
    """In how many of 100 histories the band of the survival estimate has the truth."""
    results = []
    for seed in range(histories):
        curve = waits(seed)
        for x in map(at_end_of_bin, (3, 10, 20)):
            estimate = curve.at(x // US)
            results.append(estimate.low <= wait_truth(x.total_seconds()) <= estimate.high)
    return 100 * sum(results) / len(results)


def setting_of(found: Replayable, then: Limits) -> Setting:
    changes = {name: value for name in ("lock", "deliveries", "time_to_live") if (value := getattr(then, name)) is not None}
    return replace(found.setting, **changes)


def band(found: Replayable, setting: Setting, share: Callable[[Outcome], float], seed: int = 1) -> tuple[float, float, float]:
    """The share that a replay says, and its band from resampled blocks."""
    draw = random.Random(seed)
    again = [share(replay(resampled(found, draw, 10**9), setting)) for _ in range(RESAMPLES)]
    said = share(replay(found.history, setting))
    blocks = found.by_waiting if share in (expired, prompt) else found.by_messages
    return said, *share_band(said, again, found.actual.messages, blocks)


def truth(case: Case, histories: int = 200) -> float:
    """The mean share over histories that really ran with the other setting."""
    return sum(case.share(case.process.run(10**6 + i, case.then).replayable().actual) for i in range(histories)) / histories


def coverage(histories: int = 100) -> Iterator[tuple[str, float]]:
    """In how many of 100 histories the 95 % band has the truth, by case."""
    yield "time-to-live, without a queue", survival_coverage()
    for case in CASES:
        right = truth(case)
        replays = (case.process.run(seed, case.now).replayable() for seed in range(histories))
        bands = (band(replay, setting_of(replay, case.then), case.share, i) for i, replay in enumerate(replays))
        yield case.name, 100 * sum(low <= right <= high for _, low, high in bands) / histories
