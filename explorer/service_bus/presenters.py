"""Presents Service Bus entities: badges, deliveries, rules, sessions. Pure: no request, no query."""

from __future__ import annotations

from datetime import timedelta

from broker_core.common.durations import human
from broker_core.common.types import EntityKind, SubQueue
from broker_core.reads import Counted, MessageRow
from broker_core.service_bus.rules.display_state import DisplayState
from broker_core.service_bus.rules.filters import FalseFilter, Filter, SqlFilter, TrueFilter
from explorer.frames.family import CommonCounts
from explorer.frames.figures import DEAD, EXPIRED, if_it_holds
from explorer.frames.values import Badge, Figure

_BADGES = {
    DisplayState.AVAILABLE: Badge("active", "active", "active"),
    DisplayState.LOCK_ENDED: Badge("active, lock ended", "active", "active"),
    DisplayState.LOCKED: Badge("locked", "locked", "locked"),
    DisplayState.DEFERRED: Badge("deferred", "deferred", "deferred"),
    DisplayState.DEFERRED_EXPIRED: Badge("deferred, expired", "expired", "expired"),
    DisplayState.SCHEDULED: Badge("scheduled", "scheduled", "scheduled"),
    DisplayState.DUE: Badge("due, not yet enqueued", "scheduled", "scheduled"),
    DisplayState.EXPIRED: Badge("expired, not yet removed", "expired", "expired"),
    DisplayState.SPENT: Badge("max deliveries reached", "expired", "expired"),
}
_DEAD = Badge("dead-lettered", "dead", "dead")
ENDS = {DisplayState.LOCKED: "lock ends in", DisplayState.SCHEDULED: "due in"}
_MEANINGS = {
    EntityKind.QUEUE: "Stores messages in order until they are received.",
    EntityKind.TOPIC: "Copies each message to those of its subscriptions whose rules match.",
    EntityKind.SUBSCRIPTION: "Stores its own copy of each message of its topic that matches its rules.",
}
FIGURES = (
    Figure(
        "active",
        "Active",
        "Waiting to be received, or locked",
        if_it_holds(lambda e: e.counts.active),
        word="active",
    ),
    Figure("locked", "Locked", "Locked by a receiver", if_it_holds(lambda e: e.counts.locked), "num narrow-hide", word="locked"),
    Figure("scheduled", "Scheduled", "Waiting for their time", lambda e: e.counts.scheduled, "num opt", word="scheduled"),
    Figure("deferred", "Deferred", "Received only by sequence number", if_it_holds(lambda e: e.counts.deferred), "num opt"),
    EXPIRED,
    DEAD,
)


class ServiceBusCounts(CommonCounts):
    """Counts of Service Bus. A topic holds no messages but scheduled ones."""

    def locked(self, entity: Counted) -> int:
        return entity.counts.locked

    def waiting(self, entity: Counted) -> int | None:
        return entity.counts.scheduled

    def deferred(self, entity: Counted) -> int | None:
        return entity.counts.deferred if entity.holds_messages else None

    def dead(self, entity: Counted) -> int | None:
        return entity.counts.dead_letter if entity.holds_messages else None


def badge(row: MessageRow) -> Badge:
    """The state of a message. In a dead-letter queue it is "dead-lettered" unless it is locked or deferred there."""
    in_dead_letters = row.subqueue != SubQueue.MAIN
    return (
        _DEAD
        if in_dead_letters and row.display_state not in (DisplayState.LOCKED, DisplayState.DEFERRED)
        else _BADGES[row.display_state]
    )


def deliveries(row: MessageRow) -> str:
    """The failed deliveries, with their maximum. A dead-letter queue has no maximum (SB-089): there, those before are counted."""
    if row.subqueue == SubQueue.MAIN:
        return f"{row.delivery_count} of {row.max_delivery_count}"
    return str((row.deliveries_before or 0) + row.delivery_count)


def meaning(kind: EntityKind) -> str:
    return _MEANINGS[kind]


def filter_text(filter: Filter) -> tuple[str, bool]:
    """The messages that a filter matches, and whether this text is code."""
    match filter:
        case TrueFilter():
            return "every message", False
        case FalseFilter():
            return "no message", False
        case SqlFilter():
            return filter.text, True
    compared = {name.replace("_", " "): value for name, value in filter.texts.items()} | dict(filter.properties)
    return " and ".join(f"{name} is {getattr(value, 'value', value)!r}" for name, value in compared.items()), False


def state_text(state: bytes) -> str:
    text = state.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else state[:24].hex(" ")


def short_time_to_live_warning(time_to_live: timedelta | None, usual_wait: timedelta | None) -> str | None:
    """A warning if a message will probably expire before it is received, or None.

    usual_wait: how long messages of this queue usually wait; None: unknown.
    """
    if time_to_live is None:
        return None

    if usual_wait is not None and time_to_live < usual_wait:
        return f"Messages here usually wait {human(usual_wait)}; this one expires after {human(time_to_live)}."
    if time_to_live < timedelta(seconds=5):
        return f"This message expires after {human(time_to_live)}, possibly before any receiver asks for it."
    return None
