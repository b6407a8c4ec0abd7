"""Groups of messages for bulk resubmission: dead letters of Service Bus by reason, poison messages of Queue Storage by reason and
origin.

Their numbers are arguments of `service_bus.resubmit` and `queue_storage.requeue_poison`. For RabbitMQ, where dead letters of one
queue may have different destinations, `rabbitmq.preview_move` returns the groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.common.errors import NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.runtime.entity_cache import row_of
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import require

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
    """The groups among the SCAN_CAP oldest messages of a dead-letter queue or a storage queue. Raises EntityNotFound; NotAllowed
    for an entity of a family without them."""
    require(actor, Right.BROWSE, address)
    entity = yield from row_of(address)
    family = definition_of(entity.family)
    if not family.groups:
        raise NotAllowed(f"'{address}' is a {family.queue_noun}, whose messages are not resubmitted in groups.")
    rows = yield call(family.groups, entity_id=entity.id, scan_cap=SCAN_CAP)
    scanned = rows[0].scanned if rows else 0
    found = tuple(DeadLetterGroup(row.origin, row.reason, tuple(row.numbers), row.held) for row in rows)
    return Groups(found, scanned, scanned >= SCAN_CAP)
