"""Template tags of Administration."""

from __future__ import annotations

from django import template

from explorer.administration.tabs import TABS, Tab

register = template.Library()


@register.simple_tag
def administration_tabs() -> tuple[Tab, ...]:
    return TABS
