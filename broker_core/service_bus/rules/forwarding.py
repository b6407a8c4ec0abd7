"""Decide whether a message can be forwarded (SB-170 to SB-178, SB-166). Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from broker_core.common.types import EntityKind, EntityStatus, SubQueue

MAX_HOPS = 4
_DROPPED = "Within the duplicate detection window, they are dropped there as duplicates (SB-133)."


@dataclass(frozen=True, slots=True)
class Destination:
    """The entity that a message is forwarded to."""

    path: str
    kind: EntityKind
    status: EntityStatus
    requires_session: bool
    largest: int  # message, in bytes


@dataclass(frozen=True, slots=True)
class CannotForward:
    """Why a message cannot be forwarded: its dead-letter reason and description."""

    reason: str
    description: str


def why_not_forward(
    hops: int, session_id: str | None, path: str, destination: Destination | None, size: int
) -> CannotForward | None:
    """Why a message cannot be forwarded to `path`; None if it can.

    hops: how often it was forwarded before; at most MAX_HOPS in all (SB-173). destination: None: no such entity. size: of the
    body.
    """
    if hops >= MAX_HOPS:
        return CannotForward("MaxTransferHopCountExceeded", f"The message was forwarded {hops} times; more are not allowed.")
    if destination is None:
        return CannotForward("MessagingEntityNotFoundException", f"The messaging entity '{path}' could not be found.")
    if not destination.status.may_send or destination.kind is EntityKind.TOPIC and destination.status is not EntityStatus.ACTIVE:
        return CannotForward("MessagingEntityDisabledException", f"'{destination.path}' is {destination.status}.")
    if destination.requires_session and session_id is None:
        return CannotForward(
            "Session ID is null.", "Session enabled entity doesn't allow a message whose session identifier is null."
        )
    if size > destination.largest:
        return CannotForward(
            "MessageSizeExceeded", f"The message has {size:,} bytes; '{destination.path}' takes at most {destination.largest:,}."
        )
    return None


@dataclass(frozen=True, slots=True)
class Loop:
    """A forward of an entity that leads back to it, or to a subscription's own topic (SB-176).

    hops: the fewest forwards until a message is back; 1: the destination is the entity itself, or the topic. drops: the entity,
    or the topic, detects duplicates.
    """

    to: str
    hops: int
    drops: bool


def forwarding_notes(
    kind: EntityKind, requires_session: bool, forward_to: str | None, loops: Mapping[str, Loop]
) -> Iterator[str]:
    """What an accepted forward does that its author may not expect, in sentences (SB-173, SB-175, SB-176).

    loops: the forwards that lead back, by the name of their setting.
    """
    if requires_session and forward_to is not None:
        yield f"No receiver can accept the sessions of this {kind} while its messages are forwarded (SB-171, SB-175)."
    if loop := loops.get("forward_to"):
        yield _loop_of_messages(kind, loop)
    if loop := loops.get("forward_dead_lettered_messages_to"):
        yield _loop_of_dead_letters(kind, loop)


def _loop_of_messages(kind: EntityKind, loop: Loop) -> str:
    if loop.drops:
        return f"{_way(kind, 'Messages', loop)}. {_DROPPED}"
    if kind is EntityKind.SUBSCRIPTION:
        return (
            f"{_way(kind, 'Messages', loop)}, which publishes them again to its subscriptions. "
            f"After {MAX_HOPS} forwards, they are dead-lettered (SB-173)."
        )
    return f"{_way(kind, 'Messages', loop)}. After {MAX_HOPS} forwards, they are dead-lettered (SB-173)."


def _loop_of_dead_letters(kind: EntityKind, loop: Loop) -> str:
    if loop.drops:
        return f"{_way(kind, 'Dead letters', loop)}. {_DROPPED}"
    again = ", which publishes them again to its subscriptions" if kind is EntityKind.SUBSCRIPTION else " and are delivered again"
    return (
        f"{_way(kind, 'Dead letters', loop)}{again}. "
        f"After {MAX_HOPS} forwards, they move to the transfer dead-letter queue (SB-173)."
    )


def _way(kind: EntityKind, what: str, loop: Loop) -> str:
    home = "the topic of this subscription" if kind is EntityKind.SUBSCRIPTION else f"this {kind}"
    if loop.hops > 1:
        return f"{what} that are forwarded to '{loop.to}' come back to {home}"
    return f"{what} are forwarded to {home}{'' if kind is EntityKind.SUBSCRIPTION else ' itself'}"


def quota_exceeded(path: str) -> CannotForward:
    """The failure for a full destination (SB-174)."""
    return CannotForward("QuotaExceededException", f"'{path}' has reached its size.")


def list_of_failures(source: SubQueue) -> SubQueue:
    """The list for messages that cannot be forwarded: the dead-letter queue (SB-174); for dead letters and messages sent via the
    entity by a transaction, its transfer dead-letter queue (SB-917)."""
    return SubQueue.DEAD_LETTER if source is SubQueue.MAIN else SubQueue.TRANSFER_DEAD_LETTER
