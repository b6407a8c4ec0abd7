"""How many messages of a storage queue are in which state, and the columns that show it. Pure."""

from __future__ import annotations

from broker_core.queue_storage.rules.names import origin_of
from broker_core.reads import EntityRow
from explorer.shared.family import CommonCounts
from explorer.shared.figures import EXPIRED, Figure, at_hand


def total(entity: EntityRow) -> int:
    """All that are there, without those whose life has ended: of a storage queue the approximate count (QS-901)."""
    return max(0, entity.counts.active - entity.expired_pending.value)


def delayed(entity: EntityRow) -> int:
    """Invisible since they were put, whoever set the instant."""
    return max(0, entity.counts.delayed + entity.counts.rescheduled - entity.expired_delayed)


def leased(entity: EntityRow) -> int:
    """Invisible since a get, extended or not."""
    return max(0, entity.counts.locked + entity.counts.extended - entity.expired_leased)


def is_poison(entity: EntityRow) -> bool:
    """Whether the queue holds what failed too often in another one, and waits for a person."""
    return origin_of(entity.address.path) is not None


FIGURES = (
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
    EXPIRED,
)
COUNTS = CommonCounts(held=leased, waiting=delayed, dead=lambda entity: entity.counts.active if is_poison(entity) else None)
