"""The next changes in an entity caused by the clock alone, for stepping a namespace's clock from event to event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker_core.common.arguments import require_count
from broker_core.common.family import installed
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import PAGE_ROWS, entity_id_of, require

SCAN_CAP = 1_000  # messages, or locks, examined for changes that no index covers


class Change(StrEnum):
    """The kind of a change, as in the statement `next_changes`."""

    LOCK = "lock"  # a lock ends
    SESSION = "session"  # the lock of a session ends
    DUE = "due"  # a scheduled message becomes active
    VISIBLE = "visible"  # a message of a storage queue becomes visible
    LIFE = "life"  # a message expires
    REMOVAL = "removal"  # an expired message of a storage queue is removed
    UNACKNOWLEDGED = "unacknowledged"  # a delivery times out: its channel is closed
    QUEUE = "queue"  # the queue itself expires
    IDLE = "idle"  # the entity is deleted for being idle


@dataclass(frozen=True, slots=True)
class NextChange:
    """A change at `at` of the namespace's clock. sequence_number: of the message; None: none or several are affected."""

    what: Change
    at: datetime
    sequence_number: int | None


@use_case
def next_change(address: EntityAddress, *, actor: Actor | None = None) -> Steps[NextChange | None]:
    """The next change in an entity without further operations; None: there is none. Raises EntityNotFound."""
    changes = yield from next_changes.steps(address, limit=1, actor=actor)
    return changes[0] if changes else None


@use_case
def next_changes(address: EntityAddress, *, limit: int = PAGE_ROWS, actor: Actor | None = None) -> Steps[list[NextChange]]:
    """The next changes in an entity without further operations, in order; what follows from one of them is not included. Raises
    EntityNotFound."""
    require(actor, Right.BROWSE, address)
    require_count("limit", limit)
    entity_id = yield from entity_id_of(address)
    default_timeout = next((definition.delivery_timeout_ms for definition in installed() if definition.delivery_timeout_ms), None)
    rows = yield call("next_changes", entity_id=entity_id, cap=SCAN_CAP, default_timeout=default_timeout, max_count=limit)
    return [NextChange(Change(row.what), row.at, row.number) for row in rows]
