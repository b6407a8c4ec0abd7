"""Why a message is or is not to be had now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.arguments import whole_numbers
from broker_core.common.explanations import QueuePosition, is_deliverable
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.options import from_json, poison_of
from broker_core.reads.messages import Explanation, message_row
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .rules import explaining
from .shared import authorize, queue_exists, run_on_queue

PLACE_CAP = 1_000


@use_case
def explain(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> Steps:
    """Every reason that affects a message's delivery, with the instant that ends it, as an Explanation; None: no such message.

    All facts are read in one snapshot. Raises QueueNotFound.
    """
    authorize(actor, Right.BROWSE, address)
    (number,) = whole_numbers([sequence_number])

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_explain", entity_id=queue.id, number=number, place_cap=PLACE_CAP)
        if not rows and not (yield from queue_exists(queue.id)):
            return None
        return [_explanation(row) for row in rows]

    return next(iter((yield from run_on_queue(address, attempt))), None)


@dataclass(frozen=True, slots=True)
class CameFrom:
    """The origin of a message that was moved from another queue (QS-109).

    reason: names.SPENT or names.REQUEUED. dequeue_count and max_dequeue_count: as they were there; None: not known, or no limit.
    at: when it was moved, by the account's clock. times: how often it has been moved in all.
    """

    address: EntityAddress
    sequence_number: int
    reason: str | None
    dequeue_count: int | None
    max_dequeue_count: int | None
    at: datetime | None
    times: int

    @classmethod
    def of(cls, account: str, stored: Mapping[str, Any]) -> CameFrom:
        """Read the origin stored with a message or with its `sent` event."""
        at = stored.get("at")
        return cls(
            EntityAddress(account, stored["path"]), stored["sequence_number"], stored.get("reason"), stored.get("dequeue_count"),
            stored.get("max_dequeue_count"), datetime.fromisoformat(at) if at else None, stored.get("times") or 1,
        )  # fmt: skip


@use_case
def came_from(address: EntityAddress, sequence_numbers: Iterable[int], *, actor: Actor | None = None) -> Steps:
    """CameFrom by sequence number, for those of the messages that were moved here. Raises QueueNotFound."""
    authorize(actor, Right.BROWSE, address)
    numbers = whole_numbers(sequence_numbers)

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_origins", entity_id=queue.id, numbers=numbers)
        if not rows and not (yield from queue_exists(queue.id)):
            return None
        return rows

    rows = yield from run_on_queue(address, attempt)
    return {row.sequence_number: CameFrom.of(address.namespace, row.resubmitted_from) for row in rows if row.resubmitted_from}


def queue_facts(path: str, options: Mapping[str, Any]) -> explaining.QueueFacts:
    """The stored options that affect a queue's messages."""
    queue_options = from_json(options)
    poison = poison_of(path, queue_options)
    return explaining.QueueFacts(
        queue_options.max_dequeue_count, None if poison is None else poison.queue, queue_options.expiry_grace
    )


def _explanation(row: Any) -> Explanation:
    message = message_row(row)
    place = QueuePosition(min(row.before, PLACE_CAP), row.before > PLACE_CAP)
    reasons = explaining.explain(message, queue_facts(row.path, row.options), row.now, place=place)
    return Explanation(message, tuple(reasons), is_deliverable(reasons), row.now)
