"""Replays the messages of a queue with other settings: a discrete-event simulation over the real arrivals, work times, failures
and absences of consumers. It feeds back: work that is done twice takes time from other messages, and a message that expires
leaves room for the next. Pure, and the same input gives the same result. Times are microseconds since the start of the range.
Workers of a cluster get this module with the task, so it imports nothing but the standard library.

The model: consumers take up to `prefetch` messages at once, the oldest first, work on them one after the other, settle each when
its work is done, and take the next ones. The locks of all begin at the receipt. What is not settled in time is available again at
its place, and counts as a failed delivery; its consumer goes on working in vain.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

FOREVER = 2**62
ABSENCE_US = 5_000_000  # consumers are absent if they do not receive for so long though messages wait
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)  # of the waiting


class Result(IntEnum):
    """How the work of a delivery ends if its lock lasts."""

    WELL = 0
    FAILED = 1
    VANISHED = 2  # nothing is heard of the consumer again; the lock has to end


@dataclass(frozen=True, slots=True)
class Message:
    """work: of its deliveries as they were, each (time, result). removed: when an operator removed it, unless it had ended.
    renews: its consumers renew their locks for as long as they work."""

    arrived: int
    time_to_live: int | None = None
    work: tuple[tuple[int, Result], ...] = ()
    removed: int = FOREVER
    renews: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """messages: in the order of their arrival. absences: (from, until, share of the consumers that are present). until: the end
    of the range. notices_crashes: a crash ends the lock at once, as the broker loses the connection. by_visibility: as in Queue
    Storage, a message that returns goes behind those that are visible, its consumer may settle it even then, until it is
    delivered again, and a message expires while its consumer works on it, too."""

    messages: Sequence[Message]
    absences: Sequence[tuple[int, int, float]]
    until: int
    notices_crashes: bool = False
    by_visibility: bool = False


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
    """unreceived: of the expired messages, those that were never delivered. dead_lettered: by the maximum of deliveries.
    duplicates: deliveries whose consumer was still working when its lock ended; None: unknown. depth: the most messages at one
    time. waiting: QUANTILES of the time to the first delivery, of messages that had one; empty: none had. prompt: messages that
    were received within the time that replay was asked for. due: those of which that is known, as the range did not end before.
    """

    messages: int
    processed: int
    expired: int
    unreceived: int
    dead_lettered: int
    duplicates: int | None
    deliveries: int
    locks_lost: int
    depth: int
    waiting: tuple[int, ...]
    prompt: int
    due: int

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


def replay(history: History, setting: Setting, *, within: int = 60_000_000, seed: int = 1) -> Outcome:
    """What would have happened. within: see Outcome.prompt."""
    return _Run(history, setting, _Pools.of(history.messages), seed).outcome(within)


def consumers_needed(
    history: History, setting: Setting, share: float, within: int, most: int = 1000, *, seed: int = 1
) -> int | None:
    """The fewest consumers with which this share of the messages is received within a time; None: not even `most` are enough."""
    pools = _Pools.of(history.messages)

    def is_enough(consumers: int) -> bool:
        outcome = _Run(history, replace(setting, consumers=consumers), pools, seed).outcome(within)
        return outcome.prompt >= share * outcome.due

    least, enough = 0, 1  # `least` are too few
    while not is_enough(enough):
        least, enough = enough, 2 * enough
        if least >= most:
            return None
    while enough - least > 1:
        middle = (least + enough) // 2
        least, enough = (least, middle) if is_enough(middle) else (middle, enough)
    return enough if enough <= most else None


def quantiles(values: Iterable[int]) -> tuple[int, ...]:
    """QUANTILES of whole numbers; empty: there are none."""
    ordered = sorted(values)
    return tuple(ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in QUANTILES) if ordered else ()


def most_at_once(stays: Iterable[tuple[int, int | None]]) -> int:
    """The most messages that were there at one time. stays: (arrived, ended or None)."""
    changes: list[tuple[int, int]] = []
    for arrived, ended in stays:
        changes.append((arrived, 1))
        if ended is not None:
            changes.append((ended, -1))
    depth = most = 0
    for _, change in sorted(changes):
        depth += change
        most = max(most, depth)
    return most


def promptness(waits: Iterable[tuple[int, int | None, int | None]], until: int, within: int) -> tuple[int, int]:
    """Outcome.prompt and .due. waits: (arrived, first received, ended)."""
    prompt = due = 0
    for arrived, received, ended in waits:
        is_prompt = received is not None and received - arrived <= within
        prompt += is_prompt
        due += is_prompt or received is not None or ended is not None or arrived + within < until
    return prompt, due


class _Run:
    """One replay. Events are (time, order, kind, number): a message returns, a consumer is free, or settles a message late."""

    RETURN, FREE, LATE = 0, 1, 2

    def __init__(self, history: History, setting: Setting, pools: _Pools, seed: int):
        self.history, self.setting, self.pools = history, setting, pools
        self.draw = random.Random(seed).choice
        count = len(history.messages)
        self.failures, self.deliveries = [0] * count, [0] * count
        self.first: list[int | None] = [None] * count
        self.ended: list[int | None] = [None] * count
        self.expires = [self._expiry(message) for message in history.messages]
        self.available: list[tuple[int, int]] = []  # (what it is ordered by, number)
        self.idle = setting.consumers
        self.events: list[tuple[int, int, int, int]] = []
        self.order = 0
        self.settles: dict[int, int] = {}  # by message, the delivery that may be settled late
        self.processed = self.expired = self.unreceived = self.dead = self.duplicates = self.lost = 0
        self.absent_from = [start for start, _, _ in history.absences]

    def outcome(self, within: int) -> Outcome:
        self._run()
        for _, number in self.available:
            self._leave(number, self.history.until)
        arrived = [message.arrived for message in self.history.messages]
        prompt, due = promptness(zip(arrived, self.first, self.ended, strict=True), self.history.until, within)
        return Outcome(
            len(self.ended), self.processed, self.expired, self.unreceived, self.dead, self.duplicates, sum(self.deliveries),
            self.lost, most_at_once(zip(arrived, self.ended, strict=True)),
            quantiles(at - start for start, at in zip(arrived, self.first, strict=True) if at is not None), prompt, due,
        )  # fmt: skip

    def _expiry(self, message: Message) -> int:
        own = self.setting.time_to_live if self.setting.time_to_live is not None else message.time_to_live
        return FOREVER if own is None else message.arrived + own

    def _run(self) -> None:
        messages, until, events = self.history.messages, self.history.until, self.events
        following, count, now = 0, len(messages), 0
        for _, end, _ in self.history.absences:
            self._push(end, self.RETURN, -1)  # consumers are back
        while True:
            arrives = messages[following].arrived if following < count else FOREVER
            at = events[0][0] if events else FOREVER
            if min(arrives, at) > now:  # what happens at one instant is seen together
                while self.idle and self.available and self._is_present(now) and self._take(now):
                    at = self.events[0][0]
            if min(arrives, at) >= until:
                return
            if arrives <= at:
                now = arrives
                heapq.heappush(self.available, (arrives, following))
                following += 1
            else:
                now, _, kind, number = heapq.heappop(events)
                if kind == self.FREE:
                    self.idle += 1
                elif kind == self.LATE:
                    self._settle_late(number, now)
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
            _, number = heapq.heappop(self.available)
            if not self._leave(number, now):
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
        if vanishes or (done >= locked_until and not message.renews):
            self.lost += 1
            self.duplicates += not vanishes
            if result is Result.WELL and self.history.by_visibility:
                self.settles[number] = self.deliveries[number]
                self._push(done, self.LATE, number)
            noticed = vanishes and (self.history.notices_crashes or self.setting.lock is None)
            self._push(min(done, locked_until) if noticed else locked_until, self.RETURN, number)
        elif result is Result.FAILED:
            self._push(done, self.RETURN, number)
        elif self.history.by_visibility and self.expires[number] <= done:
            self._expire(number)
        elif done < self.history.until:
            self.ended[number] = done
            self.processed += 1
        return done

    def _settle_late(self, number: int, now: int) -> None:
        """A consumer is done after its lock ended: that counts unless the message was delivered again."""
        if self.ended[number] is None and self.settles.get(number) == self.deliveries[number]:
            self.ended[number] = now
            self.processed += 1
            self.lost -= 1
            self.duplicates -= 1

    def _comes_back(self, number: int, now: int) -> None:
        self.failures[number] += 1
        if self._leave(number, now):
            return
        if self.setting.deliveries is not None and self.failures[number] >= self.setting.deliveries:
            self.ended[number] = now
            self.dead += 1
        else:
            at = now if self.history.by_visibility else self.history.messages[number].arrived
            heapq.heappush(self.available, (at, number))

    def _leave(self, number: int, now: int) -> bool:
        """End a waiting message that has expired or was removed by now. True: it has ended."""
        if self.ended[number] is not None:
            return True
        expires, removed = self.expires[number], self.history.messages[number].removed
        if min(expires, removed) > now:
            return False
        if expires <= removed:
            self._expire(number)
        else:
            self.ended[number] = removed
        return True

    def _expire(self, number: int) -> None:
        self.ended[number] = self.expires[number]
        self.expired += 1
        self.unreceived += self.first[number] is None


def absences(
    waiting: Sequence[tuple[int, int]], working: Sequence[tuple[int, int]], consumers: int
) -> list[tuple[int, int, float]]:
    """When messages waited for their first delivery for at least ABSENCE_US although not all consumers worked, and which share of
    them did. waiting: (arrived, first received or gone); working: (received, ended)."""
    changes = [(at, 1, 0) for at, _ in waiting] + [(until, -1, 0) for _, until in waiting]
    changes += [(at, 0, 1) for at, _ in working] + [(until, 0, -1) for _, until in working]
    long_absences: list[tuple[int, int, float]] = []
    parts: list[tuple[int, int, float]] = []  # of an absence that may be long enough
    waiting_count = busy = before = 0
    for at, more, work in sorted(changes):
        if at > before:
            if waiting_count > 0 and busy < consumers:
                parts.append((before, at, max(0, busy) / consumers))
            else:
                long_absences += _long_enough(parts)
                parts = []
        waiting_count, busy, before = waiting_count + more, busy + work, at
    return long_absences + _long_enough(parts)


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


def backlog_share(waiting: Sequence[tuple[int, int]], working: Sequence[tuple[int, int]], consumers: int) -> float:
    """Which share of the time that messages waited for their first delivery passed while all consumers worked, so that it depends
    on the messages before them. The rest is that of absences and of consumers that were slow to receive. Arguments: as of
    absences."""
    changes = [(at, 1, 0) for at, _ in waiting] + [(until, -1, 0) for _, until in waiting]
    changes += [(at, 0, 1) for at, _ in working] + [(until, 0, -1) for _, until in working]
    whole = behind = waiting_count = busy = before = 0
    for at, more, work in sorted(changes):
        whole += waiting_count * (at - before)
        behind += waiting_count * (at - before) * (busy >= consumers)
        waiting_count, busy, before = waiting_count + more, busy + work, at
    return behind / whole if whole else 0.0
