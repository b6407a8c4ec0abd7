"""The page of an entity at an instant of the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.types import EntityStatus, HistoryLevel
from broker_core.reads import EntityRow, MessageRow, Past
from explorer import board, time_bar
from explorer.board.lanes import MOST, Board
from explorer.board.reading import Content, built, message_url
from explorer.frames.family import pages_of
from explorer.frames.settings_words import words_of
from explorer.frames.shell import BadQuery, address_of, page, show
from explorer.frames.values import Lane
from explorer.live.page import LiveRequest
from explorer.time_bar import time_scale

MOST_LISTED = 200
AT, AGO = "at", "ago"  # parameters: the instant, or a place on the time bar
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)  # so that what is near an instant is one, too
LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in words. now: what it is now; empty: the same."""

    name: str
    text: str
    now: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The messages of the past as a list. more: how many are not listed. tries: by number, failed deliveries in words."""

    rows: Sequence[MessageRow]
    more: int
    tries: dict[int, str]


def or_past(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of an entity's page, which shows the past where the query names an instant."""

    def shown(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
        is_past = request.method == "GET" and (AT in request.GET or AGO in request.GET)
        if isinstance(request, LiveRequest) or not is_past:
            return view(request, namespace=namespace, path=path)
        return of_past(request, namespace=namespace, path=path)

    shown.is_live = getattr(view, "is_live", False)  # type: ignore[attr-defined]
    return shown


@page
@require_GET
def of_past(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The entity at `at`; a place on the time bar leads to its instant."""
    address = address_of(namespace, path)
    if AT not in request.GET:
        return _at_place(request, reads.now(namespace, actor=request.actor).now)
    found = reads.past(address, _instant(request), actor=request.actor)
    if found.at > found.entity.clock.now:
        raise BadQuery([(AT, "is in the future.")])
    then = _then(found)
    is_board = board.is_asked(request, found.entity)
    context: dict[str, Any] = {
        "section": "entities",
        "entity": then,
        "address": then.address,
        "clock": then.clock,
        "past": found,
        "settings": _settings(found),
        "ago": found.entity.clock.now - found.at,
        "knows_locks": then.history_level is HistoryLevel.FULL,
        "is_board": is_board,
        "time_bar": time_bar.of_past(request, found.entity, found.at, found.before, found.after),
    }
    context |= {"board": _board(found, then, request)} if is_board else {"listed": _listed(found, then)}
    return show(request, "time_travel/past", context)


def _at_place(request: HttpRequest, now: datetime) -> HttpResponse:
    step = time_scale.step_of(request.GET[AGO])
    if step is None:
        raise BadQuery([(AGO, f"must be a whole number up to {time_scale.STEPS:,}.")])
    query = request.GET.copy()
    query.pop(AGO)
    query[AT] = (now - time_scale.distance(step)).isoformat()
    return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")


def _instant(request: HttpRequest) -> datetime:
    try:
        at = datetime.fromisoformat(request.GET[AT])
    except ValueError as exc:
        raise BadQuery([(AT, "must be an instant, such as 2030-01-31T12:00:00Z.")]) from exc
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not EARLIEST <= at <= LATEST:
        raise BadQuery([(AT, "must be between 0001-01-02 and 9999-12-30.")])
    return at


def _then(found: Past) -> EntityRow:
    """The entity with the clock, the counts and the settings of that instant."""
    clock, then = replace(found.entity.clock, now=found.at, rate=0, is_manual=True), found.settings
    return replace(
        found.entity, clock=clock, counts=found.counts, sent_rate=0.0, completed_rate=0.0, status=EntityStatus(then["status"]),
        history_level=HistoryLevel(then["history_level"]), requires_session=bool(then["requires_session"]),
        options=then["options"] or {}, effective=then["effective"] or {},
    )  # fmt: skip


def _settings(found: Past) -> list[Setting]:
    """The settings of that instant in words, with those of now where they differ."""
    then = words_of(found.entity, found.settings)
    now = words_of(found.entity, reads.revisions(found.entity.address)[0].columns)
    return [Setting(name, text, now.get(name, "none") if now.get(name) != text else "") for name, text in then.items()]


def _board(found: Past, then: EntityRow, request: HttpRequest) -> Board:
    lanes = [lane for lane in pages_of(then.family).board.lanes(then, request.actor) if lane.place is None]
    made = built(then, [_content(lane, found.rows) for lane in lanes], found.events, (), message_url)
    url = f"?{urlencode({AT: found.at.isoformat()})}"
    return replace(made, rate=None, lanes=tuple(replace(lane, url=url) for lane in made.lanes))


def _content(lane: Lane, rows: Sequence[MessageRow]) -> Content:
    inside = [row for row in rows if lane.has(row)]
    inside.sort(key=lambda row: (row.scheduled_enqueue_at or row.read_at, row.sequence_number), reverse=lane.newest_first)
    return Content(lane, inside[:MOST], len(inside))


def _listed(found: Past, then: EntityRow) -> Listed:
    tries = pages_of(then.family).board.tries
    rows = found.rows[:MOST_LISTED]
    return Listed(rows, max(0, found.counts.total - len(rows)), {row.sequence_number: tries(row)[1] for row in rows})
