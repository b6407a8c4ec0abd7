"""What a person or a program asks without changing anything: lists, counts, search, timelines, health.

Nothing here counts as activity (SB-190): looking at a queue does not keep it from being deleted when idle. Every function takes
an `actor` and needs Right.BROWSE; what shows bodies needs Right.SEE_BODIES as well. State follows from the clock of the namespace
(D5, D6): each answer carries the instant it is true for. What is capped says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

from .semantics import explaining
from .semantics import standing as standings
from .semantics.errors import EntityNotFound, InvalidArgument
from .semantics.filters import Rule, rule_from_json
from .semantics.standing import Standing
from .semantics.types import (
    TERMINAL_KINDS,
    Actor,
    BodyKind,
    EntityAddress,
    EntityKind,
    EntityStatus,
    EventKind,
    ExpiryMode,
    HistoryLevel,
    MessageState,
    Right,
    SubQueue,
)
from .store.driver import use_case
from .store.statements import call

PAGE_ROWS = 50
SCAN_ROWS = 200_000  # a search looks at no more rows than this, nor longer than that; it says so where it stopped
SCAN_SECONDS = 1.0
SCAN_CHUNK = 5_000
EXPIRED_CAP = 1_000  # for one entity; a line among many counts no further than the next
EXPIRED_CAP_OF_MANY = 100
FOUND_CAP = 100
TIMELINE_EVENTS = 1_000  # of one message; a lock renewed for days has more, then the newest are shown
TIMELINE_MESSAGES = 20  # numbers that one message had, by schedules and resubmissions
BODY_BYTES = 256 * 1024
PLACE_CAP = 1_000  # messages counted before one that is explained, among at most so many rows
PLACE_ROWS = 5_000
SESSION_MESSAGES_CAP = 1_000
STATE_BYTES = 200  # of a session's state, in a list

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Clock:
    """A namespace's clock as read at one instant.

    now:  by this clock; real_now: by the database's. rate: its seconds per real second; 0 where it is paused.
    is_manual: whether it is anything but the database's clock.
    """

    now: datetime
    real_now: datetime
    rate: float
    is_manual: bool

    @property
    def is_paused(self) -> bool:
        return self.rate == 0


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace. entities: how many it has now, hidden ones included. is_system: Vitrine's own."""

    id: int
    name: str
    description: str
    is_system: bool
    created_at: datetime
    entities: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of one entity by list and state, exact at `read_at`, from the ledger (D9).

    active:   in the main queue, locked ones and those expired but not yet taken away included (SB-031, SB-923).
    locked:   of these, how many are locked at `read_at`. deferred and scheduled are not in `active`.
    deferred_locked, dead_letter_locked: of the deferred and of the dead-lettered ones, how many are locked.
    """

    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer_dead_letter: int = 0
    deferred_locked: int = 0
    dead_letter_locked: int = 0
    read_at: datetime | None = None

    @property
    def total(self) -> int:
        return self.active + self.deferred + self.scheduled + self.dead_letter + self.transfer_dead_letter


@dataclass(frozen=True, slots=True)
class Capped:
    """A number that was counted no further than a cap. str() is "5,000+" where it was."""

    value: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}{'+' if self.capped else ''}"

    def __bool__(self) -> bool:
        return self.value > 0


@dataclass(frozen=True, slots=True)
class EntityRow:
    """One line of the overview.

    expired_pending:   expired messages that no sweep or receive has taken away yet (state "expired, pending").
    size_bytes:        stored bytes of all its messages, dead letters included.
    sent_rate, completed_rate: messages per second over the last minute (database's clock).
    oldest_active_at:  when the oldest message of the main queue was enqueued; None: it has none.
    consumers_waiting: whether a receive is waiting on it now.
    last_receive_at:   the last receive that a client made, to some seconds; None: never.
    subscriptions:     how many a topic has. rules: how many a subscription has. topic_id: a subscription's topic.
    forward_to:        the path of the entity that all its messages go on to; None: they stay.
    """

    id: int
    address: EntityAddress
    kind: EntityKind
    family: str
    status: EntityStatus
    hidden: bool
    history_level: HistoryLevel
    counts: Counts
    expired_pending: Capped
    size_bytes: int
    sent_rate: float
    completed_rate: float
    oldest_active_at: datetime | None
    consumers_waiting: bool
    last_receive_at: datetime | None
    clock: Clock
    topic_id: int | None = None
    subscriptions: int = 0
    rules: int = 0
    requires_session: bool = False
    forward_to: str | None = None

    @property
    def holds_messages(self) -> bool:
        """Whether there is something to receive here; a topic keeps scheduled messages alone."""
        return self.kind != EntityKind.TOPIC

    @property
    def oldest_active_age(self) -> timedelta | None:
        """By the namespace's clock; None where there is no active message."""
        return None if self.oldest_active_at is None else self.clock.now - self.oldest_active_at


class Tab(StrEnum):
    """The lists of the queue page. ACTIVE holds the locked ones too; LOCKED shows them alone."""

    ACTIVE = "active"
    LOCKED = "locked"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"

    @property
    def subqueue(self) -> SubQueue:
        return _TAB_LISTS[self][0]

    @property
    def state(self) -> MessageState:
        return _TAB_LISTS[self][1]


_TAB_LISTS = {
    Tab.ACTIVE: (SubQueue.MAIN, MessageState.ACTIVE),
    Tab.LOCKED: (SubQueue.MAIN, MessageState.ACTIVE),
    Tab.DEFERRED: (SubQueue.MAIN, MessageState.DEFERRED),
    Tab.SCHEDULED: (SubQueue.MAIN, MessageState.SCHEDULED),
    Tab.DEAD_LETTER: (SubQueue.DEAD_LETTER, MessageState.ACTIVE),
    Tab.TRANSFER_DEAD_LETTER: (SubQueue.TRANSFER_DEAD_LETTER, MessageState.ACTIVE),
}


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a list is narrowed to; what is None does not count, what is given must all hold.

    message_id, subject, correlation_id, reason: the text occurs in it, upper and lower case alike.
    body_text:      these characters, as UTF-8, occur in the body, case as given (needs Right.SEE_BODIES).
    property_name:  has an application property of exactly this name; property_value: and its text is exactly this.
    session_id:     is exactly this.
    """

    message_id: str | None = None
    body_text: str | None = None
    property_name: str | None = None
    property_value: str | None = None
    reason: str | None = None
    subject: str | None = None
    correlation_id: str | None = None
    session_id: str | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as lists show it, without its body.

    address:      the entity and the list it is in.
    read_at:      the namespace's instant at which all this is true.
    expires_at:   effective: from its own time-to-live, or from the entity's default (expires_by_default); None in a
                  dead-letter queue, where nothing expires (SB-035), and while scheduled.
    delivery_count: failed deliveries, a lock that ended unnoticed included (SB-090).
    locked_until, locked_by, lock_token: of the last lock if it was not settled; it may have ended: see `standing`. It began
                  at last_received_at, or at its last renewal.
    size:         bytes of body and properties.
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

    @property
    def subqueue(self) -> SubQueue:
        return self.address.subqueue

    @property
    def standing(self) -> Standing:
        """What a person calls its state at `read_at`."""
        return standings.standing(self, self.read_at)

    @property
    def deadline(self) -> datetime | None:
        """When the clock alone changes its standing: end of lock, schedule or life (namespace's clock); None: never."""
        return standings.next_change_at(self, self.read_at)

    @property
    def why_not_deliverable(self) -> str | None:
        """One sentence on why a receive would pass it over; None where it would not."""
        return explaining.why_not(self, self.read_at)

    @property
    def dom_id(self) -> str:
        """The id of its row in every page and live patch."""
        return f"m-{self.entity_id}-{int(self.subqueue)}-{self.sequence_number}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message is or is not delivered at `at`, the namespace's instant. reasons: the obstacles first; see explaining."""

    message: MessageRow
    reasons: tuple[explaining.Reason, ...]
    deliverable: bool
    at: datetime

    @property
    def obstacles(self) -> tuple[explaining.Reason, ...]:
        return tuple(reason for reason in self.reasons if reason.is_obstacle)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, in the list's order.

    next_cursor, previous_cursor: pass as `cursor` to turn the page; None at either end.
    scanned: rows looked at to find these; capped: looking stopped at the cap before the page was full. `next_cursor` then
             continues the search where it stopped.
    clock:   of the list's namespace, as read; None for lists over several namespaces.
    """

    rows: tuple[Row, ...]
    next_cursor: str | None
    previous_cursor: str | None
    scanned: int
    capped: bool
    clock: Clock | None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session: it has messages, or state, or somebody holds it (SB-111).

    messages:     active ones, held ones included. locked_until, locked_by, lock_token: None where nobody holds it at `read_at`.
    state_size:   bytes; None: it has no state. state: its first bytes; None also without the right to see bodies.
    """

    session_id: str
    messages: Capped
    locked_until: datetime | None
    locked_by: str | None
    lock_token: UUID | None
    state_size: int | None
    state: bytes | None
    state_updated_at: datetime | None
    read_at: datetime


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of a subscription; created_at is the database's time."""

    rule: Rule
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """All that is stored of a message but its body.

    broker_properties: reply_to, to, partition_key ... as sent, present ones only (subject, correlation_id, content_type too).
    application_properties: name -> (AMQP type, canonical text); a null has no text.
    time_to_live:     its own, as capped at enqueueing; None: the entity's default applies.
    enqueued_sequence_number: at the first entity of a forwarding chain, or of a dead letter's origin; None: as here.
    resubmitted_from: {"entity_id", "sequence_number", ...} of the dead letter it was made from; None: of none.
    body_size:        bytes of the body alone; fetch it with `body`.
    transfer:         {"hops": how often it was forwarded, "to": path it is under way to}; empty: it was sent here.
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
    clock: Clock
    transfer: Mapping = field(default_factory=dict)

    @property
    def came_from_elsewhere(self) -> bool:
        """Whether `enqueued_sequence_number` is a number that the message had before it came here."""
        first, here = self.enqueued_sequence_number, self.row.address
        return first is not None and (first != self.row.sequence_number or here.topic is not None or bool(self.transfer))


@dataclass(frozen=True, slots=True)
class Body:
    """A stretch of a message's body: `content` begins at byte `offset`; `total` bytes in all."""

    content: bytes
    offset: int
    total: int
    kind: BodyKind
    content_type: str | None

    @property
    def is_complete(self) -> bool:
        return self.offset == 0 and len(self.content) == self.total


@dataclass(frozen=True, slots=True)
class Place:
    """A number that a message had or got elsewhere. address None: its entity was deleted long ago; number None: not known."""

    entity_id: int
    address: EntityAddress | None
    sequence_number: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message (D7).

    at: the namespace's clock; recorded_at: the database's. address: the entity now; None where it was deleted long ago.
    actor: "user:alice", "key:Root", "process:worker". delivery_count: failed deliveries so far.
    The message's properties stand on its first event (sent, scheduled) alone; enqueued_at, first_received_at and
    last_received_at on its last.
    details: what only some kinds have: {"to": number}, {"from": number}, {"resubmitted_from": {...}}, {"copies": 3} ...
    other:   the message that this one became, or was made from, where `details` name one.
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
    other: Place | None = None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events: those of one entity, of some kinds, by an actor (exactly), recorded in a stretch of time, of a message."""

    entity_id: int | None = None
    kinds: Sequence[EventKind] = ()
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    message_id: str | None = None
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A message that a search over all entities found.

    is_present: it is still there, in the list that `address` names; else it is gone, and `last_kind` says how.
    last_at:    when that happened, by the namespace's clock. address None: its entity is gone, too.
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
    """What `find` found, newest first. capped: there may be more than these, or than the rows it looked at."""

    found: tuple[Found, ...]
    capped: bool


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """Messages in one stretch of time that begins at `at` (database's clock) and lasts `seconds`."""

    at: datetime
    seconds: int
    sent: int
    completed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A run of a sweep. finished_at None: still running, or its worker died. outcome: what it did, by the sweep's own names."""

    id: int
    name: str
    started_at: datetime
    finished_at: datetime | None
    outcome: Mapping
    error: str | None

    @property
    def duration(self) -> timedelta | None:
        return None if self.finished_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True)
class Health:
    """What slows everything down when it grows (D4: old snapshots are the one enemy).

    oldest_snapshot_age: how long the oldest transaction that still holds a snapshot is open; None: none is.
    oldest_snapshot_by:  who: application name, user, state and process id.
    horizon_age:         transactions since the oldest one that may still be running; vacuum and archive wait for it.
    database_bytes, message_bytes, event_bytes: on disk, indexes included.
    ledger_waiting:      count differences not yet rolled up (estimate). connections: open ones to this database.
    """

    read_at: datetime
    oldest_snapshot_age: timedelta | None
    oldest_snapshot_by: str | None
    horizon_age: int
    database_bytes: int
    message_bytes: int
    event_bytes: int
    ledger_waiting: int
    connections: int


@use_case
def namespaces(*, actor: Actor | None = None) -> list[NamespaceRow]:
    """Every namespace by name, with its clock as of now."""
    _require(actor, Right.BROWSE, "namespaces")
    rows = yield call("read_namespaces", name=None)
    return [_namespace(row) for row in rows]


@use_case
def now(namespace: str, *, actor: Actor | None = None) -> Clock:
    """The clock of one namespace. Raises EntityNotFound."""
    _require(actor, Right.BROWSE, namespace)
    rows = yield call("read_namespaces", name=namespace)
    if not rows:
        raise EntityNotFound(namespace)
    return _clock(rows[0])


@use_case
def overview(
    namespace: str | None = None, prefix: str | None = None, *, include_hidden: bool = False, actor: Actor | None = None
) -> list[EntityRow]:
    """All entities, or those of a namespace, or those whose path begins with `prefix` (without case), by namespace and path.

    A topic is followed by its subscriptions.
    """
    _require(actor, Right.BROWSE, namespace or "all namespaces")
    return (yield from _overview(namespace=namespace, prefix=prefix, hidden=include_hidden))


@use_case
def overview_of(entity_ids: Iterable[int], *, actor: Actor | None = None) -> list[EntityRow]:
    """The overview's lines of these entities alone; those deleted meanwhile are missing."""
    _require(actor, Right.BROWSE, "entities")
    return (yield from _overview(ids=list(entity_ids), hidden=True))


@use_case
def subscriptions(topic: EntityAddress, *, actor: Actor | None = None) -> list[EntityRow]:
    """The overview's lines of a topic's subscriptions, by name; hidden ones too. Raises EntityNotFound."""
    _require(actor, Right.BROWSE, topic)
    topic_id = yield from _entity_id(topic)
    return (yield from _overview(topic_id=topic_id, hidden=True))


@use_case
def entity(address: EntityAddress, *, actor: Actor | None = None) -> EntityRow:
    """The overview's line of one entity. Raises EntityNotFound."""
    _require(actor, Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    rows = yield from _overview(ids=[entity_id], hidden=True)
    if not rows:
        raise EntityNotFound(str(address))
    return rows[0]


@use_case
def counts(address: EntityAddress, *, actor: Actor | None = None) -> Counts:
    """The exact counts of one entity, at one instant. Raises EntityNotFound."""
    _require(actor, Right.BROWSE, address)
    rows = yield call("read_counts", entity_id=(yield from _entity_id(address)))
    if not rows:
        raise EntityNotFound(str(address))
    return _counts(rows[0])


@use_case
def list_messages(
    address: EntityAddress,
    tab: Tab = Tab.ACTIVE,
    *,
    filter: MessageFilter = MessageFilter(),
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    newest_first: bool = True,
    max_scanned: int = SCAN_ROWS,
    max_seconds: float = SCAN_SECONDS,
    actor: Actor | None = None,
) -> Page[MessageRow]:
    """A page of one of an entity's lists, by sequence number.

    The list is the tab's; the sub-queue of `address` does not matter. `cursor` is a page's next_cursor or previous_cursor.
    A search that finds too little looks at no more than `max_scanned` rows and starts no further chunk after `max_seconds`.
    Raises EntityNotFound, InvalidArgument for a cursor that is none, NotAuthorized for a body_text without Right.SEE_BODIES.
    """
    _require(actor, Right.BROWSE, address)
    if filter.body_text is not None:
        _require(actor, Right.SEE_BODIES, address)
    entity_id = yield from _entity_id(address)
    for position in (_Position.parse(cursor, newest_first), _Position.parse(None, newest_first)):
        search = _Search(entity_id, tab, filter, position, limit, max_scanned, time.monotonic() + max_seconds)
        yield from search.run()
        if not search.met_the_start:
            break
    if search.last is None:
        raise EntityNotFound(str(address))
    return search.page()


@use_case
def messages_by_number(entity_id: int, sequence_numbers: Iterable[int], *, actor: Actor | None = None) -> list[MessageRow]:
    """Those of these messages that are still in the entity, in whatever list, by number."""
    _require(actor, Right.BROWSE, f"entity {entity_id}")
    rows = yield call("read_messages_by_number", entity_id=entity_id, numbers=list(sequence_numbers))
    return [_message(row) for row in rows]


@use_case
def sessions(
    address: EntityAddress,
    *,
    part: str | None = None,
    holder: str | None = None,
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    actor: Actor | None = None,
) -> Page[SessionRow]:
    """Sessions of an entity by id, from the one after `cursor`. Pages go forward only.

    part: those whose id contains it. holder: those held by whom a lock names so. Raises EntityNotFound.
    """
    actor = actor or Actor.local()
    actor.require(Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    rows = yield call(
        "read_sessions", entity_id=entity_id, after=cursor, part=part or None, holder=holder, max_count=limit + 1,
        message_cap=SESSION_MESSAGES_CAP, state_bytes=STATE_BYTES,
    )  # fmt: skip
    may_see = Right.SEE_BODIES in actor.rights
    found = tuple(_session(row, may_see) for row in rows[:limit])
    return Page(found, found[-1].session_id if len(rows) > limit else None, None, len(rows), False, None)


@use_case
def rules_of(subscription_ids: Iterable[int], *, actor: Actor | None = None) -> dict[int, list[RuleRow]]:
    """The rules of subscriptions by the subscriptions' ids, each list by name; those without a rule are missing."""
    _require(actor, Right.BROWSE, "rules")
    rows = yield call("read_rules", ids=list(subscription_ids))
    found: dict[int, list[RuleRow]] = {}
    for row in rows:
        stored = {"name": row.name, "filter": row.filter, "action": row.action}
        found.setdefault(row.subscription_id, []).append(RuleRow(rule_from_json(stored), row.created_at))
    return found


@use_case
def message(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> MessageDetail | None:
    """One message, in whatever list of the entity it is now; None: it is gone, or never was (see `timeline`).

    Raises EntityNotFound.
    """
    _require(actor, Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    rows = yield call("read_message", entity_id=entity_id, sequence_number=sequence_number)
    return _detail(rows[0]) if rows else None


@use_case
def explain(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> Explanation | None:
    """Why a message is or is not delivered now, in whatever list of the entity it is; None: it is gone, or never was.

    All facts are read in one snapshot. `deliverable` says whether a receive from its list may return it: of a session that
    nobody holds, once the session is accepted. Raises EntityNotFound.
    """
    _require(actor, Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    while lists := (yield call("read_list_of", entity_id=entity_id, sequence_number=sequence_number)):
        rows = yield call(
            "explain_message", entity_id=entity_id, subqueue=lists[0].subqueue, sequence_number=sequence_number,
            place_cap=PLACE_CAP, scan_cap=PLACE_ROWS,
        )  # fmt: skip
        if rows:  # else it went to another list meanwhile
            return _explanation(rows[0])
    return None


@use_case
def body(
    address: EntityAddress, sequence_number: int, *, offset: int = 0, length: int = BODY_BYTES, actor: Actor | None = None
) -> Body | None:
    """At most `length` bytes of a message's body from byte `offset` on; None: the message is gone.

    Raises EntityNotFound; NotAuthorized without Right.SEE_BODIES.
    """
    _require(actor, Right.BROWSE | Right.SEE_BODIES, address)
    if offset < 0 or length < 0:
        raise InvalidArgument("range", "offset and length are numbers of bytes, not negative")
    entity_id = yield from _entity_id(address)
    rows = yield call("read_body", entity_id=entity_id, sequence_number=sequence_number, offset=offset, length=length)
    if not rows:
        return None
    [row] = rows
    return Body(bytes(row.content), offset, row.total, BodyKind(row.body_kind), row.content_type)


@use_case
def timeline(entity_id: int, sequence_number: int, *, actor: Actor | None = None) -> list[Event]:
    """All that happened to a message, oldest first, also when it is gone; empty: nothing is known (or no longer).

    Numbers that it had before or got later, by a schedule's activation or a resubmission, are followed, so an event may carry
    another entity and number than asked for.
    """
    _require(actor, Right.BROWSE, f"entity {entity_id}")
    wanted, seen, found = [(entity_id, sequence_number)], set(), []
    while wanted and len(seen) < TIMELINE_MESSAGES:
        place = wanted.pop()
        seen.add(place)
        rows = yield call("read_message_events", entity_id=place[0], sequence_number=place[1], max_count=TIMELINE_EVENTS)
        found += rows
        links = {link for row in rows if (link := _link(row)) and link[1] is not None}
        wanted += links - seen - set(wanted)
    names = yield from _names_in(found)
    return [_event(row, names) for row in sorted(found, key=lambda row: row.event_id)]


@use_case
def events(
    filter: EventFilter = EventFilter(), *, cursor: str | None = None, limit: int = PAGE_ROWS, actor: Actor | None = None
) -> Page[Event]:
    """The newest events that match, among the newest SCAN_ROWS (or what SCAN_SECONDS allow). Pages go back in time only."""
    _require(actor, Right.BROWSE, "events")
    return (yield from _events(filter, cursor, limit))


@use_case
def gone(address: EntityAddress, *, cursor: str | None = None, limit: int = PAGE_ROWS, actor: Actor | None = None) -> Page[Event]:
    """The last events of messages that left the entity, newest first: completed, expired, purged ... Raises EntityNotFound."""
    _require(actor, Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    return (yield from _events(EventFilter(entity_id=entity_id, kinds=tuple(TERMINAL_KINDS)), cursor, limit))


@use_case
def find(text: str, *, actor: Actor | None = None) -> SearchResult:
    """Messages with exactly this message id, in all entities, also those that are gone but within the events' retention."""
    _require(actor, Right.BROWSE, "all namespaces")
    text = text.strip()
    if not text:
        return SearchResult((), False)
    in_events = yield call("read_find_in_events", message_id=text, max_count=FOUND_CAP)
    rows = yield call("read_find_in_messages", message_id=text, max_scanned=SCAN_ROWS, max_count=FOUND_CAP)
    in_table, capped = [row for row in rows if row.sequence_number is not None], rows[0].scanned >= SCAN_ROWS
    places = [(row.entity_id, row.sequence_number) for row in in_events]
    rows = yield call("read_present", entity_ids=[e for e, _ in places], numbers=[n for _, n in places])
    present = {(row.entity_id, row.sequence_number): SubQueue(row.subqueue) for row in [*rows, *in_table]}
    names = yield from _names({entity for entity, _ in [*places, *present]})
    told = [_found(row, row, present, names) for row in in_events]
    untold = [row for row in in_table if (row.entity_id, row.sequence_number) not in set(places)]
    told += [_found(row, None, present, names) for row in untold]
    return SearchResult(tuple(told), capped or len(in_events) >= FOUND_CAP or len(in_table) >= FOUND_CAP)


@use_case
def traffic(address: EntityAddress, minutes: int = 15, *, actor: Actor | None = None) -> list[TrafficPoint]:
    """What passed through the entity in the last minutes, at most 180 equal stretches of whole 10 s, oldest first, none missing.

    Raises EntityNotFound.
    """
    _require(actor, Right.BROWSE, address)
    entity_id = yield from _entity_id(address)
    step = -(-minutes * 60 // 180 // 10) * 10 or 10
    end = int(time.time()) // step * step
    begin = end - minutes * 60 // step * step + step
    rows = yield call("read_traffic", entity_id=entity_id, step=step, since=datetime.fromtimestamp(begin, UTC))
    known = {row.at: row for row in rows}
    starts = (datetime.fromtimestamp(at, UTC) for at in range(begin, end + step, step))
    return [_traffic_point(at, step, known.get(at)) for at in starts]


@use_case
def sweep_runs(name: str | None = None, limit: int = PAGE_ROWS, *, actor: Actor | None = None) -> list[SweepRun]:
    """The newest runs of one sweep or of all, newest first."""
    _require(actor, Right.BROWSE, "sweeps")
    rows = yield call("read_sweep_runs", name=name, max_count=limit)
    return [_sweep_run(row) for row in rows]


@use_case
def last_sweep_runs(*, actor: Actor | None = None) -> dict[str, SweepRun]:
    """The newest run of each sweep that ever ran, by name."""
    _require(actor, Right.BROWSE, "sweeps")
    rows = yield call("read_last_sweep_runs")
    return {row.name: _sweep_run(row) for row in rows}


@use_case
def health(*, actor: Actor | None = None) -> Health:
    """How the database fares."""
    _require(actor, Right.BROWSE, "health")
    [row] = yield call("read_health")
    return Health(**row._asdict())


def _require(actor: Actor | None, right: Right, what: EntityAddress | str) -> None:
    (actor or Actor.local()).require(right, what)


def _entity_id(address: EntityAddress):
    rows = yield call("read_entity_id", namespace=address.namespace, path=address.path)
    if not rows:
        raise EntityNotFound(str(address))
    return rows[0].id


def _names(entity_ids: Iterable[int]):
    """Addresses of entities by id, deleted ones included as long as their row is kept."""
    rows = yield call("read_entity_names", ids=list(entity_ids))
    return {row.id: EntityAddress(row.namespace_name, row.path) for row in rows}


def _overview(
    *,
    ids: list[int] | None = None,
    namespace: str | None = None,
    prefix: str | None = None,
    topic_id: int | None = None,
    hidden: bool,
):
    cap = EXPIRED_CAP if ids is not None and len(ids) == 1 else EXPIRED_CAP_OF_MANY
    rows = yield call(
        "read_overview", ids=ids, namespace=namespace, prefix=prefix, topic_id=topic_id, hidden=hidden, expired_cap=cap
    )
    return [_entity(row, cap) for row in rows]


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page begins. number: exclusive bound. downwards: towards lower numbers. backwards: against the list's order."""

    number: int
    downwards: bool
    backwards: bool

    @classmethod
    def parse(cls, cursor: str | None, newest_first: bool) -> _Position:
        """Cursors read "below-7" and "above-7", so that they mean the same in both orders."""
        if cursor is None:
            return cls(2**63 - 1 if newest_first else -1, newest_first, False)
        side, _, number = cursor.partition("-")
        if side not in ("below", "above") or not number.isdecimal() or len(number) > 18:
            raise InvalidArgument("cursor", f"{cursor!r} is none that a page named")
        return cls(int(number), side == "below", (side == "below") != newest_first)


@dataclass(slots=True)
class _Search:
    """Looks through a list in chunks until a page and one row more is found, or a cap is reached."""

    entity_id: int
    tab: Tab
    filter: MessageFilter
    position: _Position
    limit: int
    max_scanned: int
    deadline: float
    found: list = field(default_factory=list)
    scanned: int = 0
    capped: bool = False
    last: Any = None  # the last answer's row; it has the clock also where nothing was found

    def run(self):
        beyond, narrow = self.position.number, bool(self.filter) or self.tab == Tab.LOCKED
        chunk = SCAN_CHUNK if narrow else self.limit + 1
        while True:
            asked = min(chunk, self.max_scanned - self.scanned)
            rows = yield call("read_messages", **self._parameters(beyond, asked))
            if not rows:
                return  # no such entity any more
            self.last = rows[0]
            self.scanned += self.last.scanned
            self.found += [row for row in rows if row.sequence_number is not None]
            if len(self.found) > self.limit or self.last.scanned < asked:
                return
            beyond = self.last.last_scanned
            if self.scanned >= self.max_scanned or time.monotonic() >= self.deadline:
                self.capped = True
                return

    def _parameters(self, beyond: int, asked: int) -> dict[str, Any]:
        f = self.filter
        return {
            "entity_id": self.entity_id, "subqueue": int(self.tab.subqueue), "state": int(self.tab.state),
            "locked_only": self.tab == Tab.LOCKED, "descending": self.position.downwards, "beyond": beyond,
            "max_scanned": asked, "max_count": self.limit + 1 - len(self.found),
            "message_id": f.message_id, "subject": f.subject, "correlation_id": f.correlation_id, "reason": f.reason,
            "session_id": f.session_id, "property_name": f.property_name, "property_value": f.property_value,
            "body_text": None if f.body_text is None else f.body_text.encode(),
        }  # fmt: skip

    @property
    def met_the_start(self) -> bool:
        """Whether paging back found less than a page: then the first page is what is wanted."""
        return self.position.backwards and len(self.found) <= self.limit and not self.capped

    def page(self) -> Page[MessageRow]:
        rows, more = self.found[: self.limit], len(self.found) > self.limit
        onward = rows[-1].sequence_number if more else self.last.last_scanned if self.capped else None
        first = rows[0].sequence_number if rows else None
        came_from = None if self.position.number in (2**63 - 1, -1) else first
        back, forth = ("above", "below") if self.position.downwards else ("below", "above")
        cursors = [None if onward is None else f"{forth}-{onward}", None if came_from is None else f"{back}-{came_from}"]
        if self.position.backwards:
            rows, cursors = rows[::-1], cursors[::-1]
        return Page(tuple(map(_message, rows)), *cursors, self.scanned, self.capped, _clock(self.last))


def _events(filter: EventFilter, cursor: str | None, limit: int):
    below, found, scanned, capped = _event_cursor(cursor), [], 0, False
    deadline = time.monotonic() + SCAN_SECONDS
    while len(found) <= limit:
        rows = yield call(
            "read_events", below_xid=below[0], below_event=below[1], max_scanned=SCAN_CHUNK, max_count=limit + 1 - len(found),
            since=filter.since, until=filter.until, entity_id=filter.entity_id, kinds=[int(k) for k in filter.kinds] or None,
            actor=filter.actor, message_id=filter.message_id, sequence_number=filter.sequence_number,
        )  # fmt: skip
        scanned += rows[0].scanned
        found += [row for row in rows if row.event_id is not None]
        if rows[0].scanned < SCAN_CHUNK:
            break
        below = (rows[0].last_xid, rows[0].last_event)
        if len(found) <= limit and (scanned >= SCAN_ROWS or time.monotonic() >= deadline):
            capped = True
            break
    names = yield from _names_in(found[:limit])
    last = found[limit - 1] if len(found) > limit else None
    onward = f"{last.xid}-{last.event_id}" if last else "-".join(map(str, below)) if capped else None
    return Page(tuple(_event(row, names) for row in found[:limit]), onward, None, scanned, capped, None)


def _event_cursor(cursor: str | None) -> tuple[str, int]:
    if cursor is None:
        return str(2**64 - 1), 2**63 - 1
    xid, _, event = cursor.partition("-")
    if not (xid.isdecimal() and event.isdecimal() and len(xid) < 20 and len(event) < 19):
        raise InvalidArgument("cursor", f"{cursor!r} is none that a page named")
    return xid, int(event)


def _link(row: Any) -> tuple[int, int | None] | None:
    """The message that an event says this one became, or was made from: (entity, number)."""
    details = row.details or {}
    named = next((details[name] for name in ("to", "from", "resubmitted_from", "published_from") if details.get(name)), None)
    if isinstance(named, int):
        return row.entity_id, named
    if not isinstance(named, dict):
        return None
    entity_id = named.get("entity", named.get("entity_id", row.entity_id))
    return entity_id, named.get("sequence_number")


def _names_in(events: Sequence[Any]):
    """The addresses that events need: their own entities' and those of the messages they name."""
    named = {link[0] for row in events if (link := _link(row))}
    return (yield from _names({row.entity_id for row in events} | named))


def _clock(row: Any) -> Clock:
    return Clock(row.now, row.real_now, row.rate, row.is_manual)


def _namespace(row: Any) -> NamespaceRow:
    return NamespaceRow(row.id, row.name, row.description, row.is_system, row.created_at, row.entities, _clock(row))


def _counts(row: Any) -> Counts:
    return Counts(
        *map(int, (row.active, row.locked, row.deferred, row.scheduled, row.dead_letter, row.transfer_dead_letter)),
        int(row.deferred_locked),
        int(row.dead_letter_locked),
        row.now,
    )


def _entity(row: Any, expired_cap: int) -> EntityRow:
    return EntityRow(
        id=row.id,
        address=EntityAddress(row.namespace_name, row.path),
        kind=EntityKind(row.kind),
        family=row.family,
        status=EntityStatus(row.status),
        hidden=row.hidden,
        history_level=HistoryLevel(row.history_level),
        counts=_counts(row),
        expired_pending=Capped(min(row.expired_pending, expired_cap), row.expired_pending > expired_cap),
        size_bytes=int(row.size_bytes),
        sent_rate=float(row.sent_rate),
        completed_rate=float(row.completed_rate),
        oldest_active_at=row.oldest_active_at,
        consumers_waiting=row.consumers_waiting,
        last_receive_at=row.last_receive_at,
        clock=_clock(row),
        topic_id=row.topic_id,
        subscriptions=row.subscriptions,
        rules=row.rules,
        requires_session=row.requires_session,
        forward_to=row.forward_to,
    )


def _message(row: Any) -> MessageRow:
    address = EntityAddress(row.namespace_name, row.path, SubQueue(row.subqueue))
    default = row.default_message_time_to_live
    may_expire = row.subqueue == SubQueue.MAIN and row.state != MessageState.SCHEDULED  # a scheduled one's life has not begun
    by_default = row.expires_at is None and default is not None and may_expire
    expires_at = row.enqueued_at + default if by_default else row.expires_at
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
        expires_by_default=by_default,
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
    )


def _session(row: Any, may_see_state: bool) -> SessionRow:
    return SessionRow(
        session_id=row.session_id,
        messages=Capped(min(row.messages, SESSION_MESSAGES_CAP), row.messages > SESSION_MESSAGES_CAP),
        locked_until=row.locked_until,
        locked_by=row.locked_by,
        lock_token=row.lock_token,
        state_size=row.state_size,
        state=bytes(row.state) if may_see_state and row.state is not None else None,
        state_updated_at=row.state_updated_at,
        read_at=row.now,
    )


def _detail(row: Any) -> MessageDetail:
    return MessageDetail(
        row=_message(row),
        broker_properties=row.properties or {},
        application_properties=_pairs(row.application_properties),
        time_to_live=row.time_to_live,
        dead_letter_source=row.dead_letter_source,
        enqueued_sequence_number=row.enqueued_sequence_number,
        resubmitted_from=row.resubmitted_from,
        body_kind=BodyKind(row.body_kind),
        body_size=row.body_size,
        clock=_clock(row),
        transfer=row.transfer or {},
    )


def _explanation(row: Any) -> Explanation:
    message = _message(row)
    entity = explaining.EntityFacts(
        EntityKind(row.kind),
        EntityStatus(row.status),
        row.requires_session,
        row.forward_to,
        row.forward_dead_lettered_messages_to,
        row.dead_lettering_on_message_expiration,
        ExpiryMode(row.expiry_mode),
        (row.transfer or {}).get("to"),
    )
    session = None
    if row.in_session and row.session_id is not None:
        session = explaining.SessionFacts(
            row.session_id, row.session_locked_until, row.session_locked_by, row.expired_number, row.expired_at
        )
    place = explaining.Place(min(row.before, PLACE_CAP), row.before > PLACE_CAP or row.walked >= PLACE_ROWS)
    reasons = explaining.explain(message, entity, row.now, session=session, place=place)
    return Explanation(message, tuple(reasons), explaining.is_deliverable(reasons), row.now)


def _event(row: Any, names: Mapping[int, EntityAddress]) -> Event:
    address, link = names.get(row.entity_id), _link(row)
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
        application_properties=_pairs(row.application_properties),
        details=row.details or {},
        other=link and Place(link[0], names.get(link[0]), link[1]),
    )


def _found(row: Any, event: Any, present: Mapping, names: Mapping) -> Found:
    entity_id, number = row.entity_id, row.sequence_number
    subqueue, address = present.get((entity_id, number)), names.get(entity_id)
    if address is not None and subqueue is not None:
        address = EntityAddress(address.namespace, address.path, subqueue)
    told = (EventKind(event.last_kind), event.last_at, event.reason) if event else (None, None, None)
    return Found(entity_id, address, number, row.message_id, subqueue is not None, *told)


def _pairs(stored: Mapping[str, list] | None) -> dict[str, tuple[str, str | None]]:
    return {name: (kind, text) for name, (kind, text) in (stored or {}).items()}


def _traffic_point(at: datetime, step: int, row: Any) -> TrafficPoint:
    counted = (row.sent, row.completed, row.dead_lettered) if row else (0, 0, 0)
    return TrafficPoint(at, step, *(int(n or 0) for n in counted))


def _sweep_run(row: Any) -> SweepRun:
    return SweepRun(row.id, row.name, row.started_at, row.finished_at, row.outcome or {}, row.error or None)
