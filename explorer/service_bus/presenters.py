"""How a Service Bus entity's facts are shown: badges, deliveries, rules, sessions. Pure: no request, no query."""

from __future__ import annotations

from datetime import timedelta

from broker_core.common.durations import human
from broker_core.common.types import EntityKind, SubQueue
from broker_core.reads import MessageRow
from broker_core.service_bus.rules.filters import FalseFilter, Filter, SqlFilter, TrueFilter
from broker_core.service_bus.rules.standing import Standing
from explorer.shared.family import CommonCounts
from explorer.shared.figures import DEAD, EXPIRED, Figure, if_it_holds
from explorer.shared.presenters import Badge

_BADGES = {
    Standing.AVAILABLE: Badge("active", "active", "active"),
    Standing.LOCK_ENDED: Badge("active, lock ended", "active", "active"),
    Standing.LOCKED: Badge("locked", "locked", "locked"),
    Standing.DEFERRED: Badge("deferred", "deferred", "deferred"),
    Standing.DEFERRED_EXPIRED: Badge("deferred, expired", "expired", "expired"),
    Standing.SCHEDULED: Badge("scheduled", "scheduled", "scheduled"),
    Standing.DUE: Badge("due, pending", "scheduled", "scheduled"),
    Standing.EXPIRED: Badge("expired, pending", "expired", "expired"),
    Standing.SPENT: Badge("spent, pending", "expired", "expired"),
}
_DEAD = Badge("dead-lettered", "dead", "dead")
ENDS = {Standing.LOCKED: "lock ends in", Standing.SCHEDULED: "due in"}
_MEANINGS = {
    EntityKind.QUEUE: "Keeps messages in order until receivers take them.",
    EntityKind.TOPIC: "Gives each message to all of its subscriptions whose rules match it.",
    EntityKind.SUBSCRIPTION: "Keeps its own copies of a topic's messages: of those that its rules match.",
}
FIGURES = (
    Figure(
        "active", "Active", "Waiting to be received, locked ones included", if_it_holds(lambda e: e.counts.active), word="active"
    ),
    Figure(
        "locked", "Locked", "Held by a receiver now", if_it_holds(lambda e: e.counts.locked), "num narrow-hide", word="locked"
    ),
    Figure("scheduled", "Scheduled", "Waiting for their time", lambda e: e.counts.scheduled, "num opt", word="scheduled"),
    Figure("deferred", "Deferred", "Set aside; received only by number", if_it_holds(lambda e: e.counts.deferred), "num opt"),
    EXPIRED,
    DEAD,
)
COUNTS = CommonCounts(
    held=lambda entity: entity.counts.locked,
    waiting=lambda entity: entity.counts.scheduled,
    deferred=if_it_holds(lambda entity: entity.counts.deferred),
    dead=if_it_holds(lambda entity: entity.counts.dead_letter),
)


def badge(row: MessageRow) -> Badge:
    """The state of a message. In a dead-letter queue it is dead-lettered unless a receiver holds it there."""
    in_dead_letters = row.subqueue != SubQueue.MAIN
    return _DEAD if in_dead_letters and row.standing not in (Standing.LOCKED, Standing.DEFERRED) else _BADGES[row.standing]


def deliveries(row: MessageRow) -> str:
    """Failed deliveries of those allowed; in a dead-letter queue nothing is counted against a limit (SB-089)."""
    limited = row.subqueue == SubQueue.MAIN
    return f"{row.delivery_count} of {row.max_delivery_count}" if limited else str(row.delivery_count)


def meaning(kind: EntityKind) -> str:
    return _MEANINGS[kind]


def rule_takes(filter: Filter) -> tuple[str, bool]:
    """Which messages a filter takes, and whether that is code rather than words."""
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
    """Why a receiver may never see a message that lives only so long; None: no reason for worry.

    usual_wait: median time that messages of this queue waited lately; None: not known.
    """
    if time_to_live is None:
        return None
    lives = f"It lives {human(time_to_live)}"
    if usual_wait is not None and time_to_live < usual_wait:
        return f"{lives}, and messages here usually wait {human(usual_wait)}: most likely no receiver will see it."
    if time_to_live < timedelta(seconds=5):
        return f"{lives}: unless a receiver is waiting at this moment, none may see it."
    return None
