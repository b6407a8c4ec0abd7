"""Moving by an operator: messages of a list go to another queue or topic of the namespace, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, MessageState, Right
from broker_core.runtime.room import require_room
from broker_core.service_bus.rules.forwarding import Destination, quota_exceeded, why_not_forward
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .forwarding import store_until_full, wake_and_forward
from .shared import entity_id_of

Copies = dict[int, list[tuple[int, int]]]  # by old number: entity and new number, a topic's own; none for a dropped duplicate


@use_case
def move(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    to: str,
    *,
    states: Sequence[MessageState] = (MessageState.ACTIVE,),
    actor: Actor | None = None,
) -> Steps[tuple[Copies, dict[int, str]]]:
    """Move unlocked messages of a list to another queue or topic of the namespace, in one transaction, as new messages that
    record their origin. `states` says which messages of the list.

    Returns where each of them is now, and why others stayed. Messages that are locked or gone are in neither.
    Raises EntityNotFound for the destination, NotAllowed if it cannot be sent to, InvalidArgument if it is the same queue; for a
    topic, which may make several of one, NamespaceFull and StorageFull.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    return (yield Atomically(_move(address, sequence_numbers, to, states, actor)))


def _move(address: EntityAddress, numbers: Sequence[int], to: str, states: Sequence[MessageState], actor: Actor) -> Steps:
    entity_id = yield from entity_id_of(address)
    rows = yield call("lock_to_move", entity_id=entity_id, subqueue=address.subqueue, states=list(states), numbers=list(numbers))
    if not rows:
        return {}, {}
    target = yield from _target(address, rows[0].namespace_id, to)
    if target.kind == EntityKind.TOPIC:
        yield from require_room(address.namespace)
    into = Destination(target.path, EntityKind(target.kind), EntityStatus(target.status), target.requires_session, target.largest)
    refused = {row.sequence_number: why_not_forward(0, row.session_id, to, into, row.size) for row in rows}
    accepted = [row for row in rows if refused[row.sequence_number] is None]
    arrived, left = yield from store_until_full(entity_id, target, accepted, str(actor))
    copies: Copies = {}
    for part, stored in arrived:
        old = [row.sequence_number for row in part]
        yield call(
            "remove_moved",
            entity_id=entity_id,
            subqueue=address.subqueue,
            states=list(states),
            numbers=old,
            new_numbers=stored.numbers,
            to_id=target.id,
            to_path=target.path,
            actor=str(actor),
        )
        yield from wake_and_forward(stored)
        copies |= {a: [] if b is None else [(target.id, b)] for a, b in zip(old, stored.numbers, strict=True)}
    why = {number: refusal.description for number, refusal in refused.items() if refusal is not None}
    return copies, why | {row.sequence_number: quota_exceeded(to).description for row in left}


def _target(address: EntityAddress, namespace_id: int, to: str) -> Steps[Any]:
    rows = yield call("forward_target", namespace_id=namespace_id, path=to)
    if not rows:
        raise EntityNotFound(str(EntityAddress(address.namespace, to)))
    target = rows[0]
    if target.path.lower() == address.path.lower() and not address.subqueue:
        raise InvalidArgument("to", f"'{target.path}' is the queue that contains the messages; choose another one")
    if target.kind == EntityKind.SUBSCRIPTION:
        raise NotAllowed(f"'{target.path}' is a subscription, which only its topic sends to. Choose a queue or a topic.")
    return target
