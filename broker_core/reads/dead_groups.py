"""Groups of messages for bulk resubmission: dead letters of Service Bus by reason, poison messages of Queue Storage by reason and
origin.

Their numbers are arguments of `service_bus.resubmit` and `queue_storage.requeue_poison`. For RabbitMQ, where dead letters of one
queue may have different destinations, `rabbitmq.preview_move` returns the groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import entity_id_of, require

SCAN_CAP = 10_000


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Messages that are in a list for the same reason.

    origin:  the queue of the account from which they were moved; None: unknown, or they were put here.
    reason:  None: none was given. numbers: of those that can be resubmitted, in order. held: how many others are locked.
    """

    origin: str | None
    reason: str | None
    numbers: tuple[int, ...]
    held: int


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups, the largest first. scanned: number of messages examined; capped: there may be more."""

    groups: tuple[DeadLetterGroup, ...]
    scanned: int
    capped: bool


@use_case
def groups(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Groups]:
    """The groups among the SCAN_CAP oldest messages of a dead-letter queue or a storage queue. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    name = "dead_letter_groups" if address.subqueue is SubQueue.DEAD_LETTER else "storage_groups"
    rows = yield call(name, entity_id=(yield from entity_id_of(address)), scan_cap=SCAN_CAP)
    scanned = rows[0].scanned if rows else 0
    found = tuple(DeadLetterGroup(row.origin, row.reason, tuple(row.numbers), row.held) for row in rows)
    return Groups(found, scanned, scanned >= SCAN_CAP)
