"""How the programs of a load use a queue of Service Bus (explorer/lessons/load/)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from broker_core import reads, service_bus
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.lessons.load.programs import Words


class ServiceBusLoad:
    """See Client."""

    words = Words("failed", "locks lost", "dead-lettered", "a lock lasts {}: locks will be lost")
    is_portable, fills_up, has_dead_letters = True, False, True

    def send(self, queue: EntityAddress, bodies: Sequence[bytes], actor: Actor) -> None:
        service_bus.send(queue, [Message(body, content_type="application/json") for body in bodies], actor=actor)

    def receive(self, queue: EntityAddress, count: int, actor: Actor) -> list[str]:
        return [str(message.lock_token) for message in service_bus.receive(queue, count, actor=actor)]

    def complete(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        return not service_bus.complete(queue, [UUID(token)], actor=actor).lost

    def fail(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        failed = {"last_error": "The load's failure share"}
        return not service_bus.abandon(queue, [UUID(token)], failed, actor=actor).lost

    def leave(self, queue: EntityAddress, tokens: Sequence[str], actor: Actor) -> None:
        if tokens:
            service_bus.release(queue, [UUID(token) for token in tokens], actor=actor)

    def lock(self, queue: EntityAddress, actor: Actor) -> timedelta | None:
        return entities.get_queue(queue, actor=actor).settings.lock_duration

    def dead(self, queue: EntityAddress) -> int:
        return reads.counts(queue).dead_letter
