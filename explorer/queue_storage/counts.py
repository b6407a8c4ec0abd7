"""Counts of a storage queue's messages by state, and the columns that show them. Pure."""

from __future__ import annotations

from broker_core.reads import Counted
from explorer.frames.family import CommonCounts
from explorer.frames.figures import DEAD, EXPIRED, at_hand
from explorer.frames.values import Figure


def total(entity: Counted) -> int:
    """All messages without expired ones: the approximate message count (QS-901)."""
    return max(0, entity.counts.active - entity.expired_pending.value)


def delayed(entity: Counted) -> int:
    """Messages that are invisible since they were put: delayed, or rescheduled by an update."""
    return max(0, entity.counts.delayed + entity.counts.rescheduled - entity.expired_delayed)


def leased(entity: Counted) -> int:
    """Messages that are invisible since a get, including extended leases."""
    return max(0, entity.counts.locked + entity.counts.extended - entity.expired_leased)


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
    DEAD,
)


class StorageCounts(CommonCounts):
    """Counts of storage queues. A poison queue's messages are its dead letters."""

    def locked(self, entity: Counted) -> int:
        return leased(entity)

    def waiting(self, entity: Counted) -> int | None:
        return delayed(entity)

    def dead(self, entity: Counted) -> int | None:
        return entity.counts.active if entity.waits_for_operator else None
