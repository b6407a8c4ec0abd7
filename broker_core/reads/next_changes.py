"""What the clock alone changes next in an entity: for whoever steps a namespace's clock from one event to the next."""

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

LOOKED_AT = 1_000  # messages, or locks, among which the next change is looked for where no index names it


class Change(StrEnum):
    """What happens at an instant, in the words of the statement that finds it."""

    LOCK = "lock"  # a lock ends
    SESSION = "session"  # the lock of a session ends
    DUE = "due"  # a scheduled message is active
    VISIBLE = "visible"  # a message of a storage queue is visible
    LIFE = "life"  # a message expires
    REMOVAL = "removal"  # an expired message of a storage queue is no longer shown
    UNACKNOWLEDGED = "unacknowledged"  # a delivery was held too long: its channel is closed
    QUEUE = "queue"  # the queue itself expires


@dataclass(frozen=True, slots=True)
class NextChange:
    """What happens at `at` of the namespace's clock. sequence_number: of the message; None: it is about none, or several."""

    what: Change
    at: datetime
    sequence_number: int | None


@use_case
def next_change(address: EntityAddress, *, actor: Actor | None = None) -> Steps[NextChange | None]:
    """What happens in an entity next if nobody does anything; None: nothing waits for an instant. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    default_timeout = next((found.delivery_timeout_ms for found in installed() if found.delivery_timeout_ms), None)
    rows = yield call("next_change", entity_id=entity_id, cap=LOOKED_AT, default_timeout=default_timeout)
    return NextChange(Change(rows[0].what), rows[0].at, rows[0].number) if rows else None
