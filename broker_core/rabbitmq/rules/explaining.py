"""Why a message in a RabbitMQ queue is delivered or not, with every reason and the time at which it ends.

Pure. An obstacle also prevents a get; other reasons say why no consumer has received the message yet, and what will happen to
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from broker_core.common.actors import actor_name
from broker_core.common.durations import human
from broker_core.common.explanations import QueuePosition, Reason

from . import display_state as rules
from .display_state import DisplayState, display_state


class Code(StrEnum):
    """The kind of a reason, for programs; the text is for users."""

    UNACKED = "unacked"
    EXPIRED = "expired"
    EXPIRED_BEHIND_HEAD = "expired behind the head"
    # These do not prevent a get.
    NO_CONSUMER = "no consumer"
    CONSUMERS_FULL = "consumers full"
    ACTIVE_CONSUMER_FULL = "single active consumer full"
    BEHIND = "behind others"
    NEXT = "next"
    WILL_EXPIRE = "will expire"
    EXPIRES_ON_RETURN = "expires when it returns"
    LAST_DELIVERY = "last delivery"
    QUEUE_EXPIRES = "queue expires"


class MessageFacts(rules.RabbitMessageFacts, Protocol):
    """A message with the facts needed to explain it. delivery_count: how often it was requeued."""

    @property
    def delivery_count(self) -> int: ...
    @property
    def held_since(self) -> datetime | None: ...
    @property
    def locked_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """A consumer, in registration order. prefetch: 0 for no limit; outstanding: its unacknowledged deliveries."""

    tag: str
    connection: str
    prefetch: int = 0
    outstanding: int = 0

    @property
    def has_credit(self) -> bool:
        return self.prefetch == 0 or self.outstanding < self.prefetch


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """The first ready message of the queue that has not expired. expires_at None: never."""

    number: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The facts about a queue that affect its messages.

    head:                   the message that blocks expired ones; None: nothing is ahead of them.
    dead_letter_exchange:   None: messages are dropped. dead_letters_lost: the exchange does not exist (RMQ-061).
    acknowledgement_timeout_at: when the channel that holds the message is closed (RMQ-126); None: never, or the message is
    ready.
    unused_until:           when the unused queue is deleted (RMQ-040); None: never, or it has consumers.
    """

    consumers: Sequence[ConsumerFacts] = ()
    single_active: bool = False
    head: HeadFacts | None = None
    exact_expiry: bool = False
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    dead_letters_lost: bool = False
    acknowledgement_timeout_at: datetime | None = None
    unused_until: datetime | None = None


def explain(message: MessageFacts, queue: QueueFacts, now: datetime, *, place: QueuePosition = QueuePosition()) -> list[Reason]:
    """Every reason that applies to the message at `now`, obstacles first. place: among the ready messages."""
    reasons = [*obstacles(message, now, queue=queue)]
    notes: list[Reason] = []
    if not reasons:
        notes = [*_of_consumers(queue), _place(place)]
    return [*reasons, *notes, *_future(message, queue, now)]


def why_not(message: MessageFacts, now: datetime) -> str | None:
    """One sentence on why a consumer or a get would not receive the message; None if it would."""
    return next((reason.text for reason in obstacles(message, now)), None)


def obstacles(message: MessageFacts, now: datetime, *, queue: QueueFacts = QueueFacts()) -> Iterator[Reason]:
    """The reasons that prevent delivery to a get and to every consumer."""
    expired_at = rules.expired_at(message, now)
    if expired_at is not None:
        yield _expired(expired_at, queue, now)
    elif display_state(message, now) is DisplayState.UNACKED:
        yield _unacked(message, queue, now)


def _unacked(message: MessageFacts, queue: QueueFacts, now: datetime) -> Reason:
    holder = getattr(message, "locked_by", None)
    by = f" to {actor_name(holder)}" if holder else ""
    since = getattr(message, "held_since", None)
    ago = f" {human(now - since)} ago" if since else ""
    return Reason(
        Code.UNACKED,
        f"Delivered{by}{ago} and not acknowledged; requeued when its channel or connection closes (RMQ-123).",
        {"held_by": holder, "held_since": since},
        queue.acknowledgement_timeout_at,
        "Its consumer acknowledges, rejects or requeues it, or its connection closes.",
    )


def _expired(at: datetime, queue: QueueFacts, now: datetime) -> Reason:
    ended = f"It expired {human(now - at)} ago and is never delivered"
    head = queue.head
    if head is None or queue.exact_expiry:
        text = f"{ended}; it is removed at the head of the queue (RMQ-002, RMQ-012)."
        return Reason(Code.EXPIRED, text, {"expires_at": at}, change=f"At the head, {_fate(queue)}.")
    return Reason(
        Code.EXPIRED_BEHIND_HEAD,
        f"{ended}, but counts until it reaches the head: message {head.number} is ahead and not expired (RMQ-013).",
        {"expires_at": at, "head": head.number, "head_expires_at": head.expires_at},
        head.expires_at,
        f"The messages ahead are consumed or expire; then {_fate(queue)}. Exact expiry removes each message as it expires.",
    )


def _fate(queue: QueueFacts) -> str:
    """What happens to the message when it is dead-lettered."""
    if queue.dead_letter_exchange is None:
        return "it is dropped"
    if queue.dead_letters_lost:
        return f"it is dropped because the dead-letter exchange '{queue.dead_letter_exchange}' does not exist (RMQ-061)"
    return f"it goes to the dead-letter exchange '{queue.dead_letter_exchange}'"


def _of_consumers(queue: QueueFacts) -> Iterator[Reason]:
    """Why no consumer receives it, although a get could."""
    if not queue.consumers:
        yield Reason(
            Code.NO_CONSUMER, "The queue has no consumer.", change="Start a consumer or get the message.", is_obstacle=False
        )
        return
    serving = queue.consumers[:1] if queue.single_active else queue.consumers
    if any(consumer.has_credit for consumer in serving):
        return
    values = {"consumers": [consumer.tag for consumer in serving]}
    change = "A delivery is acknowledged, or the prefetch is raised."
    if queue.single_active:
        active = serving[0]
        text = (
            f"Only the active consumer '{active.tag}' of {active.connection} is served, and it holds "
            f"{active.prefetch} messages, its prefetch limit; {len(queue.consumers) - 1} more are on standby (RMQ-148)."
        )
        yield Reason(Code.ACTIVE_CONSUMER_FULL, text, values, change=change, is_obstacle=False)
        return
    text = f"{_all(len(serving))} as many unacknowledged messages as the prefetch allows (RMQ-140)."
    yield Reason(Code.CONSUMERS_FULL, text, values, change=change, is_obstacle=False)


def _all(consumers: int) -> str:
    return "The only consumer holds" if consumers == 1 else f"All {consumers} consumers hold"


def _place(place: QueuePosition) -> Reason:
    values = {"before": place.before, "capped": place.capped}
    if not place.before:
        return Reason(Code.NEXT, "Next in line.", values, is_obstacle=False)
    count = f"{place.before:,}{' or more' if place.capped else ''}"
    is_single = place.before == 1 and not place.capped
    return Reason(Code.BEHIND, f"{count} {'message' if is_single else 'messages'} ahead.", values, is_obstacle=False)


def _future(message: MessageFacts, queue: QueueFacts, now: datetime) -> Iterator[Reason]:
    """What will happen to the message."""
    at = display_state(message, now)
    expires_at = message.expires_at
    if at is DisplayState.READY and expires_at is not None:
        text = f"It expires in {human(expires_at - now)}; {_fate(queue)} once it is at the head."
        yield Reason(Code.WILL_EXPIRE, text, {"expires_at": expires_at}, expires_at, is_obstacle=False)
    elif at is DisplayState.UNACKED and expires_at is not None:
        over = expires_at <= now
        when = "has ended" if over else f"ends in {human(expires_at - now)}"
        text = f"Its time-to-live {when}. It does not expire while unacknowledged, but when it is requeued later (RMQ-020)."
        yield Reason(Code.EXPIRES_ON_RETURN, text, {"expires_at": expires_at}, None if over else expires_at, is_obstacle=False)
    if queue.delivery_limit is not None and message.delivery_count >= queue.delivery_limit:
        text = f"It was requeued {message.delivery_count} times; the next time {_fate(queue)} (RMQ-121)."
        values = {"delivery_count": message.delivery_count, "delivery_limit": queue.delivery_limit}
        yield Reason(Code.LAST_DELIVERY, text, values, is_obstacle=False)
    if queue.unused_until is not None:
        left = human(max(queue.unused_until - now, now - now))
        text = f"The queue expires with all its messages in {left} unless it is used; nothing is dead-lettered (RMQ-040)."
        change = "A get, a declaration or a consumer resets this; publishing does not (RMQ-042)."
        yield Reason(
            Code.QUEUE_EXPIRES, text, {"unused_until": queue.unused_until}, queue.unused_until, change, is_obstacle=False
        )
