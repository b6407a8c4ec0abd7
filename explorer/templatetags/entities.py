"""The cells of the table of entities. They are not templates, since a page has more than a thousand of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from django import template
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from broker_core.reads import EntityRow, Recent, Tally
from explorer.frames import presenters
from explorer.frames.family import pages_of
from explorer.frames.values import Figure
from explorer.frames.vocabulary import condition
from explorer.pages.attention import dead_letters_grow
from explorer.pages.overview import Column, Line

from .explorer import address_url, ago, figure, thousands

register = template.Library()
register.filter("prefix_condition", lambda prefix: condition("prefix", prefix))
register.filter("namespace_condition", lambda namespace: condition("namespace", namespace))
_UNLABELLED = ("trend", "receivers")  # these need no label in a row of two lines


@register.simple_tag
def entity_cells(columns: Sequence[Column], line: Line) -> str:
    """All cells of an entity but its name."""
    entity = line.entity
    assert entity is not None
    return mark_safe("".join(_entity_cell(column, entity, line.recent or Recent()) for column in columns[1:]))


@register.simple_tag
def group_cells(columns: Sequence[Column], parts: Sequence[Tally]) -> str:
    """All cells of a group but its name: the sums of its parts."""
    return mark_safe("".join(_group_cell(column, parts) for column in columns[1:]))


def _cell(column: Column, content: str, css: str = "", of: EntityRow | None = None) -> str:
    """content: escaped if it is a SafeString. Written without format_html, which takes three times as long."""
    id = f' id="c-{of.id}-{column.name}"' if of else ""
    label = "" if column.name in _UNLABELLED else f' data-label="{escape(column.title)}"'
    return f'<td class="{column.css}{css}"{id}{label}>{content if isinstance(content, SafeString) else escape(content)}</td>'


def _entity_cell(column: Column, entity: EntityRow, recent: Recent) -> str:
    if column.figure:
        count = column.figure.of(entity)
        return _cell(column, _count(column.figure, count, entity, recent), "" if count else " line-hide", entity)
    match column.name:
        case "trend":
            return _cell(column, _trend(recent), " line-hide", entity)
        case "sent":
            return _cell(column, presenters.per_minute(entity.sent_rate), of=entity)
        case "completed":
            return _cell(column, presenters.per_minute(entity.completed_rate), of=entity)
        case "oldest":
            return _cell(column, _age(entity.oldest_active_at, entity.clock.now), of=entity)
        case "received":
            return _cell(column, _age(entity.last_receive_at, entity.clock.now), of=entity)
        case "stored":
            return _cell(column, filesizeformat(entity.size_bytes) if entity.holds_messages else "", of=entity)
    return _cell(column, _receivers(entity), " line-1-end", entity)


def _group_cell(column: Column, parts: Sequence[Tally]) -> str:
    if column.figure:
        counts = [count for part in parts if (count := column.figure.of(part)) is not None]
        return _cell(column, _sum(column.figure, counts), "" if any(counts) else " line-hide")
    match column.name:
        case "sent":  # a topic's messages are left out, since the copies are counted
            return _cell(column, presenters.per_minute(sum(part.sent_rate for part in parts if part.holds_messages)))
        case "completed":
            return _cell(column, presenters.per_minute(sum(part.completed_rate for part in parts if part.holds_messages)))
        case "oldest":
            oldest = min((part.oldest_active_at for part in parts if part.oldest_active_at), default=None)
            return _cell(column, _age(oldest), " line-hide")
    return _cell(column, "", " line-hide")


def _age(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago it was; empty without an instant."""
    return ago(at, now) if at else ""


def _count(column: Figure, count: int | None, entity: EntityRow, recent: Recent) -> str:
    """A figure of an entity. Dead letters link to their list, and are red if they are new or grow; a capped count says so."""
    if not count or not column.hue:
        return figure(count or 0, count is not None)
    if column.hue == "dead":
        label = f"{presenters.plural(count, 'dead letter')} in {presenters.shown_path(entity.address)}"
        url = address_url("entity", entity.address) + pages_of(entity.family).dead_tab
        css = "dead-count" if dead_letters_grow(entity, recent) else "some-dead"
        return format_html('<a class="{}" href="{}" aria-label="{}">{}</a>', css, url, label, thousands(count))
    return format_html('<span class="state-{}">{}</span>', column.hue, entity.expired_pending)


def _sum(column: Figure, counts: Sequence[int]) -> str:
    """A figure of several entities, added up; empty if none of them has it."""
    total = sum(counts)
    if not total or not column.hue:
        return figure(total, bool(counts))
    css = "some-dead" if column.hue == "dead" else f"state-{column.hue}"
    return format_html('<span class="{}">{}</span>', css, thousands(total))


def _receivers(entity: EntityRow) -> str:
    if not entity.holds_messages:
        return ""
    if presenters.is_neglected(entity):
        return mark_safe('<span class="state-expired">none</span>')
    return format_html('<span class="quiet">{}</span>', presenters.consuming(entity))


def _trend(recent: Recent) -> str:
    """The messages in and out of the last half hour as two small lines with a common scale."""
    total = sum(recent.sent) + sum(recent.completed)
    if not total:
        return mark_safe('<span class="quiet">none</span>')
    highest, last = max(*recent.sent, *recent.completed), len(recent.sent) - 1

    def line(values: Sequence[int]) -> str:
        return " ".join(f"{120 * i / last:.0f},{19 - 18 * value / highest:.1f}" for i, value in enumerate(values))

    return format_html(
        '<svg class="trend-line" viewBox="0 0 120 20" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polyline class="done" points="{}"/><polyline class="sent" points="{}"/></svg>',
        f"{sum(recent.sent):,} in and {sum(recent.completed):,} out in the last {len(recent.sent)} minutes",
        line(recent.completed),
        line(recent.sent),
    )
