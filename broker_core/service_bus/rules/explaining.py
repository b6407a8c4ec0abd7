"""Explain why a stored message is or is not delivered now: every reason, in the order in which a receive checks them.

Pure functions. Obstacles are decided by the predicates of `display_state`, which receives are tested against, by the entity's
status and forwards, and by the lock of the message's session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from broker_core.common.actors import actor_name
from broker_core.common.durations import human
from broker_core.common.explanations import QueuePosition, Reason
from broker_core.common.types import EntityKind, EntityStatus, ExpiryMode, MessageState, SubQueue

from .display_state import StateFacts, failures, is_expired, lock_ends_at
from .display_state import expired_at as message_expired_at


class Code(StrEnum):
    """The kind of a reason, for programs; users read its text."""

    TRANSFER = "transfer"
    STATUS = "status"
    FORWARDED = "forwarded"
    SESSION_EXPIRED = "session expired"
    SESSION_LOCKED = "session locked"
    SCHEDULED = "scheduled"
    DUE = "due"
    LOCKED = "locked"
    DEFERRED = "deferred"
    EXPIRED = "expired"
    SPENT = "spent"
    # Notes, not obstacles.
    DEAD_LETTER = "dead letter"
    TRANSFER_DEAD_LETTER = "transfer dead letter"
    IN_SESSION = "in session"
    LOCK_ENDED = "lock ended"
    LAST_DELIVERY = "last delivery"
    BEHIND = "behind others"
    NEXT = "next"


class MessageFacts(StateFacts, Protocol):
    """The columns that an explanation needs besides those of a display state."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def locked_by(self) -> str | None: ...
    @property
    def dead_letter_reason(self) -> str | None: ...
    @property
    def expires_by_default(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """The settings of an entity that affect the delivery of its messages."""

    kind: EntityKind = EntityKind.QUEUE
    status: EntityStatus = EntityStatus.ACTIVE
    requires_session: bool = False
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    dead_lettering_on_message_expiration: bool = False
    expiry_mode: ExpiryMode = ExpiryMode.EAGER
    transfers_to: str | None = None  # destination of a message in the transfer list


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The session of a message: its lock, and another message that expired the session (SB-037)."""

    session_id: str
    locked_until: datetime | None = None
    locked_by: str | None = None
    expired_number: int | None = None
    expired_at: datetime | None = None


def explain(
    message: MessageFacts,
    entity: EntityFacts,
    now: datetime,
    *,
    session: SessionFacts | None = None,
    place: QueuePosition = QueuePosition(),
) -> list[Reason]:
    """Every reason that affects the message at `now`, obstacles first, in the order in which a receive checks them.

    session: only in the main list of an entity that requires sessions. Without obstacles, a receive from the message's list may
    return it; with a session, only a receive by its holder.
    """
    reasons = [*_of_entity(message, entity), *_of_session(message, session, now), *obstacles(message, now, entity=entity)]
    notes = _notes(message, entity, now, session)
    if not any(reason.is_obstacle for reason in reasons):
        notes = [*notes, _place(message, session, place)]
    return [*reasons, *notes]


def why_not(message: MessageFacts, now: datetime) -> str | None:
    """One sentence on why the message itself cannot be received; None if it can."""
    return next((reason.text for reason in obstacles(message, now)), None)


def obstacles(message: MessageFacts, now: datetime, *, entity: EntityFacts = EntityFacts()) -> Iterator[Reason]:
    """The properties of the message itself that prevent a receive at `now` from returning it, most important first."""
    if message.state == MessageState.SCHEDULED:
        yield _scheduled(message.scheduled_enqueue_at, now, entity)
        return
    locked_until = lock_ends_at(message, now)
    locked = locked_until is not None
    if locked_until is not None:
        yield _locked(message, locked_until, now)
    if message.state == MessageState.DEFERRED:
        yield Reason(
            Code.DEFERRED, "Deferred: only a receive by sequence number returns it.", change="Receive it by its sequence number."
        )
    expired_at = message_expired_at(message, now)
    if expired_at is not None:
        yield _expired(message, expired_at, now, entity, locked)
    elif message.subqueue == SubQueue.MAIN and failures(message, now) >= message.max_delivery_count:
        yield _spent(message, now, locked)


# The entity and the session


def _of_entity(message: MessageFacts, entity: EntityFacts) -> Iterator[Reason]:
    if message.subqueue == SubQueue.TRANSFER:
        to = entity.transfers_to or "another entity"
        yield Reason(Code.TRANSFER, f"It is being forwarded to '{to}' and leaves with the next transfer.", {"to": to})
    if not entity.status.may_receive and entity.kind != EntityKind.TOPIC:
        yield Reason(
            Code.STATUS,
            f"Receives are disabled for this {entity.kind}.",
            {"status": str(entity.status)},
            change=f"Resume receiving on the page of the {entity.kind}.",
        )
    in_main = message.subqueue == SubQueue.MAIN
    goes_to = entity.forward_to if in_main else entity.forward_dead_lettered_messages_to
    if goes_to and message.subqueue in (SubQueue.MAIN, SubQueue.DEAD_LETTER):
        what, setting = ("Messages", "ForwardTo") if in_main else ("Dead letters", "ForwardDeadLetteredMessagesTo")
        yield Reason(
            Code.FORWARDED,
            f"{what} are forwarded to '{goes_to}' (SB-171); receive them there.",
            {"forward_to": goes_to},
            change=f"Receive from '{goes_to}', or clear {setting}.",
        )


def _of_session(message: MessageFacts, session: SessionFacts | None, now: datetime) -> Iterator[Reason]:
    if session is None or message.state == MessageState.SCHEDULED:
        return
    if session.locked_until is not None and session.locked_until > now:
        holder = actor_name(session.locked_by) if session.locked_by else "a receiver"
        yield Reason(
            Code.SESSION_LOCKED,
            f"Its session '{session.session_id}' is locked by {holder} for another {human(session.locked_until - now)}; "
            "only that receiver gets its messages (SB-114).",
            {"session_id": session.session_id, "locked_by": session.locked_by, "locked_until": session.locked_until},
            session.locked_until,
            "The holder closes the session, or its lock ends.",
        )
    elif session.expired_number is not None and not is_expired(message, now):
        yield Reason(
            Code.SESSION_EXPIRED,
            f"Message {session.expired_number} of its session '{session.session_id}' expired, "
            "which expired the whole session (SB-037).",
            {"session_id": session.session_id, "expired": session.expired_number, "expired_at": session.expired_at},
            change="To let messages expire separately, turn off expires_whole_sessions.",
        )


# The message


def _scheduled(at: datetime | None, now: datetime, entity: EntityFacts) -> Reason:
    values = {"scheduled_enqueue_at": at}
    next_step = "goes to the topic's subscriptions" if entity.kind == EntityKind.TOPIC else "goes to the end of the queue"
    if at is not None and at > now:
        text = f"Scheduled: due in {human(at - now)}."
        return Reason(
            Code.SCHEDULED, text, values, at, f"When due, it {next_step} with a new sequence number. It can be cancelled before."
        )
    text = "Due: the next receive or sweep enqueues it with a new sequence number."
    return Reason(Code.DUE, text, values, change=f"The next sweep or receive: it {next_step}.")


def _locked(message: MessageFacts, until: datetime, now: datetime) -> Reason:
    holder = f" by {actor_name(message.locked_by)}" if message.locked_by else ""
    return Reason(
        Code.LOCKED,
        f"Locked{holder} for another {human(until - now)}.",
        {"locked_by": message.locked_by, "locked_until": until},
        until,
        "If it is not settled by then, the delivery counts as failed.",
    )


def _expired(message: MessageFacts, at: datetime, now: datetime, entity: EntityFacts, locked: bool) -> Reason:
    ago, values = human(now - at), {"expires_at": at}
    fate = "moves to the dead-letter queue" if entity.dead_lettering_on_message_expiration else "is removed"
    if locked:
        text = f"It expired {ago} ago; its receiver can still settle it until the lock ends (SB-026)."
        return Reason(Code.EXPIRED, text, values, change=f"If it is not completed, it {fate} when the lock ends.")
    if message.state == MessageState.DEFERRED:
        text = f"It expired {ago} ago and can no longer be received (SB-036)."
        return Reason(Code.EXPIRED, text, values, change=f"On the next receive by its number it {fate}.")
    text = f"It expired {ago} ago and is removed by the next receive or sweep."
    on_activity = entity.expiry_mode is ExpiryMode.ON_ACTIVITY
    when = "At the next receive" if on_activity else "At the next receive or sweep"
    revives = (
        "A longer DefaultMessageTimeToLive makes it available again"
        if message.expires_by_default
        else "It cannot become available again"
    )
    return Reason(Code.EXPIRED, text, values, change=f"{when} it {fate}. {revives}.")


def _spent(message: MessageFacts, now: datetime, locked: bool) -> Reason:
    count = failures(message, now)
    values = {"delivery_count": count, "max_delivery_count": message.max_delivery_count}
    if locked:
        next_step = "unless it is settled, it moves to the dead-letter queue."
    elif message.state == MessageState.DEFERRED:
        next_step = "the next receive by its number moves it to the dead-letter queue."
    else:
        next_step = "the next receive or sweep moves it to the dead-letter queue."
    text = f"All {message.max_delivery_count} deliveries failed: {next_step}"
    return Reason(Code.SPENT, text, values, change="Raise MaxDeliveryCount, or resubmit it from the dead-letter queue.")


# Notes


def _notes(message: MessageFacts, entity: EntityFacts, now: datetime, session: SessionFacts | None) -> list[Reason]:
    notes: list[Reason] = []
    values: dict[str, Any]
    if message.subqueue == SubQueue.DEAD_LETTER:
        because = f" ({message.dead_letter_reason})" if message.dead_letter_reason else ""
        text = f"It is in the dead-letter queue{because}. It is received from there and never expires (SB-035)."
        values = {"dead_letter_reason": message.dead_letter_reason}
        notes.append(Reason(Code.DEAD_LETTER, text, values, change="Receive it from there, or resubmit it.", is_obstacle=False))
    if message.subqueue == SubQueue.TRANSFER_DEAD_LETTER:
        text = "It could not be forwarded and is in the transfer dead-letter queue. It is received from there."
        notes.append(Reason(Code.TRANSFER_DEAD_LETTER, text, change="Receive it from there.", is_obstacle=False))
    if session is not None:
        text = f"It belongs to the session '{session.session_id}'; accept the session to receive it (SB-110)."
        values = {"session_id": session.session_id}
        notes.append(Reason(Code.IN_SESSION, text, values, change="Accept the session.", is_obstacle=False))
    if message.state == MessageState.SCHEDULED or message.subqueue != SubQueue.MAIN:
        return notes
    locked = lock_ends_at(message, now) is not None
    if message.locked_until is not None and not locked:
        text = f"A lock on it expired {human(now - message.locked_until)} ago and counts as a failed delivery (SB-090)."
        values = {"locked_by": message.locked_by, "locked_until": message.locked_until}
        notes.append(Reason(Code.LOCK_ENDED, text, values, is_obstacle=False))
    if failures(message, now) == message.max_delivery_count - 1:
        text = f"One more failed delivery (of {message.max_delivery_count} allowed) dead-letters it (SB-091)."
        if locked:
            text = f"This is the last of {message.max_delivery_count} deliveries; if it fails, it is dead-lettered (SB-091)."
        values = {"delivery_count": failures(message, now), "max_delivery_count": message.max_delivery_count}
        notes.append(Reason(Code.LAST_DELIVERY, text, values, is_obstacle=False))
    return notes


def _place(message: MessageFacts, session: SessionFacts | None, place: QueuePosition) -> Reason:
    within = f" of the session '{session.session_id}'" if session else ""
    values = {"before": place.before, "capped": place.capped}
    if not place.before and place.capped:
        text = f"Many messages{within} that cannot be received now are ahead; other messages ahead were not counted."
        return Reason(Code.BEHIND, text, values, is_obstacle=False)
    if not place.before:
        text = f"Next in line{within}."
        return Reason(Code.NEXT, text, values, is_obstacle=False)
    count = f"{place.before:,}{' or more' if place.capped else ''}"
    noun = "message" if place.before == 1 and not place.capped else "messages"
    return Reason(Code.BEHIND, f"{count} {noun}{within} ahead.", values, is_obstacle=False)
