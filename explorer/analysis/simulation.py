"""Replays the messages of a queue with other settings: a discrete-event simulation over the real arrivals, work times, failures
and absences of consumers. Unlike the estimates (what_if*.py) it feeds back: work that is done twice takes time from other
messages, and a message that fails less often leaves room for the next. Pure: no query, no clock; the same input gives the same
result. Times are microseconds since the start of the range.

The model: consumers take up to `prefetch` messages at once, the oldest first, work on them one after the other, settle each when
its work is done, and take the next ones. The locks of all begin at the receipt. What is not settled in time is available again at
its place, and counts as a failed delivery; its consumer goes on working in vain.
"""

from __future__ import annotations

import heapq
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import product

FOREVER = 2**62
MOST_MESSAGES = 50_000  # of a history
MOST_STEPS = 150_000  # messages times settings
MOST_SETTINGS = 25
LONGEST = 10.0  # seconds
ABSENCE_US = 5_000_000  # consumers are absent if they do not receive for so long though messages wait


class TooMuch(Exception):
    """The replay would take longer than a page should. The text says what to do."""


class Result(IntEnum):
    """How the work of a delivery ends if its lock lasts."""

    WELL = 0
    FAILED = 1
    VANISHED = 2  # nothing is heard of the consumer again; the lock has to end


@dataclass(frozen=True, slots=True)
class Message:
    """work: of its deliveries as they were, each (time, result). removed: when an operator removed it, unless it had ended."""

    arrived: int
    time_to_live: int | None = None
    work: tuple[tuple[int, Result], ...] = ()
    removed: int = FOREVER


@dataclass(frozen=True, slots=True)
class History:
    """messages: in the order of their arrival. absences: (from, until, share of the consumers that are present). until: the end
    of the range. notices_crashes: a crash ends the lock at once, as the broker loses the connection."""

    messages: Sequence[Message]
    absences: Sequence[tuple[int, int, float]]
    until: int
    notices_crashes: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """pace: of the consumers, as a multiple of what it was. lock, deliveries: None: unlimited. time_to_live: for all messages;
    None: each has its own."""

    consumers: int
    pace: float = 1.0
    prefetch: int = 1
    lock: int | None = None
    deliveries: int | None = None
    time_to_live: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """duplicates: deliveries whose consumer was still working when its lock ended; None: unknown. depth: the most messages at one
    time. waiting: the 95th percentile of the time to the first delivery, of messages that had one; None: none had."""

    messages: int
    processed: int
    expired: int
    dead_lettered: int
    duplicates: int | None
    locks_lost: int
    depth: int
    waiting: int | None

    @property
    def lost(self) -> int:
        return self.expired + self.dead_lettered


@dataclass(slots=True)
class _Pools:
    """What is drawn for deliveries that there were not: the work of observed ones, and how often the n-th one succeeded."""

    work: list[int] = field(default_factory=list)
    by_attempt: list[list[Result]] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> _Pools:
        pools = cls()
        for message in messages:
            for at, (work, result) in enumerate(message.work):
                if result is not Result.VANISHED:
                    pools.work.append(work)
                if at == len(pools.by_attempt):
                    pools.by_attempt.append([])
                pools.by_attempt[at].append(result)
        return pools

    def draw(self, at: int, choice: Callable) -> tuple[int, Result]:
        if not self.work:
            return 0, Result.WELL
        return choice(self.work), choice(self.by_attempt[min(at, len(self.by_attempt) - 1)])


def grid(base: Setting, **values: Sequence) -> list[Setting]:
    """All combinations of these values, of the base's where there are none. Raises TooMuch."""
    names = [name for name, given in values.items() if given]
    found = [replace(base, **dict(zip(names, one, strict=True))) for one in product(*(values[name] for name in names))]
    if len(found) > MOST_SETTINGS:
        raise TooMuch(f"{len(found)} combinations; at most {MOST_SETTINGS} are replayed. Give fewer values.")
    return found


def replay_all(history: History, settings: Sequence[Setting], *, seed: int = 1) -> list[Outcome]:
    """The outcome of each setting. Raises TooMuch."""
    count = len(history.messages)
    if count > MOST_MESSAGES:
        raise TooMuch(f"{count:,} messages entered in this range; at most {MOST_MESSAGES:,} are replayed. Choose a shorter one.")
    if count * len(settings) > MOST_STEPS:
        most = max(1, MOST_STEPS // count)
        raise TooMuch(f"With {count:,} messages at most {most} combinations are replayed. Give fewer values or a shorter range.")
    pools, over = _Pools.of(history.messages), time.monotonic() + LONGEST
    return [_Run(history, setting, pools, seed, over).outcome() for setting in settings]


class _Run:
    """One replay. Events are (time, order, kind, number): a message returns, or a consumer is free."""

    RETURN, FREE = 0, 1

    def __init__(self, history: History, setting: Setting, pools: _Pools, seed: int, over: float):
        self.history, self.setting, self.pools, self.over = history, setting, pools, over
        self.draw = random.Random(seed).choice
        count = len(history.messages)
        self.failures, self.deliveries = [0] * count, [0] * count
        self.first: list[int | None] = [None] * count
        self.ended: list[int | None] = [None] * count
        self.expires = [self._expiry(message) for message in history.messages]
        self.available: list[int] = []
        self.idle = setting.consumers
        self.events: list[tuple[int, int, int, int]] = []
        self.order = 0
        self.processed = self.expired = self.dead = self.duplicates = self.lost = 0
        self.absent_from = [start for start, _, _ in history.absences]

    def outcome(self) -> Outcome:
        self._run()
        for number in self.available:
            self._expire(number, self.history.until)
        waits = sorted(at - self.history.messages[i].arrived for i, at in enumerate(self.first) if at is not None)
        return Outcome(
            len(self.ended), self.processed, self.expired, self.dead, self.duplicates, self.lost, self._depth(),
            waits[min(len(waits) - 1, int(len(waits) * 0.95))] if waits else None,
        )  # fmt: skip

    def _expiry(self, message: Message) -> int:
        own = self.setting.time_to_live if self.setting.time_to_live is not None else message.time_to_live
        return FOREVER if own is None else message.arrived + own

    def _run(self) -> None:
        messages, until, events = self.history.messages, self.history.until, self.events
        following, count, steps, now = 0, len(messages), 0, 0
        for _, end, _ in self.history.absences:
            self._push(end, self.RETURN, -1)  # consumers are back
        while True:
            steps += 1
            if not steps % 4096 and time.monotonic() > self.over:
                raise TooMuch(f"The replay took longer than {LONGEST:g} s. Choose a shorter range or fewer values.")
            arrives = messages[following].arrived if following < count else FOREVER
            at = events[0][0] if events else FOREVER
            if min(arrives, at) > now:  # what happens at one instant is seen together
                while self.idle and self.available and self._is_present(now) and self._take(now):
                    at = self.events[0][0]
            if min(arrives, at) >= until:
                return
            if arrives <= at:
                now = arrives
                heapq.heappush(self.available, following)
                following += 1
            else:
                now, _, kind, number = heapq.heappop(events)
                if kind == self.FREE:
                    self.idle += 1
                elif number >= 0:
                    self._comes_back(number, now)

    def _push(self, at: int, kind: int, number: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (at, self.order, kind, number))

    def _is_present(self, now: int) -> bool:
        """Whether another consumer may begin."""
        at = bisect_right(self.absent_from, now) - 1
        if at < 0 or now >= self.history.absences[at][1]:
            return True
        present = round(self.history.absences[at][2] * self.setting.consumers)
        return self.setting.consumers - self.idle < present

    def _take(self, now: int) -> bool:
        """Give messages to a free consumer, and plan what it does with them. False: none was left to give."""
        taken: list[int] = []
        while self.available and len(taken) < self.setting.prefetch:
            number = heapq.heappop(self.available)
            if not self._expire(number, now):
                taken.append(number)
        if not taken:
            return False
        self.idle -= 1
        locked_until = FOREVER if self.setting.lock is None else now + self.setting.lock
        at = now
        for number in taken:
            if self.first[number] is None:
                self.first[number] = now
            at = self._work(number, at, locked_until)
        self._push(max(at, now), self.FREE, 0)
        return True

    def _work(self, number: int, at: int, locked_until: int) -> int:
        """Plan how a delivery ends. Returns when its consumer is done with it."""
        message, delivery = self.history.messages[number], self.deliveries[number]
        self.deliveries[number] += 1
        known = message.work
        work, result = known[delivery] if delivery < len(known) else self.pools.draw(delivery, self.draw)
        done = at + max(0, round(work / self.setting.pace))
        vanishes = result is Result.VANISHED
        if vanishes or done >= locked_until:
            self.lost += 1
            self.duplicates += not vanishes
            noticed = vanishes and (self.history.notices_crashes or self.setting.lock is None)
            self._push(min(done, locked_until) if noticed else locked_until, self.RETURN, number)
        elif result is Result.FAILED:
            self._push(done, self.RETURN, number)
        elif done < self.history.until:
            self.ended[number] = done
            self.processed += 1
        return done

    def _comes_back(self, number: int, now: int) -> None:
        self.failures[number] += 1
        if self._expire(number, now):
            return
        if self.setting.deliveries is not None and self.failures[number] >= self.setting.deliveries:
            self.ended[number] = now
            self.dead += 1
        else:
            heapq.heappush(self.available, number)

    def _expire(self, number: int, now: int) -> bool:
        """End a waiting message that has expired or was removed by now."""
        expires, removed = self.expires[number], self.history.messages[number].removed
        if min(expires, removed) > now:
            return False
        self.ended[number] = min(expires, removed)
        self.expired += expires <= removed
        return True

    def _depth(self) -> int:
        changes = [(message.arrived, 1) for message in self.history.messages]
        changes += [(at, -1) for at in self.ended if at is not None]
        depth = most = 0
        for _, change in sorted(changes):
            depth += change
            most = max(most, depth)
        return most


def absences(
    waiting: Sequence[tuple[int, int]], working: Sequence[tuple[int, int]], consumers: int
) -> list[tuple[int, int, float]]:
    """When messages waited for their first delivery for at least ABSENCE_US although not all consumers worked, and which share of
    them did. waiting: (arrived, first received or gone); working: (received, ended)."""
    changes = [(at, 1, 0) for at, _ in waiting] + [(until, -1, 0) for _, until in waiting]
    changes += [(at, 0, 1) for at, _ in working] + [(until, 0, -1) for _, until in working]
    found: list[tuple[int, int, float]] = []
    parts: list[tuple[int, int, float]] = []  # of an absence that may be long enough
    there = busy = before = 0
    for at, more, work in sorted(changes):
        if at > before:
            if there > 0 and busy < consumers:
                parts.append((before, at, max(0, busy) / consumers))
            else:
                found += _long_enough(parts)
                parts = []
        there, busy, before = there + more, busy + work, at
    return found + _long_enough(parts)


def _long_enough(parts: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """The parts of an absence, those with equal shares joined; none of a short one."""
    if not parts or parts[-1][1] - parts[0][0] < ABSENCE_US:
        return []
    joined = parts[:1]
    for start, end, share in parts[1:]:
        if share == joined[-1][2]:
            joined[-1] = (joined[-1][0], end, share)
        else:
            joined.append((start, end, share))
    return joined


def concurrency(working: Sequence[tuple[int, int]]) -> int:
    """How many consumers worked at the same time: the most, but for moments that are less than 1 % of the time in which any
    did."""
    changes = sorted([(at, 1) for at, until in working if until > at] + [(until, -1) for at, until in working if until > at])
    lasted: dict[int, int] = {}
    busy, before = 0, 0
    for at, change in changes:
        if busy:
            lasted[busy] = lasted.get(busy, 0) + at - before
        busy, before = busy + change, at
    rest = sum(lasted.values()) / 100
    for level in sorted(lasted, reverse=True):
        rest -= lasted[level]
        if rest < 0:
            return level
    return 1
