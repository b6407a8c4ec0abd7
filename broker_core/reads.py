"""What a person or a program asks without changing anything: lists, counts, search, timelines, health.

Nothing here counts as activity (SB-190): looking at a queue does not keep it from being deleted when idle. Every function takes an
`actor` and needs Right.BROWSE; what shows bodies needs Right.SEE_BODIES as well. State follows from the clock of the namespace
(D5, D6): each answer carries the instant it is true for. What is capped says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

from .semantics import standing as rules
from .semantics.standing import Standing
from .semantics.types import (
    BodyKind,
    EntityAddress,
    EntityStatus,
    EventKind,
    MessageState,
    SubQueue,
)

PAGE_ROWS = 50
SCAN_ROWS = 200_000
SCAN_SECONDS = 1.0

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
    """

    id: int
    address: EntityAddress
    kind: str
    family: str
    status: EntityStatus
    hidden: bool
    counts: Counts
    expired_pending: Capped
    size_bytes: int
    sent_rate: float
    completed_rate: float
    oldest_active_at: datetime | None
    consumers_waiting: bool
    last_receive_at: datetime | None
    clock: Clock

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
                  dead-letter queue, where nothing expires (SB-035).
    delivery_count: failed deliveries, a lock that ended unnoticed included (SB-090).
    locked_until, locked_by, locked_at, lock_token: of the last lock if it was not settled; it may have ended: see `standing`.
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
    locked_at: datetime | None
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
        return rules.standing(self, self.read_at)

    @property
    def deadline(self) -> datetime | None:
        """When the clock alone changes its standing: end of lock, schedule or life (namespace's clock); None: never."""
        return rules.next_change_at(self, self.read_at)

    @property
    def why_not_deliverable(self) -> str | None:
        """One sentence on why a receive would pass it over; None where it would not."""
        return rules.why_not_deliverable(self, self.read_at, locked_by=self.locked_by)

    @property
    def dom_id(self) -> str:
        """The id of its row in every page and live patch."""
        return f"m-{self.entity_id}-{int(self.subqueue)}-{self.sequence_number}"


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, in the list's order.

    next_cursor, previous_cursor: pass as `cursor` to turn the page; None at either end.
    scanned: rows looked at to find these; capped: looking stopped at the cap before the page was full. `next_cursor` then
             continues the search where it stopped.
    """

    rows: tuple[Row, ...]
    next_cursor: str | None
    previous_cursor: str | None
    scanned: int
    capped: bool
    clock: Clock


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """All that is stored of a message but its body.

    broker_properties: reply_to, to, partition_key ... as sent, present ones only (subject, correlation_id, content_type too).
    application_properties: name -> (AMQP type, canonical text); a null has no text.
    time_to_live:     its own, as capped at enqueueing; None: the entity's default applies.
    enqueued_sequence_number: at the first entity of a forwarding chain, or of a dead letter's origin; None: as here.
    resubmitted_from: {"entity_id", "sequence_number", ...} of the dead letter it was made from; None: of none.
    body_size:        bytes of the body alone; fetch it with `body`.
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
class Event:
    """One thing that happened to a message (D7).

    at: the namespace's clock; recorded_at: the database's. address: the entity now; None where it was deleted long ago.
    actor: "user:alice", "key:Root", "process:worker". delivery_count: failed deliveries so far.
    The message's properties stand on its first event (sent, scheduled) alone; enqueued_at, first_received_at and
    last_received_at on its last.
    details: what only some kinds have: {"to": number}, {"from": number}, {"resubmitted_from": {...}} ...
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


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events: those of one entity, of some kinds, by an actor (exact), in a stretch of the database's time, of a message."""

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
