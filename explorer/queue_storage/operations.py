"""Operations on many messages of storage queues."""

from __future__ import annotations

from broker_core import queue_storage
from broker_core.operations import NOT_THERE, Batch, Outcome, Place, Skip
from broker_core.queue_storage.rules.limits import TEXT_BYTES
from broker_core.store.driver import Steps
from explorer.shared.family import FamilyOperations

from .lists import LISTS


def _resubmit(batch: Batch) -> Steps:
    return (yield from queue_storage.move.steps(batch.operation.selection.address, batch.numbers, actor=batch.actor))


def _move(batch: Batch) -> Steps:
    operation = batch.operation
    return (
        yield from queue_storage.move.steps(
            operation.selection.address, batch.numbers, operation.options["to"], actor=batch.actor
        )
    )


def _release(batch: Batch) -> Steps:
    released = yield from queue_storage.release.steps(batch.operation.selection.address, batch.numbers, actor=batch.actor)
    left = set(batch.numbers) - set(released)
    return Outcome(len(released), dict.fromkeys(left, Skip(f"already visible, or {NOT_THERE}")))


OPERATIONS = FamilyOperations(
    lists={one.slug: Place(holds=one.holds) for one in LISTS},
    resubmit=_resubmit,
    move=_move,
    release=_release,
    releases=("all", "leased", "delayed"),
    resubmits=lambda _, entity: entity.waits_for_operator,
    hides_held=True,
    largest_body=TEXT_BYTES,
)
