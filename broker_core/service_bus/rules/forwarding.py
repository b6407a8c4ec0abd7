"""Decide whether a message can be forwarded (SB-170 to SB-178, SB-166). Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.common.types import EntityKind, EntityStatus, SubQueue

MAX_HOPS = 4


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


def quota_exceeded(path: str) -> CannotForward:
    """The failure for a full destination (SB-174)."""
    return CannotForward("QuotaExceededException", f"'{path}' has reached its size.")


def list_of_failures(source: SubQueue) -> SubQueue:
    """The list for messages that cannot be forwarded: the dead-letter queue (SB-174); for dead letters and messages sent via the
    entity by a transaction, its transfer dead-letter queue (SB-917)."""
    return SubQueue.DEAD_LETTER if source is SubQueue.MAIN else SubQueue.TRANSFER_DEAD_LETTER
