"""What the table of entities counts: of one family in its own words, of several in words that fit all. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker_core.common.types import EntityKind, Family
from broker_core.queue_storage.rules.names import origin_of
from broker_core.reads import EntityRow


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of counts. of: the number for an entity; None where it has no such messages. hue: of what is more than none."""

    name: str
    title: str
    hint: str
    of: Callable[[EntityRow], int | None]
    css: str = "num"
    hue: str = ""
    word: str = ""  # among the sums; empty: not summed


def at_hand(entity: EntityRow) -> int:
    """How many messages a receive, a get or a consumer could be given now."""
    counts = entity.counts
    invisible = counts.locked + counts.delayed + counts.rescheduled + counts.extended
    return max(0, counts.active - invisible - expired_at_hand(entity))


def expired_at_hand(entity: EntityRow) -> int:
    """How many expired messages nothing else keeps; the others are counted with what does."""
    return entity.expired_pending.value - entity.expired_leased - entity.expired_delayed


def total(entity: EntityRow) -> int:
    """All that are there, without those whose life has ended: of a storage queue the approximate count (QS-901)."""
    return max(0, entity.counts.active - entity.expired_pending.value)


def delayed(entity: EntityRow) -> int:
    """Storage queue: invisible since they were put, whoever set the instant."""
    return max(0, entity.counts.delayed + entity.counts.rescheduled - entity.expired_delayed)


def leased(entity: EntityRow) -> int:
    """Storage queue: invisible since a get, extended or not."""
    return max(0, entity.counts.locked + entity.counts.extended - entity.expired_leased)


def is_poison(entity: EntityRow) -> bool:
    """Whether what is in this storage queue failed too often elsewhere, and waits for a person."""
    return entity.family is Family.QUEUE_STORAGE and origin_of(entity.address.path) is not None


def _if_it_holds(of: Callable[[EntityRow], int]) -> Callable[[EntityRow], int | None]:
    return lambda entity: of(entity) if entity.holds_messages else None


def _of_service_bus(of: Callable[[EntityRow], int]) -> Callable[[EntityRow], int | None]:
    return lambda entity: of(entity) if entity.family is Family.SERVICE_BUS and entity.holds_messages else None


def _held(entity: EntityRow) -> int:
    return leased(entity) if entity.family is Family.QUEUE_STORAGE else entity.counts.locked


def _waiting(entity: EntityRow) -> int | None:
    match entity.family:
        case Family.QUEUE_STORAGE:
            return delayed(entity)
        case Family.SERVICE_BUS:
            return entity.counts.scheduled
    return None


def _dead(entity: EntityRow) -> int | None:
    if is_poison(entity):
        return entity.counts.active
    return entity.counts.dead_letter if entity.family is Family.SERVICE_BUS and entity.holds_messages else None


_EXPIRED = Figure(
    "expired", "Expired", "Expired, not yet removed", _if_it_holds(lambda e: e.expired_pending.value), "num opt",
    "expired",
)  # fmt: skip
_DEAD = Figure("dead", "Dead-lettered", "In the dead-letter queue or in a poison queue", _dead, "num", "dead", "dead letters")

SERVICE_BUS = (
    Figure(
        "active",
        "Active",
        "Waiting to be received, including locked messages",
        _if_it_holds(lambda e: e.counts.active),
        word="active",
    ),
    Figure("locked", "Locked", "Locked by a receiver", _if_it_holds(lambda e: e.counts.locked), "num narrow-hide", word="locked"),
    Figure(
        "scheduled", "Scheduled", "Waiting for their scheduled time", lambda e: e.counts.scheduled, "num opt", word="scheduled"
    ),
    Figure("deferred", "Deferred", "Received only by sequence number", _if_it_holds(lambda e: e.counts.deferred), "num opt"),
    _EXPIRED,
    _DEAD,
)
QUEUE_STORAGE = (
    Figure("visible", "Visible", "Returned by a get", at_hand, word="visible"),
    Figure(
        "delayed",
        "Delayed",
        "Invisible since they were put",
        lambda e: max(0, e.counts.delayed - e.expired_delayed),
        word="delayed",
    ),
    Figure("leased", "Leased", "Invisible since a get", lambda e: e.counts.locked, word="leased"),
    Figure("extended", "Extended", "Invisible for longer, by an update after a get", lambda e: e.counts.extended, "num opt"),
    Figure(
        "rescheduled", "Rescheduled", "Invisible by an update before the first get", lambda e: e.counts.rescheduled, "num opt"
    ),
    _EXPIRED,
)
RABBITMQ = (
    Figure("ready", "Ready", "Waiting for a consumer, including expired messages behind others",
           lambda e: e.counts.active - e.counts.locked, word="ready"),
    Figure("unacked", "Unacked", "Delivered and not acknowledged", lambda e: e.counts.locked, word="unacked"),
    Figure("expired", "Expired, waiting", "Expired; removed when they reach the head of the queue",
           lambda e: e.expired_pending.value, "num narrow-hide", "expired"),
    Figure("total", "Total", "Ready and unacked", lambda e: e.counts.active, "num opt", word="total"),
)  # fmt: skip
SEVERAL = (
    Figure(
        "available",
        "Available",
        "Available to a receive, a get or a consumer",
        _if_it_holds(at_hand),
        word="available",
    ),
    Figure("held", "Locked", "Locked, leased or unacked", _if_it_holds(_held), "num narrow-hide", word="locked"),
    Figure("waiting", "Scheduled", "Scheduled or delayed", _waiting, "num opt", word="scheduled"),
    Figure("deferred", "Deferred", "Received only by sequence number", _of_service_bus(lambda e: e.counts.deferred), "num opt"),
    _EXPIRED,
    _DEAD,
)
_OF_FAMILY = {Family.SERVICE_BUS: SERVICE_BUS, Family.QUEUE_STORAGE: QUEUE_STORAGE, Family.RABBITMQ: RABBITMQ}
BY_NAME = {figure.name: figure for figures in (*_OF_FAMILY.values(), SEVERAL) for figure in figures}


def for_families(found: Iterable[Family]) -> tuple[Figure, ...]:
    """The columns of a table with entities of these families; of none: those of Service Bus."""
    [first, *others] = set(found) or {Family.SERVICE_BUS}
    return SEVERAL if others else _OF_FAMILY[first]


def sums(figures: Iterable[Figure], rows: list[EntityRow]) -> list[tuple[Figure, int]]:
    """What of the figures is summed, over these entities."""
    return [(figure, sum(figure.of(row) or 0 for row in rows)) for figure in figures if figure.word]


def count_of_kind(rows: list[EntityRow]) -> dict[EntityKind, int]:
    kinds = [row.kind for row in rows]
    return {kind: kinds.count(kind) for kind in EntityKind}
