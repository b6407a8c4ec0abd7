"""Events: the timeline of a message, removed messages, and search by message id."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Any

from broker_core.common.actors import spellings
from broker_core.common.arguments import require_count
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import TERMINAL_KINDS, Actor, EntityAddress, EventKind, Right, SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .messages import SCAN_CHUNK, SCAN_ROWS, SCAN_SECONDS
from .shared import PAGE_ROWS, LinkedMessage, Page, entity_id_of, names_of, pairs, require

FOUND_CAP = 100
TIMELINE_EVENTS = 1_000  # the newest ones of each number of a message; renewing a lock for days produces more
FROM_THE_BEGINNING = "1:1:"  # a snapshot in which nothing is committed
SNAPSHOT = re.compile(r"[0-9]{1,18}:[0-9]{1,18}:(?:[0-9]{1,18}(?:,[0-9]{1,18})*)?")
TIMELINE_MESSAGES = 20  # numbers followed of one message, which schedules and resubmissions change


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a message (docs/design.md D7).

    at: the namespace's clock; recorded_at: the database's. address: of the entity; None if it was deleted long ago.
    actor: "user:alice", "key:Root", "process:worker". delivery_count: failed deliveries so far.
    Only a message's first event (sent, scheduled) has its properties; only its last has enqueued_at, first_received_at and
    last_received_at.
    details: depend on the kind: {"to": number}, {"from": number}, {"resubmitted_from": {...}}, {"copies": 3} ...
    others:  the messages that this one became, or was created from, if `details` refer to them; several if an exchange routed it
             to several queues.
    """

    event_id: int
    recorded_at: datetime
    at: datetime
    entity_id: int
    address: EntityAddress | None
    sequence_number: int
    kind: EventKind
    message_id: str | None
    delivery_count: int | None
    locked_until: datetime | None
    actor: str | None
    reason: str | None
    enqueued_at: datetime | None = None
    first_received_at: datetime | None = None
    last_received_at: datetime | None = None
    session_id: str | None = None
    size: int | None = None
    time_to_live: timedelta | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    application_properties: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    details: Mapping = field(default_factory=dict)
    others: tuple[LinkedMessage, ...] = ()

    @property
    def other(self) -> LinkedMessage | None:
        """The first of `others`; None: there are none."""
        return self.others[0] if self.others else None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Conditions on events: entity, or namespace, kinds, actor ("process:web-1", or "web-1" for any kind of actor, a
    key's clients included), time of recording, and message. except_namespaces: their events are left out."""

    entity_id: int | None = None
    namespace: str | None = None
    kinds: Sequence[EventKind] = ()
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    message_id: str | None = None
    sequence_number: int | None = None
    except_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the events of a database. snapshot: which of them are committed. event_id: the highest number given so far."""

    snapshot: str
    event_id: int


@dataclass(frozen=True, slots=True)
class News:
    """Events, oldest first. snapshot: of this read; the events after it are those that this read did not see."""

    snapshot: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class MessageMatch:
    """A message found by a search over all entities.

    is_present: it is in the list `address`; otherwise it was removed, and `last_kind` is the kind of its last event.
    last_at:    of that event, by the namespace's clock. address None: the entity was deleted long ago.
    """

    entity_id: int
    address: EntityAddress | None
    sequence_number: int
    message_id: str | None
    is_present: bool
    last_kind: EventKind | None
    last_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of `find`, newest first. capped: there may be more messages than these, or more rows than were examined."""

    matches: tuple[MessageMatch, ...]
    capped: bool


@use_case(namespace=WHOLE_DATABASE)
def timeline(entity_id: int, sequence_number: int, *, actor: Actor | None = None) -> Steps[list[Event]]:
    """The events of a message, present or removed, oldest first; empty: none are recorded, or no longer.

    Earlier and later numbers of the message, from the activation of a schedule or a resubmission, are followed, so events may
    have another entity and number than requested.
    """
    require(actor, Right.BROWSE, f"entity {entity_id}")
    pending: list[tuple[int, int]] = [(entity_id, sequence_number)]
    seen: set[tuple[int, int]] = set()
    event_rows: list[Any] = []
    while pending and len(seen) < TIMELINE_MESSAGES:
        place = pending.pop()
        seen.add(place)
        events_of = call("read_message_events", entity_id=place[0], sequence_number=place[1], max_count=TIMELINE_EVENTS)
        rows = yield from _with_bitmap_scans(events_of)
        event_rows += rows
        links = {(entity, number) for row in rows for entity, number in _links(row) if number is not None}
        pending += links - seen - set(pending)
    names = yield from names_in(event_rows)
    return [_event(row, names) for row in sorted(event_rows, key=lambda row: row.event_id)]


def _with_bitmap_scans(statement: Statement) -> Steps[list]:
    """Run a statement that uses a BRIN index, which only a bitmap scan reads; others avoid those (store/connections.py)."""

    def steps() -> Steps[list]:
        yield call("allow_bitmap_scans")
        return (yield statement)

    return (yield Atomically(steps()))


@use_case(namespace=WHOLE_DATABASE)
def events(
    filter: EventFilter = EventFilter(),
    *,
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    max_scanned: int = SCAN_ROWS,
    actor: Actor | None = None,
) -> Steps[Page[Event]]:
    """The newest events that match, among the newest `max_scanned` (or as many as SCAN_SECONDS allow). Pages only go back in
    time."""
    require(actor, Right.BROWSE, "events")
    require_count("max_scanned", max_scanned)
    return (yield from _events(filter, cursor, limit, max_scanned))


@use_case
def position(namespace: str, *, actor: Actor | None = None) -> Steps[Position]:
    """Where the events of the namespace's database are now."""
    require(actor, Right.BROWSE, namespace)
    [row] = yield call("read_position")
    return Position(row.snapshot, row.event_id)


@use_case
def events_since(
    namespace: str, snapshot: str = FROM_THE_BEGINNING, *, limit: int = PAGE_ROWS, actor: Actor | None = None
) -> Steps[News]:
    """The newest events of a namespace that were not committed in a snapshot, also of entities that were deleted. Unlike `events`
    it examines all of them, so the time it takes grows with what happened in all namespaces since then."""
    require(actor, Right.BROWSE, namespace)
    require_count("limit", limit)
    if not _is_snapshot(snapshot):
        raise InvalidArgument("snapshot", "must be one that `position` or `events_since` returned")
    rows = yield call("read_events_since", namespace=namespace, since=snapshot, max_count=limit)
    events = yield from events_of([row for row in rows if row.event_id is not None])
    return News(rows[0].snapshot, tuple(events))


@use_case
def gone(
    address: EntityAddress,
    *,
    kinds: Sequence[EventKind] = (),
    message_id: str | None = None,
    by: str | None = None,
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    actor: Actor | None = None,
) -> Steps[Page[Event]]:
    """The last events of removed messages (completed, expired, purged ...), newest first. Raises EntityNotFound.

    kinds: only these. message_id: exactly this. by: whoever caused the event, as EventFilter.actor.
    """
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    filter = EventFilter(entity_id=entity_id, kinds=tuple(kinds or TERMINAL_KINDS), message_id=message_id, actor=by)
    return (yield from _events(filter, cursor, limit))


def _joined(results: list[SearchResult]) -> SearchResult:
    return SearchResult(
        tuple(chain.from_iterable(result.matches for result in results)), any(result.capped for result in results)
    )


@use_case(namespace=WHOLE_DATABASE, combine=_joined)
def find(text: str, *, actor: Actor | None = None) -> Steps[SearchResult]:
    """Messages with exactly this message id in all entities, including removed ones within the retention of events."""
    require(actor, Right.BROWSE, "all namespaces")
    text = text.strip()
    if not text:
        return SearchResult((), False)
    in_events = yield from _with_bitmap_scans(call("read_find_in_events", message_id=text, max_count=FOUND_CAP))
    rows = yield call("read_find_in_messages", message_id=text, max_scanned=SCAN_ROWS, max_count=FOUND_CAP, with_system=True)
    in_table, capped = [row for row in rows if row.sequence_number is not None], rows[0].scanned >= SCAN_ROWS
    places = [(row.entity_id, row.sequence_number) for row in in_events]
    rows = yield call("read_present", entity_ids=[e for e, _ in places], numbers=[n for _, n in places])
    present = {(row.entity_id, row.sequence_number): SubQueue(row.subqueue) for row in [*rows, *in_table]}
    names = yield from names_of({entity for entity, _ in [*places, *present]})
    matches = [_match(row, row, present, names) for row in in_events]
    without_events = [row for row in in_table if (row.entity_id, row.sequence_number) not in set(places)]
    matches += [_match(row, None, present, names) for row in without_events]
    return SearchResult(tuple(matches), capped or len(in_events) >= FOUND_CAP or len(in_table) >= FOUND_CAP)


def _events(filter: EventFilter, cursor: str | None, limit: int, max_scanned: int = SCAN_ROWS) -> Steps[Page[Event]]:
    require_count("limit", limit)
    events: list[Any] = []
    below, scanned, capped = _event_cursor(cursor), 0, False
    deadline = time.monotonic() + SCAN_SECONDS
    actors, prefixes = spellings(filter.actor) if filter.actor else (None, None)
    while len(events) <= limit:
        rows = yield call(
            "read_events", below_xid=below[0], below_event=below[1], max_scanned=SCAN_CHUNK, max_count=limit + 1 - len(events),
            since=filter.since, until=filter.until, entity_id=filter.entity_id, namespace=filter.namespace,
            kinds=[int(k) for k in filter.kinds] or None,
            actors=actors, prefixes=prefixes, message_id=filter.message_id,
            sequence_number=filter.sequence_number,
            except_namespaces=[name.lower() for name in filter.except_namespaces] or None,
        )  # fmt: skip
        scanned += rows[0].scanned
        events += [row for row in rows if row.event_id is not None]
        if rows[0].scanned < SCAN_CHUNK:
            break
        below = (rows[0].last_xid, rows[0].last_event)
        if len(events) <= limit and (scanned >= max_scanned or time.monotonic() >= deadline):
            capped = True
            break
    names = yield from names_in(events[:limit])
    last = events[limit - 1] if len(events) > limit else None
    next_cursor = f"{last.xid}-{last.event_id}" if last else "-".join(map(str, below)) if capped else None
    return Page(tuple(_event(row, names) for row in events[:limit]), next_cursor, None, scanned, capped, None)


def _event_cursor(cursor: str | None) -> tuple[str, int]:
    if cursor is None:
        return str(2**64 - 1), 2**63 - 1
    xid, _, event = cursor.partition("-")
    if not (xid.isdecimal() and event.isdecimal() and len(xid) < 20 and len(event) < 19):
        raise InvalidArgument("cursor", f"{cursor!r} is not a valid page cursor")
    return xid, int(event)


def _is_snapshot(text: object) -> bool:
    """Whether PostgreSQL reads the text as a snapshot: xmin:xmax:the transactions between that are not committed."""
    if not isinstance(text, str) or not SNAPSHOT.fullmatch(text):
        return False
    lowest, end, between = text.split(":")
    numbers = [int(number) for number in between.split(",") if number]
    ascending = all(earlier < later for earlier, later in pairwise([*numbers, int(end)]))
    return 0 < int(lowest) <= (numbers or [int(end)])[0] and ascending


def _links(row: Any) -> list[tuple[int, int | None]]:
    """(entity, number) of the messages that this one became, or was created from, according to an event."""
    details = row.details or {}
    linked = next((details[name] for name in ("to", "from", "resubmitted_from", "published_from") if details.get(name)), None)
    links: list[tuple[int, int | None]] = []
    for link in linked if isinstance(linked, list) else [linked]:
        if isinstance(link, int):
            links.append((row.entity_id, link))
        elif isinstance(link, dict):
            links.append((link.get("entity", link.get("entity_id", row.entity_id)), link.get("sequence_number")))
    return links


def names_in(events: Sequence[Any]) -> Steps[dict[int, EntityAddress]]:
    """The addresses of the entities of events, and of the messages that they link to."""
    linked = {entity_id for row in events for entity_id, _ in _links(row)}
    return (yield from names_of({row.entity_id for row in events} | linked))


def events_of(rows: Sequence[Any]) -> Steps[list[Event]]:
    """The events of rows with all columns of an event."""
    names = yield from names_in(rows)
    return [_event(row, names) for row in rows]


def _event(row: Any, names: Mapping[int, EntityAddress]) -> Event:
    address = names.get(row.entity_id)
    others = tuple(LinkedMessage(entity_id, names.get(entity_id), number) for entity_id, number in _links(row))
    return Event(
        event_id=row.event_id,
        recorded_at=row.recorded_at,
        at=row.at,
        entity_id=row.entity_id,
        address=address and EntityAddress(address.namespace, address.path, SubQueue(row.subqueue)),
        sequence_number=row.sequence_number,
        kind=EventKind(row.kind),
        message_id=row.message_id,
        delivery_count=row.delivery_count,
        locked_until=row.locked_until,
        actor=row.actor,
        reason=row.reason,
        enqueued_at=row.enqueued_at,
        first_received_at=row.first_received_at,
        last_received_at=row.last_received_at,
        session_id=row.session_id,
        size=row.size,
        time_to_live=row.time_to_live,
        properties=row.properties or {},
        application_properties=pairs(row.application_properties),
        details=row.details or {},
        others=others,
    )


def _match(row: Any, event: Any, present: Mapping, names: Mapping) -> MessageMatch:
    entity_id, number = row.entity_id, row.sequence_number
    subqueue, address = present.get((entity_id, number)), names.get(entity_id)
    if address is not None and subqueue is not None:
        address = EntityAddress(address.namespace, address.path, subqueue)
    last = (EventKind(event.last_kind), event.last_at, event.reason) if event else (None, None, None)
    return MessageMatch(entity_id, address, number, row.message_id, subqueue is not None, *last)
