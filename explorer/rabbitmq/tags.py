"""Template tags of the RabbitMQ pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from broker_core.rabbitmq.rules.deaths import BEFORE_MOVE, X_DEATH
from broker_core.reads import EntityRow
from explorer.rabbitmq.forms.keys import APPLY_TO
from explorer.templatetags.explorer import figure

from . import presenters
from .shared import exchange_slug

register = template.Library()
register.filter("exchange_slug", exchange_slug)


@register.simple_tag
def ready_of(queue: EntityRow) -> str:
    """The number of ready messages, including expired ones behind the head (RMQ-013)."""
    return figure(queue.counts.active - queue.counts.locked)


@register.filter
def policy_scope(apply_to: str) -> str:
    """A policy's apply-to, in words."""
    return APPLY_TO.get(apply_to, apply_to)


@register.filter
def deaths(headers: Mapping[str, Any]) -> list[presenters.Death]:
    """The deaths in the x-death header among a message's stored headers."""
    return presenters.deaths(headers.get(X_DEATH))


@register.filter
def deaths_before_move(headers: Mapping[str, Any]) -> list[presenters.Death]:
    """The deaths before an operator moved the message (RMQ-391)."""
    return presenters.deaths(headers.get(BEFORE_MOVE))
