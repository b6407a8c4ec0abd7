"""How the programs of a load use a queue of RabbitMQ (explorer/lessons/load/)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from broker_core import rabbitmq, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.connections.channels import Channel
from broker_core.rabbitmq.connections.connections import Connection
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from explorer.lessons.load.programs import Words

FAILED = "failed"  # the queue that rejected messages are dead-lettered to


class RabbitMQLoad:
    """See Client. Each receiver consumes over a connection of its own, which ends with the slice. A token is a delivery tag."""

    words = Words("rejected", "deliveries lost", f"in {FAILED}", "")
    is_portable, fills_up, has_dead_letters = False, True, False

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}  # by the receiver's name
        self._channels: dict[str, Channel] = {}

    def send(self, queue: EntityAddress, bodies: Sequence[bytes], actor: Actor) -> None:
        properties = Properties(content_type="application/json")
        rabbitmq.publish(queue.namespace, [Publication(body, "", queue.path, properties) for body in bodies], actor=actor)

    def receive(self, queue: EntityAddress, count: int, actor: Actor) -> list[str]:
        channel = self._open_channel(actor)
        if channel is None:
            self.leave(queue, (), actor)
            channel = self._consume(queue, count, actor)
        prefetch = len(channel.unacked) + count
        if channel.prefetch_of_all != prefetch:
            channel.qos(prefetch, global_=True)
        return [str(delivery.delivery_tag) for delivery in channel.deliveries(count)]

    def complete(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        if channel := self._open_channel(actor):
            channel.ack(int(token))
        return channel is not None

    def fail(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        if channel := self._open_channel(actor):
            channel.reject(int(token), requeue=False)
        return channel is not None

    def leave(self, queue: EntityAddress, tokens: Sequence[str], actor: Actor) -> None:
        self._channels.pop(actor.name, None)
        if (connection := self._connections.pop(actor.name, None)) is not None:
            connection.close()

    def lock(self, queue: EntityAddress, actor: Actor) -> timedelta | None:
        return None

    def dead(self, queue: EntityAddress) -> int:
        with suppress(EntityNotFound):
            return reads.counts(EntityAddress(queue.namespace, FAILED)).total
        return 0

    def _consume(self, queue: EntityAddress, count: int, actor: Actor) -> Channel:
        connection = self._connections[actor.name] = rabbitmq.connect(queue.namespace, actor.name, actor=actor)
        channel = self._channels[actor.name] = connection.channel()
        channel.qos(count, global_=True)
        channel.consume(queue.path, tag=actor.name)
        return channel

    def _open_channel(self, actor: Actor) -> Channel | None:
        channel = self._channels.get(actor.name)
        return channel if channel is not None and channel.is_open else None
