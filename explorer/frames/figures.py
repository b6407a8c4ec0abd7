"""Columns of the table of entities: the family's own if there is one family, common ones if there are several. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from broker_core.common.types import EntityKind, Family
from broker_core.reads import Counted, Tally

from .family import CommonCounts, installed, pages_of
from .values import Figure


def at_hand(entity: Counted) -> int:
    """How many messages a receive, a get or a consumer could get now."""
    counts = entity.counts
    invisible = counts.locked + counts.delayed + counts.rescheduled + counts.extended
    return max(0, counts.active - invisible - expired_at_hand(entity))


def expired_at_hand(entity: Counted) -> int:
    """How many expired messages are neither leased nor delayed; those are counted as leased or delayed."""
    return entity.expired_pending.value - entity.expired_leased - entity.expired_delayed


def if_it_holds(of: Callable[[Counted], int]) -> Callable[[Counted], int | None]:
    return lambda entity: of(entity) if entity.holds_messages else None


def _counts(entity: Counted) -> CommonCounts:
    return pages_of(entity.family).counts


EXPIRED = Figure(
    "expired", "Expired", "Expired, not yet removed", if_it_holds(lambda e: e.expired_pending.value), "num opt",
    "expired",
)  # fmt: skip
DEAD = Figure(
    "dead",
    "Dead-lettered",
    "In a dead-letter queue or a poison queue",
    lambda e: _counts(e).dead(e),
    "num",
    "dead",
    "dead letters",
)

SEVERAL = (
    Figure(
        "available",
        "Available",
        "Available to a receive, a get or a consumer",
        if_it_holds(at_hand),
        word="available",
    ),
    Figure(
        "held", "Locked", "Locked, leased or unacked",
        if_it_holds(lambda e: _counts(e).locked(e)),
        "num narrow-hide",
        word="locked",
    ),
    Figure("waiting", "Scheduled", "Scheduled or delayed", lambda e: _counts(e).waiting(e), "num opt", word="scheduled"),
    Figure("deferred", "Deferred", "Received only by sequence number", lambda e: _counts(e).deferred(e), "num opt"),
    EXPIRED,
    DEAD,
)  # fmt: skip


def by_name() -> dict[str, Figure]:
    """All columns of counts, by name."""
    of_families = (figure for family_pages in installed() for figure in family_pages.figures)
    return {figure.name: figure for figure in (*of_families, *SEVERAL)}


def for_families(families: Iterable[Family]) -> tuple[Figure, ...]:
    """The columns of a table with entities of these families; without any, those of the first installed family."""
    [first, *others] = set(families) or {installed()[0].family}
    return SEVERAL if others else pages_of(first).figures


def sums(figures: Iterable[Figure], rows: Sequence[Counted]) -> list[tuple[Figure, int]]:
    """The totals of the figures over these entities."""
    return [(figure, sum(figure.of(row) or 0 for row in rows)) for figure in figures if figure.word]


def count_of_kind(rows: Iterable[Tally]) -> dict[EntityKind, int]:
    counted = Counter(dict.fromkeys(EntityKind, 0))
    for row in rows:
        counted[row.kind] += row.entities
    return dict(counted)
