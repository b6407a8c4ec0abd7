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
class MessageList:
    """The messages of the past as a list. more: how many are not listed. tries: by number, failed deliveries in words."""

    rows: Sequence[MessageRow]
    more: int
    tries: dict[int, str]


def or_past(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of an entity's page, which shows the past where the query names an instant."""

    def entity_or_past(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
        is_past = request.method == "GET" and (AT in request.GET or AGO in request.GET)
        if isinstance(request, LiveRequest) or not is_past:
            return view(request, namespace=namespace, path=path)
        return of_past(request, namespace=namespace, path=path)

    entity_or_past.is_live = getattr(view, "is_live", False)  # type: ignore[attr-defined]
    return entity_or_past


@page
@require_GET
def of_past(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The entity at `at`; a place on the time bar leads to its instant."""
    address = address_of(namespace, path)
    if AT not in request.GET:
        return _at_place(request, reads.now(namespace, actor=request.actor).now)
    state = reads.past(address, _instant(request), actor=request.actor)
    if state.at > state.entity.clock.now:
        raise BadQuery([(AT, "is in the future.")])
    then = _then(state)
    is_board = board.is_asked(request, state.entity)
    context: dict[str, Any] = {
        "section": "entities",
        "entity": then,
        "address": then.address,
        "clock": then.clock,
        "past": state,
        "settings": _settings(state),
        "ago": state.entity.clock.now - state.at,
        "knows_locks": then.history_level is HistoryLevel.FULL,
        "is_board": is_board,
        "time_bar": time_bar.of_past(request, state.entity, state.at, state.before, state.after),
    }
    context |= {"board": _board(state, then, request)} if is_board else {"message_list": _message_list(state, then)}
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


def _then(state: Past) -> EntityRow:
    """The entity with the clock, the counts and the settings of that instant."""
    clock, then = replace(state.entity.clock, now=state.at, rate=0, is_manual=True), state.settings
    return replace(
        state.entity, clock=clock, counts=state.counts, sent_rate=0.0, completed_rate=0.0, status=EntityStatus(then["status"]),
        history_level=HistoryLevel(then["history_level"]), requires_session=bool(then["requires_session"]),
        options=then["options"] or {}, effective=then["effective"] or {},
    )  # fmt: skip


def _settings(state: Past) -> list[Setting]:
    """The settings of that instant in words, with those of now where they differ."""
    then = words_of(state.entity, state.settings)
    now = words_of(state.entity, reads.revisions(state.entity.address)[0].columns)
    return [Setting(name, text, now.get(name, "none") if now.get(name) != text else "") for name, text in then.items()]


def _board(state: Past, then: EntityRow, request: HttpRequest) -> Board:
    lanes = [lane for lane in pages_of(then.family).board.lanes(then, request.actor) if lane.place is None]
    board_then = built(then, [_content(lane, state.rows) for lane in lanes], state.events, (), message_url)
    url = f"?{urlencode({AT: state.at.isoformat()})}"
    return replace(board_then, rate=None, lanes=tuple(replace(lane, url=url) for lane in board_then.lanes))


def _content(lane: Lane, rows: Sequence[MessageRow]) -> Content:
    inside = [row for row in rows if lane.has(row)]
    inside.sort(key=lambda row: (row.scheduled_enqueue_at or row.read_at, row.sequence_number), reverse=lane.newest_first)
    return Content(lane, inside[:MOST], len(inside))


def _message_list(state: Past, then: EntityRow) -> MessageList:
    tries = pages_of(then.family).board.tries
    rows = state.rows[:MOST_LISTED]
    return MessageList(rows, max(0, state.counts.total - len(rows)), {row.sequence_number: tries(row)[1] for row in rows})
