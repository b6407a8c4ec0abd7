"""Generates history of a realistic load, with known parameters, straight to the archive.

Messages arrive by a daily rhythm with bursts. Each queue has consumers that work at a pace; an outage stops them, and the backlog
that follows from it, or from a burst, delays all that come after. Work has a heavy tail: it can outlast the lock. Some attempts
fail, and poison messages fail always. All is computed in columns, a block of messages at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind
from broker_core.models import ArchiveFile, Entity

from . import archive, clients, foreign, schema

BLOCK = 400_000  # messages computed at a time
SECOND = 1_000_000  # in microseconds
STEP = 10  # seconds in which the rate of arrivals and the consumers' pace do not change
DAY = 86_400 // STEP
LONGER_THAN = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)  # seconds of waiting
LIMIT = "MaxDeliveryCountExceeded"
PROBLEMS = ("Timeout after 30 s", "Order 4711 has no customer", None, LIMIT)
ERRORS = ("Timeout after # s", "Order # has no customer", None, LIMIT)  # the same without numbers
_TRANSIENT, _POISON, _NO_REASON, _LIMIT = range(4)
REGIONS = ("eu",) * 9 + ("us",) * 8 + ("asia",) * 3  # a message's property, by its number
HOT = "asia"
SESSIONS = 40  # of a queue that requires sessions; the first ones have most messages


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a load, in seconds and shares.

    pickup, work: the medians of log-normal times until a free consumer takes a message, and of an attempt's work; *_sigma: the
    standard deviations of their logarithms. fails: of the attempts whose work is done in time; of the region HOT, so many times
    as many. utilisation: of the consumers at
    the rhythm's peak. bursts, outages: of each queue, a day.
    """

    pickup: float = 0.02
    pickup_sigma: float = 0.8
    work: float = 0.3
    work_sigma: float = 1.4
    lock: float = 30.0
    time_to_live: float | None = 1800.0
    max_deliveries: int = 10
    redelivery: float = 0.2
    fails: float = 0.02
    hot_fails: float = 4.0
    poison: float = 0.002
    utilisation: float = 0.7
    bursts: float = 3.0
    burst_factor: float = 8.0
    burst_seconds: float = 240.0
    outages: float = 0.5
    outage_seconds: float = 1500.0


LOAD = Load()


@dataclass(slots=True)
class Truth:
    """What happened to a queue, as it was drawn. longer_than: of all messages, those that would have waited longer for their
    first delivery than so many seconds, had they not expired. not_ended: those that would have ended later; they are left out.
    """

    path: str
    consumers: int = 0
    messages: int = 0
    attempts: int = 0
    expired: int = 0
    poison: int = 0
    dead_lettered: int = 0
    locks_lost: int = 0
    not_ended: int = 0
    longer_than: dict[float, int] = field(default_factory=lambda: dict.fromkeys(LONGER_THAN, 0))
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Generated:
    """messages, events: how many. parameters: the path of the file with the load and the truth of each queue."""

    messages: int
    events: int
    added: foreign.Added
    parameters: str


def generate(
    entities: Sequence[Entity],
    *,
    messages: int,
    days: float,
    until: datetime,
    load: Load = LOAD,
    skew: float | None = None,
    events: bool = True,
    seed: int = 0,
) -> Generated:
    """Add the history of about so many messages to the archive, over the days before `until`. The queues are of one namespace.

    skew: the share of the first queue; None: every queue has the same. events: also write the events, of which an analysis reads
    none. Numbers come from the queues' counters. The same arguments give the same times.
    """
    addition = foreign.Addition(entities[0].namespace_id)
    counts = [round(messages * share) for share in _shares(len(entities), skew)]
    truths: list[Truth] = []

    def blocks() -> Iterator[tuple[_Block, dict[str, pa.Table]]]:
        event_id = 1
        for index, (entity, first, count) in enumerate(zip(entities, numbers, counts, strict=True)):
            queue = _Queue(entity, first, count, days, until, load, np.random.default_rng([seed, index]))
            truths.append(queue.truth)
            for block in queue.blocks():
                yield block, block.tables(event_id if events else None)
                event_id += block.events

    with archive.connected() as connection:
        numbers = [_reserve(connection, entity, count) for entity, count in zip(entities, counts, strict=True)]
    total = 0
    for block, tables in _ahead(blocks()):
        total += block.events
        for content, table in tables.items():
            addition.add(content, table)
    facts = {"seed": seed, "days": days, "until": until, "load": asdict(load), "queues": [asdict(truth) for truth in truths]}
    path = addition.note("parameters", facts)
    return Generated(sum(truth.messages - truth.not_ended for truth in truths), total, addition.finish(), path)


def _ahead(items: Iterator) -> Iterator:
    """The items, each of which is made in a thread while the one before is used."""
    done = object()
    with ThreadPoolExecutor(1) as maker:
        made = maker.submit(next, items, done)
        while (item := made.result()) is not done:
            made = maker.submit(next, items, done)
            yield item


def _reserve(connection: Any, entity: Entity, count: int) -> int:
    """The first of so many numbers of a queue."""
    return archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=count).first_number


def _shares(count: int, skew: float | None) -> list[float]:
    if skew is None or count == 1:
        return [1 / count] * count
    return [skew, *([(1 - skew) / (count - 1)] * (count - 1))]


class _Queue:
    """The load of one queue, by steps: arrivals, and the work that waits for the consumers."""

    def __init__(
        self, entity: Entity, first_number: int, messages: int, days: float, until: datetime, load: Load,
        draw: np.random.Generator,
    ):  # fmt: skip
        self._entity, self._first, self._load, self._draw = entity, first_number, load, draw
        self._until = _microseconds(until)
        steps = max(1, int(days * DAY))
        self._start = self._until - steps * STEP * SECOND
        self.truth = Truth(entity.path, messages=messages)
        rhythm = self._rhythm(steps)
        mean = self._mean_work()
        peak = messages * rhythm.max() / rhythm.sum() / STEP
        self.truth.consumers = max(1, int(np.ceil(peak * mean / load.utilisation)))
        self._counts = draw.multinomial(messages, self._with_bursts(rhythm))
        capacity = self._capacity(steps)
        backlog = np.cumsum(self._counts * mean - capacity)
        backlog -= np.minimum(np.minimum.accumulate(backlog), 0)
        self._done = np.concatenate([[0.0], np.cumsum(capacity)])  # work that can have been done by the beginning of a step
        self._backlog = np.concatenate([[0.0], backlog])

    def blocks(self) -> Iterator[_Block]:
        """The messages in blocks, in order, each of one day, so that few rows have to be divided by day."""
        begin, ends, first_step = 0, np.cumsum(self._counts), self._start // (STEP * SECOND)
        while begin < len(ends):
            before = int(ends[begin - 1]) if begin else 0
            midnight = begin + DAY - (first_step + begin) % DAY
            end = min(max(begin + 1, int(np.searchsorted(ends, before + BLOCK, "right"))), midnight)
            count = int(ends[end - 1]) - before
            if count:
                yield self._block(np.arange(begin, end), self._first + before)
            begin = end

    def _rhythm(self, steps: int) -> np.ndarray:
        """How many messages arrive in each step, relative to others: quiet nights, and peaks at 10:00 and 15:00 UTC."""
        hour = (self._start / SECOND + np.arange(steps) * STEP) % 86_400 / 3600
        return 0.25 + np.exp(-((hour - 10) ** 2) / 8) + 0.8 * np.exp(-((hour - 15) ** 2) / 10)

    def _with_bursts(self, rhythm: np.ndarray) -> np.ndarray:
        """The share of all messages that arrives in each step."""
        for begin, end in self._drawn(len(rhythm), self._load.bursts, self._load.burst_seconds):
            rhythm[begin:end] *= self._load.burst_factor
        return rhythm / rhythm.sum()

    def _capacity(self, steps: int) -> np.ndarray:
        """Seconds of work that the consumers can do in each step."""
        capacity = np.full(steps, float(self.truth.consumers * STEP))
        for begin, end in self._drawn(steps, self._load.outages, self._load.outage_seconds):
            capacity[begin:end] = 0
            first, last = (_instant(self._start + step * STEP * SECOND) for step in (begin, end))
            self.truth.outages.append((first, last))
        return capacity

    def _drawn(self, steps: int, a_day: float, seconds: float) -> list[tuple[int, int]]:
        """Intervals that begin so often and last so long in the mean."""
        begins = np.sort(self._draw.integers(0, steps, self._draw.poisson(a_day * steps / DAY)))
        lengths = self._draw.exponential(seconds / STEP, len(begins))
        return [(int(begin), min(steps, int(begin + length) + 1)) for begin, length in zip(begins, lengths, strict=True)]

    def _mean_work(self) -> float:
        """Seconds of work for a message, with the attempts that fail."""
        work = self._draw.lognormal(np.log(self._load.work), self._load.work_sigma, 100_000)
        hot = REGIONS.count(HOT) / len(REGIONS)
        ends = (1 - self._load.fails * (1 + hot * (self._load.hot_fails - 1))) * np.mean(work <= self._load.lock)
        attempts = (1 - self._load.poison) / ends + self._load.poison * self._load.max_deliveries
        return float(np.minimum(work, self._load.lock).mean() * attempts)

    def _block(self, steps: np.ndarray, first_number: int) -> _Block:
        counts = self._counts[steps]
        at = np.repeat(steps, counts) + self._draw.random(counts.sum())
        at.sort()
        enqueued = self._start + (at * STEP * SECOND).astype(np.int64)
        waiting = self._waiting(at)
        for longer in LONGER_THAN:
            self.truth.longer_than[longer] += int(np.count_nonzero(waiting > longer))
        before = first_number - self._first
        return _Block(self._entity, first_number, before, enqueued, waiting, self._until, self._load, self.truth, self._draw)

    def _waiting(self, at: np.ndarray) -> np.ndarray:
        """Seconds from the arrival, at a place in the steps, until a consumer takes the message: the work before it has to be
        done first."""
        grid = np.arange(len(self._done), dtype=float)
        before = np.interp(at, grid, self._done) + np.interp(at, grid, self._backlog)
        place = np.minimum(np.searchsorted(self._done, before, "right"), len(self._done) - 1)
        done, more = self._done[place - 1], self._done[place] - self._done[place - 1]
        begins = place - 1 + np.divide(before - done, more, out=np.zeros_like(before), where=more > 0)
        late = before > self._done[-1]  # after the end, the consumers go on
        begins[late] = len(self._done) - 1 + (before[late] - self._done[-1]) / self.truth.consumers / STEP
        pickup = self._draw.lognormal(np.log(self._load.pickup), self._load.pickup_sigma, len(at))
        return np.maximum(begins - at, 0) * STEP + pickup


class _Block:
    """Messages of a queue, and what became of them. Times are whole microseconds."""

    def __init__(
        self, entity: Entity, first_number: int, before: int, enqueued: np.ndarray, waiting: np.ndarray, until: int, load: Load,
        truth: Truth, draw: np.random.Generator,
    ):  # fmt: skip
        self._entity_id, self._has_sessions, self._load = entity.pk, entity.requires_session, load
        self._numbers, self._enqueued = first_number + np.arange(len(enqueued)), enqueued
        count = len(enqueued)
        self._scattered = ((before + np.arange(count)) * 2654435761 % 2**32) >> 12  # neighbours are far apart
        ttl = np.inf if load.time_to_live is None else load.time_to_live
        expired = waiting > ttl
        poison = draw.random(count) < load.poison
        self._fails = load.fails * np.where(np.array(REGIONS)[self._scattered % len(REGIONS)] == HOT, load.hot_fails, 1)
        received = enqueued + (waiting * SECOND).astype(np.int64)
        self._deliver(received, expired, poison, truth.consumers, draw)
        self._ended[expired] = enqueued[expired] + int(ttl * SECOND) if load.time_to_live else 0
        self._expired = expired
        self._sizes = draw.integers(200, 2000, count, dtype=np.int32)
        self._keep(self._ended <= until)
        truth.expired += int(self._expired.sum())
        truth.poison += int(poison.sum())
        truth.attempts += len(self._message)
        truth.dead_lettered += int((self._outcome == EventKind.DEAD_LETTERED).sum())
        truth.locks_lost += int((self._how == EventKind.LOCK_LOST).sum())
        truth.not_ended += count - len(self._numbers)

    @property
    def events(self) -> int:
        return len(self._numbers) + 2 * len(self._message) + int(self._expired.sum())

    def tables(self, event_id: int | None) -> dict[str, pa.Table]:
        """The rows by content. event_id: of the first event; None: no events."""
        attempts = self.attempts()
        received = clients.of_attempts(attempts)
        tables = {ArchiveFile.LIVES: self.lives(), ArchiveFile.ATTEMPTS: attempts, ArchiveFile.CLIENTS: received}
        return tables | ({} if event_id is None else {ArchiveFile.EVENTS: self.as_events(event_id)})

    def lives(self) -> pa.Table:
        """The rows of schema.LIFE; what is NULL in all is left out."""
        count, dead = len(self._numbers), self._outcome == EventKind.DEAD_LETTERED
        last = self._offsets + self._deliveries - 1
        taken = ~self._expired
        ttl = self._load.time_to_live
        reason = _words(np.where(dead, 0, 1), (LIMIT, None))
        lost = np.bincount(self._message[self._how == EventKind.LOCK_LOST], minlength=count)
        safe = np.clip(last, 0, max(0, len(self._received) - 1))
        first = np.clip(self._offsets, 0, max(0, len(self._received) - 1))
        received = self._received if len(self._received) else np.zeros(1, np.int64)
        consumer = self._consumer if len(self._consumer) else np.zeros(1, np.int32)
        return _table(
            schema.LIFE,
            entity_id=np.full(count, self._entity_id), subqueue=np.zeros(count, np.int16), sequence_number=self._numbers,
            outcome=self._outcome, reason=reason, error=reason, enqueued_at=self._enqueued,
            first_received_at=_masked(received[first], taken), last_received_at=_masked(received[safe], taken),
            ended_at=self._ended, delivery_count=np.maximum(self._deliveries - 1, 0),
            time_to_live_in_force_us=None if ttl is None else np.full(count, int(ttl * SECOND)),
            time_to_live_source=None if ttl is None else _words(np.zeros(count, np.int8), ("entity",)),
            size=self._sizes, message_id=_message_ids(self._numbers), xid=np.zeros(count, np.int64),
            generated=np.ones(count, bool), deliveries=self._deliveries, renewals=np.zeros(count, np.int32), locks_lost=lost,
            settled_by=_consumers(_masked(consumer[safe], taken)), scheduled=np.zeros(count, bool),
            session_id=_sessions(self._scattered) if self._has_sessions else pa.nulls(count, pa.string()),
            chosen_properties=_words(self._scattered % len(REGIONS), [f'{{"region": "{one}"}}' for one in REGIONS]),
        )  # fmt: skip

    def attempts(self) -> pa.Table:
        """As lives, of schema.ATTEMPT."""
        count, message = len(self._message), self._message
        consumer, why = _consumers(self._consumer), _words(self._why, PROBLEMS)
        return _table(
            schema.ATTEMPT,
            entity_id=np.full(count, self._entity_id), subqueue=np.zeros(count, np.int16),
            sequence_number=self._numbers[message], attempt=self._attempt, outcome=self._how, received_at=self._received,
            ended_at=self._until, locked_until=self._received + int(self._load.lock * SECOND),
            lock_ended_at=self._received + int(self._load.lock * SECOND), renewals=np.zeros(count, np.int32),
            delivery_count=self._attempt, received_by=consumer, ended_by=consumer, reason=why,
            error=_words(self._why, ERRORS), xid=np.zeros(count, np.int64),
            generated=np.ones(count, bool),
        )  # fmt: skip

    def as_events(self, event_id: int) -> pa.Table:
        """As lives, of schema.EVENT: sent, and received and ended for each attempt, or expired."""
        counts = 1 + 2 * self._deliveries + self._expired
        begin = np.cumsum(counts) - counts
        total = int(counts.sum())
        kind, at = np.full(total, EventKind.SENT, np.int16), np.empty(total, np.int64)
        at[begin] = self._enqueued
        taking = begin[self._message] + 2 * self._attempt - 1
        kind[taking], at[taking] = EventKind.RECEIVED, self._received
        kind[taking + 1], at[taking + 1] = self._how, self._until
        gone = begin[self._expired] + 1
        kind[gone], at[gone] = EventKind.EXPIRED, self._ended[self._expired]
        until, consumer = np.zeros(total, np.int64), np.zeros(total, np.int32)
        until[taking] = self._received + int(self._load.lock * SECOND)
        consumer[taking] = consumer[taking + 1] = self._consumer
        attempt = np.zeros(total, np.int32)
        attempt[taking], attempt[taking + 1] = self._attempt - 1, self._attempt
        held = kind == EventKind.RECEIVED
        acted = held | np.isin(kind, (EventKind.COMPLETED, EventKind.ABANDONED))
        numbers = np.repeat(self._numbers, counts)
        ended = np.isin(kind, (EventKind.COMPLETED, EventKind.DEAD_LETTERED, EventKind.EXPIRED))
        return _table(
            schema.EVENT,
            event_id=event_id + np.arange(total), recorded_at=at, at=at,
            xid=np.zeros(total, np.int64), entity_id=np.full(total, self._entity_id), subqueue=np.zeros(total, np.int16),
            sequence_number=numbers, kind=kind, delivery_count=attempt, locked_until=_masked(until, held),
            actor=_consumers(_masked(consumer, acted)), default_limits_own=np.zeros(total, bool),
            enqueued_at=_masked(np.repeat(self._enqueued, counts), ended), size=_masked(np.repeat(self._sizes, counts), ~held),
            details=_words(np.zeros(total, np.int8), ('{"generated": true}',)),
        )  # fmt: skip

    def _deliver(
        self, received: np.ndarray, expired: np.ndarray, poison: np.ndarray, consumers: int, draw: np.random.Generator
    ) -> None:
        """Draw the attempts of all messages, one of each at a time."""
        load, parts = self._load, []
        self._deliveries = np.zeros(len(received), np.int32)
        self._outcome = np.where(expired, EventKind.EXPIRED, EventKind.COMPLETED).astype(np.int16)
        self._ended = received.copy()
        there, begun = np.flatnonzero(~expired), received[~expired]
        for attempt in range(1, load.max_deliveries + 1):
            work = draw.lognormal(np.log(load.work), load.work_sigma, len(there))
            lost = work > load.lock
            failed = ~lost & (poison[there] | (draw.random(len(there)) < self._fails[there]))
            end = begun + (np.minimum(work, load.lock) * SECOND).astype(np.int64)
            again = lost | failed
            how = np.where(lost, EventKind.LOCK_LOST, np.where(failed, EventKind.ABANDONED, EventKind.COMPLETED))
            why = np.where(failed, np.where(poison[there], _POISON, _TRANSIENT), _NO_REASON)
            if attempt == load.max_deliveries:
                how[again], why[again] = EventKind.DEAD_LETTERED, _LIMIT
                self._outcome[there[again]] = EventKind.DEAD_LETTERED
            parts.append((there, np.full(len(there), attempt), begun, end, how, why, draw.integers(0, consumers, len(there))))
            self._deliveries[there] = attempt
            self._ended[there] = end
            there, begun = there[again], end[again]
            begun = begun + (draw.exponential(load.redelivery, len(begun)) * SECOND).astype(np.int64)
            if not len(there):
                break
        self._offsets = np.cumsum(self._deliveries) - self._deliveries
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.empty(len(columns[0]), np.int64)
        order[self._offsets[columns[0]] + columns[1] - 1] = np.arange(len(order))
        self._message, place, self._received, self._until, how, why, consumer = (column[order] for column in columns)
        self._attempt, self._consumer = place.astype(np.int32), consumer.astype(np.int32)
        self._how, self._why = how.astype(np.int16), why.astype(np.int8)

    def _keep(self, kept: np.ndarray) -> None:
        """Leave out the other messages."""
        if kept.all():
            return
        places = np.cumsum(kept) - 1
        mine = kept[self._message]
        for name in ("_received", "_until", "_how", "_why", "_consumer", "_attempt"):
            setattr(self, name, getattr(self, name)[mine])
        self._message = places[self._message[mine]]
        for name in ("_numbers", "_enqueued", "_ended", "_outcome", "_deliveries", "_expired", "_sizes", "_scattered"):
            setattr(self, name, getattr(self, name)[kept])
        self._offsets = np.cumsum(self._deliveries) - self._deliveries


def _table(columns: pa.Schema, **given: Any) -> pa.Table:
    """A table of those of these columns that are given."""
    there = [column for column in columns if given.get(column.name) is not None]
    return pa.table([_array(given[column.name], column.type) for column in there], schema=pa.schema(there))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_timestamp(kind):
        return array.view(kind)
    return array if array.type == kind else pc.cast(array, kind)


def _masked(values: np.ndarray, valid: np.ndarray) -> pa.Array:
    return pa.array(values, mask=~valid)


def _words(codes: np.ndarray, words: Sequence[str | None]) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(codes))


def _consumers(numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise("consumer-", pc.cast(pa.array(numbers), pa.string()), "")


def _sessions(scattered: np.ndarray) -> pa.Array:
    places = (SESSIONS * (scattered / 2**20) ** 3).astype(np.int32)
    return pc.binary_join_element_wise("session-", pc.cast(pa.array(places), pa.string()), "")


def _message_ids(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("generated-", pc.cast(pa.array(numbers), pa.string()), "")


def _microseconds(at: datetime) -> int:
    return round(at.timestamp()) * SECOND


def _instant(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
