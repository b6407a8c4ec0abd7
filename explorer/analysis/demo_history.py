"""Generates history for the demo, so that the first charts are not empty.

Messages wait for consumers that work on one at a time, under the queue's own settings: lock, maximum delivery count and default
time-to-live. So a replay of this history agrees with it. The events are written to the event table and archived like any others.
They are marked: actor "generated", details {"generated": true}, and a message id that begins with "generated-". Pages that count
such messages say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EventKind
from broker_core.history import archive, retention
from broker_core.models import Entity

SLOT = timedelta(minutes=10)
LAST = timedelta(minutes=2)  # without new messages, so that nearly every message has an outcome
USED = 0.35  # of the consumers' time, at the peak
A_DAY = timedelta(days=1)
INCIDENT_BEFORE_END = timedelta(hours=8, minutes=10)  # within the last day, which the days before are compared with
OUTAGE = timedelta(minutes=65)  # of all consumers, when the incident begins
PICKUP = 0.004  # seconds until a free consumer has a message: the median
REASONS = ("PaymentRejected", "UnknownCustomer")
REGIONS = ("eu", "eu", "us", "us", "asia")  # a message's property; in the last one, failures are twice as frequent


@dataclass(frozen=True, slots=True)
class Profile:
    """Typical values of a queue: the median of the work in seconds, and shares of messages that no attempt completes, that are
    rejected, and of attempts that fail. absence: seconds for which all consumers are away every two hours."""

    work: float
    poison_share: float
    rejected_share: float
    fails: float = 0.03
    absence: float = 0.0


PROFILES = (Profile(0.35, 0.003, 0.003), Profile(1.2, 0.01, 0.01), Profile(0.08, 0.001, 0.001, absence=45.0))


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten minutes of a queue: the number of messages that enter, and the profile for them."""

    start_at: datetime
    count: int
    work: float
    poison_share: float
    rejected_share: float
    fails: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a queue. time_to_live: None: messages do not expire. consumers: how many there are."""

    lock: timedelta
    max_deliveries: int
    time_to_live: timedelta | None
    dead_letters_expired: bool
    consumers: int


@dataclass(slots=True)
class Life:
    """A message. deliveries: (received, ended, how); the last one is ended by what ended the message, unless it expired."""

    enqueued_at: datetime
    work: float
    fails: float
    region: str
    is_rejected: bool
    ended_at: datetime | None = None
    kind: EventKind = EventKind.COMPLETED
    reason: str | None = None
    deliveries: list[tuple[datetime, datetime, EventKind]] = field(default_factory=list)


def generate(
    namespace: str, queues: Sequence[str], hours: float = 24, *, messages: int = 50_000, until: datetime | None = None
) -> int:
    """Generate the events of about `messages` messages, spread over the queues and over the hours before `until` (now).

    The numbers come from each queue's counter. Call this before real messages arrive, so that numbers follow time.
    Returns the number of events written. Raises EntityNotFound for an unknown queue.
    """
    until = until or datetime.now(UTC)
    entities = [_entity(namespace, path) for path in queues]
    retention.create_partitions(until.date(), days_before=math.ceil(hours / 24) + 1)
    start = until - timedelta(hours=hours)
    dice, played = Random(), []
    for i, entity in enumerate(entities):
        profile = PROFILES[i % len(PROFILES)]
        timeline = list(slots(start, until, messages // len(entities), profile))
        played.append(play(timeline, rules_of(entity, timeline), absences(timeline, profile.absence), dice))
    with archive.connected() as connection, connection.transaction():  # begun now, so that it is not idle meanwhile
        return sum(_write(connection, entity, lives, until) for entity, lives in zip(entities, played, strict=True))


def slots(start: datetime, until: datetime, messages: int, profile: Profile) -> Iterator[Slot]:
    """The load over time: quiet nights, two peaks a day, and one incident in which consumers are slow and fail often.

    The last slot ends at `until` - LAST. Pure.
    """
    count = max(1, (until - LAST - start) // SLOT)
    start = until - LAST - count * SLOT
    weights = [_weight(start + i * SLOT) for i in range(count)]
    begins = max(count - INCIDENT_BEFORE_END // SLOT, int(count * 0.66))
    incident = range(begins, begins + max(1, min(count, A_DAY // SLOT) // 20))
    for i, weight in enumerate(weights):
        busy = weight / max(weights)
        trouble = 8.0 if i in incident else 1.0
        yield Slot(
            start_at=start + i * SLOT,
            count=round(messages * weight / sum(weights)),
            work=profile.work * (0.9 + 0.2 * busy) * (4.0 if i in incident else 1.0),
            poison_share=profile.poison_share * trouble,
            rejected_share=profile.rejected_share * trouble,
            fails=min(0.5, profile.fails * trouble),
        )


def _weight(at: datetime) -> float:
    """The relative load at a time of day, with peaks at 10:00 and 15:00 UTC."""
    hour = at.hour + at.minute / 60
    return 0.25 + math.exp(-((hour - 10) ** 2) / 8) + 0.8 * math.exp(-((hour - 15) ** 2) / 10)


def _entity(namespace: str, path: str) -> Entity:
    entity = Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path, deleted_at=None).first()
    if entity is None:
        raise EntityNotFound(f"{namespace}/{path}")
    return entity


def rules_of(entity: Entity, timeline: Sequence[Slot]) -> Rules:
    """The queue's settings, and as many consumers as its usual load needs."""
    usual = sorted(timeline, key=lambda slot: slot.count * slot.work)[len(timeline) * 9 // 10]
    consumers = max(1, math.ceil(usual.count / SLOT.total_seconds() * usual.work / USED))
    return Rules(
        entity.lock_duration, entity.max_delivery_count, entity.default_message_time_to_live,
        entity.dead_lettering_on_message_expiration, consumers,
    )  # fmt: skip


def play(timeline: Sequence[Slot], rules: Rules, away: Sequence[tuple[datetime, datetime]], dice: Random) -> list[Life]:
    """The messages that enter in these slots, oldest first, as consumers work on them. away: when there are none. Pure, but for
    the dice."""
    lives = sorted((one for slot in timeline for one in _arrivals(slot, dice)), key=lambda one: one.enqueued_at)
    free = [timeline[0].start_at] * rules.consumers
    heapify(free)
    ready: list[int] = []  # the places of messages that wait
    later: list[tuple[datetime, int]] = []  # those that are delivered again: from when on
    arrived = 0
    while arrived < len(lives) or ready or later:
        now = _present(heappop(free), away)
        if not ready:  # the consumer waits for the next message
            coming = [lives[arrived].enqueued_at] if arrived < len(lives) else []
            now = _present(max(now, min([*coming, *(at for at, _ in later[:1])])), away)
        while arrived < len(lives) and lives[arrived].enqueued_at <= now:
            heappush(ready, arrived)
            arrived += 1
        while later and later[0][0] <= now:
            heappush(ready, heappop(later)[1])
        place = heappop(ready)
        one = lives[place]
        received = now + timedelta(seconds=0.001 + PICKUP * dice.lognormvariate(0, 0.5))
        if rules.time_to_live is not None and received >= one.enqueued_at + rules.time_to_live:
            one.ended_at = one.enqueued_at + rules.time_to_live
            expired = (EventKind.DEAD_LETTERED, "TTLExpiredException")
            one.kind, one.reason = expired if rules.dead_letters_expired else (EventKind.EXPIRED, None)
            heappush(free, now)
            continue
        done, again = _deliver(one, received, rules, dice)
        heappush(free, done)
        if again is not None:
            heappush(later, (again, place))
    return lives


def _deliver(one: Life, received: datetime, rules: Rules, dice: Random) -> tuple[datetime, datetime | None]:
    """Deliver a message: until when the consumer works on it, and from when on it is delivered again; None: its life ended."""
    done = received + timedelta(seconds=one.work * dice.lognormvariate(0, 0.6))
    ended = min(done, received + rules.lock)
    failed = dice.random() < one.fails
    if ended == done and not failed:
        one.kind, one.reason = (EventKind.DEAD_LETTERED, dice.choice(REASONS)) if one.is_rejected else (EventKind.COMPLETED, None)
    elif len(one.deliveries) + 1 >= rules.max_deliveries:
        one.kind, one.reason = EventKind.DEAD_LETTERED, "MaxDeliveryCountExceeded"
    else:
        one.deliveries.append((received, ended, EventKind.ABANDONED if ended == done else EventKind.LOCK_LOST))
        return done, ended
    one.deliveries.append((received, ended, one.kind))
    one.ended_at = ended
    return done, None


def absences(timeline: Sequence[Slot], each: float) -> list[tuple[datetime, datetime]]:
    """When all consumers are away: so many seconds every two hours, and for a while when the incident begins. Pure."""
    start, end = timeline[0].start_at, timeline[-1].start_at
    worst = next((slot.start_at for slot in timeline if slot.fails > timeline[0].fails), None)
    times = [start + i * timedelta(hours=2) for i in range(1, 1 + (end - start) // timedelta(hours=2))]
    found = [(at, at + timedelta(seconds=each)) for at in times] if each else []
    return sorted([*found, *([(worst, worst + OUTAGE)] if worst else [])])


def _present(at: datetime, away: Sequence[tuple[datetime, datetime]]) -> datetime:
    """When consumers are there: at this instant, or at the end of their absence."""
    for since, until in away:
        if since <= at < until:
            at = until
    return at


def _arrivals(slot: Slot, dice: Random) -> Iterator[Life]:
    for _ in range(slot.count):
        region = dice.choice(REGIONS)
        fails = slot.fails * (2 if region == REGIONS[-1] else 1)
        is_poison = dice.random() < slot.poison_share
        yield Life(
            slot.start_at + dice.random() * SLOT, slot.work, 1.0 if is_poison else fails, region,
            dice.random() < slot.rejected_share,
        )  # fmt: skip


def _write(connection: Any, entity: Entity, lives: Sequence[Life], until: datetime) -> int:
    """Write the events of these messages, those after `until` as at this instant, so that none would have to be stored."""
    reserved = archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=len(lives))
    attempts = [(i, place, *each) for i, one in enumerate(lives) for place, each in enumerate(one.deliveries, start=1)]
    return archive.run(
        connection,
        "history_generate",
        entity_id=entity.pk,
        first_number=reserved.first_number,
        until=until,
        lock=entity.lock_duration,
        enqueued=[one.enqueued_at for one in lives],
        regions=[one.region for one in lives],
        kinds=[int(one.kind) for one in lives],
        reasons=[one.reason for one in lives],
        ended=[one.ended_at for one in lives],
        firsts=[one.deliveries[0][0] if one.deliveries else None for one in lives],
        lasts=[one.deliveries[-1][0] if one.deliveries else None for one in lives],
        counts=[len(one.deliveries) for one in lives],
        places=[place for place, *_ in attempts],
        attempts=[attempt for _, attempt, *_ in attempts],
        received=[received for *_, received, _, _ in attempts],
        released=[released for *_, released, _ in attempts],
        hows=[int(how) for *_, how in attempts],
    )
