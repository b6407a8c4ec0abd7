"""Template tags of the Service Bus pages."""

from __future__ import annotations

from django import template
from django.utils.html import format_html

from broker_core.reads.filters import exactly
from broker_core.service_bus.rules.filters import Filter, Rule

from . import presenters
from .amqp_fields import amqp_fields

register = template.Library()
register.filter("deliveries", presenters.deliveries)
register.filter("meaning", presenters.meaning)
register.filter("amqp_fields", amqp_fields)
register.filter("session_filter", lambda session_id: exactly("session", session_id))


@register.simple_tag
def filter_words(filter: Filter) -> str:
    """The messages that a filter matches; an expression as code."""
    text, is_code = presenters.filter_text(filter)
    return format_html("<code>{}</code>", text) if is_code else text


@register.simple_tag
def rule_words(rule: Rule) -> str:
    """The filter of a rule, and its action if it has one."""
    text = filter_words(rule.filter)
    return format_html('{} <span class="quiet">then {}</span>', text, rule.action.text) if rule.action else text


@register.filter
def state_text(state: bytes) -> str:
    """A session's state in a list: as text, or as bytes if it is not printable."""
    return presenters.state_text(state)
