"""Template tags of the Queue Storage pages."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.utils.html import format_html

from broker_core.queue_storage import CameFrom, accounts
from broker_core.queue_storage.rules.explaining import QueueFacts
from broker_core.queue_storage.rules.service_properties import ServiceProperties
from broker_core.reads import MessageRow
from explorer.frames import presenters

from . import rows

register = template.Library()


register.filter("why_moved", rows.why_moved)


@register.filter
def of_number(origins: Mapping[int, CameFrom], number: int) -> CameFrom | None:
    """The origin of a message in a list."""
    return origins.get(number)


@register.filter
def came_from(stored: Mapping | None, account: str) -> CameFrom | None:
    """The original message of one that was moved, as stored with it."""
    return CameFrom.of(account, stored) if stored else None


@register.simple_tag(takes_context=True)
def service_properties_of(context: Mapping, account: str) -> ServiceProperties:
    """The properties of an account's queue service."""
    return accounts.get_service_properties(account, actor=context["request"].actor)


@register.simple_tag
def storage_row(row: MessageRow, facts: QueueFacts) -> rows.RowView:
    return rows.row_view(row, facts)


@register.simple_tag
def progress(passed: rows.Progress) -> str:
    """A progress bar, updated by live.js. Hidden from screen readers: the countdown beside it says the same."""
    return format_html(
        '<progress aria-hidden="true" max="1" value="{}" data-from="{}" data-to="{}"></progress>',
        f"{passed.done:.3f}", presenters.epoch_ms(passed.since), presenters.epoch_ms(passed.until),
    )  # fmt: skip
