"""Reads what a board shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.urls import reverse

from broker_core import reads
from broker_core.common.types import TERMINAL_KINDS, Actor, EventKind
from broker_core.reads import Capped, EntityRow, Event, EventFilter, MessageFilter, MessageRow
from explorer.frames.family import pages_of
from explorer.frames.values import Lane

from . import lanes
from .lanes import Board, Box, ShownLane

MOST_SCANNED = 5_000  # messages of a list, and events, that are looked at
SECONDS = 0.1  # for a lane
NEWEST = 60  # events
MOST_SESSIONS = 50


@dataclass(frozen=True, slots=True)
class Content:
    """The messages of a lane: the first ones, and how many there are."""

    lane: Lane
    rows: Sequence[MessageRow]
    count: int | Capped | None


def message_url(row: MessageRow) -> str:
    return reverse("explorer:message", args=(row.address.namespace, row.address.path, row.sequence_number))


def board_of(
    entity: EntityRow,
    actor: Actor,
    url: Callable[[MessageRow], str] = message_url,
    newest: Sequence[Event] | None = None,
) -> Board:
    """The board of an entity as it is now. newest: its newest events first; None: those among the newest of the database."""
    contents = [_content(lane, entity, actor) for lane in pages_of(entity.family).board.lanes(entity, actor)]
    kinds = (*TERMINAL_KINDS, EventKind.RECEIVED)
    if newest is None:
        event_filter = EventFilter(entity_id=entity.id, kinds=kinds)
        newest = reads.events(event_filter, limit=NEWEST, max_scanned=MOST_SCANNED, actor=actor).rows
    events = [event for event in newest if event.kind in kinds][:NEWEST]
    sessions: Sequence[reads.SessionRow] = ()
    if entity.requires_session:
        sessions = reads.sessions(entity.address, limit=MOST_SESSIONS, actor=actor).rows
    return built(entity, contents, events, sessions, url)


def built(
    entity: EntityRow,
    contents: Sequence[Content],
    events: Sequence[Event],
    sessions: Sequence[reads.SessionRow],
    url: Callable[[MessageRow], str],
) -> Board:
    """The board with these messages and events. A message that changed while the lanes were read is in the last of them."""
    pages = pages_of(entity.family).board
    where = {(row.entity_id, row.sequence_number): content.lane for content in contents for row in content.rows}
    was = lanes.renumbered(events)
    shown_lanes: list[ShownLane] = []
    for content in contents:
        rows = [row for row in content.rows if where[row.entity_id, row.sequence_number] is content.lane]
        chips = {row.sequence_number: lanes.chip_of(row, url, tries=pages.tries, was=was) for row in rows}
        boxes: list[Box] = []
        if content.lane.slug == pages.boxes:
            now = entity.clock.now
            by_session = content.lane.by_session
            boxes = lanes.boxes_of_sessions(sessions) if by_session else lanes.boxes_of_receivers(events, now)
        shown_lanes.append(
            lanes.shown_lane(content.lane, rows, chips, content.count, url=_list_url(entity, content.lane), boxes=boxes)
        )
    present = {lanes.key_of(*place) for place in where}
    left = lanes.left_of(events, present, entity.family, lambda event: _event_url(entity, event))
    return Board(tuple(shown_lanes), left, entity.clock.now, entity.completed_rate, pages.dead_letters(entity))


def _content(lane: Lane, entity: EntityRow, actor: Actor) -> Content:
    address = lane.place or entity.address
    page = reads.list_messages(
        address, lane.tab, filter=MessageFilter(holds=lane.holds), limit=lanes.MOST, newest_first=lane.newest_first,
        max_scanned=MOST_SCANNED, max_seconds=SECONDS, actor=actor,
    )  # fmt: skip
    rows = [row for row in page.rows if lane.has(row)]
    is_whole = page.next_cursor is None and not page.capped
    return Content(lane, rows, len(rows) if is_whole else lane.count(entity))


def _list_url(entity: EntityRow, lane: Lane) -> str:
    address = lane.place or entity.address
    url = reverse("explorer:entity", args=(address.namespace, address.path))
    return url if lane.place else f"{url}?tab={lane.slug}"


def _event_url(entity: EntityRow, event: Event) -> str:
    return reverse("explorer:message", args=(entity.address.namespace, entity.address.path, event.sequence_number))
