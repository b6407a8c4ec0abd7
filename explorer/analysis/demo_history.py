"""A stretch of made-up history, so that a newcomer's first charts have something to show.

Its events are written to the event table like any others, and go from there to the archive. Each says what it is: actor
"generated", details {"generated": true}, a message id that begins with "generated-"; pages that count such messages say so.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker_core.common.errors import EntityNotFound
from broker_core.history import archive, retention
from broker_core.models import Entity

SLOT = timedelta(minutes=10)
TIME_TO_LIVE = timedelta(minutes=2)  # of the messages that expire


@dataclass(frozen=True, slots=True)
class Profile:
    """How a queue usually fares: medians of waiting and processing in seconds, and shares of outcomes."""

    wait: float
    work: float
    dead_share: float
    expired_share: float


PROFILES = (Profile(0.8, 0.35, 0.006, 0.001), Profile(6.0, 2.5, 0.02, 0.004), Profile(0.2, 0.08, 0.002, 0.03))


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten minutes of a queue: how many messages enter, and how they fare."""

    start_at: datetime
    count: int
    wait: float
    work: float
    dead_share: float
    expired_share: float


def generate(
    namespace: str, queues: Sequence[str], hours: float = 24, *, messages: int = 50_000, until: datetime | None = None
) -> int:
    """Write made-up lives of about `messages` messages, spread over the queues and over the hours before `until` (now).

    Each queue gives them numbers from its counter, so call it before real messages arrive: numbers then follow time.
    Returns the number of events written. Raises EntityNotFound for an unknown queue.
    """
    until = until or datetime.now(UTC)
    entities = [_entity(namespace, path) for path in queues]
    retention.create_partitions(until.date(), days_before=math.ceil(hours / 24) + 1)
    start = until - timedelta(hours=hours)
    with archive.connected() as connection, connection.transaction():
        return sum(
            _generate(
                connection, entity, list(slots(start, until, messages // len(entities), PROFILES[i % len(PROFILES)])), until
            )
            for i, entity in enumerate(entities)
        )


def slots(start: datetime, until: datetime, messages: int, profile: Profile) -> Iterator[Slot]:
    """A day's shape: quiet nights, two busy stretches, and an incident two thirds in, when receivers were slow and failed often.

    The last slot ends half an hour before `until`, so that nearly every life ends by itself. Pure.
    """
    count = max(1, int((until - start - timedelta(minutes=30)) / SLOT))
    weights = [_weight(start + i * SLOT) for i in range(count)]
    incident = range(int(count * 0.66), int(count * 0.66) + max(1, count // 20))
    for i, weight in enumerate(weights):
        busy = weight / max(weights)
        trouble = 12.0 if i in incident else 1.0
        yield Slot(
            start_at=start + i * SLOT,
            count=round(messages * weight / sum(weights)),
            wait=profile.wait * (0.5 + busy**2) * trouble,
            work=profile.work * (0.9 + 0.2 * busy) * (3.0 if i in incident else 1.0),
            dead_share=min(0.5, profile.dead_share * trouble * 1.5 if i in incident else profile.dead_share),
            expired_share=min(0.4, profile.expired_share * trouble),
        )


def _weight(at: datetime) -> float:
    """How busy a time of day is; most at 10 and 15 o'clock UTC."""
    hour = at.hour + at.minute / 60
    return 0.25 + math.exp(-((hour - 10) ** 2) / 8) + 0.8 * math.exp(-((hour - 15) ** 2) / 10)


def _entity(namespace: str, path: str) -> Entity:
    entity = Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path, deleted_at=None).first()
    if entity is None:
        raise EntityNotFound(f"{namespace}/{path}")
    return entity


def _generate(connection, entity: Entity, stretch: list[Slot], until: datetime) -> int:
    total = sum(slot.count for slot in stretch)
    reserved = archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=total)
    return archive.run(
        connection,
        "history_generate",
        entity_id=entity.pk,
        first_number=reserved.first_number,
        until=until,
        time_to_live=TIME_TO_LIVE,
        starts=[slot.start_at for slot in stretch],
        counts=[slot.count for slot in stretch],
        waits=[slot.wait for slot in stretch],
        works=[slot.work for slot in stretch],
        dead_shares=[slot.dead_share for slot in stretch],
        expired_shares=[slot.expired_share for slot in stretch],
    )
