"""Operations on many messages of RabbitMQ queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core import rabbitmq
from broker_core.operations import Batch, Place
from broker_core.rabbitmq import Back, ToExchange, ToQueue
from broker_core.rabbitmq.messages.moving import Target
from broker_core.reads import EXPIRED
from broker_core.store.driver import Steps
from explorer.rabbitmq.forms.move import in_words
from explorer.shared.family import FamilyOperations

from .queue import UNACKED


def target_json(target: Target) -> dict[str, Any]:
    """A target as an operation stores it."""
    match target:
        case ToQueue(name):
            return {"queue": name}
        case ToExchange(exchange, key):
            return {"exchange": exchange, "routing_key": key}
        case Back(first):
            return {"back": "first" if first else "last"}


def read_target(stored: Mapping[str, Any]) -> Target:
    if "queue" in stored:
        return ToQueue(stored["queue"])
    if "exchange" in stored:
        return ToExchange(stored["exchange"], stored["routing_key"])
    return Back(first=stored.get("back") == "first")


def _to(batch: Batch, target: Target) -> Steps:
    return (yield from rabbitmq.move_numbers.steps(batch.operation.selection.address, target, batch.numbers, actor=batch.actor))


def _move(batch: Batch) -> Steps:
    return (yield from _to(batch, read_target(batch.operation.options["to"])))


OPERATIONS = FamilyOperations(
    lists={
        "messages": Place(),
        "ready": Place(holds=(0,)),
        "unacked": Place(holds=(UNACKED,)),
        "expired": Place(holds=(EXPIRED,)),
    },
    resubmit=lambda batch: _to(batch, Back()),
    move=_move,
    target=lambda name: target_json(ToQueue(name)),
    target_words=lambda stored: in_words(read_target(stored)),
    resubmits=lambda tab, _: tab in ("messages", "ready"),
    largest_body=128 * 1024 * 1024,
)
