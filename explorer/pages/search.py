"""The page Messages: one search over all entities and namespaces, present and removed messages, in slices that follow each other.

A slice is a request. The browser asks for the next one until something stops it: enough rows, the end, or the user. Without
JavaScript a link leads to the next slice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.reads import Slice, WithId
from broker_core.reads.searching import EVENTS, is_in_events
from broker_core.store import connections
from explorer import sandbox_names
from explorer.frames import view_menu
from explorer.frames.filtering import FilterField, filter_of, saved_url
from explorer.frames.forms.queries import SearchQuery
from explorer.frames.shell import cleaned, page, show
from explorer.frames.view_menu import ViewMenu
from explorer.frames.vocabulary import canonical

from . import actor

ROWS_AT_ONCE = 100  # results without being asked to continue
EXAMPLES = (
    ("order-4711", "an id, or a part of one"),
    ("prop.tenant:acme age<1h", "a property, and recent"),
    ("state:dead reason:TTL*", "dead letters by reason"),
    ("$.order.id>4700", "a value in a JSON body"),
    ("state:gone correlation:c-17", "messages that were removed"),
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search came. scanned, matches: in this part and in all slices so far. next: the query of the next slice."""

    slice: Slice
    scanned: int
    matches: int
    next: str
    stopped: str
    runs: bool

    @property
    def in_history(self) -> bool:
        return self.slice.part == EVENTS

    @property
    def total(self) -> int | None:
        return None if self.slice.total is None else max(self.slice.total, self.scanned)


@page
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    if redirect := canonical(request, None):
        return redirect
    query = cleaned(SearchQuery(request.GET))
    filter = filter_of(request, now())
    context: dict[str, Any] = {
        "section": "messages",
        "filter": filter,
        "view": ViewMenu("found", hidden=view_menu.hidden(request.GET, is_shown=query["all"]), saved_url=saved_url("")),
        "examples": EXAMPLES,
        "suggest_url": reverse("explorer:general_suggestions"),
        "saved_url": saved_url(filter.text),
        "searches_history": is_in_events(filter.filter),
    }
    status = filter.problem.status if filter.problem else 200
    if filter and not filter.problem:
        by_id = _by_id(request, filter, query)
        known = by_id.parts if by_id else frozenset(query["known"].split(".")) - {""}
        result = _slice(request, filter, query, known)
        if by_id:
            result = replace(result, messages=(*by_id.messages, *result.messages))
        if hidden := sandbox_names.hidden_sandboxes(request.user, request.actor, own=True):
            result = replace(
                result, messages=tuple(message for message in result.messages if message.address.namespace not in hidden)
            )
        text = reads.exact_id(filter.filter)
        context |= {
            "actors": actor.named(text, request) if text and not query["cursor"] else (),
            "results": result.messages,
            "progress": _progress(request, query, result, known),
            "is_first": not query["cursor"],
        }
    fragment = "_search_slice" if query["cursor"] else "_search"
    return show(request, "search", context, fragment=fragment, status=status)


def _by_id(request: HttpRequest, filter: FilterField, query: dict[str, Any]) -> WithId | None:
    """The messages whose id the whole filter is, in all databases: they are shown before the first slice."""
    text = reads.exact_id(filter.filter)
    if query["cursor"] or text is None:
        return None
    return reads.messages_with_id(text, with_system=query["all"], actor=request.actor)


def _slice(request: HttpRequest, filter: FilterField, query: dict[str, Any], known: Collection[str]) -> Slice:
    """The next slice: in the database that the cursor names, and after the last one in the next database."""
    databases = connections.databases()
    number, _, cursor = query["cursor"].partition(".")
    at = min(int(number), len(databases) - 1) if number.isdecimal() and len(number) < 4 else 0
    with connections.using(databases[at]):
        result = reads.search_slice(filter.filter, cursor or None, with_system=query["all"], known=known, actor=request.actor)
    if result.cursor:
        return replace(result, cursor=f"{at}.{result.cursor}")
    return replace(result, cursor=f"{at + 1}.") if at + 1 < len(databases) else result


def _progress(request: HttpRequest, query: dict[str, Any], result: Slice, known: Collection[str]) -> Progress:
    before = query["cursor"]
    same_part = not before or (EVENTS in before) == (result.part == EVENTS)
    scanned = result.scanned + (query["scanned"] or 0 if same_part else 0)
    matches = len(result.messages) + (query["found"] or 0)
    following = request.GET.copy()
    following.pop("stop", None)
    since = 0 if query["go_on"] else query["rows"] or 0  # rows since the user asked for more
    rows = since + len(result.messages)
    for name in ("cursor", "scanned", "found", "rows", "go_on", "known"):
        following.pop(name, None)
    if result.cursor:
        changes_part = (EVENTS in result.cursor) != (result.part == EVENTS)
        following["cursor"] = result.cursor
        following["scanned"] = str(0 if changes_part else scanned)
        following["found"] = str(matches)
        following["rows"] = str(rows)
        if known:
            following["known"] = ".".join(sorted(known))
    stopped = following.copy()
    stopped["go_on"] = "1"
    runs = bool(result.cursor) and rows < ROWS_AT_ONCE
    return Progress(result, scanned, matches, f"?{following.urlencode()}", f"?{stopped.urlencode()}", runs)
