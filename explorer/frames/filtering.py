"""Lists of messages: the filter in their field (docs/search.md), and what a page shows of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.timezone import now

from broker_core import reads
from broker_core.common.errors import FilterError
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import EntityRow, Matching, MessageFilter, MessageRow, Page, Tab, Token
from broker_core.reads.conditions import BodyText, Condition, JsonValue, NumberRange
from broker_core.reads.entities import Counts

from . import columns, token_field, view_menu
from .family import pages_of
from .presenters import SUBQUEUE_SLUGS
from .token_field import Problem, TokenField, text_of
from .view_menu import ViewMenu

COUNT_SECONDS = 0.3
_OLDEST_AMONG = 5_000  # messages examined for the oldest one of a list
NO_BODIES = "You don't have permission to view message bodies. Remove this condition, or ask an administrator."
NOTHING: Page[MessageRow] = Page((), None, None, 0, False, None)


@dataclass(frozen=True, slots=True)
class FilterField(TokenField):
    """The field of a list of messages."""

    filter: MessageFilter = MessageFilter()

    def selecting(self, holds: tuple[int, ...] | None) -> FilterField:
        """The same filter in a list of messages with these holds (reads.MessageFilter)."""
        return replace(self, filter=replace(self.filter, holds=holds))


def filter_of(request: HttpRequest, at: datetime) -> FilterField:
    """The filter in the query of a page. at: now, by the clock of the list."""
    return field_in(request.GET, at, request.actor)


def field_in(query: QueryDict, at: datetime, actor: Actor) -> FilterField:
    """The filter in a query, whose other parameters its links keep."""
    text = text_of(query)
    tokens, problem = _read(text, at, actor)
    message_filter = MessageFilter(tuple(token.condition for token in tokens))
    return FilterField(**token_field.values(query, text, tokens, problem), filter=message_filter)


def _read(text: str, at: datetime, actor: Actor) -> tuple[Sequence[Token[Condition]], Problem | None]:
    tokens, problem = token_field.read(text, lambda text: reads.parse_tokens(text, now=at))
    for token in tokens:
        if isinstance(token.condition, BodyText | JsonValue) and Right.SEE_BODIES not in actor.rights:
            return (), Problem(NO_BODIES, text[: token.start], text[token.start :], 403)
    return tokens, problem


def in_query(query: QueryDict, row: MessageRow | None, holds: tuple[int, ...] | None = None) -> MessageFilter | None:
    """The filter in the query of a list, for a page about one of its messages; None: it cannot be read."""
    try:
        message_filter = reads.parse_filter(text_of(query), now=row.read_at if row else now())
    except FilterError:
        return None
    return replace(message_filter, holds=holds)


def suggest_url(address: EntityAddress, tab: str) -> str:
    """The URL of suggestions for the field of a list."""
    return f"{reverse('explorer:filter_suggestions', args=(address.namespace, address.path))}?tab={tab}"


def saved_url(text: str, address: EntityAddress | None = None, tab: str = "") -> str:
    """The URL of the saved filters for a list, or for the search, where this filter can be saved."""
    place = {"namespace": address.namespace, "path": address.path, "tab": tab} if address else {}
    query = urlencode({name: value for name, value in {"text": text, **place}.items() if value})
    return reverse("explorer:saved_filters") + (f"?{query}" if query else "")


def group_url(address: EntityAddress, text: str = "") -> str:
    """The workbench of the messages that a filter finds in a list of failed messages."""
    url = reverse("explorer:dead_letter_group", args=(SUBQUEUE_SLUGS[address.subqueue], address.namespace, address.path))
    return f"{url}?{urlencode({'q': text})}" if text else url


def list_context(
    request: HttpRequest,
    entity: EntityRow,
    address: EntityAddress,
    tab: Tab,
    filter_field: FilterField,
    *,
    order: str,
    orders: Sequence[tuple[str, str]],
    newest_first: bool,
    cursor: str | None,
) -> dict[str, Any]:
    """The context of a list of an entity: its page of messages, its filter, how many match, and the menu of how it is shown.
    orders: that can be chosen."""
    listing = _list(request, entity, address, tab, filter_field, newest_first=newest_first, cursor=cursor)
    saved = saved_url(filter_field.text, address, request.GET.get("tab", ""))
    view = ViewMenu(
        target="messages",
        orders=view_menu.orders(request.GET, orders, order),
        columns=columns.menu(request.GET, listing["columns"]) if pages_of(entity.family).texts.application_properties else None,
        saved_url=saved_url("", address, request.GET.get("tab", "")),
    )
    return {"filter": filter_field, "suggest_url": suggest_url(address, str(tab)), "saved_url": saved, "view": view, **listing}


def _list(
    request: HttpRequest,
    entity: EntityRow,
    address: EntityAddress,
    tab: Tab,
    filter_field: FilterField,
    *,
    newest_first: bool,
    cursor: str | None,
) -> dict[str, Any]:
    if filter_field.problem:
        return {"page": NOTHING, "filtered": True, "columns": columns.columns_of(request, address, ())}
    page = reads.list_messages(
        address, tab, filter=filter_field.filter, cursor=cursor, newest_first=newest_first, actor=request.actor
    )  # fmt: skip
    counted = _count(request, entity, address, tab, filter_field, page) if filter_field else None
    shown = columns.columns_of(request, address, page.rows)
    oldest = None if filter_field else _oldest(request, address, tab, filter_field, page)
    return {"page": page, "filtered": bool(filter_field), "matching": counted, "columns": shown, "oldest": oldest}


def _oldest(request: HttpRequest, address: EntityAddress, tab: Tab, filter_field: FilterField, page: Page) -> MessageRow | None:
    """The message of a list that has waited longest. None: it is empty, or it is one of those that a busy queue changes all the
    time, whose oldest message the head of the page shows."""
    if page.next_cursor is None and page.previous_cursor is None:
        return min(page.rows, key=lambda row: row.enqueued_at, default=None)
    if tab in (Tab.ALL, Tab.ACTIVE, Tab.UNLOCKED):
        return None
    first = reads.list_messages(
        address, tab, filter=filter_field.filter, newest_first=False, by_number=True, limit=1, max_scanned=_OLDEST_AMONG,
        actor=request.actor,
    )  # fmt: skip
    return first.rows[0] if first.rows else None


def status_of(context: Mapping[str, Any]) -> int:
    """The status of a page with a list: that of the problem if its filter cannot be used."""
    filter_field = context.get("filter")
    return filter_field.status if filter_field else 200


def _count(
    request: HttpRequest, entity: EntityRow, address: EntityAddress, tab: Tab, filter_field: FilterField, page: Page
) -> Matching:
    """How many match, and of how many in the list: less is examined if the filter has numbers, more if the list is a part of a
    larger one by what holds its messages."""
    how: dict[str, Any] = {"max_seconds": COUNT_SECONDS, "actor": request.actor}
    if page.next_cursor is None and page.previous_cursor is None:
        matching = Matching(len(page.rows), page.scanned, False)
    else:
        matching = reads.count_messages(address, tab, filter=filter_field.filter, **how)
    if matching.capped:
        return matching
    if filter_field.filter.holds:
        whole = reads.count_messages(address, tab, filter=MessageFilter(holds=filter_field.filter.holds), **how)
        return matching if whole.capped else replace(matching, scanned=max(whole.count, matching.count))
    has_numbers = any(
        isinstance(condition, NumberRange) and condition.field == "number" for condition in filter_field.filter.conditions
    )
    return replace(matching, scanned=max(_in_list(entity.counts, tab), matching.count)) if has_numbers else matching


def _in_list(counts: Counts, tab: Tab) -> int:
    """How many messages a list has, by the ledger: no list is too long to be counted."""
    return {
        Tab.ALL: counts.active + counts.deferred + counts.scheduled,
        Tab.ACTIVE: counts.active,
        Tab.UNLOCKED: counts.active - counts.locked,
        Tab.LOCKED: counts.locked,
        Tab.SCHEDULED: counts.scheduled,
        Tab.DEFERRED: counts.deferred,
        Tab.DEAD_LETTER: counts.dead_letter,
        Tab.TRANSFER_DEAD_LETTER: counts.transfer_dead_letter,
    }[tab]
