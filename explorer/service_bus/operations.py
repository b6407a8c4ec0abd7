"""Operations on many messages of Service Bus queues and subscriptions."""

from __future__ import annotations

from broker_core import service_bus
from broker_core.common.types import MessageState, SubQueue
from broker_core.operations import NOT_THERE, Batch, Outcome, Place, Skip
from broker_core.reads import Tab
from broker_core.store.driver import Steps
from explorer.shared.family import FamilyOperations


def _resubmit(batch: Batch) -> Steps:
    operation = batch.operation
    moved = yield from service_bus.resubmit.steps(
        operation.selection.address.dead_letter, batch.numbers, properties=operation.options.get("properties"), actor=batch.actor
    )
    return {old: [(operation.entity_id, new)] for old, new in moved.items()}, {}


def _move(batch: Batch) -> Steps:
    operation = batch.operation
    return (
        yield from service_bus.move.steps(
            operation.selection.address, batch.numbers, operation.options["to"], states=batch.place.states, actor=batch.actor
        )
    )


def _release(batch: Batch) -> Steps:
    released = yield from service_bus.release_locks.steps(
        batch.operation.selection.address.main, batch.numbers, actor=batch.actor
    )
    left = set(batch.numbers) - set(released)
    return Outcome(len(released), dict.fromkeys(left, Skip(f"not locked, or {NOT_THERE}")))


OPERATIONS = FamilyOperations(
    lists={
        str(Tab.ALL): Place(states=tuple(MessageState)),
        str(Tab.ACTIVE): Place(locked=False),
        str(Tab.LOCKED): Place(locked=True),
        str(Tab.DEFERRED): Place(states=(MessageState.DEFERRED,)),
        str(Tab.SCHEDULED): Place(states=(MessageState.SCHEDULED,)),
        str(Tab.DEAD_LETTER): Place(SubQueue.DEAD_LETTER),
        str(Tab.TRANSFER_DEAD_LETTER): Place(SubQueue.TRANSFER_DEAD_LETTER),
    },
    resubmit=_resubmit,
    move=_move,
    release=_release,
    releases=(str(Tab.LOCKED),),
    resubmits=lambda tab, _: tab == Tab.DEAD_LETTER,
    sets_properties=True,
    largest_body=100 * 1024 * 1024,
)
