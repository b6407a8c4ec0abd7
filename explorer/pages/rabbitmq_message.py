"""What the message's page has of its own for RabbitMQ: why a message is not delivered. Looking changes nothing (RMQ-906)."""

from __future__ import annotations

from django.http import HttpRequest

from broker_core.rabbitmq import browsing
from broker_core.reads import Explanation, MessageDetail
from broker_core.semantics.types import Actor, EntityAddress
from explorer.pages.actions import Action
from explorer.pages.shell import Act


def actions(detail: MessageDetail, actor: Actor) -> list[Action]:
    """Nothing is done to one message alone: RabbitMQ's get takes what is at the head."""
    return []


def carry_out(request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
    return None


def explain(address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
    return browsing.explain(address, number, actor=actor)
