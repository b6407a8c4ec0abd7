"""Tags of Service Bus's templates."""

from __future__ import annotations

from django import template
from django.utils.html import format_html

from broker_core.service_bus.rules.filters import Rule

from . import presenters

register = template.Library()
register.filter("deliveries", presenters.deliveries)
register.filter("meaning", presenters.meaning)


@register.simple_tag
def rule_words(rule: Rule) -> str:
    """What a rule takes, and in short what it does to a copy."""
    takes, code = presenters.rule_takes(rule.filter)
    takes = format_html("<code>{}</code>", takes) if code else takes
    return format_html('{} <span class="quiet">then {}</span>', takes, rule.action.text) if rule.action else takes


@register.filter
def state_text(state: bytes) -> str:
    """A session's state in a list: its text, or its bytes where it is none."""
    return presenters.state_text(state)
