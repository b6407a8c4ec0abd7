"""Live pages: a view declares its live fragments (`Live`), and the feed calls the view again with a `LiveRequest`.

The first state of a page and all later states of its fragments come from the same view and templates.
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
from django.db import InterfaceError, OperationalError, connections
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.loader import render_to_string
from django.urls import Resolver404, ResolverMatch, resolve, set_script_prefix

from broker_core.common.errors import BrokerUnavailable, InvalidArgument
from broker_core.common.types import Actor, EventKind, HistoryLevel
from broker_core.reads import ClockReading, EntityRow, Flow, Name
from broker_core.store.connections import Database

REFRESH_SECONDS = 5.0  # a page without events: rates fall
BLIND_SECONDS = 1.0  # if history is not full, or the clock is manual: events do not cover every change
HEAD_SECONDS = 1.0  # minimum interval of the part above an entity's lists
HISTORY_SECONDS = 2.0  # of the history
FILTERED_SECONDS = 5.0  # of a filtered list, which is searched
FOLLOW_SECONDS = 3.0  # of a list whose order changes, so that rows do not move too often
PART = "<!--part-->"
_TICKING = re.compile(
    r"<!--live-->.*?<!--/live-->|"  # what another fragment of the page updates
    r'\sdata-(?:now|clock|read)="[^"]*"|(?<=>)[^<>]*(?=</time>)|(?<=<progress)[^>]*(?=\sdata-from)|'
    r'\sstroke-dasharray="[^"]* 100"',
    re.DOTALL,
)
_DEADLINE = re.compile(r'\sdata-deadline="(\d+)"')
_ROW = re.compile(r'<tr\sid="(m-(\d+)-\d+-(\d+))"')


@dataclass(frozen=True, slots=True)
class Live:
    """The live fragments of a page, and when they are rendered again.

    fragments: templates with the minimum number of seconds between two renderings; every element on their top level has an id.
               A template fragment is named as in `page.html#name`. Of a template with several parts, separated by PART, only
               those that changed are sent.
    entities:  their events make the page due;
    number:    if given, only the events of this message.
    refresh_seconds: the page is also due after this time without an event.
    least_seconds: minimum time between two renderings of the page.
    personal:  rendered for one user; else for all users with the same rights.
    word:      (event kind) -> the word for a row that leaves its list; empty: the event is no reason to leave.
    ways:      (database, flow) -> the ids of the elements on which a message is shown that took this way; None: on none.
    """

    fragments: Mapping[str, float]
    entities: Collection[EntityRow | Name] = ()
    number: int | None = None
    refresh_seconds: float = REFRESH_SECONDS
    least_seconds: float = 0.0
    personal: bool = False
    word: Callable[[EventKind], str] | None = None
    ways: Callable[[Database, Flow], Iterable[str]] | None = None


def refresh_seconds(entities: Iterable[EntityRow]) -> float:
    """The refresh interval of a page about these entities."""
    blind = any(entity.history_level < HistoryLevel.FULL or entity.clock.is_manual for entity in entities)
    return BLIND_SECONDS if blind else REFRESH_SECONDS


def of_receiver(template: str, entity: EntityRow) -> Live:
    """The live part of a receiver page, which shows the messages that the user holds."""
    return Live(
        {template: 0.0, "explorer/_clock.html": 0.0}, entities=[entity], refresh_seconds=refresh_seconds([entity]), personal=True
    )


def live(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Mark a view that renders with a `Live`. The feed refuses views without this mark."""
    view.is_live = True  # type: ignore[attr-defined]
    return view


class LiveRequest(HttpRequest):
    """A GET of a page by the feed. fragments: those to render; None: all."""

    def __init__(self, view: View, fragments: Collection[str] | None):
        super().__init__()
        self.method = "GET"
        self.path_info, self.path = view.path, f"{settings.FORCE_SCRIPT_NAME or ''}{view.path}"
        self.META = {"QUERY_STRING": view.query}
        self.GET = QueryDict(view.query)
        self.resolver_match, self.actor, self.user = view.match, view.actor, view.user
        self._wanted = fragments

    def wants(self, fragment: str) -> bool:
        return self._wanted is None or fragment in self._wanted


class LiveAnswer(HttpResponse):
    """The current fragments of a page."""

    def __init__(self, request: LiveRequest, live_part: Live, context: Mapping[str, Any]):
        super().__init__()
        self.live, self.clock = live_part, context.get("clock")
        # live.js inserts the CSRF token of each viewer's page.
        shared = {**context, "csrf_token": "-"}
        self.fragments = {
            template: render_to_string(template, shared, request) for template in live_part.fragments if request.wants(template)
        }


@dataclass(frozen=True, slots=True)
class View:
    """A page for a viewer. user: the user behind `actor`."""

    path: str
    query: str
    match: ResolverMatch = field(compare=False)
    actor: Actor
    user: Any = field(compare=False)

    @classmethod
    def of(cls, page: str, actor: Actor, user: Any) -> View:
        """page: its path and query within the site. Raises InvalidArgument if the page is not live."""
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
        """The name of the group of viewers who get the same frames."""
        audience = [self.actor.rights.value, self.actor.holder_label if personal else "", self.path, self.query]
        return "live." + hashlib.sha256(json.dumps(audience).encode()).hexdigest()[:40]

    def draw(self, fragments: Collection[str] | None = None) -> LiveAnswer:
        """Call the page's view. Raises BrokerError if the view refuses, BrokerUnavailable without the site's own database."""
        set_script_prefix(f"{settings.FORCE_SCRIPT_NAME or ''}/")
        try:
            answer = self.match.func(LiveRequest(self, fragments), *self.match.args, **self.match.kwargs)
        except Http404 as exc:
            raise InvalidArgument("page", f"{self.path!r} is not a page of this site") from exc
        except (OperationalError, InterfaceError) as exc:
            connections.close_all()  # Django replaces a broken connection at the next request only
            raise BrokerUnavailable(str(exc)) from exc
        if not isinstance(answer, LiveAnswer):
            raise InvalidArgument("page", f"{self.path!r} has no live content")
        return answer


def comparable(html: str) -> str:
    """The HTML without ages, countdowns and read times, which the browser updates itself."""
    return _TICKING.sub("", html)


def changed_parts(before: str, after: str) -> list[str]:
    """The parts of a fragment that differ from those before."""
    known = {comparable(part) for part in before.split(PART)}
    return [part for part in after.split(PART) if part.strip() and comparable(part) not in known]


def seconds_to_deadline(fragments: Iterable[str], clock: ClockReading) -> float | None:
    """The time until the first countdown in these fragments ends; None: there is none."""
    now = clock.now.timestamp() * 1000
    ahead = [ms - now for html in fragments for digits in _DEADLINE.findall(html) if (ms := int(digits)) > now]
    return min(ahead) / 1000 / clock.rate if ahead and clock.rate else None


def rows_left(before: str, after: str) -> dict[str, tuple[int, int]]:
    """Message rows that are no longer in a fragment: (entity id, sequence number) by row id."""
    remaining = {row for row, *_ in _ROW.findall(after)}
    return {row: (int(entity), int(number)) for row, entity, number in _ROW.findall(before) if row not in remaining}
