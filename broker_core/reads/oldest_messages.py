"""The oldest message of each state in an entity, which shows where messages are stuck."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import entity_id_of, require

EXAMINED = 1_000  # messages, or locks, examined for a state


class StoredState(StrEnum):
    """A state of messages in an entity, as in the statement `read_oldest_messages`.

    ACTIVE:    they can be received: active, visible or ready. In a Service Bus entity also expired ones not yet removed.
    LOCKED:    locked, leased or unacknowledged.
    SCHEDULED: scheduled, or delayed in a storage queue.
    """

    ACTIVE = "active"
    LOCKED = "locked"
    SCHEDULED = "scheduled"
    DEFERRED = "deferred"
    EXPIRED = "expired"
    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message in a state.

    at: when it was enqueued, if it is active or deferred; when it was received, if it is locked; when it expired, or was
    dead-lettered; of scheduled messages, when the next one is due. By the namespace's clock.
    """

    state: StoredState
    sequence_number: int
    at: datetime


@use_case
def oldest_messages(address: EntityAddress, *, actor: Actor | None = None) -> Steps[list[OldestMessage]]:
    """The oldest message of each state that an entity's messages have, in the order of StoredState.

    A state takes one index probe, or the first EXAMINED messages of its list or locks of the entity are examined; a state of none
    of these is left out. Raises EntityNotFound.
    """
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    rows = yield call("read_oldest_messages", entity_ids=[entity_id], cap=EXAMINED)
    found = {row.state: OldestMessage(StoredState(row.state), row.number, row.at) for row in rows}
    return [found[state] for state in StoredState if state in found]
