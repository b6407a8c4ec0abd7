"""What a link or a request must know of an entity, for those who may send to it, receive from it or manage it.

A policy with Send alone may not browse, so that `get_entity` refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Right, SubQueue
from broker_core.store.driver import Steps
from broker_core.store.use_cases import use_case

from .kinds import Entity, from_row
from .rows import entity_row

_RIGHTS = (Right.SEND, Right.LISTEN, Right.MANAGE)


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """A queue, topic or subscription, or one of its sub-queues.

    address: with the path as it was created.
    requires_session: of its messages here; a dead-letter queue has no sessions (SB-102).
    max_message_bytes: of a message, or all of a batch, as AMQP encodes it (SB-007); None: nobody can send here (SB-013).
    lock_duration: of a peek-lock; None: nobody can receive here.
    forward_to: the path to which messages here are forwarded, so that nobody can receive them (SB-171).
    """

    entity_id: int
    address: EntityAddress
    kind: EntityKind
    status: EntityStatus
    requires_session: bool
    max_message_bytes: int | None
    lock_duration: timedelta | None
    forward_to: str | None

    @property
    def may_send(self) -> bool:
        return self.max_message_bytes is not None and self.status.may_send

    @property
    def may_receive(self) -> bool:
        return self.lock_duration is not None and self.forward_to is None and self.status.may_receive


@use_case
def get_link_target(address: EntityAddress, right: Right, *, actor: Actor | None = None) -> Steps[LinkTarget]:
    """The entity of this address, for an actor with this right: SEND, LISTEN or MANAGE. Raises EntityNotFound, NotAuthorized."""
    if right not in _RIGHTS:
        raise InvalidArgument("right", f"must be SEND, LISTEN or MANAGE, not {repr(right)[:40]}")
    (actor or Actor.local()).require(right, address)
    return _link_target(from_row((yield from entity_row(address))), address.subqueue)


def _link_target(entity: Entity, subqueue: SubQueue) -> LinkTarget:
    settings, is_main = entity.settings, subqueue is SubQueue.MAIN
    kilobytes = getattr(settings, "max_message_size_in_kilobytes", None) if is_main else None
    is_received_from = entity.kind is not EntityKind.TOPIC or subqueue is SubQueue.TRANSFER_DEAD_LETTER
    forwards = {SubQueue.MAIN: "forward_to", SubQueue.DEAD_LETTER: "forward_dead_lettered_messages_to"}
    return LinkTarget(
        entity_id=entity.id,
        address=replace(entity.address, subqueue=subqueue),
        kind=entity.kind,
        status=settings.status,
        requires_session=is_main and getattr(settings, "requires_session", False),
        max_message_bytes=None if kilobytes is None else kilobytes * 1024,
        lock_duration=getattr(settings, "lock_duration", timedelta(minutes=1)) if is_received_from else None,
        forward_to=getattr(settings, forwards[subqueue], None) if subqueue in forwards else None,
    )
