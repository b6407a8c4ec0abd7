"""Which messages an operation concerns: its selection, how many it matches, and the next part of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Family, MessageState, Right, SubQueue
from broker_core.operations import Kind, Operation, Place, Selection, entity_status, next_lines
from broker_core.reads import MessageFilter, Tab
from broker_core.reads.filters import parse_filter
from explorer.frames.family import pages_of

COUNT_SECONDS = 2.0  # of counting what a filter matches
COUNT_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Counted:
    """What a selection matches. selection: with the highest number and the time of the count. is_exact: False if there may be
    more, because the filter's search took too long."""

    selection: Selection
    count: int
    is_exact: bool
    entity_id: int
    family: Family

    @property
    def text(self) -> str:
        return f"{self.count:,}" if self.is_exact else f"{self.count:,}+"


class Part(NamedTuple):
    """The next messages of an operation. position: the highest number that is then dealt with. at_end: there are no more."""

    numbers: list[int]
    position: int
    at_end: bool


def selection(
    address: EntityAddress, family: Family, tab: str, *, numbers: Sequence[int] | None = None, filter: str = ""
) -> Selection:
    """The messages of a list, as its page names it: these numbers, or those that the filter matches. Raises InvalidArgument for a
    list that has no messages to operate on."""
    lists = pages_of(family).operations.lists
    place = lists.get(tab or next(iter(lists)))
    if place is None:
        raise InvalidArgument("tab", f"{tab!r} is not a list of messages: choose one of {', '.join(lists)}")
    address = EntityAddress(address.namespace, address.path, place.subqueue)
    return Selection(address, tab, place, None if numbers is None else tuple(sorted(set(numbers))), filter)


def count(chosen: Selection, *, actor: Actor, up_to: int | None = None, seconds: float = COUNT_SECONDS) -> Counted:
    """How many messages a selection matches now, and the highest number, so that later ones are left alone.

    up_to: as counted before: none with a higher number. seconds: how long a filter may search.
    Raises EntityNotFound, NotAuthorized without Right.BROWSE, or Right.SEE_BODIES for a search in bodies.
    """
    entity = reads.entity(chosen.address, actor=actor)
    status = entity_status(chosen.address.namespace, entity.id)
    highest = status.highest_number if up_to is None else min(up_to, status.highest_number)
    chosen = replace(chosen, address=_as_named(chosen, entity.address), up_to=highest, at=status.now)
    number, is_exact = _matching(chosen, entity, actor, up_to, seconds)
    return Counted(chosen, number, is_exact, entity.id, Family(status.family))


def _as_named(chosen: Selection, address: EntityAddress) -> EntityAddress:
    return EntityAddress(address.namespace, address.path, chosen.address.subqueue)


def _matching(chosen: Selection, entity: reads.EntityRow, actor: Actor, up_to: int | None, seconds: float) -> tuple[int, bool]:
    if chosen.numbers is not None:
        return len(chosen.numbers), True
    place = chosen.place
    if not chosen.filter and place.holds is None and up_to is None:
        return _in_list(place, entity), True
    total, position, deadline = 0, 0, time.monotonic() + seconds
    while True:
        part = matching_part(chosen, position, COUNT_PAGE, actor)
        total += len(part.numbers)
        if part.at_end:
            return total, True
        if time.monotonic() > deadline:
            return total, False
        position = part.position


def _in_list(place: Place, entity: reads.EntityRow) -> int:
    counts = entity.counts
    if place.subqueue == SubQueue.DEAD_LETTER:
        return counts.dead_letter
    if place.subqueue == SubQueue.TRANSFER_DEAD_LETTER:
        return counts.transfer_dead_letter
    active = {None: counts.active, True: counts.locked, False: counts.active - counts.locked}[place.locked]
    by_state = {MessageState.ACTIVE: active, MessageState.DEFERRED: counts.deferred, MessageState.SCHEDULED: counts.scheduled}
    return sum(by_state[state] for state in place.states)


def next_part(operation: Operation, size: int) -> Part:
    """The next messages of an operation, lowest number first. Of an import: the next lines of its file."""
    chosen = operation.selection
    if operation.kind is Kind.IMPORT:
        lines = next_lines(operation.address.namespace, operation, size + 1)
        return Part(lines[:size], lines[:size][-1] if lines else operation.position, len(lines) <= size)
    if chosen.numbers is not None:
        left = [number for number in chosen.numbers if number > operation.position]
        return Part(left[:size], left[:size][-1] if left else operation.position, len(left) <= size)
    return matching_part(chosen, operation.position, size, Actor("process", "operations", Right.ALL))


def matching_part(chosen: Selection, position: int, size: int, actor: Actor) -> Part:
    """The next messages that match a selection and were in the list when it was made."""
    page = reads.list_messages(
        chosen.address,
        tab_of(chosen.place),
        filter=message_filter(chosen),
        cursor=f"above-{position}",
        limit=size,
        newest_first=False,
        by_number=True,
        actor=actor,
    )
    rows = [row for row in page.rows if row.sequence_number <= chosen.up_to and not _came_later(row.dead_lettered_at, chosen.at)]
    if page.next_cursor is None:
        return Part([row.sequence_number for row in rows], chosen.up_to, True)
    position = int(page.next_cursor.removeprefix("above-"))
    return Part([row.sequence_number for row in rows], min(position, chosen.up_to), position >= chosen.up_to)


def _came_later(dead_lettered_at: datetime | None, counted_at: datetime | None) -> bool:
    """Dead letters keep their numbers, so a low number does not mean that it was there when the messages were counted."""
    return dead_lettered_at is not None and counted_at is not None and dead_lettered_at > counted_at


def tab_of(place: Place) -> Tab:
    return next(tab for tab in Tab if (tab.subqueue, tab.states, tab.locked) == (place.subqueue, place.states, place.locked))


def message_filter(chosen: Selection) -> MessageFilter:
    """The conditions of a selection, with ages as they were when it was counted. Raises FilterError."""
    parsed = parse_filter(chosen.filter, now=chosen.at or datetime.now(UTC))
    return replace(parsed.at(chosen.at) if chosen.at else parsed, holds=chosen.place.holds)
