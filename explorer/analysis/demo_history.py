"""Generates history for the demo, so that the first charts are not empty.

The events are written to the event table and archived like any others. They are marked: actor "generated", details
{"generated": true}, and a message id that begins with "generated-". Pages that count such messages say so.
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
    """Typical values of a queue: medians of the waiting and processing time in seconds, and shares of outcomes."""

    wait: float
    work: float
    dead_share: float
    expired_share: float


PROFILES = (Profile(0.8, 0.35, 0.006, 0.001), Profile(6.0, 2.5, 0.02, 0.004), Profile(0.2, 0.08, 0.002, 0.03))


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten minutes of a queue: the number of messages that enter, and the profile for them."""

    start_at: datetime
    count: int
    wait: float
    work: float
    dead_share: float
    expired_share: float


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
    with archive.connected() as connection, connection.transaction():
        return sum(
            _generate(
                connection, entity, list(slots(start, until, messages // len(entities), PROFILES[i % len(PROFILES)])), until
            )
            for i, entity in enumerate(entities)
        )


def slots(start: datetime, until: datetime, messages: int, profile: Profile) -> Iterator[Slot]:
    """The load over time: quiet nights, two peaks a day, and one incident in which receivers are slow and fail often.

    The last slot ends half an hour before `until`, so that nearly every message has an outcome. Pure.
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
    """The relative load at a time of day, with peaks at 10:00 and 15:00 UTC."""
    hour = at.hour + at.minute / 60
    return 0.25 + math.exp(-((hour - 10) ** 2) / 8) + 0.8 * math.exp(-((hour - 15) ** 2) / 10)


def _entity(namespace: str, path: str) -> Entity:
    entity = Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path, deleted_at=None).first()
    if entity is None:
        raise EntityNotFound(f"{namespace}/{path}")
    return entity


def _generate(connection, entity: Entity, timeline: list[Slot], until: datetime) -> int:
    total = sum(slot.count for slot in timeline)
    reserved = archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=total)
    return archive.run(
        connection,
        "history_generate",
        entity_id=entity.pk,
        first_number=reserved.first_number,
        until=until,
        time_to_live=TIME_TO_LIVE,
        starts=[slot.start_at for slot in timeline],
        counts=[slot.count for slot in timeline],
        waits=[slot.wait for slot in timeline],
        works=[slot.work for slot in timeline],
        dead_shares=[slot.dead_share for slot in timeline],
        expired_shares=[slot.expired_share for slot in timeline],
    )
