"""Lists of messages, the details of one, its body, and the explanation of why it is not delivered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from broker_core.common.arguments import require_count, whole_numbers
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.explanations import Reason
from broker_core.common.family import definition_of
from broker_core.common.types import (
    Actor,
    BodyKind,
    EntityAddress,
    Family,
    MessageState,
    Right,
    SubQueue,
)
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from . import matching
from .filters import MessageFilter
from .shared import PAGE_ROWS, ClockReading, Page, Position, clock_of, entity_id_of, microseconds, pairs, require

SCAN_ROWS = 200_000  # maximum number of rows examined by a search
SCAN_SECONDS = 1.0  # maximum duration of a search, checked between chunks
SCAN_CHUNK = 5_000
SCAN_BYTES = 16 * 1024 * 1024  # of bodies in one chunk, which has at least one body
BODY_BYTES = 256 * 1024
SUGGEST_FROM = 10_000  # the newest messages, whose frequent values are suggested
NAMES_FROM_ENTITIES, NAMES_FROM_MESSAGES = 100, 200  # the names of properties are of so many entities, and messages of each
MOST_PROPERTY_NAMES = 30
MOST_SUGGESTED = 10
SUGGEST_BYTES = 2 * 1024 * 1024  # of these messages beside their bodies: some 100,000 names of properties
EXPIRED = -1  # in MessageFilter.holds


class Tab(StrEnum):
    """The lists of an entity. ALL: the main queue with what is deferred and scheduled. ACTIVE includes locked messages; LOCKED
    shows only these, UNLOCKED only the others."""

    ALL = "all"
    ACTIVE = "active"
    UNLOCKED = "unlocked"
    LOCKED = "locked"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"

    @property
    def subqueue(self) -> SubQueue:
        return _TAB_LISTS[self][0]

    @property
    def states(self) -> tuple[MessageState, ...]:
        return _TAB_LISTS[self][1:]

    @property
    def locked(self) -> bool | None:
        """Whether it lists only locked messages, or only others; None: both."""
        return {Tab.LOCKED: True, Tab.UNLOCKED: False}.get(self)


_TAB_LISTS = {
    Tab.ALL: (SubQueue.MAIN, *MessageState),
    Tab.ACTIVE: (SubQueue.MAIN, MessageState.ACTIVE),
    Tab.UNLOCKED: (SubQueue.MAIN, MessageState.ACTIVE),
    Tab.LOCKED: (SubQueue.MAIN, MessageState.ACTIVE),
    Tab.DEFERRED: (SubQueue.MAIN, MessageState.DEFERRED),
    Tab.SCHEDULED: (SubQueue.MAIN, MessageState.SCHEDULED),
    Tab.DEAD_LETTER: (SubQueue.DEAD_LETTER, MessageState.ACTIVE),
    Tab.TRANSFER_DEAD_LETTER: (SubQueue.TRANSFER_DEAD_LETTER, MessageState.ACTIVE),
}


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as shown in lists, without its body.

    address:      the entity and the list.
    read_at:      the instant of the namespace's clock at which the row is true.
    expires_at:   from its own time-to-live, or from the entity's default (expires_by_default); None in a dead-letter queue, where
                  messages do not expire (SB-035), and while scheduled.
    delivery_count: failed deliveries, without a lock that has ended but was not processed yet (SB-090).
    locked_until, locked_by, lock_token: of the last lock if it was not settled; it may have ended, see `display_state`. It began
                  at last_received_at or at its last renewal.
    renewals:     how often its lock was renewed since it was received; in a storage queue, updated since the last get.
    size:         bytes of body and properties; in a RabbitMQ queue, of the body.
    visible_at, hold_kind, held_since: in a storage queue: when the message becomes or became visible, why and since when it was
                  invisible.
    owner_id:     in a RabbitMQ queue: the connection that has not acknowledged it. priority: in a priority queue.
    deliveries_before: of a dead letter: failed deliveries before it was dead-lettered; None: not known.
    """

    entity_id: int
    address: EntityAddress
    sequence_number: int
    state: MessageState
    message_id: str | None
    session_id: str | None
    subject: str | None
    correlation_id: str | None
    content_type: str | None
    size: int
    delivery_count: int
    max_delivery_count: int
    enqueued_at: datetime
    expires_at: datetime | None
    expires_by_default: bool
    scheduled_enqueue_at: datetime | None
    locked_until: datetime | None
    locked_by: str | None
    lock_token: UUID | None
    first_received_at: datetime | None
    last_received_at: datetime | None
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_lettered_at: datetime | None
    read_at: datetime
    family: Family = Family.SERVICE_BUS
    visible_at: datetime | None = None
    hold_kind: int | None = None
    held_since: datetime | None = None
    renewals: int = 0
    owner_id: int | None = None
    priority: int | None = None
    deliveries_before: int | None = None

    @property
    def subqueue(self) -> SubQueue:
        return self.address.subqueue

    @property
    def display_state(self) -> Any:
        """Its state at `read_at`, as shown to people: a member of its family's DisplayState."""
        return definition_of(self.family).display_state(self, self.read_at)

    @property
    def deadline(self) -> datetime | None:
        """When that state changes by itself, by the end of a lock, schedule or life (namespace's clock); None: never."""
        return definition_of(self.family).next_change_at(self, self.read_at)

    @property
    def why_not_deliverable(self) -> str | None:
        """One sentence on why it cannot be received; None if it can."""
        return definition_of(self.family).why_not(self, self.read_at)

    @property
    def dom_id(self) -> str:
        """The id of its row in pages and live updates."""
        return f"m-{self.entity_id}-{int(self.subqueue)}-{self.sequence_number}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message is or is not delivered at `at` of the namespace's clock. reasons: obstacles come first."""

    message: MessageRow
    reasons: tuple[Reason, ...]
    deliverable: bool
    at: datetime

    @property
    def obstacles(self) -> tuple[Reason, ...]:
        return tuple(reason for reason in self.reasons if reason.is_obstacle)


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """A stored message without its body.

    broker_properties: subject, correlation_id, reply_to, partition_key ... as sent, present ones only.
    application_properties: name -> (AMQP type, canonical text); the text of a null is None.
    time_to_live:     its own, as capped at enqueueing; None: the entity's default applies.
    enqueued_sequence_number: in the first entity of a forwarding chain, or in a dead letter's origin; None: the same as here.
    resubmitted_from: {"entity_id", "sequence_number", ...} of the dead letter from which it was created; None: it was not.
    body_size:        bytes of the body, which `body` returns.
    transfer:         {"hops": how often it was forwarded, "to": path to which it is being forwarded}; empty: it was sent here.
    encoded:          what the sender encoded, where the other fields do not say it all (docs/messages.md).
    version:          changes with each change of the message, also with each lock; an edit names the one that it was made of.
    """

    row: MessageRow
    broker_properties: Mapping[str, str]
    application_properties: Mapping[str, tuple[str, str | None]]
    time_to_live: timedelta | None
    dead_letter_source: str | None
    enqueued_sequence_number: int | None
    resubmitted_from: Mapping | None
    body_kind: BodyKind
    body_size: int
    clock: ClockReading
    transfer: Mapping = field(default_factory=dict)
    encoded: bytes | None = None
    version: str = ""

    @property
    def came_from_elsewhere(self) -> bool:
        """Whether `enqueued_sequence_number` is the message's number in another entity."""
        first, address = self.enqueued_sequence_number, self.row.address
        return first is not None and (first != self.row.sequence_number or address.topic is not None or bool(self.transfer))


@dataclass(frozen=True, slots=True)
class MessageProperties:
    """broker: present ones only, as in MessageDetail. application: name -> (AMQP type, canonical text)."""

    broker: Mapping[str, Any]
    application: Mapping[str, tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Body:
    """Part of a message's body: `content` begins at byte `offset`; the body has `total` bytes."""

    content: bytes
    offset: int
    total: int
    kind: BodyKind
    content_type: str | None

    @property
    def is_complete(self) -> bool:
        return self.offset == 0 and len(self.content) == self.total


@use_case
def list_messages(
    address: EntityAddress,
    tab: Tab = Tab.ACTIVE,
    *,
    filter: MessageFilter = MessageFilter(),
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    newest_first: bool = True,
    by_number: bool = False,
    max_scanned: int = SCAN_ROWS,
    max_seconds: float = SCAN_SECONDS,
    actor: Actor | None = None,
) -> Steps[Page[MessageRow]]:
    """A page of one of an entity's lists, by sequence number; the scheduled messages by the instant at which they are due, unless
    `by_number`.

    `tab` selects the list; the sub-queue of `address` is ignored. `cursor` is a page's next_cursor or previous_cursor.
    A search examines at most `max_scanned` rows and starts no further chunk after `max_seconds`.
    Raises EntityNotFound, InvalidArgument for an invalid cursor, NotAuthorized for conditions on bodies without Right.SEE_BODIES.
    """
    require(actor, Right.BROWSE, address)
    if filter.needs_bodies:
        require(actor, Right.SEE_BODIES, address)
    require_count("limit", limit)
    entity_id = yield from entity_id_of(address)
    by_due = tab is Tab.SCHEDULED and not by_number
    for position in (Position.parse(cursor, newest_first, by_due=by_due), Position.parse(None, newest_first)):
        search = _Search(entity_id, tab, filter, position, limit, max_scanned, time.monotonic() + max_seconds, by_due=by_due)
        yield from search.run()
        if not search.met_the_start:
            break
    if search.last is None:
        raise EntityNotFound(str(address))
    return search.page()


@dataclass(frozen=True, slots=True)
class Matching:
    """How many messages match a filter. scanned: examined ones. capped: the search stopped before the end; more may match."""

    count: int
    scanned: int
    capped: bool


@use_case
def count_messages(
    address: EntityAddress,
    tab: Tab = Tab.ACTIVE,
    *,
    filter: MessageFilter = MessageFilter(),
    max_scanned: int = SCAN_ROWS,
    max_seconds: float = SCAN_SECONDS,
    actor: Actor | None = None,
) -> Steps[Matching]:
    """How many messages of a list match, searched as in list_messages. Raises as list_messages."""
    require(actor, Right.BROWSE, address)
    if filter.needs_bodies:
        require(actor, Right.SEE_BODIES, address)
    entity_id = yield from entity_id_of(address)
    position = Position.parse(None, newest_first=True)
    search = _Search(entity_id, tab, filter, position, 0, max_scanned, time.monotonic() + max_seconds, counts=True)
    yield from search.run()
    return Matching(search.matched, search.scanned, search.capped)


@use_case
def frequent_values(
    address: EntityAddress, tab: Tab, field: str, part: str = "", *, actor: Actor | None = None
) -> Steps[list[tuple[str, int]]]:
    """The most frequent values of a field among the newest messages of a list, and how many of these have them.

    field: a key of texts (filters.TEXTS), "prop.NAME", or "prop." for the names of properties. part: the values contain it.
    """
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    name = field.removeprefix("prop.") if field.startswith("prop.") else None
    column = matching.STORED.get(field, field) if name is None else "property" if name else "names"
    states = [int(state) for state in tab.states]
    rows = yield call(
        "read_frequent_values", entity_id=entity_id, subqueue=int(tab.subqueue), list_states=states, field=column,
        name=name or "", part=part, max_scanned=SUGGEST_FROM, max_count=MOST_SUGGESTED,
        max_bytes=SUGGEST_BYTES,
    )  # fmt: skip
    return [(row.value, row.n) for row in rows]


@use_case
def property_names(namespace: str, entity_ids: Iterable[int], *, actor: Actor | None = None) -> Steps[list[str]]:
    """Names of the senders' properties of some messages that are in these entities of a namespace."""
    require(actor, Right.BROWSE, namespace)
    rows = yield call(
        "read_property_names", namespace=namespace, entity_ids=whole_numbers(entity_ids), max_entities=NAMES_FROM_ENTITIES,
        max_messages=NAMES_FROM_MESSAGES, max_count=MOST_PROPERTY_NAMES, max_bytes=SUGGEST_BYTES,
    )  # fmt: skip
    return [row.name for row in rows]


@use_case(namespace=WHOLE_DATABASE)
def messages_by_number(entity_id: int, sequence_numbers: Iterable[int], *, actor: Actor | None = None) -> Steps[list[MessageRow]]:
    """Those of these messages that are still in any list of the entity, by number."""
    require(actor, Right.BROWSE, f"entity {entity_id}")
    rows = yield call("read_messages_by_number", entity_id=entity_id, numbers=whole_numbers(sequence_numbers))
    return [message_row(row) for row in rows]


@use_case
def message_properties(
    address: EntityAddress, sequence_numbers: Iterable[int], *, actor: Actor | None = None
) -> Steps[dict[int, MessageProperties]]:
    """The properties of messages in any list of the entity, by number. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    rows = yield call("read_properties_by_number", entity_id=entity_id, numbers=whole_numbers(sequence_numbers))
    return {row.sequence_number: MessageProperties(row.properties or {}, pairs(row.application_properties)) for row in rows}


@use_case
def message(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> Steps[MessageDetail | None]:
    """One message in any list of the entity; None: it is not there (see `timeline`). Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    rows = yield call("read_message", entity_id=entity_id, sequence_number=sequence_number)
    return _detail(rows[0]) if rows else None


@use_case
def body(
    address: EntityAddress, sequence_number: int, *, offset: int = 0, length: int = BODY_BYTES, actor: Actor | None = None
) -> Steps[Body | None]:
    """At most `length` bytes of a message's body from byte `offset` on; None: there is no such message.

    Raises EntityNotFound; NotAuthorized without Right.SEE_BODIES.
    """
    require(actor, Right.BROWSE | Right.SEE_BODIES, address)
    if offset < 0 or length < 0:
        raise InvalidArgument("range", "offset and length must not be negative")
    entity_id = yield from entity_id_of(address)
    rows = yield call("read_body", entity_id=entity_id, sequence_number=sequence_number, offset=offset, length=length)
    if not rows:
        return None
    [row] = rows
    return Body(bytes(row.content), offset, row.total, BodyKind(row.body_kind), row.content_type)


@use_case
def contents(
    address: EntityAddress, numbers: Iterable[int], *, max_bytes: int, actor: Actor | None = None
) -> Steps[list[tuple[MessageDetail, bytes]]]:
    """Those of these messages that are in the list, with their bodies, lowest number first: as many as have max_bytes together,
    but at least one. Raises EntityNotFound; NotAuthorized without Right.SEE_BODIES."""
    rows = yield from _contents(address, numbers, max_bytes, actor)
    return [(_detail(row), bytes(row.body)) for row in rows]


@use_case
def stored(address: EntityAddress, numbers: Iterable[int], *, max_bytes: int, actor: Actor | None = None) -> Steps[list[Any]]:
    """As contents, but the rows that an export writes: a lock that has ended counts as a failed delivery (SB-090), and tokens,
    with which their reader could settle messages, are replaced."""
    rows = yield from _contents(address, numbers, max_bytes, actor)
    return [row._replace(delivery_count=row.delivery_count + _has_ended_lock(row), lock_token=uuid4()) for row in rows]


def _contents(address: EntityAddress, numbers: Iterable[int], max_bytes: int, actor: Actor | None) -> Steps[list[Any]]:
    require(actor, Right.BROWSE | Right.SEE_BODIES, address)
    require_count("max_bytes", max_bytes)
    entity_id = yield from entity_id_of(address)
    chosen = {"subqueue": int(address.subqueue), "numbers": whole_numbers(numbers)}
    return (yield call("read_contents", entity_id=entity_id, max_bytes=max_bytes, **chosen))


def _has_ended_lock(row: Any) -> bool:
    return row.subqueue == SubQueue.MAIN and row.locked_until is not None and row.locked_until <= row.now


@dataclass(slots=True)
class _Search:
    """Reads a list in chunks until a page and one more row are found, or a cap is reached."""

    entity_id: int
    tab: Tab
    filter: MessageFilter
    position: Position
    limit: int
    max_scanned: int
    deadline: float
    collected: list = field(default_factory=list)
    scanned: int = 0
    capped: bool = False
    not_json: int = 0
    matched: int = 0
    by_due: bool = False
    counts: bool = False  # count what matches, and find none
    last: Any = None  # the last chunk's first row, which has the clock even if nothing was found
    conditions: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.conditions = matching.parameters(self.filter)

    def run(self) -> Steps:
        beyond, beyond_due = self.position.number, self.position.due
        narrow = bool(self.filter) or self.tab.locked is not None or self.counts
        chunk = SCAN_CHUNK if narrow else self.limit + 1
        while True:
            rows = yield call(
                "read_messages", **self._parameters(beyond, beyond_due, min(chunk, self.max_scanned - self.scanned))
            )
            if not rows:
                return  # the entity was deleted
            self.last = rows[0]
            self.scanned += self.last.scanned
            self.not_json += self.last.not_json
            self.matched += self.last.matched
            self.collected += [row for row in rows if row.sequence_number is not None]
            if (len(self.collected) > self.limit and not self.counts) or self.last.at_end:
                return
            beyond, beyond_due = self.last.last_scanned, self.last.last_due
            if self.scanned >= self.max_scanned or time.monotonic() >= self.deadline:
                self.capped = True
                return

    def _parameters(self, beyond: int, beyond_due: datetime | None, max_scanned: int) -> dict[str, Any]:
        return {
            "entity_id": self.entity_id, "subqueue": int(self.tab.subqueue),
            "list_states": [int(state) for state in self.tab.states],
            "locked": self.tab.locked, "descending": self.position.downwards, "beyond": beyond,
            "by_due": self.by_due, "beyond_due": beyond_due,
            "max_scanned": max_scanned, "max_bytes": SCAN_BYTES,
            "max_count": 0 if self.counts else self.limit + 1 - len(self.collected),
            **self.conditions,
        }  # fmt: skip

    def _cursor(self, side: str, number: int, due: datetime | None) -> str:
        return f"{side}-{number}" + (f"-{microseconds(due)}" if self.by_due and due else "")

    @property
    def met_the_start(self) -> bool:
        """Whether paging back found less than a page, so that the first page should be shown instead."""
        return self.position.backwards and len(self.collected) <= self.limit and not self.capped

    def page(self) -> Page[MessageRow]:
        rows, more = self.collected[: self.limit], len(self.collected) > self.limit
        backward, forward = ("above", "below") if self.position.downwards else ("below", "above")
        next_cursor = previous_cursor = None
        if more:
            next_cursor = self._cursor(forward, rows[-1].sequence_number, rows[-1].scheduled_enqueue_at)
        elif self.capped:
            next_cursor = self._cursor(forward, self.last.last_scanned, self.last.last_due)
        if rows and not self.position.is_end:
            previous_cursor = self._cursor(backward, rows[0].sequence_number, rows[0].scheduled_enqueue_at)
        if self.position.backwards:
            rows, next_cursor, previous_cursor = rows[::-1], previous_cursor, next_cursor
        return Page(
            tuple(map(message_row, rows)),
            next_cursor,
            previous_cursor,
            self.scanned,
            self.capped,
            clock_of(self.last),
            self.not_json,
        )


def message_row(row: Any) -> MessageRow:
    """The MessageRow of a row with the columns of `clock_columns` and `message_columns`."""
    address = EntityAddress(row.namespace_name, row.path, SubQueue(row.subqueue))
    family = Family(row.family)
    may_expire = row.subqueue == SubQueue.MAIN and row.state != MessageState.SCHEDULED  # time-to-live starts when active
    expires_at = definition_of(family).life_ends_at(row.expires_at, row.enqueued_at, row.default_message_time_to_live)
    return MessageRow(
        entity_id=row.entity_id,
        address=address,
        sequence_number=row.sequence_number,
        state=MessageState(row.state),
        message_id=row.message_id,
        session_id=row.session_id,
        subject=row.subject,
        correlation_id=row.correlation_id,
        content_type=row.content_type,
        size=row.size,
        delivery_count=row.delivery_count,
        max_delivery_count=row.max_delivery_count,
        enqueued_at=row.enqueued_at,
        expires_at=expires_at if may_expire else None,
        expires_by_default=may_expire and expires_at != row.expires_at,
        scheduled_enqueue_at=row.scheduled_enqueue_at,
        locked_until=row.locked_until,
        locked_by=row.locked_by,
        lock_token=row.lock_token,
        first_received_at=row.first_received_at,
        last_received_at=row.last_received_at,
        dead_letter_reason=row.dead_letter_reason,
        dead_letter_description=row.dead_letter_description,
        dead_lettered_at=row.dead_lettered_at,
        read_at=row.now,
        family=family,
        visible_at=row.visible_at,
        hold_kind=row.hold_kind,
        held_since=row.held_since,
        renewals=row.renewals or 0,
        owner_id=row.owner_id,
        priority=row.priority,
        deliveries_before=row.deliveries_before,
    )


def _detail(row: Any) -> MessageDetail:
    return MessageDetail(
        row=message_row(row),
        broker_properties=row.properties or {},
        application_properties=pairs(row.application_properties),
        time_to_live=row.time_to_live,
        dead_letter_source=row.dead_letter_source,
        enqueued_sequence_number=row.enqueued_sequence_number,
        resubmitted_from=row.resubmitted_from,
        body_kind=BodyKind(row.body_kind),
        body_size=row.body_size,
        clock=clock_of(row),
        transfer=row.transfer or {},
        encoded=row.encoded,
        version=row.version,
    )
