"""The next change in an entity caused by the clock alone, for stepping a namespace's clock from event to event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker_core.common.family import installed
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import entity_id_of, require

SCAN_CAP = 1_000  # messages, or locks, examined for changes that no index covers


class Change(StrEnum):
    """The kind of a change, as in the statement `next_change`."""

    LOCK = "lock"  # a lock ends
    SESSION = "session"  # the lock of a session ends
    DUE = "due"  # a scheduled message becomes active
    VISIBLE = "visible"  # a message of a storage queue becomes visible
    LIFE = "life"  # a message expires
    REMOVAL = "removal"  # an expired message of a storage queue is removed
    UNACKNOWLEDGED = "unacknowledged"  # a delivery times out: its channel is closed
    QUEUE = "queue"  # the queue itself expires


@dataclass(frozen=True, slots=True)
class NextChange:
    """A change at `at` of the namespace's clock. sequence_number: of the message; None: none or several are affected."""

    what: Change
    at: datetime
    sequence_number: int | None


@use_case
def next_change(address: EntityAddress, *, actor: Actor | None = None) -> Steps[NextChange | None]:
    """The next change in an entity if nobody acts; None: there is none. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    default_timeout = next((found.delivery_timeout_ms for found in installed() if found.delivery_timeout_ms), None)
    rows = yield call("next_change", entity_id=entity_id, cap=SCAN_CAP, default_timeout=default_timeout)
    return NextChange(Change(rows[0].what), rows[0].at, rows[0].number) if rows else None
