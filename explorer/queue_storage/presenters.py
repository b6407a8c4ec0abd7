"""Badges of messages and texts of events in storage queues. Pure."""

from __future__ import annotations

from broker_core.common.types import EventKind
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.reads import MessageRow
from explorer.frames.family import EventTexts
from explorer.frames.values import Badge

_BADGES = {
    DisplayState.VISIBLE: Badge("visible", "active", "active"),
    DisplayState.DELAYED: Badge("delayed", "scheduled", "scheduled"),
    DisplayState.RESCHEDULED: Badge("rescheduled", "scheduled", "scheduled"),
    DisplayState.LEASED: Badge("leased", "locked", "locked"),
    DisplayState.EXTENDED: Badge("lease extended", "locked", "locked"),
    DisplayState.EXPIRED: Badge("expired, not yet removed", "expired", "expired"),
}
ENDS = {
    DisplayState.DELAYED: "visible in",
    DisplayState.RESCHEDULED: "visible in",
    DisplayState.LEASED: "lease ends in",
    DisplayState.EXTENDED: "lease ends in",
}
EVENTS = EventTexts(
    words={
        EventKind.SENT: "put", EventKind.RECEIVED: "got", EventKind.RENEWED: "updated", EventKind.COMPLETED: "deleted",
        EventKind.ABANDONED: "updated: visible", EventKind.RELEASED: "released", EventKind.LOCK_LOST: "lease ended",
        EventKind.PURGED: "cleared", EventKind.MOVED: "moved",
    },
    sentences={
        EventKind.SENT: "Put",
        EventKind.RECEIVED: "Received by a get: leased, with a new pop receipt",
        EventKind.COMPLETED: "Deleted with its pop receipt",
        EventKind.ABANDONED: "Updated: visible at once, with a new pop receipt",
        EventKind.RELEASED: "Released by an operator: visible; the old pop receipt no longer works",
        EventKind.LOCK_LOST: "Lease expired; received by another get",
        EventKind.EXPIRED: "Expired and removed",
        EventKind.PURGED: "Removed without a pop receipt",
        EventKind.MOVED: "Moved",
    },
    gaps={
        EventKind.SENT: "waited {0} for a get",
        EventKind.RECEIVED: "leased for {0}",
        EventKind.RENEWED: "invisible for another {0}",
        EventKind.ABANDONED: "waited {0} for the next get",
        EventKind.RELEASED: "waited {0} for the next get",
        EventKind.LOCK_LOST: "waited {0} for the next get",
        EventKind.EDITED: "waited {0}",
    },
    renewed=("Updated: hidden for longer, with a new pop receipt", "Updated {} times: hidden for longer each time"),
    locked="invisible for {}",
    unnoticed="then visible again for {}",
    count="dequeue count",
)  # fmt: skip


def badge(row: MessageRow) -> Badge:
    return _BADGES[row.display_state]
