"""What a page shows live: its view says so (`Live`), and the feed asks that view again with a request of its own (`LiveRequest`).

A page is written once: what a reader gets at first, and each later state of its fragments, come from the same view and templates.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.loader import render_to_string
from django.urls import Resolver404, ResolverMatch, resolve, set_script_prefix

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EventKind, HistoryLevel
from broker_core.reads import ClockReading, EntityRow

REFRESH_SECONDS = 5.0  # without any event: rates fall
BLIND_SECONDS = 1.0  # where history is not full, or a clock is set by hand, events do not tell of every change
HEAD_SECONDS = 1.0  # between two drawings of what stands above an entity's lists
HISTORY_SECONDS = 2.0  # of what left a queue
FILTERED_SECONDS = 5.0  # of a list that has to be searched
FOLLOW_SECONDS = 3.0  # of a list in an order that changes, so that rows do not turn about under the reader's eyes
_TICKING = re.compile(r' data-(?:now|clock|read)="[^"]*"|(?<=>)[^<>]*(?=</time>)|(?<=<progress)[^>]*(?= data-from)')
_DEADLINE = re.compile(r' data-deadline="(\d+)"')
_ROW = re.compile(r'<tr id="(m-(\d+)-\d+-(\d+))"')


@dataclass(frozen=True, slots=True)
class Live:
    """What of a page is live, and what marks it as changed.

    fragments: templates to draw again, each with the seconds between two drawings at least; every element on its top level has
               an id. A fragment of a template is named as in `page.html#name`.
    entities:  events of these mark the page;
    number:    where given, those of this message alone.
    refresh_seconds: it is marked after so long without an event.
    least_seconds: between two drawings of the page.
    personal:  drawn for one person; else for all who have the same rights.
    word:      what became of a message, for a row that leaves its list; empty: no reason to leave.
    """

    fragments: Mapping[str, float]
    entities: Collection[EntityRow] = ()
    number: int | None = None
    refresh_seconds: float = REFRESH_SECONDS
    least_seconds: float = 0.0
    personal: bool = False
    word: Callable[[EventKind], str] | None = None


def refresh_seconds(entities: Iterable[EntityRow]) -> float:
    """How long a page about these may stay as it is without any event of them."""
    blind = any(entity.history_level < HistoryLevel.FULL or entity.clock.is_manual for entity in entities)
    return BLIND_SECONDS if blind else REFRESH_SECONDS


def of_receiver(template: str, entity: EntityRow) -> Live:
    """Of a page to receive by hand: what is available to all, and what this person holds."""
    return Live(
        {template: 0.0, "explorer/_clock.html": 0.0}, entities=[entity], refresh_seconds=refresh_seconds([entity]), personal=True
    )


def live(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view whose answer is drawn with a `Live`. Pages without this mark are refused by the feed."""
    view.is_live = True  # type: ignore[attr-defined]
    return view


class LiveRequest(HttpRequest):
    """A GET of a page by the feed. wanted: the fragments to draw; None: all."""

    def __init__(self, view: View, wanted: Collection[str] | None):
        super().__init__()
        self.method = "GET"
        self.path_info, self.path = view.path, f"{settings.FORCE_SCRIPT_NAME or ''}{view.path}"
        self.META = {"QUERY_STRING": view.query}
        self.GET = QueryDict(view.query)
        self.resolver_match, self.actor, self.user = view.match, view.actor, view.user
        self._wanted = wanted

    def wants(self, fragment: str) -> bool:
        return self._wanted is None or fragment in self._wanted


class LiveAnswer(HttpResponse):
    """The fragments of a page as they are now."""

    def __init__(self, request: LiveRequest, found: Live, context: Mapping[str, Any]):
        super().__init__()
        self.live, self.clock = found, context.get("clock")
        # Each reader's page has a token of its own, which live.js puts in.
        shared = {**context, "csrf_token": "-"}
        self.fragments = {
            template: render_to_string(template, shared, request) for template in found.fragments if request.wants(template)
        }


@dataclass(frozen=True, slots=True)
class View:
    """A page as somebody looks at it. user: whose rights `actor` has."""

    path: str
    query: str
    match: ResolverMatch = field(compare=False)
    actor: Actor
    user: Any = field(compare=False)

    @classmethod
    def of(cls, page: str, actor: Actor, user: Any) -> View:
        """page: its address within the site as browsers write it. Raises InvalidArgument where nothing is live."""
        path, _, query = page.partition("?")
        path = unquote(path)
        try:
            match = resolve(path)
        except Resolver404 as exc:
            raise InvalidArgument("page", f"{path!r} is not a page of this site") from exc
        if not getattr(match.func, "is_live", False):
            raise InvalidArgument("page", f"{path!r} has no live content")
        return cls(path, query, match, actor, user)

    def group(self, *, personal: bool) -> str:
        """The name of those who get the same frames."""
        audience = [self.actor.rights.value, self.actor.holder_label if personal else "", self.path, self.query]
        return "live." + hashlib.sha256(json.dumps(audience).encode()).hexdigest()[:40]

    def draw(self, wanted: Collection[str] | None = None) -> LiveAnswer:
        """Ask the page's view. Raises BrokerError where the page is refused."""
        set_script_prefix(f"{settings.FORCE_SCRIPT_NAME or ''}/")
        try:
            answer = self.match.func(LiveRequest(self, wanted), *self.match.args, **self.match.kwargs)
        except Http404 as exc:
            raise InvalidArgument("page", f"{self.path!r} is not a page of this site") from exc
        if not isinstance(answer, LiveAnswer):
            raise InvalidArgument("page", f"{self.path!r} has no live content")
        return answer


def comparable(html: str) -> str:
    """What is equal for fragments that differ in ages, countdowns and the time of reading alone: the browser counts those."""
    return _TICKING.sub("", html)


def seconds_to_deadline(fragments: Iterable[str], clock: ClockReading) -> float | None:
    """Until the first countdown in these fragments ends; None: never."""
    now = clock.now.timestamp() * 1000
    ahead = [ms - now for html in fragments for found in _DEADLINE.findall(html) if (ms := int(found)) > now]
    return min(ahead) / 1000 / clock.rate if ahead and clock.rate else None


def rows_left(before: str, after: str) -> dict[str, tuple[int, int]]:
    """Rows of messages that are no longer in a fragment: (entity id, sequence number) by the row's id."""
    there = {row for row, *_ in _ROW.findall(after)}
    return {row: (int(entity), int(number)) for row, entity, number in _ROW.findall(before) if row not in there}
