"""Tags of RabbitMQ's pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from broker_core.common.types import Actor
from broker_core.rabbitmq.rules.deaths import BEFORE_MOVE, X_DEATH
from broker_core.reads import EntityRow
from explorer.rabbitmq.forms.keys import APPLY_TO
from explorer.templatetags.explorer import figure

from . import manual_consumers, presenters
from .shared import exchange_slug

register = template.Library()
register.filter("exchange_slug", exchange_slug)


@register.simple_tag
def ready_of(queue: EntityRow) -> str:
    """How many of a queue's messages nobody holds, expired ones that wait for the head included (RMQ-013)."""
    return figure(queue.counts.active - queue.counts.locked)


@register.filter
def icon_of(destination_type: str) -> str:
    """The icon of a queue or an exchange."""
    return "queue" if destination_type == "queue" else "topic"


@register.filter
def is_hand_of(holder: str | None, actor: Actor) -> bool:
    """Whether who holds a message is the connection that this person has in the explorer."""
    return holder == manual_consumers.name_for(actor)


@register.filter
def policy_scope(apply_to: str) -> str:
    """What a policy's apply-to means, in words."""
    return APPLY_TO.get(apply_to, apply_to)


@register.filter
def deaths(headers: Mapping[str, Any]) -> list[presenters.Death]:
    """What the header x-death of a message tells, among its headers as stored."""
    return presenters.deaths(headers.get(X_DEATH))


@register.filter
def deaths_before_move(headers: Mapping[str, Any]) -> list[presenters.Death]:
    """Those that were set aside when an operator moved the message (RMQ-391)."""
    return presenters.deaths(headers.get(BEFORE_MOVE))
