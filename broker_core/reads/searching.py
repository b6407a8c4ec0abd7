"""A search over all entities, in slices: each examines a bounded number of rows and says where the next one begins.

It has two parts. The history is searched first, newest first: it finds messages that are present or removed, also those of
deleted entities, by what their first event keeps (ids, session, properties, size, time). Then the stored messages that have no
events are searched, from entity to entity. A filter with conditions that no event can answer (bodies, states, reasons, holders)
is searched in all stored messages; removed messages cannot be found by these.

A filter that may be a whole message id is looked up by the index first (messages_with_id); the slices leave these messages out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import TERMINAL_KINDS, Actor, EntityAddress, EventKind, Family, Right, SubQueue
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from . import matching
from .conditions import ANY, Age, BodyText, InState, JsonValue, NumberRange, State, Text, TimeRange
from .filters import MessageFilter
from .messages import SCAN_BYTES, SCAN_ROWS, MessageRow, message_row
from .shared import require

SLICE_ROWS = 20_000  # examined by one statement at most
ROWS_PASSED = 500_000  # events of other entities that one statement reads past at most, if the filter names entities
ROWS_OF_EACH = 100  # events of an entity that one statement reads at least, if it has so many, however many the filter names
FIRST_ROWS, LEAST_ROWS = 4_000, 1_000  # by the first one of a slice; and by each, unless SLICE_ROWS is less
SLICE_SECONDS = 0.5  # no further statement is started after this time; each examines what fits into the rest
SLICE_FOUND = 50
FIRST_KINDS = (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)
ENTITIES_AT_ONCE = 10  # whose messages one statement examines, if the filter names entities
MOST_ENTITIES = 1_000  # a filter that names more is searched in all
OUTCOME_ROWS = 60_000  # events after a message's first one, among which its last one is looked for
SAME_ID = 50  # shown at most; more are left to the slices
EVENTS, MESSAGES = "events", "messages"
_START = (2**63 - 1, 0, 0, 0)
_NOT_IN_EVENTS = ("reason", "description", "held-by", "deliveries", "priority", "dead-at", "dead-age")


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that a search found.

    row:   as stored now; None: it was removed. at: when it arrived. by: who sent it; None: not known.
    address: of its list if it is present. deleted_at: when its entity was deleted; None: it was not.
    outcome, reason: how it left; None: it is present, or its last event is far behind its first one (OUTCOME_ROWS).
    """

    entity_id: int
    address: EntityAddress
    family: Family
    sequence_number: int
    message_id: str | None
    subject: str | None
    correlation_id: str | None
    session_id: str | None
    at: datetime
    by: str | None
    kind: EventKind | None
    now: datetime
    deleted_at: datetime | None
    row: MessageRow | None
    outcome: EventKind | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """What a slice found, in the order of the search, and where the next one begins.

    part: EVENTS or MESSAGES. cursor: for the next slice; None: the search is complete. scanned: rows examined by this slice.
    total: about how many there are in this part; None: not known, as the filter names entities.
    back_to: of the events, when the last one examined was recorded.
    not_json: stored messages whose bodies are not JSON although the filter has conditions on values in JSON.
    """

    messages: tuple[FoundMessage, ...]
    part: str
    cursor: str | None
    scanned: int
    total: int | None
    back_to: datetime | None
    not_json: int


@dataclass(frozen=True, slots=True)
class WithId:
    """The messages with an id, newest first. parts: of the search in which there are no others with this id."""

    messages: tuple[FoundMessage, ...]
    parts: frozenset[str]


class LastEvent(NamedTuple):
    """Of a message: its kind, and why it happened."""

    kind: int
    reason: str | None


def exact_id(filter: MessageFilter) -> str | None:
    """The text of a filter that may be a whole message id: one condition, on the id or without a key. None: it cannot be one."""
    if len(filter.conditions) != 1 or filter.holds is not None:
        return None
    condition = filter.conditions[0]
    if isinstance(condition, Text) and condition.field in ("id", ANY) and condition.pattern.is_plain and not condition.negated:
        return condition.pattern.text or None
    return None


def is_in_events(filter: MessageFilter) -> bool:
    """Whether events can answer all conditions of the filter."""
    return not any(
        isinstance(condition, BodyText | JsonValue)
        or (isinstance(condition, InState) and condition.state is not State.GONE)
        or (isinstance(condition, Text | NumberRange | Age | TimeRange) and condition.field in _NOT_IN_EVENTS)
        for condition in filter.conditions
    )


def _joined(results: Sequence[WithId]) -> WithId:
    parts = frozenset.intersection(*(result.parts for result in results))
    messages = [message for result in results for message in result.messages if _part(message) in parts]
    return WithId(tuple(sorted(messages, key=lambda message: message.at, reverse=True)), parts)


@use_case(namespace=WHOLE_DATABASE, combine=_joined)
def messages_with_id(message_id: str, *, with_system: bool = False, actor: Actor | None = None) -> Steps[WithId]:
    """Messages with exactly this id, present or removed: by the index of events, and among the first SCAN_ROWS stored messages.
    A part with more of them, or more rows, than can be read at once is left out."""
    require(actor, Right.BROWSE, "all namespaces")
    by_event = call("search_events_of_id", message_id=message_id, with_system=with_system, max_count=SAME_ID + 1)
    events = yield Atomically(_after("allow_bitmap_scans", by_event))
    if len(events) > SAME_ID:
        return WithId((), frozenset())
    last = {(row.entity_id, row.sequence_number): LastEvent(row.last_kind, row.last_reason) for row in events}
    from_events = [
        _ended(message, last[message.entity_id, message.sequence_number]) for message in (yield from _with_present(events))
    ]
    stored = yield call(
        "read_find_in_messages", message_id=message_id, max_scanned=SCAN_ROWS, max_count=SAME_ID + 1, with_system=with_system
    )
    if len(stored) > SAME_ID or stored[0].scanned >= SCAN_ROWS:
        # a stored message of which only later events are kept is found again among the stored ones
        return WithId(
            tuple(message for message in from_events if message.row is None or message.kind in FIRST_KINDS), frozenset({EVENTS})
        )
    places = {(row.entity_id, row.sequence_number) for row in stored if row.sequence_number is not None}
    rows = yield from _stored(list(places - {(row.entity_id, row.sequence_number) for row in events}))
    return WithId((*from_events, *map(_of_row, rows.values())), frozenset({EVENTS, MESSAGES}))


def _after(setting: str, statement: Statement) -> Steps[list]:
    """A statement with a setting for its transaction."""
    yield call(setting)
    return (yield statement)


@use_case(namespace=WHOLE_DATABASE)
def search_slice(
    filter: MessageFilter, cursor: str | None = None, *, with_system: bool = False, known: Collection[str] = (),
    actor: Actor | None = None,
) -> Steps[Slice]:  # fmt: skip
    """The next slice of a search in one database. known: the parts of which messages_with_id found the messages with the filter's
    id, to be left out. Raises InvalidArgument for an invalid cursor, NotAuthorized."""
    require(actor, Right.BROWSE, "all namespaces")
    if filter.needs_bodies:
        require(actor, Right.SEE_BODIES, "all namespaces")
    rest, only = _without_gone(filter)
    part, place = _parse(cursor) if cursor else (EVENTS if is_in_events(filter) else MESSAGES, None)
    (totals,) = yield call("search_totals")
    search = _Search(rest, only, with_system, exact_id(rest), known, time.monotonic())
    if part == MESSAGES:
        return (yield from search.messages(place, totals.messages))
    first = yield from search.events(place, totals.events)
    part, place = _parse(first.cursor) if first.cursor else (EVENTS, None)
    if part == EVENTS or len(first.messages) >= SLICE_FOUND or search.is_over:
        return first
    second = yield from search.messages(place, totals.messages)
    return replace(second, messages=(*first.messages, *second.messages))


def _without_gone(filter: MessageFilter) -> tuple[MessageFilter, bool | None]:
    """The filter without conditions on whether messages are removed, and these: whether they must be; None: any."""
    of_gone = [condition for condition in filter.conditions if isinstance(condition, InState) and condition.state is State.GONE]
    rest = tuple(condition for condition in filter.conditions if condition not in of_gone)
    return MessageFilter(rest), (not of_gone[0].negated) if of_gone else None


@dataclass(slots=True)
class _Search:
    filter: MessageFilter
    gone: bool | None
    with_system: bool
    id: str | None
    known: Collection[str]
    began: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.began >= SLICE_SECONDS

    def rows(self, scanned: int, most: int) -> int:
        """How many rows the next statement examines, so that it ends with the slice: rows differ a hundredfold in what they cost.
        scanned: by this slice so far."""
        if not scanned:
            return min(FIRST_ROWS, most)
        seconds = time.monotonic() - self.began
        return min(max(int(scanned / seconds * (SLICE_SECONDS - seconds)), LEAST_ROWS), most)

    def statement(self, below: tuple[int, ...], most: int, only: list[int] | None) -> Statement:
        """The next statement of the events: of all entities, or of those that the filter names."""
        params = {"below_xid": str(below[0]), "below_event": below[1], "max_scanned": most, "max_count": SLICE_FOUND}
        params |= {"with_system": self.with_system, **_conditions(self.filter, events=True)}
        if only is None:
            return call("search_events", **params)
        rows_each = max(SLICE_ROWS // len(only), ROWS_OF_EACH)
        return call("search_events_of", only=only, max_read=SLICE_ROWS, max_each=rows_each, **params)

    def events(self, place: tuple[int, ...] | None, total: int) -> Steps[Slice]:
        below = place or (2**64 - 1, 2**63 - 1)
        messages: list[FoundMessage] = []
        scanned, back_to, cursor = 0, None, None
        only = yield from self._entities(with_deleted=True)
        if only == []:
            return Slice((), EVENTS, None, 0, None, None, 0)
        while True:
            most = self.rows(scanned, SLICE_ROWS if only is None else ROWS_PASSED)
            rows = yield self.statement(below, most, only)
            head, hits = rows[0], [row for row in rows if row.event_id is not None]
            scanned, back_to = scanned + head.scanned, head.back_to or back_to
            found = yield from _with_present(hits)
            messages += self._new((yield from _with_outcomes(found, hits)), EVENTS)
            if len(hits) == SLICE_FOUND:
                below, more = (int(hits[-1].xid), hits[-1].event_id), True
                back_to = hits[-1].recorded_at
            else:
                more = head.more
                below = (int(head.last_xid), head.last_event) if more else below
            if not more:
                cursor = None if self.gone else _messages_from(_START, back_to and _midnight(back_to))
                break
            cursor = f"{EVENTS}-{below[0]}-{below[1]}"
            if len(messages) >= SLICE_FOUND or self.is_over:
                break
        return Slice(tuple(messages), EVENTS, cursor, scanned, total if only is None else None, back_to, 0)

    def _new(self, messages: list[FoundMessage], part: str) -> list[FoundMessage]:
        """Without those that the filter excludes, and those that are known."""
        known = self.id if part in self.known else None
        return [
            message
            for message in messages
            if self.gone in (None, message.row is None) and (known is None or message.message_id != known)
        ]

    def messages(self, place: tuple[int, ...] | None, total: int) -> Steps[Slice]:
        *before, oldest = place or (*_START, 0)
        rest_before = datetime.fromtimestamp(oldest / 1_000_000, UTC) if oldest else None
        matches: list[FoundMessage] = []
        scanned, not_json, cursor = 0, 0, None
        entity_ids = yield from self._entities(with_deleted=False)
        while True:
            only = (
                None
                if entity_ids is None
                else [entity_id for entity_id in entity_ids if (entity_id, 0, 0, 0) < tuple(before)][:ENTITIES_AT_ONCE]
            )
            if only == []:
                cursor = None
                break
            names = dict(zip(("entity_id", "subqueue", "state", "number"), before, strict=True))
            statement = call(
                "search_messages", **names, max_scanned=self.rows(scanned, SLICE_ROWS), max_bytes=SCAN_BYTES,
                max_count=SLICE_FOUND, with_system=self.with_system, rest_before=rest_before, only=only,
                **_conditions(self.filter),
            )  # fmt: skip
            rows = yield Atomically(_after("join_by_hashing", statement))
            head, hits = rows[0], [row for row in rows if row.sequence_number is not None]
            scanned, not_json = scanned + head.scanned, not_json + head.not_json
            matches += self._new([_of_row(message_row(row)) for row in hits], MESSAGES)
            if len(hits) == SLICE_FOUND:
                last = hits[-1]
                before = [last.entity_id, last.subqueue, last.state, last.sequence_number]
            elif head.at_end or not head.scanned:
                if only is None:
                    cursor = None
                    break
                before = [only[-1], 0, 0, 0]
            else:
                before = [head.last_entity, head.last_subqueue, head.last_state, head.last_number]
            cursor = _messages_from(before, rest_before)
            if len(matches) >= SLICE_FOUND or self.is_over:
                break
        return Slice(tuple(matches), MESSAGES, cursor, scanned, total if entity_ids is None else None, None, not_json)

    def _entities(self, *, with_deleted: bool) -> Steps[list[int] | None]:
        """The entities that the filter names, the newest first; None: it names none, or too many."""
        named = [
            condition
            for condition in self.filter.conditions
            if isinstance(condition, Text) and condition.field == "entity" and not condition.negated
        ]
        if not named:
            return None
        patterns = [condition.pattern.like if condition.exact else f"%{condition.pattern.like}%" for condition in named]
        rows = yield call(
            "search_entities", patterns=patterns, exact=[condition.exact for condition in named], with_system=self.with_system,
            with_deleted=with_deleted, max_count=MOST_ENTITIES + 1,
        )  # fmt: skip
        return [row.id for row in rows] if len(rows) <= MOST_ENTITIES else None


def _with_present(events: list[Any]) -> Steps[list[FoundMessage]]:
    """The messages of these events, each once, with those that are stored."""
    firsts = {(row.entity_id, row.sequence_number): row for row in events}
    stored = yield from _stored(list(firsts))
    return [_of_event(row, stored.get(key)) for key, row in firsts.items()]


def _with_outcomes(messages: list[FoundMessage], events: list[Any]) -> Steps[list[FoundMessage]]:
    """The messages with how they left, by the events that follow the oldest one of them. events: their first ones."""
    removed = [(message.entity_id, message.sequence_number) for message in messages if message.row is None]
    if not removed:
        return messages
    first = min(int(row.xid) for row in events if (row.entity_id, row.sequence_number) in removed)
    ids, numbers = zip(*removed, strict=True)
    rows = yield call(
        "search_outcomes", entity_ids=list(ids), numbers=list(numbers), from_xid=str(first), max_read=OUTCOME_ROWS
    )  # fmt: skip
    last = {(row.entity_id, row.sequence_number): row for row in rows}
    return [_ended(message, last.get((message.entity_id, message.sequence_number))) for message in messages]


def _ended(message: FoundMessage, last: Any) -> FoundMessage:
    """The message with the kind and the reason of its last event, if it is removed and this says how."""
    if message.row or last is None or last.kind not in TERMINAL_KINDS:
        return message
    return replace(message, outcome=EventKind(last.kind), reason=last.reason)


def _stored(places: list[tuple[int, int]]) -> Steps[dict[tuple[int, int], MessageRow]]:
    """Those of these (entity, number) that are stored."""
    rows_by_place: dict[tuple[int, int], MessageRow] = {}
    if not places:
        return rows_by_place
    present = yield call("read_present", entity_ids=[e for e, _ in places], numbers=[n for _, n in places])
    numbers: dict[int, list[int]] = {}
    for message in present:
        numbers.setdefault(message.entity_id, []).append(message.sequence_number)
    for entity_id, entity_numbers in numbers.items():
        rows = yield call("read_messages_by_number", entity_id=entity_id, numbers=entity_numbers)
        rows_by_place |= {(entity_id, row.sequence_number): message_row(row) for row in rows}
    return rows_by_place


def _part(message: FoundMessage) -> str:
    """The part of the search that would find it."""
    return MESSAGES if message.kind is None else EVENTS


def _conditions(filter: MessageFilter, *, events: bool = False) -> dict[str, Any]:
    """The parameters of `matches`, without what only lists use, and for events without what only bodies need."""
    unused = {"lowest", "highest"} | ({"reads_bodies", "json_paths", "json_negated"} if events else set())
    return {name: value for name, value in matching.parameters(filter).items() if name not in unused}


def _midnight(oldest_event: datetime) -> datetime:
    """From when on all events are kept: they are removed by days (history/retention.py)."""
    return oldest_event.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _messages_from(before: Sequence[int], oldest_event: datetime | None) -> str:
    """The cursor for the stored messages before a key. oldest_event: only those that have no events; None: all."""
    oldest = 0 if oldest_event is None else int(oldest_event.timestamp() * 1_000_000)
    return "-".join([MESSAGES, *map(str, before), str(oldest)])


def _parse(cursor: str) -> tuple[str, tuple[int, ...] | None]:
    part, _, rest = cursor.partition("-")
    numbers = rest.split("-")
    size = {EVENTS: 2, MESSAGES: 5}.get(part)
    if size != len(numbers) or not all(number.isdecimal() and len(number) < 20 for number in numbers):
        raise InvalidArgument("cursor", f"{cursor!r} is not a valid cursor of a search")
    return part, tuple(map(int, numbers))


def _of_event(row: Any, stored: MessageRow | None) -> FoundMessage:
    address = stored.address if stored else EntityAddress(row.namespace_name, row.path, SubQueue(row.subqueue))
    return FoundMessage(
        entity_id=row.entity_id, address=address, family=Family(row.family), sequence_number=row.sequence_number,
        message_id=row.message_id, subject=row.subject, correlation_id=row.correlation_id, session_id=row.session_id, at=row.at,
        by=row.actor, kind=EventKind(row.kind), now=row.now, deleted_at=row.deleted_at, row=stored,
    )  # fmt: skip


def _of_row(row: MessageRow) -> FoundMessage:
    return FoundMessage(
        entity_id=row.entity_id, address=row.address, family=row.family, sequence_number=row.sequence_number,
        message_id=row.message_id, subject=row.subject, correlation_id=row.correlation_id, session_id=row.session_id,
        at=row.enqueued_at, by=None, kind=None, now=row.read_at, deleted_at=None, row=row,
    )  # fmt: skip
