"""Explain why a get would or would not return a storage queue's message now: every reason, and when it ends.

Pure functions. Obstacles are decided by the predicates of `display_state`, which gets are tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from broker_core.common.actors import actor_name
from broker_core.common.durations import human
from broker_core.common.explanations import QueuePosition, Reason

from . import display_state as rules
from .display_state import DisplayState
from .limits import DEFAULT_GRACE, MOST_MESSAGES


class Code(StrEnum):
    """The kind of a reason, for programs; users read its text."""

    EXPIRED = "expired"
    DELAYED = "delayed"
    RESCHEDULED = "rescheduled"
    LEASED = "leased"
    EXTENDED = "lease extended"
    SPENT = "spent"
    # Notes, not obstacles.
    WILL_EXPIRE_FIRST = "will expire first"
    PARKED = "parked without a poison queue"
    LAST_GET = "last get"
    BEYOND_REACH = "beyond the reach of a peek"
    BEHIND = "behind others"
    NEXT = "next"


class MessageFacts(rules.StorageMessageFacts, Protocol):
    """The columns that an explanation needs besides those of a display state. delivery_count: the number of dequeues."""

    @property
    def delivery_count(self) -> int: ...
    @property
    def held_since(self) -> datetime | None: ...
    @property
    def renewals(self) -> int: ...
    @property
    def locked_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The options that affect a queue's messages. poison_queue: where spent messages are moved; None: they stay."""

    max_dequeue_count: int | None = None
    poison_queue: str | None = None
    expiry_grace: timedelta = DEFAULT_GRACE


def explain(message: MessageFacts, queue: QueueFacts, now: datetime, *, place: QueuePosition = QueuePosition()) -> list[Reason]:
    """Every reason that affects the message at `now`, obstacles first, each with the instant at which time ends it."""
    reasons = [*obstacles(message, now, queue=queue)]
    notes = [*_flags(message, queue, now)]
    if not reasons:
        notes = [*notes, *_place(place)]
    return [*reasons, *notes]


def why_not(message: MessageFacts, now: datetime) -> str | None:
    """One sentence on why a get would skip the message; None if it would not."""
    return next((reason.text for reason in obstacles(message, now)), None)


def obstacles(message: MessageFacts, now: datetime, *, queue: QueueFacts = QueueFacts()) -> Iterator[Reason]:
    """What prevents a get at `now` from returning the message, most important first."""
    expired_at, hidden_until = rules.expired_at(message, now), rules.hidden_until(message, now)
    if expired_at is not None:
        yield _expired(expired_at, queue, now)
    elif hidden_until is not None:
        yield _invisible(rules.display_state(message, now), message, hidden_until, now)
    elif queue.poison_queue is None or queue.max_dequeue_count is None:
        return
    elif rules.is_spent(message.delivery_count, queue.max_dequeue_count):
        yield _spent(message.delivery_count, queue.max_dequeue_count, queue.poison_queue)


def _expired(at: datetime, queue: QueueFacts, now: datetime) -> Reason:
    removed_at = at + queue.expiry_grace
    text = f"It expired {human(now - at)} ago and is invisible to clients (QS-073)."
    when = f"in {human(removed_at - now)}" if removed_at > now else "at the next sweep"
    values = {"expires_at": at, "removed_at": removed_at}
    return Reason(Code.EXPIRED, text, values, removed_at, f"It is removed {when}.")


def _invisible(state: DisplayState, message: MessageFacts, until: datetime, now: datetime) -> Reason:
    left, by = human(until - now), f" by {actor_name(message.locked_by)}" if message.locked_by else ""
    values: dict[str, Any] = {"visible_at": until, "held_since": message.held_since, "held_by": message.locked_by}
    release = "or an operator releases it"
    match state:
        case DisplayState.DELAYED:
            code, text = Code.DELAYED, f"It was put with a visibility timeout that ends in {left} (QS-001)."
            change = f"The timeout ends, its producer updates it with the put's pop receipt, {release}."
        case DisplayState.RESCHEDULED:
            code, text = Code.RESCHEDULED, f"It was updated before the first get and is visible in {left} (QS-045)."
            change = f"The timeout ends, it is updated with its current pop receipt, {release}."
        case DisplayState.LEASED:
            values["dequeue_count"] = message.delivery_count
            code, text = Code.LEASED, f"It was received{by}; the lease ends in {left} (QS-021)."
            change = f"Its holder deletes or updates it, the lease ends, {release}."
        case _:
            values |= {"dequeue_count": message.delivery_count, "updates": message.renewals}
            code = Code.EXTENDED
            text = (
                f"It was updated{by} after a get, {_times(message.renewals)} since; invisible for another {left} (QS-045). "
                "This was a lease renewal or a delayed retry."
            )
            change = f"Its holder deletes or updates it, the time ends, {release}."
    return Reason(code, text, values, until, change)


def _spent(count: int, allowed: int, poison_queue: str) -> Reason:
    text = (
        f"It was dequeued {_times(count)}; the maximum is {allowed:,}. "
        f"The next get or sweep moves it to '{poison_queue}' (QS-105)."
    )
    values = {"dequeue_count": count, "max_dequeue_count": allowed, "poison_queue": poison_queue}
    return Reason(Code.SPENT, text, values, change="Raise max_dequeue_count, or requeue it from there.")


def _flags(message: MessageFacts, queue: QueueFacts, now: datetime) -> Iterator[Reason]:
    if rules.has_expired(message, now):
        return
    values: dict[str, Any]
    expires_unseen_at, hidden_until = rules.expires_unseen_at(message, now), rules.hidden_until(message, now)
    if expires_unseen_at is not None:
        text = f"It expires in {human(expires_unseen_at - now)}, before it becomes visible (QS-024)."
        values = {"expires_at": expires_unseen_at, "visible_at": hidden_until}
        change = "Its holder deletes it or makes it visible earlier."
        yield Reason(Code.WILL_EXPIRE_FIRST, text, values, expires_unseen_at, change, is_obstacle=False)
    spent = rules.is_spent(message.delivery_count, queue.max_dequeue_count)
    values = {"dequeue_count": message.delivery_count, "max_dequeue_count": queue.max_dequeue_count}
    if spent and queue.poison_queue is None:
        got = _times(message.delivery_count)
        text = f"It was dequeued {got}; without a poison queue it becomes visible again each time (QS-108)."
        yield Reason(Code.PARKED, text, values, hidden_until, "Set a poison queue, or remove the message.", is_obstacle=False)
    elif spent and hidden_until is not None:
        text = (
            f"This is the last of {queue.max_dequeue_count} dequeues; afterwards it is moved to '{queue.poison_queue}' (QS-105)."
        )
        yield Reason(Code.LAST_GET, text, values, hidden_until, is_obstacle=False)


def _place(place: QueuePosition) -> Iterator[Reason]:
    values = {"before": place.before, "capped": place.capped}
    if not place.before:
        yield Reason(Code.NEXT, "Next in line.", values, is_obstacle=False)
        return
    count = f"{place.before:,}{' or more' if place.capped else ''}"
    is_single = place.before == 1 and not place.capped
    text = f"{count} {'message' if is_single else 'messages'} ahead."
    yield Reason(Code.BEHIND, text, values, is_obstacle=False)
    if place.before >= MOST_MESSAGES:
        text = f"A peek returns at most {MOST_MESSAGES} messages and cannot reach this one (QS-038)."
        yield Reason(Code.BEYOND_REACH, text, values, is_obstacle=False)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
