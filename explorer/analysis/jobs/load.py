"""The load of generated history: when messages arrive, when consumers work on them, and what becomes of each.

Messages arrive by a daily and weekly rhythm with bursts. A queue has consumers, each of which works on one message at a time and
takes the oldest one that is available; in an outage there are none. Backlogs follow from that. Work has a heavy tail and can
outlast the lock. Some attempts fail, poison messages fail always, some messages are rejected. Pure, but for the random numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any

import numpy as np

from .kinds import Kind

SECOND = 1_000_000  # in microseconds
STEP = 10  # seconds in which the rate of arrivals does not change
DAY = 86_400 // STEP
CHUNK = 50_000  # messages, or random numbers, that are Python objects at a time
SWEEP = 5 * SECOND  # so often the broker ends locks that no receive has noticed
NEVER = 2**62
LONGER_THAN = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)  # seconds of waiting
REGIONS = ("eu",) * 9 + ("us",) * 8 + ("asia",) * 3  # a message's property, by its number
HOT = "asia"
SESSIONS = 40  # of a queue that requires sessions; the first ones have most messages
REASONS = ("Order 4711 has no customer", "Order 4712 has no customer", "PaymentRejected")
_COMPLETED, _REJECTED, _ABANDONED, _LOST = Kind.COMPLETED, Kind.DEAD_LETTERED, Kind.ABANDONED, Kind.LOCK_LOST  # of an attempt
COMPLETED, REJECTED, SPENT, EXPIRED = range(4)  # how a message ended in the main list; SPENT: at its maximum delivery count


@dataclass(frozen=True, slots=True)
class Incident:
    """A time of trouble, in seconds; begins: before the end of the history. Of the messages that arrive in it, the work takes
    `slower` times as long, and so many times as many attempts fail, and messages are poison or rejected. absence: for how long
    there are no consumers from its beginning on."""

    begins: float
    seconds: float
    slower: float = 4.0
    failures: float = 8.0
    absence: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a load, in seconds and shares.

    pickup, work: the medians of log-normal times until a consumer that is free has a message, and of an attempt's work; *_sigma:
    the standard deviations of their logarithms. earlier_lock: (seconds, before the end of the history, and the lock duration that
    was in force before). time_to_live: the queue's default; own_time_to_live: of a share of the messages. fails: of the attempts
    whose work is done in time; of the region HOT, so many times as many. purge_after: how long dead letters stay; at the end of
    the history none is left. consumers: None: as many as have this utilisation at the rhythm's peak. weekend: its load, relative
    to other days. bursts, outages: of each queue, a day. absences: (every, for): when all consumers are away.
    sender, receivers: who sends, and who the consumers are, as actors are stored; empty: processes named after the queue.
    """

    pickup: float = 0.02
    pickup_sigma: float = 0.8
    work: float = 0.3
    work_sigma: float = 1.4
    lock: float = 30.0
    earlier_lock: tuple[float, float] | None = None
    time_to_live: float | None = 1800.0
    own_time_to_live: float | None = 900.0
    own_share: float = 0.05
    dead_letters_expired: bool = False
    purge_after: float = 3600.0
    max_deliveries: int = 10
    fails: float = 0.02
    hot_fails: float = 4.0
    poison: float = 0.002
    rejected: float = 0.002
    reasons: tuple[str, ...] = REASONS
    consumers: int | None = None
    utilisation: float = 0.7
    weekend: float = 0.5
    bursts: float = 3.0
    burst_factor: float = 8.0
    burst_seconds: float = 240.0
    outages: float = 0.5
    outage_seconds: float = 1500.0
    absences: tuple[float, float] | None = None
    incident: Incident | None = None
    sender: str = ""
    receivers: tuple[str, ...] = ()


LOAD = Load()


@dataclass(slots=True)
class Truth:
    """What happened to a queue, as it was drawn. messages: that arrived; not_ended: those that would have ended after the end of
    the history; they are left out, and the other counts are without them. longer_than: of all messages, those that would have
    waited longer for their first delivery than so many seconds, had they not expired.
    """

    path: str
    consumers: int = 0
    messages: int = 0
    attempts: int = 0
    completed: int = 0
    rejected: int = 0
    expired: int = 0
    dead_lettered: int = 0
    poison: int = 0
    abandoned: int = 0
    locks_lost: int = 0
    refused: int = 0
    not_ended: int = 0
    longer_than: dict[float, int] = field(default_factory=lambda: dict.fromkeys(LONGER_THAN, 0))
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Played:
    """What happened, as arrays. Times are whole microseconds since 1970.

    By message, in the order of arrival: enqueued, ended (when it left the main list), fate, joined (whether the event that ended
    it is of the transaction of the event before it), deliveries, own_time_to_live (0: none), region, session, size.
    By attempt, ordered by message: message (its place), attempt (from 1), received, locked_until, released (when its end was
    recorded), how (a kind of event), noticed (its lock had ended, which the next receive found), consumer (from 0), refused_at
    (when the consumer tried to complete after its lock had ended; 0: it did not, or after the end of the history).
    """

    truth: Truth
    load: Load
    until: int
    messages: dict[str, np.ndarray]
    attempts: dict[str, np.ndarray]


def play(path: str, messages: int, days: float, until: datetime, load: Load, draw: np.random.Generator) -> Played:
    """What happens to about so many messages that arrive in the days before `until`."""
    return _Queue(path, messages, days, until, load, draw).play()


class _Queue:
    """A queue over time, in steps."""

    def __init__(self, path: str, messages: int, days: float, until: datetime, load: Load, draw: np.random.Generator):
        self._load, self._draw = load, draw
        self._until = microseconds(until)
        self._steps = max(1, int(days * DAY))
        self._start = self._until - self._steps * STEP * SECOND
        self._truth = Truth(path, messages=messages)
        rhythm = self._rhythm()
        peak = messages * rhythm.max() / rhythm.sum() / STEP
        self._truth.consumers = load.consumers or max(1, int(np.ceil(peak * self._mean_work() / load.utilisation)))
        counts = draw.multinomial(messages, self._with_bursts(rhythm))
        at = np.repeat(np.arange(self._steps), counts) + draw.random(messages)
        at.sort()
        self._enqueued = self._start + (at * STEP * SECOND).astype(np.int64)
        self._away = self._absences()

    def play(self) -> Played:
        messages, hidden = self._arrivals()
        consumers = _Consumers(
            self._load, self._truth.consumers, len(self._enqueued), self._start, self._until, self._away, self._draw
        )
        consumers.work_through(messages, hidden)
        messages.pop("expires")
        ended_messages, waited = consumers.messages | messages, consumers.waited
        for longer in LONGER_THAN:
            self._truth.longer_than[longer] = int(np.count_nonzero(waited > longer * SECOND))
        is_ended = ended_messages["ended"] <= self._until
        attempts = _attempts_of(consumers.attempts, is_ended)
        attempts["refused_at"][attempts["refused_at"] > self._until] = 0
        ended_messages = {name: values[is_ended] for name, values in ended_messages.items()}
        self._count(ended_messages, attempts, hidden["poison"][is_ended])
        self._truth.not_ended = int(np.count_nonzero(~is_ended))
        return Played(self._truth, self._load, self._until, ended_messages, attempts)

    def _count(self, messages: dict[str, np.ndarray], attempts: dict[str, np.ndarray], poison: np.ndarray) -> None:
        truth, fate, how = self._truth, messages["fate"], attempts["how"]
        truth.attempts, truth.poison = len(how), int(poison.sum())
        truth.completed, truth.rejected, spent, truth.expired = np.bincount(fate, minlength=4).tolist()
        truth.dead_lettered = truth.rejected + spent + (truth.expired if self._load.dead_letters_expired else 0)
        truth.abandoned, truth.locks_lost = (
            int(np.count_nonzero(how == event_kind)) for event_kind in (Kind.ABANDONED, Kind.LOCK_LOST)
        )
        truth.refused = int(np.count_nonzero(attempts["refused_at"]))

    def _rhythm(self) -> np.ndarray:
        """How many messages arrive in each step, relative to others: quiet nights, and peaks at 10:00 and 15:00 UTC."""
        seconds = self._start / SECOND + np.arange(self._steps) * STEP
        hour, weekday = seconds % 86_400 / 3600, (seconds // 86_400 + 3) % 7  # 1970 began on a Thursday
        by_day = 0.25 + np.exp(-((hour - 10) ** 2) / 8) + 0.8 * np.exp(-((hour - 15) ** 2) / 10)
        return by_day * np.where(weekday >= 5, self._load.weekend, 1)

    def _with_bursts(self, rhythm: np.ndarray) -> np.ndarray:
        """The share of all messages that arrives in each step."""
        for begin, end in self._drawn(self._load.bursts, self._load.burst_seconds):
            rhythm[begin:end] *= self._load.burst_factor
        return rhythm / rhythm.sum()

    def _absences(self) -> list[tuple[int, int]]:
        """When there are no consumers: in order, none overlaps another."""
        drawn = self._drawn(self._load.outages, self._load.outage_seconds)
        away = [(self._start + begin * STEP * SECOND, self._start + end * STEP * SECOND) for begin, end in drawn]
        if (incident := self._load.incident) and incident.absence:
            begins = self._until - int(incident.begins * SECOND)
            away.append((begins, begins + int(incident.absence * SECOND)))
        if self._load.absences:
            every, seconds = (int(each * SECOND) for each in self._load.absences)
            away += [(at, at + seconds) for at in range(self._start + every, self._until, every)]
        merged: list[tuple[int, int]] = []
        for since, until in sorted(away):
            if merged and since <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(until, merged[-1][1]))
            else:
                merged.append((since, until))
        self._truth.outages = [(instant(since), instant(until)) for since, until in merged]
        return merged

    def _drawn(self, a_day: float, seconds: float) -> list[tuple[int, int]]:
        """Intervals of steps that begin so often and last so long in the mean."""
        begins = np.sort(self._draw.integers(0, self._steps, self._draw.poisson(a_day * self._steps / DAY)))
        lengths = self._draw.exponential(seconds / STEP, len(begins))
        return [(int(begin), min(self._steps, int(begin + length) + 1)) for begin, length in zip(begins, lengths, strict=True)]

    def _mean_work(self) -> float:
        """Seconds of work for a message, with the attempts that fail."""
        load = self._load
        work = self._draw.lognormal(np.log(load.work), load.work_sigma, 100_000)
        hot = REGIONS.count(HOT) / len(REGIONS)
        ends = (1 - load.fails * (1 + hot * (load.hot_fails - 1))) * np.mean(work <= load.lock)
        attempts = (1 - load.poison) / max(float(ends), 1 / load.max_deliveries) + load.poison * load.max_deliveries
        return float(work.mean() * attempts)

    def _arrivals(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The messages: what is known when they arrive, and what shows only when they are worked on."""
        load, draw, count = self._load, self._draw, len(self._enqueued)
        scattered = (np.arange(count) * 2654435761 % 2**32) >> 12  # neighbours are far apart
        region = scattered % len(REGIONS)
        trouble, slower = np.ones(count), np.ones(count)
        if load.incident:
            begins = self._until - load.incident.begins * SECOND
            inside = (self._enqueued >= begins) & (self._enqueued < begins + load.incident.seconds * SECOND)
            trouble[inside], slower[inside] = load.incident.failures, load.incident.slower
        own = np.zeros(count, np.int64)
        if load.own_time_to_live is not None:
            limited = min(load.own_time_to_live, load.time_to_live or load.own_time_to_live)
            own[draw.random(count) < load.own_share] = int(limited * SECOND)
        default = NEVER if load.time_to_live is None else int(load.time_to_live * SECOND)
        poison = draw.random(count) < load.poison * trouble
        fails = np.minimum(load.fails * trouble * np.where(np.array(REGIONS)[region] == HOT, load.hot_fails, 1), 0.5)
        messages: dict[str, np.ndarray] = {
            "enqueued": self._enqueued, "own_time_to_live": own, "region": region.astype(np.int8),
            "session": (SESSIONS * (scattered / 2**20) ** 3).astype(np.int16), "size": draw.integers(200, 2000, count, np.int32),
            "expires": np.where(own > 0, self._enqueued + own, np.minimum(self._enqueued + default, NEVER)),
        }  # fmt: skip
        rejected = draw.random(count) < load.rejected * trouble
        return messages, {"poison": poison, "fails": np.where(poison, 1.0, fails), "rejected": rejected, "slower": slower}


class _Consumers:
    """The consumers of a queue. Each takes the oldest available message, those that are delivered again first.

    messages, attempts: as of Played, when all is done. waited: microseconds until the first delivery, also of messages that
    expired before it.
    """

    def __init__(
        self, load: Load, consumers: int, messages: int, start: int, until: int, away: list[tuple[int, int]],
        draw: np.random.Generator,
    ):  # fmt: skip
        self._load, self._draw, self._most = load, draw, load.max_deliveries
        self._free = [(start, consumer) for consumer in range(consumers)]  # a heap: from when on, who
        self._later: list[tuple[Any, ...]] = []  # a heap: from when on, attempt, place of the attempt before, message
        self._away = away[::-1]  # the next one is the last
        before, earlier = load.earlier_lock or (0.0, load.lock)
        self._lock, self._earlier_lock = int(load.lock * SECOND), int(earlier * SECOND)
        self._lock_changed = until - int(before * SECOND)
        self._ended, self._waited = array("q", bytes(8 * messages)), array("q", bytes(8 * messages))
        self._fate, self._joined = bytearray(messages), bytearray(messages)
        self._message, self._attempt, self._received, self._locked, self._released, self._refused, self._who = (
            array("q") for _ in range(7)
        )
        self._how, self._noticed = bytearray(), bytearray()

    def work_through(self, messages: dict[str, np.ndarray], hidden: dict[str, np.ndarray]) -> None:
        """Work until no message is left."""
        arriving, draws, free, later = self._arriving(messages, hidden), self._draws(), self._free, self._later
        message: tuple[Any, ...] | None = next(arriving, None)
        while message or later:
            now, consumer = heappop(free)
            due = message[1] if message else NEVER
            if later and later[0][0] < due:
                due = later[0][0]
            now = max(now, due)
            if self._away and now >= self._away[-1][0]:
                now = self._present(now)
            if later and later[0][0] <= now:
                _, attempt, before, taken = heappop(later)
            else:
                attempt, before, taken, message = 1, -1, message, next(arriving, None)
            pickup, work, chance = next(draws)
            at = now + pickup
            if attempt == 1:
                self._waited[taken[0]] = at - taken[1]
            if at >= taken[2]:
                self._expire(taken, before)
            else:
                now = self._deliver(taken, attempt, before, at, at + 1 + int(work * taken[5]), chance, consumer)
            heappush(free, (now, consumer))
        self._finish()

    def _expire(self, message: tuple[Any, ...], before: int) -> None:
        """A message has expired before a consumer received it. A lock whose end was not noticed yet ends with it."""
        place, _, expires, *_ = message
        together = before >= 0 and self._how[before] == _LOST and self._released[before] >= expires
        self._end(place, EXPIRED, self._released[before] if together else expires, together)

    def _deliver(
        self, message: tuple[Any, ...], attempt: int, before: int, at: int, done: int, chance: float, consumer: int
    ) -> int:  # fmt: skip
        """A consumer receives a message `at`, and has done its work at `done`, which is returned."""
        place, _, expires, fails, rejected, _ = message
        if before >= 0 and self._how[before] == _LOST and at <= self._released[before]:
            self._released[before], self._noticed[before] = at, 1
        lock_end, attempt_index = at + (self._lock if at >= self._lock_changed else self._earlier_lock), len(self._how)
        if done >= lock_end:
            how, released, again = _LOST, (lock_end // SWEEP + 1) * SWEEP, lock_end
        elif chance < fails:
            how, released, again = _ABANDONED, done, done
        else:
            how, released, again = _REJECTED if rejected else _COMPLETED, done, 0
            self._end(place, REJECTED if rejected else COMPLETED, done, False)
        if again and (attempt >= self._most or how == _ABANDONED and done >= expires):
            self._end(place, EXPIRED if released >= expires else SPENT, released, True)
        elif again:
            heappush(self._later, (again, attempt + 1, attempt_index, message))
        self._message.append(place)
        self._attempt.append(attempt)
        self._received.append(at)
        self._locked.append(lock_end)
        self._released.append(released)
        self._refused.append(done if how == _LOST else 0)
        self._who.append(consumer)
        self._how.append(how)
        self._noticed.append(0)
        return done

    def _end(self, place: int, fate: int, at: int, joined: bool) -> None:
        self._fate[place], self._ended[place], self._joined[place] = fate, at, joined

    def _finish(self) -> None:
        self.waited, place = np.asarray(self._waited), np.asarray(self._message)
        self.messages = {
            "ended": np.asarray(self._ended), "fate": np.frombuffer(self._fate, np.int8),
            "joined": np.frombuffer(self._joined, bool),
            "deliveries": np.bincount(place, minlength=len(self._fate)).astype(np.int32),
        }  # fmt: skip
        columns = {
            "message": place, "attempt": np.asarray(self._attempt), "received": np.asarray(self._received),
            "locked_until": np.asarray(self._locked), "released": np.asarray(self._released),
            "how": np.frombuffer(self._how, np.int8), "noticed": np.frombuffer(self._noticed, bool),
            "consumer": np.asarray(self._who), "refused_at": np.asarray(self._refused),
        }  # fmt: skip
        order = np.argsort(place * (self._most + 1) + columns["attempt"], kind="stable")
        self.attempts = {name: values[order] for name, values in columns.items()}

    def _present(self, at: int) -> int:
        """When consumers are there: at this instant, or at the end of their absence. No instant is before that of an earlier
        call."""
        while self._away and at >= self._away[-1][0]:
            if at < self._away[-1][1]:
                return self._away[-1][1]
            self._away.pop()
        return at

    def _draws(self) -> Iterator[tuple[int, float, float]]:
        """Microseconds until a message is there, and of its work; and a number below 1, for its failure."""
        load, draw = self._load, self._draw
        while True:
            pickup = 1 + draw.lognormal(np.log(load.pickup), load.pickup_sigma, CHUNK) * SECOND
            work = draw.lognormal(np.log(load.work), load.work_sigma, CHUNK) * SECOND
            yield from zip(pickup.astype(np.int64).tolist(), work.tolist(), draw.random(CHUNK).tolist(), strict=True)

    def _arriving(self, messages: dict[str, np.ndarray], hidden: dict[str, np.ndarray]) -> Iterator[tuple[Any, ...]]:
        """(place, enqueued, expires, fails, rejected, slower) of each message."""
        columns = (messages["enqueued"], messages["expires"], hidden["fails"], hidden["rejected"], hidden["slower"])
        for begin in range(0, len(columns[0]), CHUNK):
            parts = [column[begin : begin + CHUNK].tolist() for column in columns]
            yield from zip(range(begin, begin + len(parts[0])), *parts, strict=True)


def _attempts_of(attempts: dict[str, np.ndarray], is_kept: np.ndarray) -> dict[str, np.ndarray]:
    """The attempts of these messages, which have places among themselves."""
    selected, places = is_kept[attempts["message"]], np.cumsum(is_kept) - 1
    remaining = {name: values[selected] for name, values in attempts.items()}
    return remaining | {"message": places[remaining["message"]]}


def microseconds(at: datetime) -> int:
    """Since 1970, in whole seconds."""
    return round(at.timestamp()) * SECOND


def instant(at: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)
