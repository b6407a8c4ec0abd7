"""The life of a message in one table: what an operation makes of a message in a state, and the event that records it.

The statements in sql/ make these changes. tests/service_bus/test_life.py carries out each line on a real queue, and holds that
the statements write no event without a line. The diagram in docs/understanding.md is drawn from this table. A topic publishes
its messages to subscriptions (SB-210), whose copies live as here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from broker_core.common.types import EventKind


class State(StrEnum):
    """Where a message is in its life. A deferred message that is received by number is locked, and stays deferred (SB-084)."""

    NONE = "not sent"
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    LOCKED = "locked"
    DEFERRED = "deferred"
    DEFERRED_LOCKED = "deferred, locked"
    DEAD_LETTERED = "dead-lettered"
    DEAD_LETTER_LOCKED = "dead-lettered, locked"
    REMOVED = "removed"


class Transition(NamedTuple):
    """What `operation` makes of a message in `before`. event: its last one then. rule: that says so, or a decision of
    docs/design.md."""

    before: State
    operation: str
    event: EventKind
    after: State
    rule: str


LIFE = tuple(
    Transition(*line)
    for line in (
        (State.NONE, "send", EventKind.SENT, State.ACTIVE, "SB-001"),
        (State.NONE, "send with a scheduled time", EventKind.SCHEDULED, State.SCHEDULED, "SB-045"),
        (State.SCHEDULED, "scheduled time is reached", EventKind.ACTIVATED, State.ACTIVE, "SB-047"),
        (State.SCHEDULED, "edit", EventKind.EDITED, State.SCHEDULED, "SB-079"),
        (State.SCHEDULED, "cancel", EventKind.CANCELLED, State.REMOVED, "SB-045"),
        (State.SCHEDULED, "purge", EventKind.PURGED, State.REMOVED, "SB-151"),
        (State.ACTIVE, "send a duplicate", EventKind.DUPLICATE_DROPPED, State.ACTIVE, "SB-131"),
        (State.ACTIVE, "edit", EventKind.EDITED, State.ACTIVE, "SB-079"),
        (State.ACTIVE, "receive (peek-lock)", EventKind.RECEIVED, State.LOCKED, "SB-061"),
        (State.ACTIVE, "receive and delete", EventKind.RECEIVED_AND_DELETED, State.REMOVED, "SB-060"),
        (State.ACTIVE, "expire", EventKind.EXPIRED, State.REMOVED, "SB-034"),
        (State.ACTIVE, "expire with dead-lettering", EventKind.DEAD_LETTERED, State.DEAD_LETTERED, "SB-033"),
        (State.ACTIVE, "dead-letter by an operator", EventKind.DEAD_LETTERED, State.DEAD_LETTERED, "SB-078"),
        (State.ACTIVE, "forward", EventKind.FORWARDED, State.REMOVED, "SB-170"),
        (State.ACTIVE, "move by an operator", EventKind.MOVED, State.REMOVED, "D18"),
        (State.ACTIVE, "purge", EventKind.PURGED, State.REMOVED, "SB-150"),
        (State.ACTIVE, "delete the entity", EventKind.DELETED, State.REMOVED, "SB-076"),
        (State.LOCKED, "renew", EventKind.RENEWED, State.LOCKED, "SB-064"),
        (State.LOCKED, "complete", EventKind.COMPLETED, State.REMOVED, "SB-080"),
        (State.LOCKED, "abandon", EventKind.ABANDONED, State.ACTIVE, "SB-081"),
        (State.LOCKED, "abandon the last delivery", EventKind.DEAD_LETTERED, State.DEAD_LETTERED, "SB-091"),
        (State.LOCKED, "release", EventKind.RELEASED, State.ACTIVE, "SB-926"),
        (State.LOCKED, "lock expires", EventKind.LOCK_LOST, State.ACTIVE, "SB-090"),
        (State.LOCKED, "release by an operator", EventKind.LOCK_LOST, State.ACTIVE, "SB-077"),
        (State.LOCKED, "defer", EventKind.DEFERRED, State.DEFERRED, "SB-083"),
        (State.LOCKED, "dead-letter", EventKind.DEAD_LETTERED, State.DEAD_LETTERED, "SB-082"),
        (State.LOCKED, "settle with another lock", EventKind.SETTLE_REFUSED, State.LOCKED, "SB-087"),
        (State.DEFERRED, "receive by number", EventKind.RECEIVED, State.DEFERRED_LOCKED, "SB-084"),
        (State.DEFERRED, "edit", EventKind.EDITED, State.DEFERRED, "SB-079"),
        (State.DEFERRED, "dead-letter by an operator", EventKind.DEAD_LETTERED, State.DEAD_LETTERED, "SB-078"),
        (State.DEFERRED, "purge", EventKind.PURGED, State.REMOVED, "SB-151"),
        (State.DEFERRED_LOCKED, "abandon", EventKind.ABANDONED, State.DEFERRED, "SB-084"),
        (State.DEFERRED_LOCKED, "complete", EventKind.COMPLETED, State.REMOVED, "SB-080"),
        (State.DEAD_LETTERED, "receive (peek-lock)", EventKind.RECEIVED, State.DEAD_LETTER_LOCKED, "SB-101"),
        (State.DEAD_LETTERED, "receive and delete", EventKind.RECEIVED_AND_DELETED, State.REMOVED, "SB-101"),
        (State.DEAD_LETTERED, "resubmit", EventKind.RESUBMITTED, State.REMOVED, "SB-105"),
        (State.DEAD_LETTERED, "purge", EventKind.PURGED, State.REMOVED, "SB-150"),
        (State.DEAD_LETTER_LOCKED, "abandon", EventKind.ABANDONED, State.DEAD_LETTERED, "SB-089"),
        (State.DEAD_LETTER_LOCKED, "complete", EventKind.COMPLETED, State.REMOVED, "SB-080"),
    )
)
