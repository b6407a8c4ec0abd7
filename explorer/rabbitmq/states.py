"""Presents the states, counts and events of RabbitMQ queues and messages. Pure."""

from __future__ import annotations

from broker_core.common.types import EventKind
from broker_core.rabbitmq.rules.deaths import MOVED
from broker_core.rabbitmq.rules.display_state import DisplayState
from broker_core.reads import Counted, EntityRow, MessageRow
from explorer.frames.family import CommonCounts, EventTexts
from explorer.frames.figures import DEAD
from explorer.frames.values import Badge, Figure

_BADGES = {
    DisplayState.READY: Badge("ready", "active", "active"),
    DisplayState.UNACKED: Badge("unacked", "locked", "locked"),
    DisplayState.EXPIRED: Badge("expired, behind the head", "expired", "expired"),
}
_TAGS = (
    ("quorum", "A quorum queue", lambda options: options.get("type") == "quorum"),
    (
        "exclusive",
        "Usable only by its connection, and deleted with it",
        lambda options: options.get("exclusive"),
    ),
    ("auto-delete", "Deleted with its last consumer", lambda options: options.get("auto_delete")),
    ("transient", "Not durable", lambda options: options.get("durable") is False),
)
FIGURES = (
    Figure("ready", "Ready", "Waiting for a consumer, including expired messages behind others",
           lambda e: e.counts.active - e.counts.locked, word="ready"),
    Figure("unacked", "Unacked", "Delivered and not acknowledged", lambda e: e.counts.locked, word="unacked"),
    Figure("expired", "Expired, waiting", "Expired; removed when they reach the head of the queue",
           lambda e: e.expired_pending.value, "num narrow-hide", "expired"),
    Figure("total", "Total", "Ready and unacked", lambda e: e.counts.active, "num opt", word="total"),
    DEAD,
)  # fmt: skip
EVENTS = EventTexts(
    words={
        EventKind.SENT: "published", EventKind.RECEIVED: "delivered", EventKind.COMPLETED: "acknowledged",
        EventKind.ABANDONED: "requeued", EventKind.RELEASED: "requeued", EventKind.LOCK_LOST: "requeued",
        EventKind.MOVED: "dead-lettered", EventKind.RECEIVED_AND_DELETED: "delivered, no ack",
    },
    sentences={
        EventKind.SENT: "Published",
        EventKind.RECEIVED: "Delivered, awaiting acknowledgement",
        EventKind.COMPLETED: "Acknowledged",
        EventKind.ABANDONED: "Requeued at its original position",
        EventKind.RELEASED: "Requeued at its original position; delivery count unchanged",
        EventKind.LOCK_LOST: "Requeued: its connection or channel was closed",
        EventKind.EXPIRED: "Expired at the head and dropped",
        EventKind.MOVED: "Dead-lettered",
        EventKind.RECEIVED_AND_DELETED: "Delivered without acknowledgement",
    },
    gaps={
        EventKind.SENT: "was ready for {0}",
        EventKind.RECEIVED: "unacked for {0}",
        EventKind.ABANDONED: "was ready for {0}",
        EventKind.RELEASED: "was ready for {0}",
        EventKind.LOCK_LOST: "was ready for {0}",
        EventKind.EDITED: "was ready for {0}",
    },
    count="returns",
    moved_by_operator=MOVED,
)  # fmt: skip


class RabbitCounts(CommonCounts):
    """Counts of RabbitMQ queues. The messages of a dead-letter queue without a consumer are its dead letters."""

    def locked(self, entity: Counted) -> int:
        return entity.counts.locked

    def dead(self, entity: Counted) -> int | None:
        return entity.counts.active if entity.waits_for_operator else None


def badge(row: MessageRow) -> Badge:
    return _BADGES[row.display_state]


def tags(queue: EntityRow) -> list[tuple[str, str]]:
    """The tags of a queue in a list, each with its meaning."""
    return [(word, meaning) for word, meaning, holds in _TAGS if holds(queue.options)]
