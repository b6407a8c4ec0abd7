"""Why a message is or is not to be had now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.broker.shared import Known, whole_numbers
from broker_core.reads.messages import Explanation, message_row
from broker_core.semantics.explaining import Place, is_deliverable
from broker_core.semantics.queue_storage import explaining
from broker_core.semantics.queue_storage.options import from_json, poison_of
from broker_core.semantics.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps, use_case
from broker_core.store.statements import call

from .shared import may, on_queue, there

PLACE_CAP = 1_000


@use_case
def explain(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> Steps:
    """Every reason that bears on a message, each with the instant that ends it, as an Explanation; None: it is gone.

    All facts are read in one snapshot. Raises QueueNotFound.
    """
    may(actor, Right.BROWSE, address)
    (number,) = whole_numbers([sequence_number])

    def attempt(queue: Known) -> Steps:
        rows = yield call("storage_explain", entity_id=queue.id, number=number, place_cap=PLACE_CAP)
        if not rows and not (yield from there(queue.id)):
            return None
        return [_explanation(row) for row in rows]

    return next(iter((yield from on_queue(address, attempt))), None)


def queue_facts(path: str, options: Mapping[str, Any]) -> explaining.QueueFacts:
    """What of a queue's stored options bears on its messages."""
    found = from_json(options)
    poison = poison_of(path, found)
    return explaining.QueueFacts(found.max_dequeue_count, None if poison is None else poison.queue, found.expiry_grace)


def _explanation(row: Any) -> Explanation:
    message = message_row(row)
    place = Place(min(row.before, PLACE_CAP), row.before > PLACE_CAP)
    reasons = explaining.explain(message, queue_facts(row.path, row.options), row.now, place=place)
    return Explanation(message, tuple(reasons), is_deliverable(reasons), row.now)
