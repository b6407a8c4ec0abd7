"""The lanes of a RabbitMQ queue's board."""

from __future__ import annotations

from django.urls import reverse

from broker_core.common.types import Actor
from broker_core.rabbitmq.rules.display_state import DisplayState
from broker_core.reads import EXPIRED, EntityRow, MessageRow, Tab
from explorer.frames.actors import shown_actor
from explorer.frames.values import BoardPages, Lane

UNACKED = 10  # in MessageFilter.holds


class RabbitBoard(BoardPages):
    """How the board shows RabbitMQ queues."""

    boxes = "unacked"

    def lanes(self, entity: EntityRow, actor: Actor) -> list[Lane]:
        """The queue from its head, with expired messages that wait behind others (RMQ-013), and what is unacknowledged."""
        return [
            Lane(
                "ready", "ready", "active", "active", "from the head of the queue", "No ready messages.", Tab.ACTIVE,
                lambda e: max(0, e.counts.active - e.counts.locked),
                lambda row: row.display_state is not DisplayState.UNACKED, (0, EXPIRED),
            ),
            Lane(
                "unacked", "unacked", "locked", "locked", "delivered, not acknowledged", "No unacked messages.", Tab.ACTIVE,
                lambda e: e.counts.locked, lambda row: row.display_state is DisplayState.UNACKED, (UNACKED,),
                by=lambda row: shown_actor(row.locked_by) if row.locked_by else "unknown",
            ),
        ]  # fmt: skip

    def tries(self, row: MessageRow) -> tuple[int, str]:
        return row.delivery_count, f"returned {row.delivery_count}×" if row.delivery_count else ""

    def dead_letters(self, entity: EntityRow) -> tuple[str, str] | None:
        """The exchange that dead letters are published to, or the queue that the default exchange routes them to: without a
        routing key of the queue's, by the message's own (RMQ-062)."""
        exchange, vhost = entity.effective.get("dead_letter_exchange"), entity.address.namespace
        if exchange is None:
            return None
        if exchange:
            return exchange, reverse("explorer:rabbitmq_exchange", args=(vhost, exchange))
        key = entity.effective.get("dead_letter_routing_key")
        if key:
            return key, reverse("explorer:entity", args=(vhost, key))
        words = "the queue named by each message's routing key" if key is None else "no queue, because the routing key is empty"
        return words, reverse("explorer:rabbitmq_exchanges", args=(vhost,))
